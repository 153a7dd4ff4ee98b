"""A machine of its own for a process: namespaces in which it sees a few folders, its own processes and no network.

Nothing here needs a privilege: a user namespace gives what mounting takes. Linux 5.14 or newer, as before a process
limit counted the user's processes on the whole machine. Source: namespaces(7), user_namespaces(7), mount_setattr(2).
"""

import ctypes
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.box.confine import open_place
from jobs.box.seccomp import NotConfined

NOBODY = 65534
_OLDEST = (5, 14)
_NEW_USER, _NEW_FILES, _NEW_PROCESSES, _NEW_IPC, _NEW_NAME, _NEW_NETWORK = (
    0x10000000, 0x20000, 0x20000000, 0x08000000, 0x04000000, 0x40000000
)  # fmt: skip
_BIND, _REMOUNT, _RECURSIVE, _PRIVATE = 4096, 32, 16384, 1 << 18
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _DETACH = 1, 2, 4, 8, 2
_MOUNT_SETATTR, _PIVOT_ROOT = 442, {"x86_64": 155, "aarch64": 41}
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_CAPSET, _CAPABILITIES_V3 = {"x86_64": 126, "aarch64": 91}, 0x20080522
_READ_ANY_FILE = 2  # CAP_DAC_READ_SEARCH
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2
_libc = ctypes.CDLL(None, use_errno=True)


def enter(*, has_network: bool) -> None:
    """Go into namespaces of one's own; processes forked from now on are in a process namespace of theirs.

    Root is mapped beside nobody, to become it later; anybody else stays who they are. Raises: NotConfined.
    """
    if sys.platform != "linux":
        raise NotConfined(f"there are no namespaces on {sys.platform}")
    release = os.uname().release
    if tuple(int(part) for part in release.split("-")[0].split(".")[:2]) < _OLDEST:
        raise NotConfined(f"Linux {release} is older than 5.14")
    uid, gid = os.geteuid(), os.getegid()
    go, ready = os.pipe()
    parent, helper = os.getpid(), 0
    if uid == 0:
        helper = os.fork()
        if helper == 0:
            os.close(ready)
            _map_root(parent) if os.read(go, 1) else None
            os._exit(0)
    kinds = _NEW_USER | _NEW_FILES | _NEW_PROCESSES | _NEW_IPC | _NEW_NAME | (0 if has_network else _NEW_NETWORK)
    _check("unshare", _libc.unshare(kinds))
    os.close(go)
    if helper:
        os.write(ready, b"1")
        os.waitpid(helper, 0)
    else:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    os.close(ready)
    if os.geteuid() != uid:
        raise NotConfined("the user namespace maps nobody")


def _map_root(pid: int) -> None:
    for kind in ("uid", "gid"):
        _write(f"/proc/{pid}/{kind}_map", f"0 0 1\n{NOBODY} {NOBODY} 1\n")


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise NotConfined(f"{path}: {error.strerror}") from error


def see_only(
    *,
    read: Sequence[str],
    write: Sequence[str],
    real: Mapping[str, str],
    devices: Sequence[str],
    stage: str,
    scratch_bytes: int,
) -> None:
    """Make the places of `read` and `write` all there is of the file system, beside devices, /proc and an empty /tmp.

    `stage` is an empty folder; `scratch_bytes` bounds what /tmp holds, in memory. For the first process of a process
    namespace. A place that does not exist, or is not where `real` says, is left out; where /proc cannot be had there is
    none. Raises: NotConfined.
    """
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", stage, "tmpfs", _NO_SUID | _NO_DEVICES, "size=1m,mode=755")
    scratch = Path(stage, "tmp")
    scratch.mkdir()
    options = f"size={scratch_bytes},nr_inodes=8192,mode=1777"
    _mount("tmpfs", str(scratch), "tmpfs", _NO_SUID | _NO_DEVICES, options)  # first: places may be below it
    for place in read:
        _show(place, stage, is_writable=False, expected=real.get(place))
    for place in write:
        _show(place, stage, is_writable=True)
    for device in devices:
        _show(device, stage, is_writable=False, has_devices=True)
    shared = Path(stage, "dev", "shm")
    shared.parent.mkdir(exist_ok=True)
    shared.symlink_to("/tmp")  # noqa: S108  its own
    Path(stage, "proc").mkdir(exist_ok=True)
    _libc.mount(b"proc", os.fsencode(f"{stage}/proc"), b"proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS, None)
    os.chdir(stage)
    _check("pivot_root", _libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."))
    _check("umount", _libc.umount2(b".", _DETACH))
    _mount("none", "/", None, _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEVICES)
    os.chdir("/")


def _show(place: str, stage: str, *, is_writable: bool, has_devices: bool = False, expected: str | None = None) -> None:
    """Bind a place where it really is, and put a link to it where it is called something else."""
    held = open_place(place, expected)
    if held is None:
        return
    source = f"/proc/self/fd/{held}"  # and no path, which could lead elsewhere by now
    real = os.readlink(source)  # noqa: PTH115  the interpreter is bare: few imports
    at = Path(f"{stage}{real}")
    if not at.exists():  # else a place above it shows it
        at.parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_dir():
            at.mkdir()
        else:
            at.touch()
    _mount(source, str(at), None, _BIND | _RECURSIVE)
    os.close(held)
    flags = _NO_SUID | (0 if is_writable else _READ_ONLY) | (0 if has_devices else _NO_DEVICES)
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    path = os.fsencode(at)
    _check(
        "mount_setattr",
        _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes)),
    )
    link = Path(f"{stage}{place}")
    if not os.path.lexists(link):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(real)


def become_nobody() -> None:
    """Stop being root of the namespace: only reading what it sees is left, whoever may read it otherwise."""
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    header, mask = struct.pack("Ii", _CAPABILITIES_V3, 0), 1 << _READ_ANY_FILE
    number = _CAPSET[os.uname().machine]
    _check("capset", _libc.syscall(number, header, struct.pack("IIIIII", mask, mask, mask, 0, 0, 0)))
    _check("prctl", _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _READ_ANY_FILE, 0, 0))


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode() if kind else None)
    _check(f"mount {target}", _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None))


def _check(what: str, result: int) -> None:
    if result != 0:
        raise NotConfined(f"{what}: {os.strerror(ctypes.get_errno())}")
