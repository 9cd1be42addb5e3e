"""The process that grades, started and killed by `brorl.verifiers.dispatch`.

Protocol. On stdin: length-prefixed pickles, first a `Hello`, then batches `[(prompt bytes, [(item id, response)])]`.
On stdout: length-prefixed JSON, so that nothing a worker says can run code in the parent:
``["ready"]`` after start, ``["prepared"]`` when a prompt's verifier is loaded (the first deadline starts here),
``["score", id, outcome, reward, extracted, parts, seconds, note]`` after each item (the next deadline starts here).
"""

import ctypes
import json
import math
import os
import pickle
import resource
import signal
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, BinaryIO

from brorl.group import Outcome, Prompt
from brorl.verifiers.custom import preparation, resolve
from brorl.verifiers.score import Score, Verifier

_PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY = 70  # exit status
_LONGEST = 2000  # characters of `extracted` and `note` that are sent back
_LARGEST = 1e30  # absolute reward: groups hold rewards as 32-bit floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a worker must know before its first item."""

    parent: int
    """process id of the pool; a worker whose parent is another by now exits"""
    path: tuple[str, ...]
    """sys.path of the pool, so that a user's own verifier is found"""
    memory_bytes: int


class _CannotPrepare(Exception):
    """Loading a verifier failed: the infrastructure's fault, never the response's."""


def main() -> None:
    """Serve until the pool closes the pipe."""
    requests, replies = _private_pipes()
    _die_with_parent()
    hello = _receive(requests)
    if not isinstance(hello, Hello) or os.getppid() != hello.parent:
        return
    sys.path[:] = hello.path
    resource.setrlimit(resource.RLIMIT_AS, (hello.memory_bytes, hello.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _send(replies, ["ready"])
    os.dup2(1, 2)
    while (batch := _receive(requests)) is not None:
        for prompt_bytes, items in batch:
            _serve(replies, pickle.loads(prompt_bytes), items)


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the protocol away from fds 0 and 1, so that a verifier that prints or reads disturbs nobody."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb", buffering=0)


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, even by SIGKILL; elsewhere the closed pipe has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _receive(stream: BinaryIO) -> Any:
    header = stream.read(4)
    if len(header) < 4:
        return None
    return pickle.loads(stream.read(struct.unpack("<I", header)[0]))


def _send(stream: BinaryIO, message: list[Any]) -> None:
    data = json.dumps(message).encode()
    stream.write(struct.pack("<I", len(data)) + data)


def _serve(replies: BinaryIO, prompt: Prompt, items: list[tuple[int, str]]) -> None:
    try:
        verifier = _load(prompt)
    except _CannotPrepare as error:
        for item, _ in items:
            _send(replies, _reply(item, _error(f"cannot prepare: {error}"[:_LONGEST])))
        return
    _send(replies, ["prepared"])
    for item, response in items:
        start = time.perf_counter()
        score = _grade(verifier, prompt, response)
        _send(replies, _reply(item, score, time.perf_counter() - start))


def _load(prompt: Prompt) -> Verifier:
    try:
        verifier = resolve(prompt.verifier)
        if prepare := preparation(prompt.verifier):
            prepare(prompt)
    except Exception as error:
        raise _CannotPrepare(f"{type(error).__name__}: {error}") from error
    return verifier


def _grade(verifier: Verifier, prompt: Prompt, response: str) -> Score:
    """Run the verifier; an exception that it also raises on an empty response is its own, else the response's."""
    try:
        return _checked(verifier(prompt, response))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # counts as a crash: tried once more in a fresh worker, without this one's leftovers
    except Exception as error:
        note = f"{type(error).__name__}: {error}"[:_LONGEST]
    try:
        _checked(verifier(prompt, ""))
    except Exception:
        return _error(f"the verifier fails on any response: {note}")
    return Score(outcome=Outcome.WRONG, reward=0.0, note=f"the response makes the verifier fail: {note}")


def _checked(score: Score) -> Score:
    """The score in the types that it is sent in; raises where a user's own verifier put something else there."""
    outcome, reward = Outcome(score.outcome), float(score.reward)
    if outcome in (Outcome.UNSCORABLE, Outcome.ERROR):
        reward = math.nan
    elif not abs(reward) < _LARGEST:
        raise ValueError(f"the reward {reward} is not a finite number")
    return Score(
        outcome=outcome,
        reward=reward,
        extracted=str(score.extracted)[:_LONGEST],
        parts={str(key): float(value) for key, value in score.parts.items()},
        note=str(score.note)[:_LONGEST],
    )


def _error(note: str) -> Score:
    return Score(outcome=Outcome.ERROR, reward=math.nan, note=note)


def _reply(item: int, score: Score, seconds: float = 0.0) -> list[Any]:
    parts = dict(score.parts)
    return ["score", item, int(score.outcome), score.reward, score.extracted, parts, seconds, score.note]
