"""The torch profiler, put away after each step: what a process that is killed has recorded is not lost with it.

torch holds a trace in the memory of the process until it is stopped. So this tool stops it at a step's end, starts it
again, and lets a thread put away the piece; pieces become one trace at the end, or when somebody finds those of a
process that is gone (`gather`). All of a process's traces count from one moment, and number their operators on, so that
pieces fit each other as they are. It costs about 4 µs per event between the steps, besides what recording costs.
"""

import gzip
import mmap
import os
import re
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiling.config import What
from profiling.recorders.recorder import RecorderFailed, ToolRank, free_text
from profiling.recorders.torch import GZIP_LEVEL, TorchRecorder, TorchTool, export

PIECE_SECONDS = 0.5
"""A piece holds at least so much, save the first two: a recording may begin within a step."""
_SOON = 2
_WORTH_SECONDS = 0.05  # of a step that had begun before the recording
_FAST = 1  # of gzip: a piece is packed again with the others
_COPY_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_WAIT_SECONDS = 60.0
_EVENTS = re.compile(rb'"traceEvents":\s*\[')
_END = re.compile(rb'\]\s*,\s*"traceName"')
_PIECE = re.compile(r"\.piece-(?P<name>.+)\.(?P<number>\d{6})")


class PiecesRecorder(TorchRecorder):
    """One trace of this process, in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        self._since = 0.0
        self._problem = ""
        self._writer: threading.Thread | None = None

    def start(self, path: Path) -> None:
        """Start torch's profiler. Raises: RecorderFailed."""
        _remove(path)  # of a recording of that name which nobody ended
        super().start(path)

    def _begin(self, torch: Any) -> None:
        super()._begin(torch)
        self._since = time.monotonic()

    def begin_step(self, step: int) -> None:
        """Put away what there is since the last piece, if it is time, and open `ProfilerStep#<step>`."""
        if self._is_due():
            self._put_away()
        super().begin_step(step)

    def _is_due(self) -> bool:
        if self._profile is None or self._problem or not self._may_stop_here():
            return False
        if self._writer is not None and self._writer.is_alive():
            return False
        passed = time.monotonic() - self._since
        if self._number < _SOON:
            return bool(self._step_thread) or passed >= _WORTH_SECONDS
        return passed >= PIECE_SECONDS

    def _put_away(self) -> None:
        import torch

        ended = self._profile
        self._end(torch)
        try:
            self._begin(torch)
        except RecorderFailed as error:
            self._problem = str(error)
        self._number += 1
        self._writer = threading.Thread(target=self._write_piece, args=(ended, self._number), daemon=True)
        self._writer.start()

    def stop(self) -> None:
        """Stop it. Raises: RecorderFailed if it could not go on after a piece."""
        if self._profile is None and self._problem:
            raise RecorderFailed(f"The trace could not be continued after its piece {self._number}: {self._problem}")
        super().stop()

    def write(self) -> None:
        """Put away the last piece, and make one trace of all. Raises: RecorderFailed."""
        if self._writer is not None:
            self._writer.join(_WAIT_SECONDS)
        self._number += 1
        self._write_piece(self._profile, self._number)
        self._profile = None
        try:
            if self._problem:
                raise RecorderFailed(self._problem)
            if len(_pieces(self._path)) < self._number:
                raise RecorderFailed(f"The trace was not written: a piece of {self._number} is missing.")
            _join(self._path)
        except OSError as error:
            raise RecorderFailed(f"The trace was not written: {error} ({free_text(self._path.parent)}).") from error
        finally:
            _remove(self._path)

    def discard(self) -> None:
        """Stop, if that is safe here, and drop the pieces."""
        super().discard()
        if self._writer is not None:
            self._writer.join(_WAIT_SECONDS)
        _remove(self._path)

    def _write_piece(self, ended: Any, number: int) -> None:
        piece = _piece_path(self._path, number)
        plain, part = piece.with_name(f".part{piece.name}.json"), piece.with_name(f".part{piece.name}")
        try:
            export(ended, plain)
            with gzip.open(part, "wb", compresslevel=_FAST) as target:
                _copy_events(plain, target, is_first=number == 1)
            part.replace(piece)
        except (OSError, RuntimeError) as error:
            problem = str(error) if isinstance(error, RecorderFailed) else f"The trace was not written: {error}"
            self._problem = self._problem or problem
        finally:
            for left in (plain, plain.with_name(f"{plain.name}.tmp"), part):
                left.unlink(missing_ok=True)


def _copy_events(plain: Path, target: gzip.GzipFile, *, is_first: bool) -> None:
    """Copy the events of a trace, with its head if it is the first piece, so that pieces follow each other as one."""
    with plain.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begin = _EVENTS.search(data)
        ends = [match.start() for match in _END.finditer(data, max(0, len(data) - _TAIL_BYTES))]
        if begin is None or not ends:
            raise RecorderFailed("The trace was not written: torch wrote it in a form that has no list of events.")
        target.write(data[: begin.end()] if is_first else b",")
        for offset in range(begin.end(), ends[-1], _COPY_BYTES):
            target.write(data[offset : min(offset + _COPY_BYTES, ends[-1])])


def _piece_path(path: Path, number: int) -> Path:
    return path.with_name(f".piece-{path.name}.{number:06d}")


def _pieces(path: Path) -> list[Path]:
    """Return the pieces of a trace, up to the first that is missing."""
    pieces: list[Path] = []
    while (piece := _piece_path(path, len(pieces) + 1)).exists():
        pieces.append(piece)
    return pieces


def _join(path: Path) -> None:
    """Make one trace of its pieces. Raises: OSError."""
    part = path.with_name(f".part-{path.name}")
    try:
        with gzip.open(part, "wb", compresslevel=GZIP_LEVEL) as target:
            for piece in _pieces(path):
                with gzip.open(piece) as source:
                    shutil.copyfileobj(source, target, length=_COPY_BYTES)
            target.write(b'],"traceName":"%s"}\n' % os.fsencode(path.name))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    for piece in path.parent.glob(f".piece-{path.name}.*"):
        piece.unlink(missing_ok=True)


class TorchPiecesTool(TorchTool):
    """The tool `torch_pieces`."""

    name = "torch_pieces"
    about = "like torch, stored after each step, so that a killed worker keeps those before; takes time between steps"
    lost = "Its process was killed before a step was put away."
    is_only_named = True
    shows: Mapping[What, ToolRank] = {
        what: replace(shown, order=9) for what, shown in TorchTool.shows.items() if not shown.is_extra
    }

    def recorder(self, what: str) -> PiecesRecorder:  # noqa: ARG002
        """Return a recorder for one capture."""
        return PiecesRecorder()

    def gather(self, folder: Path, capture: str) -> dict[str, str]:
        """Join the pieces of processes that are gone; return what went wrong, by the name of a file."""
        problems = {}
        matches = (_PIECE.fullmatch(piece.name) for piece in folder.glob(f".piece-{capture}-*"))
        for name in sorted({str(match["name"]) for match in matches if match}):
            path = folder / name
            try:
                if not path.exists() and _pieces(path):
                    _join(path)
                _remove(path)
            except (OSError, EOFError) as error:
                problems[name] = f"The pieces of the trace could not be joined: {error}."
        return problems


PLUGIN = TorchPiecesTool()
