"""Verifiers that misbehave for real, for tests of the pool; the response says how."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from brorl.group import Outcome, Prompt
from brorl.verifiers.score import Score


def obey(prompt: Prompt, response: str) -> Score:
    """Do what the response says; anything unknown is compared with the reference answer."""
    match response.split(":")[0]:
        case "loop":
            while True:
                pass
        case "hold-gil":
            return _score(9**9**9 == 1)  # one C call that never returns to the interpreter
        case "sleep":
            time.sleep(float(response.split(":")[1]))
        case "memory":
            hoard = [bytearray(1 << 24) for _ in range(1 << 16)]
            return _score(bool(hoard))
        case "exit":
            os._exit(0)
        case "sys-exit":
            sys.exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "recursion":
            return obey(prompt, response)
        case "flood":
            for stream in (sys.stdout, sys.stderr):
                stream.write("x" * (1 << 22))
            os.write(1, b"y" * (1 << 20))
        case "scribble":
            for fd in range(3, 64):
                try:
                    os.write(fd, b"\xff" * 64)
                except OSError:
                    continue
        case "child":
            child = subprocess.Popen(["sleep", "600"])
            Path(prompt.meta["file"]).write_text(str(child.pid))
            time.sleep(600)
        case "raise":
            raise ValueError("bad response")
        case "once":
            marker = Path(prompt.meta["file"])
            if not marker.exists():
                marker.write_text("seen")
                os._exit(9)
        case "count":
            with open(prompt.meta["file"], "a") as log:
                log.write("x")
        case "pid":
            return Score(outcome=Outcome.WRONG, reward=0.0, extracted=str(os.getpid()))
        case "imported":
            return _score(response.split(":")[1] in sys.modules)
    return _score(response == prompt.answer)


def always_raises(prompt: Prompt, response: str) -> Score:
    """Broken whatever the response."""
    raise KeyError("column")


def always_hangs(prompt: Prompt, response: str) -> Score:
    """Waits for a service that never answers, whatever the response."""
    time.sleep(600)
    return _score(True)


def always_crashes(prompt: Prompt, response: str) -> Score:
    """Ends its process, whatever the response."""
    os._exit(5)


def broken_parts(prompt: Prompt, response: str) -> Score:
    """Broken whatever the response, and only where its score is sent back."""
    parts: Any = {"length": "a text"}
    return Score(outcome=Outcome.CORRECT, reward=1.0, parts=parts)


def rewards_as_told(prompt: Prompt, response: str) -> Score:
    """The reward that a response names."""
    outcome, reward = response.split()
    return Score(outcome=Outcome[outcome], reward=float(reward))


def not_a_score(prompt: Prompt, response: str) -> float:
    """A plain number, which is allowed."""
    return 0.25


def trl_length(completions: list[str], answer: list[str], **columns: Any) -> list[float | None]:
    """In TRL's style: 1 where the answer is contained, None where the row says so."""
    assert set(columns) >= {"prompts"}
    if columns.get("skip", [False])[0]:
        return [None for _ in completions]
    return [float(a in c) for c, a in zip(completions, answer, strict=True)]


def trl_chat(prompts: list[Any], completions: list[list[dict[str, str]]]) -> list[float]:
    """In TRL's style for conversations, and without **columns."""
    assert prompts[0][-1]["role"] == "user"
    return [float(completion[0]["content"] == prompts[0][-1]["content"]) for completion in completions]


def trl_solution(completions: list[str], solution: list[str], weight: list[float]) -> list[float]:
    """In TRL's style, asking for data columns by name."""
    return [w * (c == s) for c, s, w in zip(completions, solution, weight, strict=True)]


def trl_as_many_as_told(completions: list[str]) -> list[float]:
    """In TRL's style, with the wrong number of rewards."""
    return [1.0] * int(completions[0])


async def trl_async(completions: list[str], **columns: Any) -> list[float]:
    """In TRL's style, as a coroutine."""
    return [float("nan") for _ in completions]


def _score(right: bool) -> Score:
    return Score(outcome=Outcome.CORRECT if right else Outcome.WRONG, reward=float(right))
