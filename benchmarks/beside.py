"""Two sides in processes of their own, taken in turn: one step of each per round.

A side is a script that takes its settings as one JSON argument, and answers every line on standard input with one line
of JSON. Its peak memory is its own process's.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from measuring import peak_memory_mib


class Side:
    """A running side."""

    def __init__(self, python: str, script: Path, settings: Mapping[str, Any]) -> None:
        command = [python, str(script), json.dumps(settings)]
        self.script = script
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self) -> dict[str, float]:
        """Let it take one step; what it found.

        Raises:
            SystemExit: the side has ended; its messages are on the terminal.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SystemExit(f"{self.script.name} ended early, exit code {self.process.wait()}") from None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.script.name} ended early, exit code {self.process.wait()}")

    def close(self) -> None:
        self.process.communicate()


def in_turn(sides: Mapping[str, Side], rounds: int, label: str) -> dict[str, list[dict[str, float]]]:
    """`rounds` steps of every side after one to warm up; each side's findings."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(-1, rounds):
        for name, side in sides.items():
            step = side.step()
            print(f"{label}, {'warm-up' if number < 0 else f'round {number}'}, {name}: {step}", flush=True)
            if number >= 0:
                found[name].append(step)
    for side in sides.values():
        side.close()
    return found


def answer(step: Callable[[int], Mapping[str, float]], lines: Iterable[str] = sys.stdin) -> None:
    """A side's loop: step 0, 1, ... as the lines come in."""
    for number, _ in enumerate(lines):
        print(json.dumps({**step(number), "peak_memory_mib": peak_memory_mib()}), flush=True)
