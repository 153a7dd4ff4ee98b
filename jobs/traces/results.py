"""What is computed of traces: each answer once, two at a time, kept beside the stores for the next who asks.

An answer is known by what it is of (files, window, phases) and by the code that computes it, so it is never out of
date. It is computed in a thread of its own that reads stores alone: whoever asks waits for a moment and is then told to
ask again, and many who ask the same have one answer.
"""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from django.utils import translation
from django.utils.translation import gettext as _

import profiling
from jobs.models import Trace
from jobs.traces.files import NoAnswer
from jobs.traces.imports import trace_folder
from profiling import plain

T = TypeVar("T")

MOST_AT_ONCE = 2
MOST_WAITING = 8
MOST_OF_PROJECT = 5
"""Under way for one project, so that it does not keep the others waiting."""
MOST_KEPT = 32
"""Answers of one trace on disk, and of all traces in memory."""
PATIENCE = 1.0
"""Seconds that a page waits for an answer before it says that it is being computed."""

_places = threading.Semaphore(MOST_AT_ONCE)
_under_way: dict[Path, "Future[Any]"] = {}
_projects: dict[Path, str] = {}  # of those
_kept: "OrderedDict[Path, Any]" = OrderedDict()
_lock = threading.Lock()


class StillComputing(NoAnswer):
    """The answer is not there yet; the sentence says to ask again."""

    status = 503


def answer(trace: Trace, about: object, shape: type[T], work: Callable[[], T], *, patience: float | None = None) -> T:
    """Return what `work` returns, a dataclass of that shape; `about` says by its repr all that it depends on.

    `work` must not touch the database. Raises: StillComputing after `patience` seconds (None: PATIENCE), and at once
    where too many others wait; whatever `work` raises, which is not kept.
    """
    name = sha256(f"{shape.__name__} {about!r} {_code()}".encode()).hexdigest()[:24]
    path = trace_folder(trace) / f"answer-{name}.json"
    with _lock:
        if path in _kept:
            _kept.move_to_end(path)
            return _kept[path]
        future = _under_way.get(path)
        if future is None:
            project = str(trace.project_id)
            num_of_project = sum(other == project for other in _projects.values())
            if len(_under_way) >= MOST_AT_ONCE + MOST_WAITING or num_of_project >= MOST_OF_PROJECT:
                raise StillComputing(_("The console is busy with other traces. Try again in a few seconds."))
            language = translation.get_language()
            future = _under_way[path] = Future()
            _projects[path] = project
            # a daemon, unlike threads of a pool: a console that ends does not wait for what is in line
            job = (future, path, shape, work, language)
            try:
                threading.Thread(target=_compute, args=job, name="answer", daemon=True).start()
            except RuntimeError:  # the system gives no thread: nobody would ever answer
                del _under_way[path], _projects[path]
                raise
    try:
        result: T = future.result(timeout=PATIENCE if patience is None else patience)
    except NotYet as error:
        if future.done():  # just now; or it was `work` that ran out of time
            return future.result()
        raise StillComputing(_("Computing. Try again in a few seconds.")) from error
    return result


def _compute(future: "Future[T]", path: Path, shape: type[T], work: Callable[[], T], language: str | None) -> None:
    with _places:
        try:
            result = _answer(path, shape, work, language)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


def _answer(path: Path, shape: type[T], work: Callable[[], T], language: str | None) -> T:
    try:
        result = _read(path, shape)
        if result is None:
            with translation.override(language):
                result = work()
            _write(path, result)
        with _lock:
            _kept[path] = result
            _forget(path)
            while len(_kept) > MOST_KEPT:
                _kept.popitem(last=False)
        return result
    finally:
        with _lock:
            _forget(path)


def _forget(path: Path) -> None:
    """Free the place of an answer; under the lock."""
    _under_way.pop(path, None)
    _projects.pop(path, None)


def _read(path: Path, shape: type[T]) -> T | None:
    try:
        return plain.read(shape, path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or half of it
        return None


def _write(path: Path, result: object) -> None:
    """Keep an answer, and the newest of its trace; a full disk or a deleted trace costs the answer alone."""
    draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with contextlib.suppress(OSError):
        try:
            draft.write_text(plain.written(result), encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        by_age = sorted(path.parent.glob("answer-*.json"), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in by_age[MOST_KEPT:]:
            old.unlink(missing_ok=True)


@cache
def _code() -> str:
    """Return a digest of all code that answers come from."""
    home, here = Path(next(iter(profiling.__path__))), Path(__file__).parent
    digest = sha256()
    for folder in (home, here, here.with_name("diagnosis")):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
