"""`python -s -S -m jobs.box.closed PLAN`: close this process in as the plan says, and become its command.

PLAN is the JSON of a `ClosedPlan`. Where that cannot be done the command is not run: the process ends with
`NOT_CONFINED` and a line on stderr. In namespaces the exit code of a command that a signal ended is 128 + its number,
SIGABRT is handed on to the command, and whatever it has started ends with it.
"""

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Literal, TypedDict

from jobs.box import namespaces, seccomp
from jobs.box.confine import DEVICES, LIBRARIES, ends_with_parent, limit, no_capabilities, open_only
from jobs.box.seccomp import NotConfined

Level = Literal["namespaces", "landlock"]
NOT_CONFINED = 97
OUT_OF_MEMORY = 98
_SYSTEM_FILES = ("/etc/ld.so.cache", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")
_FOR_NETWORK = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
)
_SCRATCH = "/tmp"  # noqa: S108  a file system of its own
_LOOK_SECONDS = 0.1
_OPEN_FILES = 256
_PAGE = resource.getpagesize()


class ClosedPlan(TypedDict):
    """What a command may do. `read` and `write` are places beside Python's and the system's libraries; one of `real` is
    left out where it is not there but somewhere else.

    `folder` is an empty one: in namespaces a stage, else its folder for temporary files. `scratch_bytes` bounds these
    in namespaces, and `held_bytes` what all processes hold there together; `memory_bytes` is of address space, of each.
    """

    level: Level
    command: list[str]
    folder: str
    read: list[str]
    real: dict[str, str]
    write: list[str]
    has_network: bool
    cpu_seconds: int
    memory_bytes: int
    held_bytes: int
    file_bytes: int
    scratch_bytes: int
    processes: int


def main() -> None:
    """Never returns."""
    plan: ClosedPlan = json.loads(sys.argv[1])
    try:
        if plan["level"] == "namespaces":
            _in_namespaces(plan)
        else:
            ends_with_parent(os.getppid())
            no_capabilities()
            _become(plan, scratch=plan["folder"])
    except (NotConfined, OSError) as error:
        print(f"NotConfined: {error}", file=sys.stderr, flush=True)
        os._exit(NOT_CONFINED)


def _in_namespaces(plan: ClosedPlan) -> None:
    console, home, is_root = os.getppid(), os.getcwd(), os.geteuid() == 0  # noqa: PTH109  few imports
    namespaces.enter(has_network=plan["has_network"])
    ends_with_parent(console)
    first = os.fork()
    if first:
        _relay(first)
    ends_with_parent(0)  # which is what its parent, outside of the namespace, is called here
    namespaces.see_only(
        read=[place for place in _places(plan) if not place.startswith("/proc/")],
        write=plan["write"],
        real=plan["real"],
        devices=DEVICES,
        stage=plan["folder"],
        scratch_bytes=plan["scratch_bytes"],
    )
    command = os.fork()
    if command:
        _watch(command, plan["held_bytes"])
    ends_with_parent(1)
    os.chdir(home)
    if is_root and not plan["write"]:  # root writes what is root's; it has no right beyond that either
        namespaces.become_nobody()
    else:
        no_capabilities()
    limit(resource.RLIMIT_NPROC, plan["processes"])
    _become(plan, scratch=_SCRATCH)


def _become(plan: ClosedPlan, *, scratch: str) -> None:
    """Give up all that the plan does not allow, and execute the command."""
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_AS, plan["memory_bytes"])
    limit(resource.RLIMIT_CPU, plan["cpu_seconds"])
    limit(resource.RLIMIT_FSIZE, plan["file_bytes"])
    limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    limit(resource.RLIMIT_MEMLOCK, 0)
    os.closerange(3, 1 << 16)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # where memory runs short it is the first to go
    is_alone = plan["level"] == "namespaces"
    own, everywhere = (["/proc"], ["/"]) if is_alone else ([], [])
    writable = [scratch, "/dev/null", *plan["write"]]
    try:
        open_only(
            read=[*_places(plan), *DEVICES, *own],
            write=writable,
            list_in=everywhere,
            real={} if is_alone else plan["real"],  # there the stage has them already
            has_network=plan["has_network"],
        )
    except NotConfined:
        if not is_alone:
            raise
    given_up = [seccomp.INSPECTION, seccomp.MEMORY_FILES, seccomp.SYSTEM]
    seccomp.give_up(*given_up, *([] if plan["has_network"] else [seccomp.CONNECTIONS]))
    os.environ["TMPDIR"] = scratch
    os.execv(plan["command"][0], plan["command"])  # noqa: S606  what it is for


def _places(plan: ClosedPlan) -> list[str]:
    network = _FOR_NETWORK if plan["has_network"] else ()
    return [*LIBRARIES, *_SYSTEM_FILES, *network, *plan["read"]]


def _relay(first: int) -> None:
    """Be the process that the console knows: hand signals on, and end as the first process of the namespace does."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        os.kill(first, number)

    signal.signal(signal.SIGABRT, hand_on)
    _, status = os.waitpid(first, 0)
    os._exit(_code(status))


def _watch(command: int, held_bytes: int) -> None:
    """Be the first process: adopt what is left, end everything when the command ends or memory runs out."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        os.kill(command, number)

    signal.signal(signal.SIGABRT, hand_on)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == command:
                os._exit(_code(status))
        if signal.sigtimedwait([signal.SIGCHLD], _LOOK_SECONDS) is None and _holds_more(held_bytes):
            print("MemoryError: all its processes together held too much", file=sys.stderr, flush=True)
            os._exit(OUT_OF_MEMORY)


def _holds_more(held_bytes: int) -> bool:
    """Return whether all processes here hold more memory of their own. What forks share is looked for only then."""
    return _sum_of(_resident) > held_bytes and _sum_of(_own_share) > held_bytes


def _sum_of(measure: Callable[[str], int]) -> int:
    total = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/1") else ():  # noqa: PTH208, PTH112
        with contextlib.suppress(OSError):  # it has ended
            total += measure(name) if name.isdigit() else 0
    return total


def _resident(pid: str) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        _, resident, of_files, *_ = file.read().split()
    return (int(resident) - int(of_files)) * _PAGE


def _own_share(pid: str) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss_Anon:"))


def _code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    main()
