"""The floor of free disk that whatever the console writes respects, with two levels.

Above `keep` everything is taken. Below it people bring nothing more: uploads, traces, recordings and imports are
refused. Below `reserve`, an eighth of it, files of runs are refused as well; runners keep them and try again. What is
left then is for the database and Redis beside the files: what runs report is taken to the last byte.
"""

import errno
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from django.conf import settings
from django.utils.translation import gettext as _

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers by which a system says that it has no room."""

Level = Literal["free", "low", "full"]

_RESERVE = 8  # the first floor is so many times the second


class NoRoom(OSError):
    """The disk's floor is reached; the sentence says how much is free, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.ENOSPC, sentence)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk of the console's files, in bytes: its size, what is free of it, and both floors."""

    total: int
    free: int
    keep: int
    reserve: int

    @property
    def used(self) -> int:
        """What anybody has put there, other programs too."""
        return self.total - self.free

    @property
    def level(self) -> Level:
        """free: all is taken; low: nothing that people bring; full: nothing but what runs report."""
        return "free" if self.free >= self.keep else "low" if self.free >= self.reserve else "full"


def read_disk() -> Disk:
    """Return how full the disk is now."""
    home = Path(settings.FILES_DIR)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    usage = shutil.disk_usage(home)
    keep = max(settings.MIN_FREE_BYTES, round(usage.total * settings.MIN_FREE_PERCENT / 100))
    return Disk(total=usage.total, free=usage.free, keep=keep, reserve=keep // _RESERVE)


def size_text(size: float) -> str:
    """Return bytes in the unit that people read: whole MiB, one at least of what is not nothing, or GiB."""
    mib = size / (1 << 20)
    return f"{mib / 1024:,.1f} GiB" if mib >= 1024 else f"{max(round(mib), math.ceil(min(mib, 1))):,} MiB"


def room_for_people() -> int:
    """Return the bytes that people may still bring: what is free above the first floor, 0 at least."""
    disk = read_disk()
    return max(disk.free - disk.keep, 0)


def require_room(size: int, *, of_a_run: bool = False) -> None:
    """Let `size` more bytes pass, of what people bring or else of a run's own files. Raises: NoRoom."""
    disk = read_disk()
    floor = disk.reserve if of_a_run else disk.keep
    if disk.free - size < floor:
        text = _(
            "The console's disk has %(free)s free, and %(floor)s of it are kept free: it cannot take "
            "%(size)s. Delete uploads, traces or runs that nobody needs, or free some space there."
        )
        raise NoRoom(text % {"free": size_text(disk.free), "floor": size_text(floor), "size": size_text(size)})


def low_disk() -> str:
    """Return what admins should read on every page while the disk is below a floor; "" while it is not."""
    disk = read_disk()
    if disk.level == "free":
        return ""
    if disk.level == "low":
        text = _(
            "The console's disk has only %(free)s free. Uploads, traces and recordings are refused until %(keep)s are."
        )
    else:
        text = _(
            "The console's disk has only %(free)s free. Only what runs report is stored: uploads, recordings and "
            "files of runs wait until %(keep)s are free."
        )
    return text % {"free": size_text(disk.free), "keep": size_text(disk.keep)}
