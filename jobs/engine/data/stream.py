"""Rows read as they are needed, from files that need not fit into memory: JSON lines or Parquet, here or on the hub.

A block of rows is in memory at a time, which is what is shuffled. Where a stream stands is a few numbers: the place of
its block in the files and how much of the block was taken, so that going on reads that block anew and no row before it.
"""

import json
import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, Protocol

from jobs.catalog.spec.runspec import DataSource
from jobs.engine.data.dataset import Row, hub_patterns
from jobs.engine.data.examples import Example
from jobs.engine.data.sources import Position
from jobs.engine.problem import RunProblem, first_sentence

Open = Callable[[], AbstractContextManager[BinaryIO]]
_PARQUET_ROWS = 1024  # that are decoded at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place in some files: `row` counts over all of them, `offset` is what the file at `file` is read from."""

    file: int = 0
    offset: int = 0
    row: int = 0


class RowFile(Protocol):
    """A file of rows that can be read from the middle."""

    def read(self, offset: int, count: int) -> tuple[list[Row], int]:
        """Return up to `count` rows from `offset` on, and the offset behind them. Fewer only at the end."""

    def size(self) -> int:
        """The offset behind the last row."""


class JsonLines:
    """One object a line; offsets are bytes."""

    def __init__(self, name: str, opens: Open) -> None:
        self._name, self._opens = name, opens

    def read(self, offset: int, count: int) -> tuple[list[Row], int]:
        """See RowFile. Raises: RunProblem naming the byte at which a line begins that is no JSON object."""
        rows: list[Row] = []
        with self._opens() as file:
            file.seek(offset)
            while len(rows) < count and (line := file.readline()):
                if line.strip():
                    rows.append(self._row(line, offset))
                offset += len(line)
        return rows, offset

    def _row(self, line: bytes, offset: int) -> Row:
        try:
            row = json.loads(line.decode("utf-8-sig" if offset == 0 else "utf-8"))
        except ValueError as error:  # a UnicodeDecodeError is one
            raise RunProblem(
                "data.id", f"The line at byte {offset:,} of {self._name!r} is not JSON: {error}."
            ) from error
        if not isinstance(row, dict):
            raise RunProblem("data.id", f"The line at byte {offset:,} of {self._name!r} is no object.")
        return row

    def size(self) -> int:
        """See RowFile."""
        with self._opens() as file:
            return file.seek(0, 2)


class ParquetRows:
    """Row groups, of which one is in memory; offsets are numbers of rows."""

    def __init__(self, opens: Open) -> None:
        self._opens = opens

    def read(self, offset: int, count: int) -> tuple[list[Row], int]:
        """See RowFile."""
        import pyarrow.parquet

        rows: list[Row] = []
        with self._opens() as file, pyarrow.parquet.ParquetFile(file) as parquet:
            begin = 0
            groups: list[int] = []
            for number in range(parquet.num_row_groups):
                size = parquet.metadata.row_group(number).num_rows
                if not groups and begin + size <= offset:
                    begin += size
                else:
                    groups.append(number)
            place = begin
            for batch in parquet.iter_batches(batch_size=_PARQUET_ROWS, row_groups=groups):
                skipped = min(max(offset - place, 0), batch.num_rows)
                place += batch.num_rows
                rows += batch.slice(skipped, count - len(rows)).to_pylist()
                if len(rows) == count:
                    break
        return rows, offset + len(rows)

    def size(self) -> int:
        """See RowFile."""
        import pyarrow.parquet

        with self._opens() as file:
            return int(pyarrow.parquet.read_metadata(file).num_rows)


class RowFiles:
    """Several files as one; each is read to its end before the next."""

    def __init__(self, files: Sequence[RowFile]) -> None:
        self._files = files
        self._sizes = [file.size() for file in files]

    def read(self, cursor: Cursor, count: int) -> tuple[list[Row], Cursor]:
        """Return up to `count` rows from a place on, and the place behind them. None only at the end of all."""
        rows: list[Row] = []
        file, offset = cursor.file, cursor.offset
        while file < len(self._files) and len(rows) < count:
            more, offset = self._files[file].read(offset, count - len(rows))
            rows += more
            if len(rows) < count:
                file, offset = file + 1, 0
        return rows, Cursor(file=file, offset=offset, row=cursor.row + len(rows))

    def fraction(self, cursor: Cursor) -> float:
        """Return how much of all lies before a place, from 0 to 1."""
        return (sum(self._sizes[: cursor.file]) + cursor.offset) / max(sum(self._sizes), 1)


def open_rows(data: DataSource, split: str, *, inputs_dir: Path) -> RowFiles:
    """Return the files of a source's split. Raises: RunProblem naming what cannot be streamed, or is not there."""
    if data.kind == "hub":
        return RowFiles(_hub_files(data, split))
    place = inputs_dir / data.id.removeprefix("upload:") if data.kind == "upload" else Path(data.id).expanduser()
    if data.kind == "path" and split != data.split:
        place = place.parent / split
    if data.kind == "bundled" or not place.is_file():
        what = "The bundled data need no streaming." if data.kind == "bundled" else f"There is no file {str(place)!r}."
        raise RunProblem("data.id", f"{what} Name a JSONL or Parquet file, or switch data.streaming off.")
    return RowFiles([_row_file(str(place), lambda: place.open("rb"))])


def _row_file(name: str, opens: Open) -> RowFile:
    with opens() as file:
        head = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"PAR1"):
        return ParquetRows(opens)
    if not head.startswith(b"{"):
        raise RunProblem(
            "data.id",
            f"{name!r} is neither JSON lines nor Parquet, which alone can be read from the middle. Convert it.",
        )
    return JsonLines(name, opens)


def _hub_files(data: DataSource, split: str) -> list[RowFile]:
    """Return the files of a hub data set's split, read through the network as they are needed."""
    import huggingface_hub

    system = huggingface_hub.HfFileSystem()
    root = f"datasets/{data.id}"
    try:
        names = [path.removeprefix(f"{root}/") for path in system.find(root)]
    except Exception as error:  # the hub client raises many unrelated types; all mean that the data cannot be had
        raise RunProblem(
            "data.id", f"The hub dataset {data.id!r} cannot be read: {first_sentence(error)} Check id and connection."
        ) from error
    paths = [
        f"{root}/{name}" for name in sorted(names) if any(fnmatch(name, pattern) for pattern in hub_patterns(split))
    ]
    if not paths:
        raise RunProblem("data.split", f"{data.id!r} has no Parquet or JSONL file of a split {split!r}.")
    return [_row_file(path, lambda path=path: system.open(path, "rb")) for path in paths]  # type: ignore[misc]


def is_held_out(row: int, share: float) -> bool:
    """Return whether the row of this number is held out of training: about `share` of them, the same in every run."""
    return zlib.crc32(f"held out/{row}".encode()) < share * 2**32


class Stream:
    """Examples of files, a block of rows at a time in a shuffled order."""

    def __init__(
        self,
        files: RowFiles,
        *,
        make: Callable[[Sequence[Row]], list[Example]],
        block_rows: int,
        seed: int,
        held_out_share: float,
    ) -> None:
        """`make` renders rows and leaves out what is too long; `block_rows` are read and shuffled together."""
        self._files, self._make = files, make
        self._block_rows, self._seed, self._share = block_rows, seed, held_out_share
        self.seek({})

    def seek(self, position: Position) -> None:
        """See ExampleSource."""
        self._epoch = position.get("epoch", 0)
        self._begin = Cursor(**{key: position.get(key, 0) for key in ("file", "offset", "row")})
        self._num_taken = position.get("taken", 0)
        self._block: list[Example] | None = None

    def take(self) -> Example:
        """See ExampleSource. Raises: RunProblem if a whole pass has no usable row."""
        if self._block is None:
            self._block, self._next = self._read(self._begin)
        num_empty = 0
        while self._num_taken >= len(self._block):
            num_empty += 1 if self._begin == Cursor() else 0
            if num_empty > 1:
                raise RunProblem(
                    "data.id", "No row of the stream is usable: all are too long, or have nothing to learn."
                )
            self._step()
        self._num_taken += 1
        return self._block[self._num_taken - 1]

    def _step(self) -> None:
        """Go to the next block, after the last one to the first of the next pass."""
        self._begin, self._num_taken = self._next, 0
        self._block, self._next = self._read(self._begin)
        if self._next == self._begin or self._next.row == self._begin.row:
            self._epoch, self._begin = self._epoch + 1, Cursor()
            self._block, self._next = self._read(self._begin)

    def _read(self, begin: Cursor) -> tuple[list[Example], Cursor]:
        rows, behind = self._files.read(begin, self._block_rows)
        rest = [row for number, row in enumerate(rows, start=begin.row) if not is_held_out(number, self._share)]
        try:
            examples = self._make(rest)
        except RunProblem as problem:
            where = f"In the {self._block_rows:,} rows from row {begin.row + 1:,} on: "
            raise RunProblem(problem.field, where + problem.message) from problem
        random.Random(f"{self._seed}/{self._epoch}/{begin.row}").shuffle(examples)
        return examples, behind

    @property
    def position(self) -> Position:
        """See ExampleSource."""
        begin = self._begin
        return {
            "epoch": self._epoch,
            "file": begin.file,
            "offset": begin.offset,
            "row": begin.row,
            "taken": self._num_taken,
        }

    @property
    def passes(self) -> float:
        """See ExampleSource: of a block under way, what lies before it."""
        return self._epoch + self._files.fraction(self._begin)


def head(data: DataSource, split: str, count: int, *, inputs_dir: Path) -> list[Row]:
    """Return the first rows of a source. Raises: as `open_rows`."""
    rows, _ = open_rows(data, split, inputs_dir=inputs_dir).read(Cursor(), count)
    return rows


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns of some rows, in order."""
    return tuple(dict.fromkeys(str(key) for row in rows for key in row))


def numbered_held_out(rows: Sequence[Row], share: float) -> tuple[list[Row], list[Row]]:
    """Return the first rows of a stream as those to train on and those held out."""
    parts: tuple[list[Row], list[Row]] = ([], [])
    for number, row in enumerate(rows):
        parts[is_held_out(number, share)].append(row)
    return parts
