"""How far this machine can close a trial in, and the command that does it.

What counts as confined (docs/operate/security.md has the table): namespaces of its own, or, where these may not be
made, Landlock with a filter of system calls. It is found out by closing a process in that then tries to get out.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired, run
from typing import Literal

from django.conf import settings

HOUSE = Path(__file__).resolve().parents[2]
PACKAGES = (HOUSE / "jobs", HOUSE / "profiling")
NOT_CONFINED = 97
"""Exit code of jobs.box.closed where it could not do it; nothing was run then."""
MAX_OUTPUT_BYTES = 32 << 20
MAX_MEMORY_BYTES = 8 << 30  # of address space; readers of Parquet map far more than they touch
MAX_SCRATCH_BYTES = 64 << 20
MAX_PROCESSES = 64
_PROBE_SECONDS = 20.0

Level = Literal["namespaces", "landlock", "none"]
LEVELS: tuple[Level, ...] = ("namespaces", "landlock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How trials are closed in here; `lacks` says what stood against a better level, "" if nothing did."""

    level: Level
    lacks: str = ""

    @property
    def is_confined(self) -> bool:
        """True if a trial can neither read the console's files nor reach its processes or a network."""
        return self.level != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a trial may have beside the packages and the code: places to read, places to write, the network.

    `real`: where a place was when it was looked at. One that is somewhere else by the time it is opened is not shown:
    who may write beside it could have put a link there meanwhile.
    """

    read: tuple[Path, ...] = ()
    real: Mapping[Path, Path] = field(default_factory=dict)
    write: tuple[Path, ...] = ()
    has_network: bool = False
    holds_code: bool = True  # of a person: then it has less memory


@cache
def confinement() -> Confinement:
    """Return what this machine can do, found out once in each process; takes a fifth of a second then."""
    reasons: list[str] = []
    for level in LEVELS:
        reason = why_not(level)
        if not reason:
            return Confinement(level=level, lacks="; ".join(reasons))
        reasons.append(f"{level}: {reason}")
    return Confinement(level="none", lacks="; ".join(reasons))


def closed(level: Level, command: Sequence[str], *, allowance: Allowance, folder: Path, seconds: int) -> list[str]:
    """Return the command that closes itself in to this level and becomes `command`; `folder` is an empty one."""
    plan = {
        "level": level,
        "command": list(command),
        "folder": str(folder),
        "read": [*_environment(), *map(str, allowance.read)],
        "real": {str(place): str(real) for place, real in allowance.real.items()},
        "write": [str(place) for place in allowance.write],
        "has_network": allowance.has_network,
        "cpu_seconds": seconds,
        "memory_bytes": MAX_MEMORY_BYTES,
        "held_bytes": MAX_MEMORY_BYTES // 2 if allowance.holds_code else MAX_MEMORY_BYTES,
        "file_bytes": MAX_OUTPUT_BYTES,
        "scratch_bytes": MAX_SCRATCH_BYTES,
        "processes": MAX_PROCESSES,
    }
    return [sys.executable, "-s", "-S", "-m", "jobs.box.closed", json.dumps(plan)]


def _environment() -> Iterator[str]:
    """Yield where Python, its packages and the code of a trial are: never the tree itself, which may hold the data."""
    yield from (sys.prefix, sys.base_prefix)
    place = Path(sys.executable)
    while place.is_symlink():  # of a virtual environment, to the interpreter that made it
        yield str(place)
        place = place.parent / place.readlink()
    yield str(place)
    yield from map(str, PACKAGES)


_ESCAPE = """
import os, socket, sys
got = []
for what, attempt in (
    ("the secret key", lambda: open(sys.argv[1]).read()),
    ("the data directory", lambda: os.listdir(sys.argv[2])),
    ("the console's environment", lambda: open(f"/proc/{sys.argv[3]}/environ").read()),
    ("a network", socket.socket),
    ("the code", lambda: open(sys.argv[4], "a")),
):
    try:
        attempt()
    except OSError:
        continue
    got.append(what)
print("closed" if not got else "it still reaches " + ", ".join(got))
"""


def why_not(level: Level) -> str:
    """Return why a process cannot be closed in to this level, "" if it can."""
    if any(settings.DATA_DIR.is_relative_to(Path(place).resolve()) for place in _environment()):
        return "Python's environment holds the data directory"
    secrets = (str(settings.DATA_DIR / "secret_key"), str(settings.DATA_DIR), str(os.getpid()), __file__)
    command = [sys.executable, "-s", "-S", "-c", _ESCAPE, *secrets]
    with tempfile.TemporaryDirectory(prefix="pitwall-trial-") as folder:
        argv = closed(level, command, allowance=Allowance(), folder=Path(folder), seconds=int(_PROBE_SECONDS))
        try:
            done = run(argv, capture_output=True, text=True, cwd=HOUSE, env={}, timeout=_PROBE_SECONDS, check=False)
        except (OSError, TimeoutExpired) as error:
            return str(error)
    said = (done.stdout.strip() or done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    return "" if done.returncode == 0 and said == "closed" else said.removeprefix("NotConfined: ")[:200]
