"""Rows of a data source: JSONL, JSON, CSV, Parquet, the bundled generator, an uploaded file, or a dataset of the hub.

Reads rows and splits them into training and held-out ones; what the columns mean is for examples.py. Imports no torch.
"""

import csv
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.catalog.spec.runspec import DataSource
from jobs.engine.bundled import word_problems
from jobs.engine.problem import RunProblem, first_sentence

Row = dict[str, object]
_SPLIT_SEED = 0
_MOST_CELL_CHARS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of a source: `train` and `held_out` share no row; `columns` are those of the first rows."""

    columns: tuple[str, ...]
    train: Sequence[Row]
    held_out: Sequence[Row]

    @property
    def num_rows(self) -> int:
        """All rows, training and held-out."""
        return len(self.train) + len(self.held_out)


def load_table(data: DataSource, *, inputs_dir: Path) -> Table:
    """Return the source's rows, split the same way each time.

    Held-out rows are those of `eval_split` where one is named, else `eval_share` of the rows, drawn with a fixed seed,
    so that two runs on the same data are evaluated on the same rows whatever their seed.
    Raises: RunProblem naming `data.id` (missing, unreadable, empty) or `data.eval_split`.
    """
    rows = _rows(data, data.split, inputs_dir)
    if not rows:
        raise RunProblem("data.id", f"{data.id!r} has no rows. Give a file with at least two.")
    columns = tuple(dict.fromkeys(key for row in rows[:100] for key in row))
    if data.eval_split:
        held_out = _rows(data, data.eval_split, inputs_dir)
        if not held_out:
            raise RunProblem("data.eval_split", f"The split {data.eval_split!r} of {data.id!r} has no rows.")
        return Table(columns=columns, train=rows, held_out=held_out)
    num_held_out = round(len(rows) * data.eval_share)
    chosen = set(random.Random(_SPLIT_SEED).sample(range(len(rows)), num_held_out))
    return Table(
        columns=columns,
        train=[row for i, row in enumerate(rows) if i not in chosen],
        held_out=[row for i, row in enumerate(rows) if i in chosen],
    )


def _rows(data: DataSource, split: str, inputs_dir: Path) -> list[Row]:
    if data.kind == "bundled":
        if data.id != "word-problems":
            raise RunProblem("data.id", f"There is no bundled data {data.id!r}. There is: word-problems.")
        if split != data.split:
            raise RunProblem(
                "data.eval_split",
                "The bundled data has no second split. Leave the field empty; a share of the rows is held out.",
            )
        return [dict(row) for row in word_problems.rows()]
    if data.kind == "upload":
        file = inputs_dir / data.id.removeprefix("upload:")
        if not file.is_file():
            raise RunProblem("data.id", "The uploaded file has not arrived on this node. Upload it again.")
        return read_rows(file, data.id)
    if data.kind == "path":
        return _path_rows(data, split)
    return _hub_rows(data, split)


def _path_rows(data: DataSource, split: str) -> list[Row]:
    """A path names a file; an `eval_split` beside it names another file, absolute or in the same folder."""
    file = Path(data.id).expanduser()
    field = "data.id"
    if split != data.split:
        file, field = file.parent / split, "data.eval_split"
    if not file.is_file():
        raise RunProblem(field, f"There is no file {str(file)!r} on this node. Check the path, or upload the file.")
    return read_rows(file, str(file), field)


def hub_patterns(split: str) -> list[str]:
    """Return where a hub data set keeps a split in files that can be read from the middle."""
    return [f"**{split}*.parquet", f"**{split}*.jsonl", f"{split}*.jsonl", f"**/{split}/*.parquet"]


def _hub_rows(data: DataSource, split: str) -> list[Row]:
    import huggingface_hub

    patterns = [*hub_patterns(split), f"**{split}*.json", f"**{split}*.csv"]
    try:
        folder = Path(huggingface_hub.snapshot_download(data.id, repo_type="dataset", allow_patterns=patterns))
    except Exception as error:  # the hub client raises many unrelated types; all mean that the data cannot be had
        raise RunProblem(
            "data.id",
            f"The hub dataset {data.id!r} cannot be fetched: {first_sentence(error)} Check the id and the connection.",
        ) from error
    files = sorted(
        p
        for p in folder.rglob("*")
        if p.suffix in (".parquet", ".jsonl", ".json", ".csv") and split in str(p.relative_to(folder))
    )
    if not files:
        raise RunProblem(
            "data.split", f"{data.id!r} has no Parquet, JSONL or CSV file of a split {split!r}. Check the split's name."
        )
    return [row for file in files for row in read_rows(file, data.id)]


def read_rows(file: Path, name: str, field: str = "data.id") -> list[Row]:
    """Return the rows of a JSONL, JSON (a list of objects), CSV (with a header) or Parquet file, told apart by content.

    Raises: RunProblem naming the first line that cannot be read.
    """
    try:
        with file.open("rb") as stream:
            head = stream.read(4)
        if head == b"PAR1":
            return _read_parquet(file, name, field)
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RunProblem(
            field, f"{name!r} is neither UTF-8 text nor Parquet. Convert it to JSONL or Parquet."
        ) from error
    except OSError as error:
        raise RunProblem(field, f"{name!r} cannot be read: {error.strerror}.") from error
    if text.lstrip().startswith("["):
        return _read_json_list(text, name, field)
    if is_csv(text):
        return _read_csv(text, name, field)
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            rows.append(_parse_line(line, number, name, field))
    return rows


def _read_parquet(file: Path, name: str, field: str) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[Row] = pyarrow.parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise RunProblem(field, f"{name!r} is not a whole Parquet file: {error}.") from error
    return rows


def is_csv(text: str) -> bool:
    """Return True if a text that is no JSON begins with the header of a table: names with commas or tabs between."""
    header = text.lstrip().partition("\n")[0]
    return bool(header) and header[0] not in "{[" and ("," in header or "\t" in header)


def _read_csv(text: str, name: str, field: str) -> list[Row]:
    """Each value is the text of its cell; a row must have as many as the header has names."""
    csv.field_size_limit(_MOST_CELL_CHARS)
    header = text.lstrip().partition("\n")[0]
    reader = csv.reader(io.StringIO(text.lstrip()), delimiter="," if "," in header else "\t", strict=True)
    rows: list[Row] = []
    try:
        names = [each.strip() for each in next(reader)]
        for cells in reader:
            if cells and len(cells) != len(names):
                counts = f"{len(cells)} cells, and the header {len(names)} names"
                raise RunProblem(
                    field, f"Line {reader.line_num} of {name!r} has {counts}. Put quotes around texts with commas."
                )
            if cells:
                rows.append(dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        raise RunProblem(field, f"Line {reader.line_num} of {name!r} is not CSV: {error}.") from error
    return rows


def _read_json_list(text: str, name: str, field: str) -> list[Row]:
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise RunProblem(field, f"{name!r} is not valid JSON: {error}.") from error
    if not all(isinstance(row, dict) for row in rows):
        raise RunProblem(field, f"{name!r} is a list, but not of objects. Give one JSON object per sample.")
    return list(rows)


def _parse_line(line: str, number: int, name: str, field: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise RunProblem(
            field, f"Line {number} of {name!r} is not JSON: {error}. Give one JSON object per line."
        ) from error
    if not isinstance(row, dict):
        raise RunProblem(
            field, f"Line {number} of {name!r} is {type(row).__name__}, not an object. Give one JSON object per line."
        )
    return row
