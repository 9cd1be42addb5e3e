"""The seccomp filter of a sandboxed program, assembled by hand: an allow-list, everything else is refused.

A program may compute, use the files it can see, start threads and wait. It may not start processes, open sockets,
send signals to others, change identity or limits, map new kinds of memory, or load anything into the kernel.
Numbers are from the kernel's `unistd.h` for x86_64 and asm-generic (aarch64); -1 where the call does not exist.
"""

import ctypes
import os
import struct

_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "preadv2": (327, 286),
    "pwritev2": (328, 287),
    "close": (3, 57),
    "close_range": (436, 436),
    "lseek": (8, 62),
    "fstat": (5, 80),
    "stat": (4, -1),
    "lstat": (6, -1),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "open": (2, -1),
    "openat": (257, 56),
    "access": (21, -1),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, -1),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "mkdir": (83, -1),
    "mkdirat": (258, 34),
    "rmdir": (84, -1),
    "unlink": (87, -1),
    "unlinkat": (263, 35),
    "rename": (82, -1),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "symlink": (88, -1),
    "symlinkat": (266, 36),
    "link": (86, -1),
    "linkat": (265, 37),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "fadvise64": (221, 223),
    "utimensat": (280, 88),
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "umask": (95, 166),
    "flock": (73, 32),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "dup": (32, 23),
    "dup2": (33, -1),
    "dup3": (292, 24),
    "pipe": (22, -1),
    "pipe2": (293, 59),
    "fcntl": (72, 25),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "msync": (26, 227),
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "rseq": (334, 293),
    "set_tid_address": (218, 96),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "membarrier": (324, 283),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigtimedwait": (128, 137),
    "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "pause": (34, -1),
    "alarm": (37, -1),
    "setitimer": (38, 103),
    "getitimer": (36, 102),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, -1),
    "times": (100, 153),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "getpgrp": (111, -1),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "getrusage": (98, 165),
    "getrlimit": (97, 163),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "getrandom": (318, 278),
    "getcpu": (309, 168),
    "arch_prctl": (158, -1),
    "restart_syscall": (219, 128),
    "poll": (7, -1),
    "ppoll": (271, 73),
    "select": (23, -1),
    "pselect6": (270, 72),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, -1),
    "epoll_pwait": (281, 22),
    "eventfd2": (290, 19),
    "socketpair": (53, 199),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "shutdown": (48, 210),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
    "getsockopt": (55, 209),
    "setsockopt": (54, 208),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_IOCTL, _KILL, _TGKILL, _PRCTL, _PRLIMIT = (16, 29), (62, 129), (234, 131), (157, 167), (302, 261)

_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_CLONE_THREAD = 0x10000
_PR_SET_NAME = 15
_PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38

_ALLOW, _KILL_PROCESS, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data


def _argument(index: int) -> int:
    return 16 + 8 * index  # the low half of a 64-bit argument, little-endian


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _only(number: int, offset: int, values: tuple[int, ...]) -> list[bytes]:
    """Allow one call where an argument is one of a few values; refuse it otherwise."""
    checks = [_op(_LOAD, offset)]
    for left, value in zip(range(len(values), 0, -1), values, strict=True):
        checks.append(_op(_JUMP_EQUAL, value, left, 0))
    checks += [_op(_RETURN, _EPERM), _op(_RETURN, _ALLOW)]
    return [_op(_JUMP_EQUAL, number, 0, len(checks)), *checks]


def assemble(machine: str, pid: int) -> bytes:
    """The filter for one process, as an array of `struct sock_filter`.

    Args:
        machine: as `os.uname().machine` says it.
        pid: the process that the filter is for, the only one that it may signal.

    Raises:
        KeyError: no table for this machine.
    """
    column, arch = _ARCHES[machine]
    program = [_op(_LOAD, _ARCH), _op(_JUMP_EQUAL, arch, 1, 0), _op(_RETURN, _KILL_PROCESS), _op(_LOAD, _NUMBER)]
    for numbers in _ALLOWED.values():
        if numbers[column] >= 0:
            program += [_op(_JUMP_EQUAL, numbers[column], 0, 1), _op(_RETURN, _ALLOW)]
    thread = [_op(_LOAD, _argument(0)), _op(_JUMP_SET, _CLONE_THREAD, 0, 1), _op(_RETURN, _ALLOW), _op(_RETURN, _EPERM)]
    program += [_op(_JUMP_EQUAL, _CLONE[column], 0, len(thread)), *thread]
    # ENOSYS makes the C library fall back to clone, whose flags a filter can see.
    program += [_op(_JUMP_EQUAL, _CLONE3[column], 0, 1), _op(_RETURN, _ENOSYS)]
    program += _only(_IOCTL[column], _argument(1), _IOCTLS)
    program += _only(_KILL[column], _argument(0), (pid,))
    program += _only(_TGKILL[column], _argument(0), (pid,))
    program += _only(_PRCTL[column], _argument(0), (_PR_SET_NAME,))
    program += _only(_PRLIMIT[column], _argument(0), (0,))  # 0 is the caller itself
    program.append(_op(_RETURN, _EPERM))
    return b"".join(program)


def confine() -> None:
    """Put this process under the filter, for good.

    Raises:
        OSError: the kernel refuses filters.
        KeyError: no table for this machine.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    code = assemble(os.uname().machine, os.getpid())
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog {unsigned short len; struct sock_filter *filter}
    program = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(buffer)))
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_SECCOMP, _MODE_FILTER)):
        rest = ctypes.addressof(program) if option == _PR_SET_SECCOMP else 0
        if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(rest), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"seccomp: {os.strerror(error)}")
