"""Import a trace file into a store, whatever its format.

`python -m profiling.trace.importing FILE STORE` does it in a process of its own, and tells how it goes: standard output
is one JSON object a line, {"progress": 0.4} now and then, and last {"facts": {...}} or {"problem": "a sentence"}. The
process ends itself when its standard input is closed: then nobody listens any more.
"""

import argparse
import contextlib
import errno
import json
import os
import resource
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from profiling.garbage import without_collector
from profiling.trace import other_files
from profiling.trace.formats import unpack
from profiling.trace.formats.sqlite_tables import MAGIC, Tables
from profiling.trace.lanes import TooMuch
from profiling.trace.limits import DEFAULT, Limits, Progress, Unreadable
from profiling.trace.readers.reader import Reader, readers
from profiling.trace.schema import StoreFacts
from profiling.trace.writer import StoreWriter

_READING = 0.85
"""The share of an import that is reading; the rest is sorting."""

_EVERY_SECONDS = 0.25
_MOST_MEMORY = 4 << 30
"""Ten times what an import takes; a file that makes a reader ask for more is refused."""
_WHOLE = (MAGIC, b"PK\x03\x04", b"NVIDIA Tegra Profiler Report", b"NVR\0", *(b"\x80%c" % i for i in (2, 3, 4, 5)))
"""First bytes of formats that are not read as a stream: databases, archives, reports of nsys and ncu, pickles."""
_STUMBLES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, sqlite3.Error)
"""What a reader raises over a value that is of another kind than its format says."""
_PATIENT_SECONDS = 20.0
"""So long an import takes its share of the CPUs: whoever has ended a recording waits for it."""


def import_trace(
    source: Path, target: Path, *, progress: Progress = lambda _: None, limits: Limits = DEFAULT
) -> StoreFacts:
    """Read `source` into a new store at `target` and return what it holds. On failure nothing is left there.

    Raises: Unreadable, with a sentence for whoever brought the file; MemoryError, or OSError where the disk is full.
    """
    facts, _ = _imported(source, target, progress=progress, limits=limits)
    return facts


def _imported(source: Path, target: Path, *, progress: Progress, limits: Limits) -> tuple[StoreFacts, str]:
    """Import a file; return what the store holds and the name of the reader."""
    with _readable(source, target.parent, limits) as plain:
        reader = reader_of(plain)
        assert reader is not None, "what is read whole was unpacked"
        return _stored(reader, plain, target, progress=progress, limits=limits), reader.name


def _stored(reader: Reader, source: Path, target: Path, *, progress: Progress, limits: Limits) -> StoreFacts:
    """Have a reader fill a store and return what it holds."""
    import duckdb

    try:
        with StoreWriter(target, source=reader.name, most_samples=limits.samples) as writer, without_collector():
            _read(reader, source, writer, progress=lambda share: progress(_READING * share), limits=limits)
            facts = writer.finish()
    except duckdb.Error as error:
        raise _of_the_store(error) from error
    if not facts.events and not facts.samples:
        target.unlink()
        raise Unreadable(" ".join([f"The file is {reader.title}, but holds no events.", *writer.warnings]))
    progress(1.0)
    return facts


@contextlib.contextmanager
def _readable(source: Path, folder: Path, limits: Limits) -> Iterator[Path]:
    """Lend a file that any reader can open: databases, archives, reports and pickles are unpacked into `folder`."""
    if not _is_packed_whole(source, unpack.head(source)):
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="unpacked-", dir=folder) as place:
        plain = Path(place) / source.name.removesuffix(".gz")  # the number of a rank may stand in the name
        with unpack.UnpackedFile(source, limits=limits) as packed, plain.open("wb") as file:
            packed.copy_to(file)
        if packed.problem:
            raise Unreadable(packed.problem)
        yield plain


def _is_packed_whole(source: Path, beginning: bytes) -> bool:
    """Return True for a packed file of a format that is not read as a stream."""
    return beginning.startswith(_WHOLE) and unpack.is_packed(source)


def reader_of(source: Path) -> Reader | None:
    """Return the reader for a file, by its content; None for a packed one that is told only once it is unpacked.

    Raises: Unreadable.
    """
    if not source.stat().st_size:
        raise Unreadable("The file is empty.")
    beginning = unpack.head(source)
    if not beginning:
        raise Unreadable("The file is packed by gzip, and holds nothing or is damaged. Bring it as it was written.")
    if _is_packed_whole(source, beginning):
        return None
    for reader in readers():
        try:
            if reader.sniff(source, beginning):
                return reader
        except sqlite3.Error as error:
            raise Unreadable(f"The file is a damaged database ({error}).") from error
    tables = _tables_of(source) if beginning.startswith(MAGIC) else []
    if sentence := other_files.told_of(beginning, tables):
        raise Unreadable(sentence)
    titles = ", ".join(reader.title for reader in readers())
    looks = other_files.looks_like(beginning, tables)
    raise Unreadable(f"The file is of no format that can be read here: it looks like {looks}. Read are {titles}.")


def _tables_of(source: Path) -> list[str]:
    """Return the names of a database's tables; [] of a damaged one."""
    try:
        with Tables(source) as tables:
            return sorted(tables.names)
    except sqlite3.Error:
        return []


def _read(reader: Reader, source: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
    """Have a reader read. Raises: Unreadable for whatever it stumbles over."""
    try:
        reader.read(source, writer, progress=progress, limits=limits)
    except Unreadable:
        raise
    except TooMuch as error:
        raise Unreadable(str(error)) from error
    except _STUMBLES as error:
        raise Unreadable(f"The file is damaged: as {reader.title} it cannot be read ({_short(error)}).") from error


def _of_the_store(error: Exception) -> Exception:
    """Return what an error of the database means that a store is: it tells a full disk in several classes of errors."""
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return MemoryError(str(error))
    if isinstance(error, duckdb.IOException) or "Could not write" in str(error) or "No space left" in str(error):
        return OSError(errno.ENOSPC, "the console's disk has no space for what the import writes")
    return Unreadable(f"What the file holds cannot be sorted into a trace ({_short(error)}).")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def main() -> None:
    """Import, and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--name", default="")
    parser.add_argument("--most-bytes", type=int, default=0)
    arguments = parser.parse_args()
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    step_back_after(_PATIENT_SECONDS)
    _limit(resource.RLIMIT_DATA, _MOST_MEMORY)
    with contextlib.suppress(OSError):  # where the system is short of memory, this process goes before the console
        Path("/proc/self/oom_score_adj").write_text("1000")
    if arguments.most_bytes > 0:
        _limit(resource.RLIMIT_FSIZE, arguments.most_bytes)
    told_at = 0.0

    def progress(share: float) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _EVERY_SECONDS:
            told_at = time.monotonic()
            _say({"progress": round(share, 4)})

    try:
        facts, kind = _imported(arguments.source, arguments.target, progress=progress, limits=DEFAULT)
    except Unreadable as error:
        _say({"problem": str(error)})
    except MemoryError:
        _say(
            {"problem": f"{arguments.name} needs more memory than the console has. Record fewer steps or fewer ranks."}
        )
    except OSError as error:
        _say({"problem": f"{arguments.name} cannot be imported: {error.strerror or error}."})
    else:
        _say({"facts": {**asdict(facts), "kind": kind}})


def step_back_after(seconds: float) -> None:
    """Give way to the console and to training from then on: a large import may take minutes, and nobody waits so long.

    It holds for the exporter of nsys, too, and for all threads; only for a process that leads its group.
    """
    if os.getpgrp() != os.getpid():
        return
    niceness = os.getpriority(os.PRIO_PGRP, 0) + 5
    timer = threading.Timer(seconds, os.setpriority, (os.PRIO_PGRP, 0, niceness))
    timer.daemon = True
    timer.start()


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _end_with_the_caller() -> None:
    while os.read(0, 1 << 16):  # not sys.stdin: its lock, held by a thread, ends the interpreter with a fatal error
        pass
    if os.getpgrp() == os.getpid():  # with whatever we have started
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
