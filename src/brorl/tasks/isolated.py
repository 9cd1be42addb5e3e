"""Reasoning Gym items that need a process of their own.

The same item seed gives another question in another Python process where a task takes elements from sets of strings
(their order follows Python's random hash seed) or draws from the global generators; some tasks also move the global
generators of their caller, or print. Their items are made in one child process with a fixed hash seed, its global
generators seeded for each item. It ends when its input closes, at the latest with this process.
"""

import atexit
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from brorl.errors import DataError
from brorl.tasks.entries import pack, unpack
from brorl.tasks.gym_items import create, item

UNRULY = {
    "bf",  # prints
    "codeio",  # runs programs that draw from the global generators
    "isomorphic_strings",  # hash seed
    "knight_swap",  # hash seed
    "list_functions",  # global generators
    "polynomial_multiplication",  # hash seed
    "pool_matrix",  # seeds NumPy's global generator
    "ransom_note",  # hash seed
    "word_ladder",  # hash seed
}


def isolated_item(task: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One item of a task, made in the child process.

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
        raise DataError(
            f"task {task!r}: the process that makes its items ended (exit status {child.wait()}): try again"
        )
    return unpack(json.loads(line))


@lru_cache(maxsize=1)
def _child() -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = subprocess.Popen(
        [sys.executable, "-c", "from brorl.tasks.isolated import serve; serve()"],
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
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for line in sys.stdin:
        task, config, seed = json.loads(line)
        random.seed(seed)
        np.random.seed(seed)
        replies.write(json.dumps(pack(item(_dataset(task, json.dumps(config)), task, unpack(config), seed))) + "\n")
        replies.flush()


@lru_cache(maxsize=64)
def _dataset(task: str, config: str) -> Any:
    return create(task, unpack(json.loads(config)))
