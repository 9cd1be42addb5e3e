"""The warm server of a sandbox: it forks one process per program and reports how that process ended.

It never reads a program, an input or a test: the forked process does, after it has closed the control socket, so that
nothing of one run is in the memory of the next. Control messages are JSON datagrams; the descriptors of a run come
with its request: standard input, output and error, the payload, and possibly a channel to another sandbox.
"""

import ctypes
import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import site
import socket
import sys
import types
from typing import Any

from . import candidate, judge, seccomp

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHANNEL = 3  # the descriptor that candidate and judge talk through
_PRELOADED = (
    "array bisect cmath collections copy dataclasses datetime decimal enum fractions functools hashlib heapq io "
    "itertools math operator random re statistics string threading typing"
)


def main() -> None:
    """Serve until the control socket closes; in a forked process, return after it has become the program."""
    setup = json.loads(sys.argv[1])
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ours = ("", os.getcwd(), os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[:] = [path for path in sys.path if path not in ours] + setup["path"]
    for name in [*_PRELOADED.split(), *setup["preload"]]:
        importlib.import_module(name)
    for left in os.scandir(setup["scratch"]):  # some packages leave files when they are loaded
        shutil.rmtree(left.path) if left.is_dir(follow_symlinks=False) else os.unlink(left.path)
    site.setquit()  # `exit` and `quit`
    control = socket.socket(fileno=setup["control"])
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 8)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _become_program(json.loads(message), descriptors, setup["uid"])
            return
        for descriptor in descriptors:
            os.close(descriptor)
        _, status, usage = os.wait4(pid, 0)
        report = {
            "status": os.waitstatus_to_exitcode(status),
            "cpu": usage.ru_utime + usage.ru_stime,
            "clean": _nothing_left(setup["scratch"]),
        }
        control.send(json.dumps(report).encode())


def _nothing_left(scratch: str) -> bool:
    """No descendant lives and no file was left behind."""
    try:
        os.waitpid(-1, os.WNOHANG)
        return False
    except ChildProcessError:
        return not os.listdir(scratch)


def _become_program(limits: dict[str, Any], descriptors: list[int], uid: int | None) -> None:
    payload = _read_all(descriptors[3])
    for target, descriptor in enumerate([*descriptors[:3], *descriptors[4:]]):
        # Received descriptors are above 3, and duplicated ones never clash with one that is still to be placed.
        os.dup2(descriptor, target)
    os.closerange(_CHANNEL + (len(descriptors) > 4), 256)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _limit(limits)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    seccomp.confine()
    random.seed(0)  # a verdict must not depend on the day
    job = json.loads(payload)
    if job["role"] == "program":
        _run(job["source"])
    elif job["role"] == "candidate":
        candidate.main(_CHANNEL, job["source"])
    elif job["role"] == "scorer":
        importlib.import_module("inside.scorer").main(job)  # preloaded where there is one
    else:
        judge.main(_CHANNEL if job["role"] == "judge" else None, job)


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0)


def _limit(limits: dict[str, Any]) -> None:
    cpu = limits["cpu_seconds"]
    for name, soft, hard in (
        ("CPU", cpu, cpu + 1),
        ("AS", limits["memory_bytes"], limits["memory_bytes"]),
        ("FSIZE", limits["output_bytes"], limits["output_bytes"]),
        ("NPROC", limits["threads"], limits["threads"]),
        ("NOFILE", 64, 64),
        ("CORE", 0, 0),
        ("MSGQUEUE", 0, 0),
        ("MEMLOCK", 0, 0),
    ):
        which = getattr(resource, f"RLIMIT_{name}")
        _, ceiling = resource.getrlimit(which)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(which, (soft, hard))


def _run(source: str) -> None:
    """Run a program as `python program.py` would; how it ends, the interpreter sees to."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = ["program.py"]
    exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    main()
