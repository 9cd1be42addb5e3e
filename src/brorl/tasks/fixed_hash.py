"""Reasoning Gym items that would differ from one Python process to the next.

Some tasks take elements from sets of strings, whose order follows Python's hash seed, which is random for each process:
the same item seed gives another question after a resume. Such items are made in one child process with a fixed hash
seed; it ends with this process, when its input closes.
"""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import reasoning_gym

from brorl.errors import DataError
from brorl.tasks.entries import pack, unpack


def make_item(task: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One item of a task, made under hash seed 0.

    Raises:
        DataError: the child process ends.
    """
    child = _child()
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps([task, pack(config), seed]) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        _child.cache_clear()
        raise DataError(f"task {task!r}: the process that makes its items ended (exit status {child.wait()}): try again")
    return unpack(json.loads(line))


@lru_cache(maxsize=1)
def _child() -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = subprocess.Popen(
        [sys.executable, "-c", "from brorl.tasks.fixed_hash import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the parent, which may still want to finish its step
    )
    atexit.register(child.kill)
    return child


def serve() -> None:
    """The child: a line with task, options and seed in, a line with the entry out, until the input closes."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # some tasks print
    for line in sys.stdin:
        task, config, seed = json.loads(line)
        entry = reasoning_gym.create_dataset(task, seed=seed, size=1, **unpack(config))[0]
        replies.write(json.dumps(pack(entry)) + "\n")
        replies.flush()
