"""Starting and ending a sandbox: bubblewrap around a warm Python server.

Inside there is a read-only Python, its shared libraries, an empty /tmp of limited size and /dev/null; no network, no
/proc, no other process. As root the programs run under a uid of their own, otherwise in a user namespace.
"""

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from brorl.errors import UserError

ALLOW_WEAK = "BRORL_ALLOW_WEAK_SANDBOX"
"""Environment variable: ``1`` lets code run with seccomp and limits only where bubblewrap does not work."""
STRONG = "bubblewrap+seccomp"
WEAK = "weak: seccomp only, files can be read"

_INSIDE = Path(__file__).parent / "inside"
_PYTHON = f"{sys.base_exec_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_START_SECONDS = 20.0
_SCORING_START_SECONDS = 50.0  # it loads SymPy
_SCRATCH_BYTES = 64 << 20
_FIRST_UID = 2_000_000_000  # + process id: no account has these
_ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONINTMAXSTRDIGITS": "0",
    "PYTHONUTF8": "1",
}


class SandboxUnavailable(UserError):
    """Model-written code cannot be run safely on this machine."""


class Sandbox:
    """One warm sandbox, used by one thread for one program at a time.

    `scoring`: it holds every installed package, read-only, and has Reasoning Gym loaded. Programs get NumPy only.

    Raises:
        SandboxUnavailable: it does not start, with the reason.
    """

    def __init__(self, *, scoring: bool = False) -> None:
        self.owner = os.getpid()
        self.isolation = isolation()
        self.busy = False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scratch = None if self.isolation == STRONG else tempfile.TemporaryDirectory(prefix="brorl-sandbox-")
        info_read, info_write = os.pipe()
        with theirs, open(info_read, "rb") as info, tempfile.TemporaryFile() as log:
            self.process = _start(theirs.fileno(), info_write, log, scratch and scratch.name, scoring)
            os.close(info_write)
            ready = (
                self.answers_within(_SCORING_START_SECONDS if scoring else _START_SECONDS)
                and _greeting(self.control) == b"ready"
            )
            # Killing process 1 of its namespace ends all of a sandbox at once, and bubblewrap then reaps and ends.
            init = os.pidfd_open(json.loads(info.read(4096))["child-pid"]) if ready and scratch is None else None
            self.close = weakref.finalize(self, _end, self.owner, self.control, self.process, init, scratch)
            if not ready:
                self.close()
                log.seek(0)
                reason = log.read().decode(errors="replace").strip()[-500:] or "it does not answer"
                raise SandboxUnavailable(f"the sandbox for model-written code does not start: {reason}")

    def answers_within(self, seconds: float) -> bool:
        """Whether a message, or the end of the connection, arrives in time."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))


def _start(control: int, info: int, log: IO[bytes], scratch: str | None, scoring: bool) -> subprocess.Popen[bytes]:
    environment = dict(_ENVIRONMENT)
    if scratch is not None:
        os.chmod(scratch, 0o777)
        environment |= {"PYTHONPATH": str(_INSIDE.parent), "HOME": scratch}
    return subprocess.Popen(
        _bubblewrap(control, info, scoring) if scratch is None else _bare(control, scratch, scoring),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        cwd=scratch or "/",
        env=environment,
        pass_fds=(control, info),
        start_new_session=scratch is not None,
    )


def _greeting(control: socket.socket) -> bytes:
    try:
        return control.recv(16)
    except ConnectionResetError:
        return b""


def _end(
    owner: int,
    control: socket.socket,
    process: subprocess.Popen[bytes],
    init: int | None,
    scratch: tempfile.TemporaryDirectory[str] | None,
) -> None:
    """Kill everything inside and reap."""
    control.close()
    if init is not None:
        if owner == os.getpid():
            _signal(signal.pidfd_send_signal, init)
        os.close(init)
    elif owner == os.getpid():
        # Without a namespace the programs are in the server's session, which the filter does not let them leave.
        _signal(os.killpg if scratch else os.kill, process.pid)
    if owner == os.getpid():
        process.wait()
        if scratch:
            scratch.cleanup()


def _signal(send: Callable[[int, int], Any], target: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        send(target, signal.SIGKILL)


@functools.cache
def isolation() -> str:
    """How model-written code is isolated here: `STRONG`, or `WEAK` where that is allowed.

    Raises:
        SandboxUnavailable: bubblewrap is missing or does not work here, with the reason and what to do.
    """
    reason = _why_not_bubblewrap()
    if reason is None:
        return STRONG
    if os.environ.get(ALLOW_WEAK) == "1":
        return WEAK
    raise SandboxUnavailable(
        f"model-written code is not run on this machine: {reason}. Install bubblewrap (for instance `apt-get install "
        f"bubblewrap`) or run in a container that allows namespaces; or accept a weaker isolation with {ALLOW_WEAK}=1"
    )


def _why_not_bubblewrap() -> str | None:
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    probe = [program, *_namespaces(), *_system(), "--", _PYTHON, "-S", "-c", ""]
    done = subprocess.run(probe, capture_output=True, timeout=30, env=_ENVIRONMENT)
    if done.returncode != 0:
        return f"bubblewrap does not work here ({done.stderr.decode(errors='replace').strip()[-300:]})"
    return None


def _namespaces() -> list[str]:
    options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:
        needed = ["CAP_SETUID", "CAP_SETGID"]  # to give the programs a uid of their own
        return [*options, "--cap-drop", "ALL", *(word for cap in needed for word in ("--cap-add", cap))]
    return [*options, "--unshare-user", "--disable-userns"]


def _system() -> list[str]:
    """Mounts: only what a Python needs to start, all of it read-only."""
    words: list[str] = []
    for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"):
        if os.path.exists(path):
            words += _mount(path, path)
    for path in dict.fromkeys((sys.base_prefix, sys.base_exec_prefix)):
        path = f"{path}/bin" if path in ("/usr", "/usr/local") else path
        words += _mount(path, path)
    for folder in _third_party():
        words += ["--perms", "0555", "--tmpfs", str(folder), "--remount-ro", str(folder)]
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        words += _mount(device, device, how="--dev-bind")
    return words


def _third_party() -> list[Path]:
    """Folders of installed packages inside the mounts: they may hold graders and gold answers, so they are hidden."""
    roots = dict.fromkeys(f"{root}/lib" for root in ("/usr", "/usr/local", sys.base_prefix, sys.base_exec_prefix))
    found = [
        path for root in roots for name in ("site", "dist") for path in Path(root).glob(f"python*/{name}-packages")
    ]
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _mount(source: str, target: str, how: str = "--ro-bind") -> list[str]:
    """A mount whose parent folders programs may pass through (bubblewrap gives them mode 0700)."""
    parents = [str(parent) for parent in reversed(Path(target).parents) if str(parent) != "/"]
    return [*(word for parent in parents for word in ("--perms", "0755", "--dir", parent)), how, source, target]


def _bubblewrap(control: int, info: int, scoring: bool) -> list[str]:
    program = shutil.which("bwrap")
    assert program is not None
    packages = _scoring_folders() if scoring else _numpy_folders()
    return [
        *(program, "--die-with-parent", "--info-fd", str(info), *_namespaces(), *_system()),
        *(word for folder in packages for word in _mount(str(folder), f"/packages/{folder.name}")),
        *_mount(str(_INSIDE), "/brorl/inside"),
        *("--perms", "1777", "--size", str(_SCRATCH_BYTES), "--tmpfs", "/tmp", "--chdir", "/tmp"),
        *("--setenv", "PYTHONPATH", "/brorl", "--remount-ro", "/", "--"),
        *_server(
            control, "/tmp", [f"/packages/{folder.name}" for folder in packages] if scoring else ["/packages"], scoring
        ),
    ]


def _bare(control: int, scratch: str, scoring: bool) -> list[str]:
    folders = _scoring_folders() if scoring else [folder.parent for folder in _numpy_folders()[:1]]
    return _server(control, scratch, [str(folder) for folder in folders], scoring)


def _server(control: int, scratch: str, path: list[str], scoring: bool) -> list[str]:
    uid = _FIRST_UID + os.getpid() if os.geteuid() == 0 else None
    preload = ["inside.scorer"] if scoring else []
    setup = json.dumps({"control": control, "scratch": scratch, "path": path, "uid": uid, "preload": preload})
    return [_PYTHON, "-s", "-S", "-m", "inside.server", setup]


def _numpy_folders() -> list[Path]:
    """NumPy is the one package beyond the standard library that programs may import."""
    folder = _package("numpy")
    return [path for path in (folder, folder.parent / "numpy.libs") if path.is_dir()] if folder else []


def _scoring_folders() -> list[Path]:
    """The folders of packages that hold Reasoning Gym and SymPy, usually one."""
    folders = [folder.parent for folder in map(_package, ("reasoning_gym", "sympy", "numpy")) if folder]
    return list(dict.fromkeys(folders))


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
