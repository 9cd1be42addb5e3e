"""Each attack is a program that prints BREACH where it succeeds; the sandbox must hold, and serve the next program."""

import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from brorl.verifiers.sandbox import STRONG, Ended, Limits, RunResult, isolation, run_python
from brorl.verifiers.sandbox import run as sandbox_run
from sandbox_needed import require_sandbox

QUICK = Limits(cpu_seconds=1, wall_seconds=10.0, memory_mb=512, output_bytes=1 << 20)


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    require_sandbox()


def run(source: str, stdin: str = "", limits: Limits = QUICK) -> RunResult:
    return run_python(source, stdin, limits)


def server_pid() -> int:
    return sandbox_run._warm("program").process.pid


def attempt(body: str) -> str:
    """A program that tries `body` and says DENIED with the error where it is refused."""
    indented = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    return f"try:\n{indented}\nexcept Exception as error:\n    print('DENIED', type(error).__name__, error)\n"


def assert_denied(result: RunResult) -> None:
    assert b"BREACH" not in result.stdout, result.stdout
    assert result.stdout.startswith(b"DENIED"), (result.stdout, result.stderr)
    assert run("print(6 * 7)").stdout == b"42\n"


def test_an_attack_that_nothing_stops_is_seen() -> None:
    result = run(attempt("print('BREACH')"))
    assert result.stdout == b"BREACH\n"
    assert result.isolation == STRONG == isolation()


# Network.


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_network_cannot_be_reached(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = run(attempt(f"import socket; socket.create_connection(({address!r}, {port}), 1); print('BREACH')"))
        assert_denied(result)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET"])
def test_no_socket_of_any_family(family: str) -> None:
    assert_denied(run(attempt(f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM); print('BREACH')")))


# Files.


@pytest.mark.parametrize(
    "path",
    [
        __file__,
        "/etc/passwd",
        "/etc/shadow",
        "/proc/self/environ",
        "/proc/1/mem",
        "/proc/self/maps",
        "/dev/mem",
        "/dev/sda",
        "/dev/shm",
        "/sys/kernel",
        str(Path(sandbox_run.__file__)),
        str(Path(sys.prefix) / "pyvenv.cfg"),
    ],
)
def test_files_outside_cannot_be_read(path: str) -> None:
    assert_denied(run(attempt(f"open({path!r}, 'rb').read(1); print('BREACH')")))


def test_a_secret_in_the_hosts_temporary_folder_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "expected.txt"
    secret.write_text("42")
    assert_denied(run(attempt(f"print('BREACH', open({str(secret)!r}).read())")))
    listing = run("import os; print(os.listdir('/tmp'), os.path.exists('/home'))").stdout
    assert listing == b"[] False\n"


def test_installed_packages_are_hidden() -> None:
    assert_denied(run(attempt("import reasoning_gym; print('BREACH')")))
    assert_denied(run(attempt("import brorl; print('BREACH')")))


@pytest.mark.parametrize(
    "folder", ["/", "/usr/lib", "/brorl/inside", "/packages", "/dev", os.__file__.rpartition("/")[0]]
)
def test_nothing_outside_can_be_written(folder: str) -> None:
    assert_denied(run(attempt(f"open({folder!r} + '/planted', 'w'); print('BREACH')")))
    assert not (Path(folder) / "planted").exists()


def test_the_grader_on_disk_cannot_be_changed() -> None:
    assert_denied(run(attempt("open('/brorl/inside/judge.py', 'a').write('#'); print('BREACH')")))
    assert_denied(run(attempt("import os; os.chmod('/brorl/inside/judge.py', 0o777); print('BREACH')")))
    assert_denied(run(attempt("import os; os.rename('/brorl', '/tmp/b'); print('BREACH')")))


def test_symlinks_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    body = f"import os; os.symlink({str(secret)!r}, '/tmp/link'); print('BREACH', open('/tmp/link').read())"
    assert_denied(run(attempt(body)))
    body = "import os; os.symlink('/etc', '/tmp/etc'); print('BREACH', open('/tmp/etc/passwd').read())"
    assert_denied(run(attempt(body)))
    assert secret.read_text() == "secret"


def test_what_one_program_leaves_the_next_does_not_find() -> None:
    assert run("open('/tmp/note', 'w').write('for my successor'); print(1)").stdout == b"1\n"
    assert run("import os; print(os.listdir('/tmp'), os.listdir('.'))").stdout == b"[] []\n"


def test_scratch_space_is_limited() -> None:
    body = """
for i in range(1000):
    with open(f'/tmp/{i}', 'wb') as file:
        file.write(bytes(1 << 20))
print('BREACH')
"""
    result = run(attempt(body))
    assert_denied(result)
    assert b"No space left" in result.stdout


# Processes.


def test_fork_bomb() -> None:
    before = server_pid()
    result = run("import os\nwhile True:\n    os.fork()")
    assert result.exit_code == 1
    assert b"PermissionError" in result.stderr
    assert run("print(1)").stdout == b"1\n"
    assert server_pid() == before


@pytest.mark.parametrize(
    "body",
    [
        "import os; os.fork(); print('BREACH')",
        "import os; os.forkpty(); print('BREACH')",
        "import os; os.posix_spawn('/usr/bin/true', ['true'], {}); print('BREACH')",
        "import os; os.execv('/usr/bin/true', ['true'])",
        "import subprocess; subprocess.run(['true']); print('BREACH')",
        "import multiprocessing as m; m.Process(target=print, args=('BREACH',)).start()",
        "import os; assert os.system('echo BREACH') == 0",
    ],
)
def test_no_process_can_be_started_or_replaced(body: str) -> None:
    assert_denied(run(attempt(body)))


def test_thread_bomb() -> None:
    body = """
import threading
for count in range(10_000):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print('BREACH')
"""
    assert_denied(run(attempt(body)))


def test_background_work_ends_with_its_program() -> None:
    source = """
import threading, time
def later():
    time.sleep(0.3)
    open('/tmp/late', 'w')
threading.Thread(target=later, daemon=True).start()
print('done')
"""
    assert run(source).stdout == b"done\n"
    look = "import os, time\ntime.sleep(0.6)\nprint(os.listdir('/tmp'))"
    assert run(look).stdout == b"[]\n"


@pytest.mark.parametrize(
    "body",
    [
        "os.kill(os.getppid(), 9)",
        "os.kill(1, 9)",
        "os.kill(-1, 9)",
        "os.kill(0, 9)",
        "os.killpg(os.getpgid(0), 9)",
        "os.killpg(os.getpgid(os.getppid()), 9)",
        "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
        "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.sched_setaffinity(os.getppid(), {0})",
    ],
)
def test_the_parent_cannot_be_harmed(body: str) -> None:
    before = server_pid()
    assert_denied(run(attempt(f"import os, signal, resource; {body}; print('BREACH')")))
    assert server_pid() == before


@pytest.mark.parametrize(
    "body", ["os.setuid(0)", "os.setresuid(0, 0, 0)", "os.setgroups([0])", "os.chroot('/tmp')", "os.setsid()"]
)
def test_identity_cannot_be_changed(body: str) -> None:
    assert_denied(run(attempt(f"import os; {body}; print('BREACH')")))
    assert run("import os; print(os.getuid() != 0)").stdout == b"True\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86_64")
def test_dangerous_system_calls_are_refused() -> None:
    numbers = {
        "ptrace": 101, "process_vm_readv": 310, "mount": 165, "unshare": 272, "setns": 308, "bpf": 321,
        "perf_event_open": 298, "io_uring_setup": 425, "userfaultfd": 323, "keyctl": 250, "add_key": 248,
        "init_module": 175, "kexec_load": 246, "personality": 135, "memfd_create": 319, "shmget": 29, "mq_open": 240,
        "seccomp": 317, "pidfd_getfd": 438, "open_by_handle_at": 304, "vfork": 58, "socket": 41, "sethostname": 170,
        "socket through the x32 table": 0x40000000 | 41, "a call that does not exist": 999,
    }  # fmt: skip
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, number in {numbers!r}.items():
    ctypes.set_errno(0)
    result = libc.syscall(number, 0, 0, 0, 0, 0)
    if (result, ctypes.get_errno()) != (-1, 1):
        print('BREACH', name, result, ctypes.get_errno())
print('done')
"""
    assert run(source).stdout == b"done\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="machine code of x86_64")
def test_the_32_bit_system_call_table_kills() -> None:
    source = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, 20 (getpid); int 0x80; ret
function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print('calling', flush=True)
print('BREACH', function())
"""
    result = run(source)
    assert result.ended is Ended.KILLED
    assert result.stdout == b"calling\n"


# Resources.


def test_memory_bomb() -> None:
    assert b"MemoryError" in run("x = [0] * 10**11").stderr
    growing = run("x = []\nwhile True:\n    x.append(bytes(1 << 20))", limits=QUICK)
    assert growing.ended is not Ended.WALL_LIMIT
    assert not growing.ok
    assert run("print(1)").stdout == b"1\n"


def test_endless_loop_that_swallows_everything() -> None:
    source = """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""
    result = run(source, limits=Limits(cpu_seconds=1, wall_seconds=120.0))
    assert result.ended is Ended.CPU_LIMIT
    assert result.cpu_seconds < 3
    assert run("print(1)").stdout == b"1\n"


def test_sleeping_is_ended_by_the_wall_clock_and_nothing_stays_behind() -> None:
    before = server_pid()
    start = time.monotonic()
    result = run("import time\ntime.sleep(1000)", limits=Limits(wall_seconds=0.5))
    assert result.ended is Ended.WALL_LIMIT
    assert time.monotonic() - start < 5  # two tries of half a second
    assert not Path(f"/proc/{before}").exists()
    assert run("print(1)").stdout == b"1\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_flood(stream: str) -> None:
    result = run(f"import sys\nwhile True:\n    sys.{stream}.write('x' * 65536)")
    assert not result.ok
    assert len(result.stdout) <= QUICK.output_bytes
    assert len(result.stderr) <= QUICK.output_bytes
    swallowed = run("while True:\n    try:\n        print('x' * 65536)\n    except OSError:\n        pass")
    assert swallowed.ended in (Ended.CPU_LIMIT, Ended.WALL_LIMIT)
    assert len(swallowed.stdout) <= QUICK.output_bytes


# Memory of others.

_SCAN = """
import ctypes, gc, os, sys
backwards = bytes.fromhex({backwards!r})  # the needle itself must not be in this program
gc.unfreeze()
read, write = os.pipe()
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
top = libc.sbrk(0)
found = 0
def scan(start, end):
    count = 0
    for address in range(start & ~4095, end, 4096):
        if libc.write(write, ctypes.c_void_p(address), 4096) == 4096:  # EFAULT where nothing is mapped
            count += os.read(read, 4096)[::-1].count(backwards)
    return count
objects = [id(item) for item in gc.get_objects()]
for region in {{address >> 22 for address in objects}}:
    found += scan(region << 22, (region + 1) << 22)
found += scan(top - (32 << 20), top)
print('found' if found else 'clean', len(objects) > 1000)
"""


def test_no_memory_of_earlier_programs_is_left() -> None:
    """The scan reads this process's memory; that it can find things is shown by a needle given as input."""
    needle = os.urandom(12).hex()
    scan = _SCAN.format(backwards=needle.encode()[::-1].hex())
    limits = Limits(cpu_seconds=20, wall_seconds=60.0)
    positive = run("import sys\nkept = sys.stdin.read()\n" + scan, stdin=needle * 50, limits=limits)
    assert positive.stdout == b"found True\n", positive.stderr
    run(f"x = {needle!r} * 1000\nprint(len(x))")
    result = run(scan, limits=limits)
    assert result.stdout == b"clean True\n", (result.stdout, result.stderr)


def test_a_program_sees_its_own_descriptors_and_environment_only() -> None:
    source = """
import os, sys
open_ones = []
for number in range(256):
    try:
        os.fstat(number)
        open_ones.append(number)
    except OSError:
        pass
print(open_ones, sys.argv, sorted(os.environ))
"""
    os.environ["A_TOKEN_OF_THE_HOST"] = "secret"
    try:
        text = run(source).stdout.decode()
    finally:
        del os.environ["A_TOKEN_OF_THE_HOST"]
    assert text.startswith("[0, 1, 2] ['program.py'] ")
    assert "TOKEN" not in text


# What programs may do.


def test_ordinary_programs_work() -> None:
    source = """
import asyncio, sys, tempfile, threading
import numpy
from concurrent.futures import ThreadPoolExecutor
async def main():
    await asyncio.sleep(0.001)
    return 1
with tempfile.TemporaryFile() as file:
    file.write(b'x')
print(asyncio.run(main()), list(ThreadPoolExecutor(4).map(abs, [-1, -2])), int(numpy.ones(3).sum()))
print(sys.stdin.buffer.read(), file=sys.stderr)
print(10 ** 5000 == int('1' + '0' * 5000), __name__)
"""
    result = run(source, "é\n")
    assert result.stdout == b"1 [1, 2] 3\nTrue __main__\n"
    assert result.stderr == b"b'\\xc3\\xa9\\n'\n"
    assert result.ok


def test_exit_statuses_are_those_of_python() -> None:
    assert run("import sys\nsys.exit(3)").exit_code == 3
    assert run("raise SystemExit").ok
    assert run("1 / 0").exit_code == 1
    assert b"SyntaxError" in run("print(2").stderr
    assert run("import os\nos.abort()").exit_code == -6
    assert run("import atexit\natexit.register(print, 'end')\nprint('start')").stdout == b"start\nend\n"


def test_results_do_not_vary() -> None:
    source = "import random\nprint(random.random(), hash('a'), list({'x', 'y', 'z'}))"
    assert run(source).stdout == run(source).stdout


def test_threads_of_the_host_do_not_share_a_sandbox() -> None:
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(run(f"print({i})").stdout), daemon=True) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [b"0\n", b"1\n", b"2\n", b"3\n"]


def test_no_process_or_descriptor_leaks() -> None:
    run("print(1)")
    descriptors = len(os.listdir("/proc/self/fd"))
    children = _children()
    for i in range(5):
        run(f"open('/tmp/x', 'w')\nprint({i})")  # each costs a new sandbox
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert len(_children()) <= len(children)


def _children() -> list[str]:
    """Processes, zombies included, whose parent is this one."""
    found: list[str] = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"PPid:\t{os.getpid()}\n" in text:
            found.append(text)
    return found


def test_temporary_folder_of_the_host_is_untouched() -> None:
    before = set(os.listdir(tempfile.gettempdir()))
    run("open('/tmp/brorl-planted', 'w')")
    assert "brorl-planted" not in set(os.listdir(tempfile.gettempdir())) - before
