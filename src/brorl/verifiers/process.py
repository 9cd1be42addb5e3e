"""The parent's side of one worker process: start it, talk to it without ever blocking, kill it and all it started."""

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any

from brorl.verifiers.score import Score
from brorl.verifiers.worker import Hello

_CHUNK = 1 << 16
_LONGEST_MESSAGE = 1 << 20


@dataclass(slots=True, kw_only=True)
class Item:
    """One response to grade."""

    id: int
    verifier: str
    prompt: bytes
    """the pickled prompt; items of one prompt share the object"""
    response: str
    future: Future[Score]
    strikes: int = 0
    """workers it has hung or crashed"""
    lost_seconds: float = 0.0
    """time that these workers spent on it"""
    probe: bool = False
    """asked by the dispatcher itself, to learn whether the verifier grades anything at all"""


class Phase(Enum):
    """What a worker is doing; each phase has its own time limit."""

    STARTING = "starting"
    IDLE = "idle"
    PREPARING = "preparing"
    GRADING = "grading"


class WorkerProcess:
    """A grading process in its own session and process group. Used by one thread only."""

    def __init__(self, memory_mib: int) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        single_threaded = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from brorl.verifiers.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, **single_threaded, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.writing = self._stdin.fileno()
        self.reading = self._stdout.fileno()
        os.set_blocking(self.writing, False)
        os.set_blocking(self.reading, False)
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self.batch: deque[Item] = deque()
        self.served = 0
        self.lent = False
        """its waiting items are also back in the queue, because the item before them takes long"""
        self.phase = Phase.STARTING
        self.since = time.monotonic()
        self._put(Hello(parent=os.getpid(), path=tuple(sys.path), memory_bytes=memory_mib << 20))

    def enter(self, phase: Phase) -> None:
        """Begin a phase: its time limit counts from now."""
        self.phase, self.since = phase, time.monotonic()

    def give(self, batch: list[Item]) -> None:
        """Send a batch; consecutive items of one prompt travel together."""
        groups: list[tuple[bytes, list[tuple[int, str]]]] = []
        for item in batch:
            if not groups or groups[-1][0] is not item.prompt:
                groups.append((item.prompt, []))
            groups[-1][1].append((item.id, item.response))
        self.batch = deque(batch)
        self.lent = False
        self.enter(Phase.PREPARING)
        self._put(groups)

    def _put(self, message: Any) -> None:
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._outgoing += struct.pack("<I", len(data)) + data
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes now; the rest waits until it is writable again."""
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self.writing, self._outgoing[:_CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._outgoing.clear()  # it is dead: the reading side says so

    @property
    def has_output(self) -> bool:
        """Some of a batch is still to be written."""
        return bool(self._outgoing)

    def receive(self) -> tuple[list[bytes], bool]:
        """The complete messages that have arrived, and whether the worker is still there and in its right mind."""
        alive = True
        try:
            while len(self._incoming) < _LONGEST_MESSAGE:
                chunk = os.read(self.reading, _CHUNK)
                self._incoming += chunk
                if not chunk:
                    alive = False
                    break
        except BlockingIOError:
            pass
        messages: list[bytes] = []
        while len(self._incoming) >= 4:
            end = 4 + struct.unpack("<I", self._incoming[:4])[0]
            if end > _LONGEST_MESSAGE:
                return messages, False  # something else has written to its pipe
            if len(self._incoming) < end:
                break
            messages.append(bytes(self._incoming[4:end]))
            del self._incoming[:end]
        return messages, alive

    def kill(self) -> str:
        """End the process group, reap it, and say how it ended; harmless where it is dead already."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # before wait(): until then the id cannot be another's
        status = self._process.wait()
        self._stdin.close()
        self._stdout.close()
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 500))
        last_words = self._log.read().decode(errors="replace").strip()
        self._log.close()
        return f"exit status {status}" + (f": {last_words}" if last_words else "")
