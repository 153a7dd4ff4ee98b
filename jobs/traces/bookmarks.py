"""What people note of a trace: a window of its time and some words, kept in a file beside its stores.

It goes when the trace goes, and a backup has it, as it has the stores.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.models import Trace
from jobs.traces.imports import trace_folder

MOST_BOOKMARKS = 200
MOST_CHARS = 500
_LATEST = 1 << 62


class BookmarkRefused(ValueError):
    """A bookmark makes no sense; `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """Some words on a window. `begin`, `end`: Unix ns; `made_at`: as in ISO 8601; `by`: a user name."""

    number: int
    text: str
    begin: int
    end: int
    by: str
    made_at: str


def bookmarks(trace: Trace) -> list[Bookmark]:
    """Return the bookmarks of a trace in the order of time."""
    return sorted(_read(_path(trace)), key=lambda one: (one.begin, one.number))


def add_bookmark(
    *, trace: Trace, text: str, begin: int, end: int, user: AbstractBaseUser, now: datetime
) -> list[Bookmark]:
    """Keep a bookmark, and return all. Raises: BookmarkRefused."""
    words = " ".join(text.split())
    if not 0 < len(words) <= MOST_CHARS:
        message = _("A note has 1 to %(most)s characters, this one has %(count)s.")
        raise BookmarkRefused("text", message % {"most": MOST_CHARS, "count": len(words)})
    if not 0 <= begin < end < _LATEST:
        message = _("The window from %(begin)s to %(end)s is none. Its end comes after its begin, both in Unix ns.")
        raise BookmarkRefused("end", message % {"begin": begin, "end": end})
    with _locked(_path(trace)) as path:
        stored = _read(path)
        if len(stored) >= MOST_BOOKMARKS:
            message = _("A trace has at most %(most)s bookmarks. Take one away first.")
            raise BookmarkRefused("", message % {"most": MOST_BOOKMARKS})
        number = 1 + max((one.number for one in stored), default=0)
        made = Bookmark(
            number=number, text=words, begin=begin, end=end, by=user.get_username(), made_at=now.isoformat()
        )
        _write(path, [*stored, made])
    _tell(trace, user, "trace.bookmark", after=asdict(made))
    return bookmarks(trace)


def remove_bookmark(*, trace: Trace, number: int, user: AbstractBaseUser) -> None:
    """Take a bookmark away, if there is one of that number."""
    with _locked(_path(trace)) as path:
        stored = _read(path)
        gone = next((one for one in stored if one.number == number), None)
        if gone is None:
            return
        _write(path, [one for one in stored if one.number != number])
    _tell(trace, user, "trace.unbookmark", before=asdict(gone))


def _path(trace: Trace) -> Path:
    return trace_folder(trace) / "bookmarks.json"


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Hold the file's lock: two people may note something at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


def _read(path: Path) -> list[Bookmark]:
    try:
        return [Bookmark(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []


def _write(path: Path, stored: list[Bookmark]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps([asdict(one) for one in stored]), encoding="utf-8")
    part.replace(path)


def _tell(
    trace: Trace,
    user: AbstractBaseUser,
    verb: str,
    *,
    before: dict[str, object] | None = None,
    after: dict[str, object] | None = None,
) -> None:
    record(
        actor=user,
        verb=verb,
        object_type="trace",
        object_id=trace.pk,
        before=before or {},
        after=after or {},
        project=trace.project,
        label=trace.name,
    )
