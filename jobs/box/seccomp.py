"""System calls that a process gives up for good: a seccomp filter. Linux on x86-64 and ARM64, without any privilege.

A filter is a program of the kernel's classic BPF that sees number and arguments of each call, but not what pointers
lead to; all processes that come of this one have it, too. Source: seccomp(2); numbers: the kernel's headers
`asm/unistd_64.h` and `asm-generic/unistd.h`.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator, Sequence

_CPUS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Name of a CPU -> its column below, and what the kernel calls it."""
_NEWEST = 451  # the last call of the tables: a later one is answered as by an older kernel
_X32 = 0x40000000
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_NR, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

Calls = dict[str, tuple[int | None, int | None]]
"""Name -> number on x86-64 and on ARM64; None where the CPU has no such call."""

# fmt: off
CONNECTIONS: Calls = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427)
}
"""Sockets that lead to somebody else, and the interface that could make them behind a filter's back."""
NETWORK: Calls = {**CONNECTIONS, "socketpair": (53, 199)}
"""Sockets of any family, those that lead only to oneself included."""
INSPECTION: Calls = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise":
    (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272)
}
"""Looking into other processes and changing them."""
MEMORY_FILES: Calls = {"memfd_create": (319, 279), "memfd_secret": (447, 447)}
"""Files that no limit of a process or of a file system counts."""
PROCESSES: Calls = {
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "execve": (59, 221), "execveat": (322, 281),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438,
    438), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise":
    (440, 440), "kcmp": (312, 272), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203,
    122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setrlimit":
    (160, 164)
}
"""Other processes: starting them, signals, memory, priorities; and limits, which must not be raised again."""
FILES: Calls = {
    "creat": (85, None), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33),
    "truncate": (76, 45), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr":
    (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "memfd_create": (319,
    279), "memfd_secret": (447, 447), "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init":
    (300, 262), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265)
}
"""Changes of files and folders; opening a file to write is refused by its flags."""
SYSTEM: Calls = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432,
    432), "fspick": (433, 433), "open_tree": (428, 428), "mount_setattr": (442, 442), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mbind": (237, 235), "set_mempolicy": (238, 237),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "quotactl": (179, 60), "swapon": (167, 224), "swapoff":
    (168, 225), "reboot": (169, 142), "acct": (163, 89), "sethostname": (170, 161), "setdomainname": (171, 162),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "syslog": (103, 116)
}
"""Namespaces, mounts, shared memory, the kernel's own state."""
# fmt: on


_OPEN: Calls = {"open": (2, None), "openat": (257, 56)}
_CLONE, _NEW_NAMESPACES = (56, 220), 0x7E020000


class NotConfined(RuntimeError):
    """This system cannot do it; the text says what is missing."""


def give_up(*groups: Calls) -> None:
    """Have the calls of these groups fail with EPERM from now on, in this process and all that come of it.

    With FILES no file is opened to write, or with a call whose flags cannot be seen; with PROCESSES there is no new
    thread either, and no limit is set; with SYSTEM no process begins in a namespace of its own.
    Raises: NotConfined where the system has no such filters.
    """
    program = b"".join(_program(groups))
    if not program or os.uname().sysname != "Linux":
        raise NotConfined(f"system calls cannot be filtered on {os.uname().sysname} {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER, filter_, 0, 0):
        raise NotConfined(f"the kernel takes no filter of system calls: {os.strerror(ctypes.get_errno())}")


def _program(groups: Sequence[Calls]) -> Iterator[bytes]:
    if platform.machine() not in _CPUS:
        return
    column, arch = _CPUS[platform.machine()]

    def numbers(calls: Calls) -> list[int]:
        return [number for both in calls.values() if (number := both[column]) is not None]

    yield _step(_LOAD, _ARCH)
    yield _step(_EQUAL, arch, skip_if_so=1)
    yield _step(_RETURN, _KILL)  # a call of another CPU's mode has other numbers
    yield _step(_LOAD, _NR)
    yield from _answer(_GREATER, _NEWEST if FILES in groups else _X32 - 1, errno.ENOSYS)
    for number in (number for calls in groups for number in numbers(calls)):
        yield from _answer(_EQUAL, number, errno.EPERM)
    if FILES in groups:
        yield from _answer(_EQUAL, 437, errno.ENOSYS)  # openat2, whose flags are behind a pointer
        for number in numbers(_OPEN):
            yield from _if_argument(number, 1 if number == _OPEN["open"][0] and not column else 2, _WRITES)
    if PROCESSES in groups:
        yield from _answer(_EQUAL, 435, errno.ENOSYS)  # clone3: libraries go on with clone
        for command in (8, 10, 15):  # F_SETOWN, F_SETSIG, F_SETOWN_EX: a pipe could send its owner any signal
            yield from _if_argument((72, 25)[column], 1, command, test=_EQUAL)
        prlimit = (302, 261)[column]  # with new limits, which a pointer that is not null leads to
        yield from _if_argument(prlimit, 2, 0xFFFFFFFF)
        yield from _if_argument(prlimit, 2, 0xFFFFFFFF, upper=True)
    elif SYSTEM in groups:
        yield from _answer(_EQUAL, 435, errno.ENOSYS)  # as above: its flags are behind a pointer
        yield from _if_argument(_CLONE[column], 0, _NEW_NAMESPACES)
    yield _step(_RETURN, _ALLOW)


def _answer(test: int, value: int, code: int) -> Iterator[bytes]:
    """Yield: if the call's number meets the test, it fails with `code`."""
    yield _step(test, value, skip_if_not=1)
    yield _step(_RETURN, _ERRNO | code)


def _if_argument(number: int, place: int, value: int, *, test: int = _ANY_BIT, upper: bool = False) -> Iterator[bytes]:
    """Yield: if it is this call, and one half of its argument meets the test, it fails with EPERM."""
    yield _step(_EQUAL, number, skip_if_not=4)
    yield _step(_LOAD, _ARGUMENTS + 8 * place + 4 * upper)
    yield _step(test, value, skip_if_not=1)
    yield _step(_RETURN, _ERRNO | errno.EPERM)
    yield _step(_LOAD, _NR)


def _step(code: int, value: int, *, skip_if_so: int = 0, skip_if_not: int = 0) -> bytes:
    return struct.pack("HBBI", code, skip_if_so, skip_if_not, value)
