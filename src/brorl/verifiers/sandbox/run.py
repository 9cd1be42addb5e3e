"""Running programs in warm sandboxes, one or two per thread, and saying how they ended."""

import fcntl
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from brorl.verifiers.sandbox.launch import Sandbox

_PROGRAM, _JUDGE, _SCORER = "program", "judge", "scorer"
_GRACE_SECONDS = 1.0  # for a candidate to notice that its judge is done


class Ended(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    KILLED = "killed by a signal"
    CPU_LIMIT = "CPU time limit"
    WALL_LIMIT = "wall-clock limit"
    LOST = "the sandbox was lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program may use."""

    cpu_seconds: int = 5
    wall_seconds: float = 20.0
    memory_mb: int = 1024
    """address space, in MiB"""
    output_bytes: int = 8 << 20
    """standard output, standard error, and each file, at most; a write beyond fails"""
    threads: int = 32


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a program did."""

    ended: Ended
    exit_code: int
    """negative: the signal that killed it; 0 where nothing is known"""
    stdout: bytes
    stderr: bytes
    seconds: float
    """wall clock"""
    cpu_seconds: float
    isolation: str
    """how it was isolated, for people"""

    @property
    def ok(self) -> bool:
        """It came to its end by itself, with exit status 0."""
        return self.ended is Ended.EXITED and self.exit_code == 0


class _Run:
    """A program that is under way in the warm sandbox of this thread and kind."""

    def __init__(
        self,
        kind: str,
        job: dict[str, Any],
        limits: Limits,
        *,
        stdin: bytes = b"",
        channel: socket.socket | None = None,
    ) -> None:
        self.kind, self.limits = kind, limits
        self.sandbox = _warm(kind)
        self.outputs = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdout", "stderr")]
        inputs = [_sealed(stdin), _sealed(json.dumps(job).encode())]
        descriptors = [inputs[0], *self.outputs, inputs[1], *([] if channel is None else [channel.fileno()])]
        request = {
            "cpu_seconds": limits.cpu_seconds,
            "memory_bytes": limits.memory_mb << 20,
            "output_bytes": limits.output_bytes,
            "threads": limits.threads,
        }
        self.started = time.monotonic()
        self.sandbox.busy = True
        try:
            socket.send_fds(self.sandbox.control, [json.dumps(request).encode()], descriptors)
        except OSError:
            pass  # the sandbox died since its last run: `finish` finds no report
        finally:
            for descriptor in inputs:
                os.close(descriptor)

    def finish(self, deadline: float) -> RunResult:
        """Wait until `deadline` (monotonic), then kill. A sandbox that is not as it was before is given up."""
        report, late = self._report(deadline)
        seconds = time.monotonic() - self.started
        self.sandbox.busy = False
        if report is None or not report["clean"]:
            _discard(self.kind)
        stdout, stderr = (self._read(descriptor) for descriptor in self.outputs)
        if report is None:
            ended = Ended.WALL_LIMIT if late else Ended.LOST
        else:
            ended = self._ended(report["status"], report["cpu"])
        return RunResult(
            ended=ended,
            exit_code=0 if report is None else report["status"],
            stdout=stdout,
            stderr=stderr,
            seconds=seconds,
            cpu_seconds=0.0 if report is None else report["cpu"],
            isolation=self.sandbox.isolation,
        )

    def _report(self, deadline: float) -> tuple[dict[str, Any] | None, bool]:
        if not self.sandbox.answers_within(deadline - time.monotonic()):
            return None, True
        try:
            data = self.sandbox.control.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        return (json.loads(data) if data else None), False

    def _ended(self, status: int, cpu: float) -> Ended:
        if status >= 0:
            return Ended.EXITED
        # The limit sends SIGXCPU, and SIGKILL a second later to a program that ignores it. Its clock and that of the
        # report differ by a few ticks.
        at_limit = status == -signal.SIGXCPU or (status == -signal.SIGKILL and cpu > self.limits.cpu_seconds)
        return Ended.CPU_LIMIT if at_limit else Ended.KILLED

    def _read(self, descriptor: int) -> bytes:
        try:
            return os.pread(descriptor, self.limits.output_bytes, 0)
        finally:
            os.close(descriptor)


class _Sandboxes(threading.local):
    def __init__(self) -> None:
        self.by_kind: dict[str, Sandbox] = {}


_sandboxes = _Sandboxes()


def _warm(kind: str) -> Sandbox:
    sandbox = _sandboxes.by_kind.get(kind)
    if sandbox is None or sandbox.busy or sandbox.owner != os.getpid():
        _discard(kind)
        sandbox = _sandboxes.by_kind[kind] = Sandbox(scoring=kind == _SCORER)
    return sandbox


def _discard(kind: str) -> None:
    sandbox = _sandboxes.by_kind.pop(kind, None)
    if sandbox is not None:
        sandbox.close()


def _sealed(data: bytes) -> int:
    descriptor = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor


def warm_up() -> None:
    """Start this thread's sandboxes for programs ahead of need.

    Raises:
        SandboxUnavailable: no sandbox can be started here.
    """
    for kind in (_PROGRAM, _JUDGE):
        _warm(kind)


def warm_up_scorer() -> None:
    """Start this thread's sandbox for scorers ahead of need.

    Raises:
        SandboxUnavailable: no sandbox can be started here.
    """
    _warm(_SCORER)


def run_python(source: str, stdin: str | bytes = b"", limits: Limits = DEFAULT_LIMITS) -> RunResult:
    """Run a Python program (standard library and NumPy) in the sandbox.

    Raises:
        SandboxUnavailable: no sandbox can be started here.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    job = {"role": "program", "source": source}
    return _settled(lambda: _Run(_PROGRAM, job, limits, stdin=data).finish(time.monotonic() + limits.wall_seconds))


def run_together(job: dict[str, Any], limits: Limits) -> RunResult:
    """Run the program and its judge in one process, which the program could tamper with.

    Raises:
        SandboxUnavailable: no sandbox can be started here.
    """
    job = {"role": "together", **job}
    return _settled(lambda: _Run(_PROGRAM, job, limits).finish(time.monotonic() + limits.wall_seconds))


def run_scorer(job: dict[str, Any], limits: Limits) -> RunResult:
    """Run a Reasoning Gym scorer that evaluates the answer's text (`inside/scorer.py`).

    Returns:
        The scorer's result: its standard output is the verdict.

    Raises:
        SandboxUnavailable: no sandbox can be started here.
    """
    job = {"role": "scorer", **job}
    return _settled(lambda: _Run(_SCORER, job, limits).finish(time.monotonic() + limits.wall_seconds))


def run_judged(source: str, job: dict[str, Any], limits: Limits) -> RunResult:
    """Run a program as functions that a judge in a second sandbox calls.

    Returns:
        The judge's result: its standard output is the verdict.

    Raises:
        SandboxUnavailable: no sandbox can be started here.
    """

    def attempt() -> RunResult:
        warm_up()
        deadline = time.monotonic() + limits.wall_seconds
        ours, theirs = socket.socketpair()
        with ours, theirs:
            program = _Run(_PROGRAM, {"role": "candidate", "source": source}, limits, channel=theirs)
            judge = _Run(_JUDGE, {"role": "judge", **job}, limits, channel=ours)
        verdict = judge.finish(deadline)
        program.finish(min(deadline, time.monotonic() + _GRACE_SECONDS))
        return verdict

    return _settled(attempt)


def _settled(attempt: Callable[[], RunResult]) -> RunResult:
    """A wall-clock limit, a kill or a lost sandbox may be bad luck; the second time it is the program's doing."""
    result = attempt()
    return result if result.ended in (Ended.EXITED, Ended.CPU_LIMIT) else attempt()
