"""The box of code that nobody has read: what the process may use, read and reach, by limits of the kernel.

Nothing here needs a privilege, so it works in containers, too. What a process gave up it cannot get back. Imports no
module of other packages: the servers that run it are bare interpreters.
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from jobs.box import seccomp
from jobs.box.seccomp import NotConfined

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _CAPSET = 444, 445, 446, {"x86_64": 126, "aarch64": 91}
_LISTS = 1 << 3
_READS = 1 << 0 | 1 << 2 | 1 << 3  # of Landlock: execute, read a file, read a folder
_HANDLED = (1 << 13) - 1  # all that its first version knows
_TRUNCATE, _TCP, _OUTSIDERS = 1 << 14, 0b11, 0b11  # of its versions 3, 4, 6; the last: abstract sockets, signals
_MAKES_DEVICES = 1 << 6 | 1 << 11
_OF_A_FILE = 1 << 0 | 1 << 1 | 1 << 2 | _TRUNCATE
_VERSION_ASKED, _PATH_BENEATH = 1, 1
_CAPABILITIES_V3 = 0x20080522
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_libc = ctypes.CDLL(None, use_errno=True)


def limit(kind: int, value: int) -> None:
    """Set a limit of this process, soft and hard, at most what it was; where the system has no such limit, nothing."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):
        if sys.platform == "linux":
            raise


def open_only(
    *,
    read: Iterable[str],
    write: Iterable[str] = (),
    list_in: Iterable[str] = (),
    real: Mapping[str, str] | None = None,
    has_network: bool = False,
) -> None:
    """Let this process, and all that come of it, open nothing but what is in these places, for good.

    In `write` files are also made, changed and removed, in `list_in` names are seen; a place that is not where `real`
    says is left out. Other processes of the same user
    are out of sight, too: their memory and their environment in /proc; where the kernel can (6.12), signals reach none
    of them.
    Raises: NotConfined where the kernel has no Landlock (5.13) or it is switched off.
    """
    version = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION_ASKED)
    if sys.platform != "linux" or version < 1:
        raise NotConfined("the kernel has no Landlock, or it is switched off")
    files = _HANDLED | (_TRUNCATE if version >= 3 else 0)
    net = _TCP if version >= 4 and not has_network else 0
    scope = _OUTSIDERS if version >= 6 else 0
    rules = struct.pack("QQQ", files, net, scope)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _libc.syscall(_CREATE_RULESET, rules, len(rules), 0)
    if ruleset < 0:
        raise NotConfined(f"Landlock: {os.strerror(ctypes.get_errno())}")
    for place in read:
        _allow(ruleset, place, _READS, real=(real or {}).get(place))
    for place in list_in:
        _allow(ruleset, place, _LISTS)
    for place in write:
        _allow(ruleset, place, files & ~_MAKES_DEVICES)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise NotConfined(f"Landlock: {os.strerror(ctypes.get_errno())}")
    os.close(ruleset)


def read_only_own_library(*more: str, write: Iterable[str] = ()) -> None:
    """Let this process, and all that come of it, open nothing but Python's library and the system's, and `more`.

    Raises: NotConfined, as `open_only`.
    """
    open_only(read=(str(Path(os.__file__).parent), *LIBRARIES, *DEVICES, *more), write=write)


def open_place(place: str, real: str | None) -> int | None:
    """Return a descriptor of a place, None where it is not there, or not at `real` but somewhere else by now."""
    try:
        at = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if real is None or os.readlink(f"/proc/self/fd/{at}") == real:  # noqa: PTH115  bare names, no Path for each
            return at
    os.close(at)
    return None


def _allow(ruleset: int, place: str, rights: int, *, real: str | None = None) -> None:
    at = open_place(place, real)
    if at is None:
        return
    if not os.path.isdir(place):  # noqa: PTH112  bare names, no Path for each
        rights &= _OF_A_FILE
    _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, at), 0)
    os.close(at)


def no_capabilities() -> None:
    """Let go of all that makes root more than the owner of its files."""
    header, nothing = struct.pack("Ii", _CAPABILITIES_V3, 0), bytes(24)
    number = _CAPSET.get(os.uname().machine)
    if number is None or _libc.syscall(number, header, nothing):
        raise NotConfined("capabilities cannot be given up")


def unreadable() -> None:
    """Hide this process' memory, environment and open files in /proc from others of its user, and leave no core file.

    A program that it starts is readable again, a fork is not. Nothing where the system has no such thing.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def ends_with_parent(parent: int) -> None:
    """Have this process killed when the one that started it ends."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def confine(*, memory_bytes: int, cpu_seconds: int, output_bytes: int, keep: Iterable[int]) -> None:
    """Close this process in for good: no network, no other process or thread, no file changed, bounded in all it uses.

    It keeps the descriptors `keep` beside 0, 1 and 2. Raises: NotConfined where the system cannot do it.
    """
    open_ones = sorted({0, 1, 2, *keep})
    for low, high in zip(open_ones, [*open_ones[1:], 1 << 20], strict=True):
        os.closerange(low + 1, high)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_AS, memory_bytes)
    limit(resource.RLIMIT_CPU, cpu_seconds)
    limit(resource.RLIMIT_FSIZE, output_bytes)
    limit(resource.RLIMIT_NOFILE, 64)
    limit(resource.RLIMIT_MEMLOCK, 0)
    no_capabilities()
    seccomp.give_up(seccomp.NETWORK, seccomp.PROCESSES, seccomp.FILES, seccomp.SYSTEM)
