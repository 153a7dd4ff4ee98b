"""Data that are read as needed: the same rows as from memory, exact resume, memory of a block and no more."""

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow
import pyarrow.parquet
import pytest
from fsspec.implementations.dirfs import DirFileSystem  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import DataSource, RunSpec
from jobs.engine.data.dataset import Row
from jobs.engine.data.examples import Example
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.stream import Cursor, JsonLines, RowFiles, Stream, is_held_out, open_rows
from jobs.engine.data.text import TextModel
from jobs.engine.data.training_data import read_training_data
from jobs.engine.problem import RunProblem

NUM_ROWS, BLOCK = 57, 10


def rows(count: int = NUM_ROWS) -> list[dict[str, Any]]:
    return [{"prompt": f"é{i}+1?", "answer": str(i + 1)} for i in range(count)]


def write(folder: Path, kind: str) -> Path:
    file = folder / f"rows.{kind}"
    if kind == "jsonl":
        file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows()) + "\n\n", encoding="utf-8-sig")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows()), file, row_group_size=8)
    return file


@pytest.fixture(params=["jsonl", "parquet"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> RowFiles:
    return open_rows(DataSource(kind="path", id=str(write(tmp_path, request.param))), "train", inputs_dir=tmp_path)


def examples_of(read: Sequence[Row]) -> list[Example]:
    """Every row but those whose number is divisible by 7, as if they were too long."""
    numbered = [(int(str(row["answer"])) - 1, row) for row in read]
    return [
        Example(row=n, prompt=str(row["prompt"]), answer="", segments=(), tokens=(n,), is_trained=(False,))
        for n, row in numbered
        if n % 7
    ]


def stream(files: RowFiles, *, share: float = 0.0, seed: int = 3) -> Stream:
    return Stream(files, make=examples_of, block_rows=BLOCK, seed=seed, held_out_share=share)


def take(source: Stream, count: int) -> list[int]:
    return [source.take().row for _ in range(count)]


def test_blocks_have_the_rows_of_the_file_wherever_they_begin(files: RowFiles) -> None:
    read, cursor = [], Cursor()
    while (part := files.read(cursor, BLOCK))[0]:
        read += part[0]
        cursor = part[1]

    assert read == rows()
    assert cursor.row == NUM_ROWS
    assert files.read(Cursor(), 1000)[0] == rows()


def test_a_pass_has_every_usable_row_once_and_the_next_has_another_order(files: RowFiles) -> None:
    usable = [n for n in range(NUM_ROWS) if n % 7]
    source = stream(files)

    first, second = take(source, len(usable)), take(source, len(usable))

    assert sorted(first) == sorted(second) == usable
    assert first != second
    assert first != usable
    assert first == take(stream(files), len(usable))
    assert first != take(stream(files, seed=4), len(usable))
    assert 1 < source.passes < 2 + 1e-9


def test_a_run_goes_on_at_any_row(files: RowFiles) -> None:
    source = stream(files)
    told = []
    order = []
    for _ in range(120):
        told.append(dict(source.position))
        order.append(source.take().row)

    for stop in (0, 1, 8, 9, 48, 49, 50, 100):
        again = stream(files)
        again.seek(json.loads(json.dumps(told[stop])))
        assert take(again, 20) == order[stop : stop + 20], stop


def test_going_on_reads_no_row_before_its_block(tmp_path: Path) -> None:
    file = write(tmp_path, "jsonl")
    reads: list[int] = []

    class Counting(JsonLines):
        def read(self, offset: int, count: int) -> tuple[list[Row], int]:
            reads.append(offset)
            return super().read(offset, count)

    counted = RowFiles([Counting(str(file), lambda: file.open("rb"))])
    source = stream(counted)
    take(source, 30)
    position = source.position
    reads.clear()
    again = stream(counted)
    again.seek(position)
    again.take()

    assert reads == [position["offset"]]
    assert position["offset"] > 0


def test_held_out_rows_are_never_trained_on(files: RowFiles) -> None:
    held_out = {n for n in range(NUM_ROWS) if is_held_out(n, 0.3)}

    trained = set(take(stream(files, share=0.3), 100))

    assert 5 < len(held_out) < 30
    assert trained == {n for n in range(NUM_ROWS) if n % 7} - held_out


def test_memory_is_that_of_a_block_however_long_the_file(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    with file.open("w") as out:
        for n in range(20_000):
            out.write(json.dumps({"prompt": "x" * 500, "answer": str(n + 1)}) + "\n")
    files = open_rows(DataSource(kind="path", id=str(file)), "train", inputs_dir=tmp_path)
    source = Stream(files, make=examples_of, block_rows=200, seed=0, held_out_share=0.0)

    tracemalloc.start()
    seen = take(source, 15_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(set(seen)) == 15_000
    assert file.stat().st_size > 10_000_000
    assert peak < 2_500_000  # 200 rows of 500 bytes twice, and the list of numbers


def test_several_files_are_one(tmp_path: Path) -> None:
    parts = []
    for number, part in enumerate((rows()[:13], rows()[13:])):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in part))
        parts.append(JsonLines(str(file), lambda file=file: file.open("rb")))  # type: ignore[misc]
    both = RowFiles(parts)

    assert both.read(Cursor(), 20)[0] == rows()[:20]
    assert sorted(take(stream(both), 48)) == [n for n in range(NUM_ROWS) if n % 7]


def test_a_stream_without_a_usable_row_says_so(files: RowFiles) -> None:
    empty = Stream(files, make=lambda _: [], block_rows=BLOCK, seed=0, held_out_share=0.0)

    with pytest.raises(RunProblem, match="No row of the stream is usable"):
        empty.take()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "[{}]", "is neither JSON lines nor Parquet"),
        ("a.csv", "a,b\n1,2\n", "is neither JSON lines nor Parquet"),
        ("a.jsonl", '{"a": 1}\n{"b"\n', "The line at byte 9 of"),
    ],
)
def test_what_cannot_be_streamed_is_named(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)

    with pytest.raises(RunProblem, match=said):
        open_rows(DataSource(kind="path", id=str(tmp_path / name)), "train", inputs_dir=tmp_path).read(Cursor(), 9)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the hub's file system."""
    folder = tmp_path / "hub" / "datasets" / "org" / "name"
    (folder / "data").mkdir(parents=True)
    place = DirFileSystem(str(tmp_path / "hub"), LocalFileSystem())
    monkeypatch.setattr(huggingface_hub, "HfFileSystem", lambda: place)
    return folder


def test_a_split_of_the_hub_is_read_through_the_network(hub: Path) -> None:
    table = pyarrow.Table.from_pylist(rows())
    pyarrow.parquet.write_table(table.slice(0, 30), hub / "data" / "train-00000-of-00002.parquet", row_group_size=8)
    pyarrow.parquet.write_table(table.slice(30), hub / "data" / "train-00001-of-00002.parquet", row_group_size=8)
    pyarrow.parquet.write_table(table.slice(0, 5), hub / "data" / "test-00000-of-00001.parquet")
    data = DataSource(kind="hub", id="org/name")

    assert open_rows(data, "train", inputs_dir=hub).read(Cursor(), 1000)[0] == rows()
    assert open_rows(data, "test", inputs_dir=hub).read(Cursor(), 1000)[0] == rows()[:5]
    with pytest.raises(RunProblem, match="no Parquet or JSONL file of a split 'dev'"):
        open_rows(data, "dev", inputs_dir=hub)


def made_spec(file: Path, knobs: dict[str, Any] | None = None, **data: Any) -> RunSpec:
    return parse_spec({"data": {"kind": "path", "id": str(file), **data}, "knobs": knobs or {}})


def test_a_run_reads_its_stream_and_its_mixture_as_its_spec_says(tmp_path: Path) -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"question": f"o{i}", "solution": "1"}) + "\n" for i in range(9)))
    streamed = made_spec(
        write(tmp_path, "parquet"),
        {"data.streaming": True, "data.shuffle_rows": 8},
        mixture={"other": {"id": str(other), "weight": 3.0}},
        eval_share=0.2,
    )

    read = read_training_data(streamed, text, inputs_dir=tmp_path)
    again = read_training_data(streamed, text, inputs_dir=tmp_path)
    drawn = [e.prompt for e in read.data.take(0, 300)]
    again.data.seek(read.data.positions)

    held_out = {e.prompt for e in read.held_out}
    assert len(held_out) == sum(is_held_out(n, 0.2) for n in range(NUM_ROWS))
    assert not held_out & set(drawn)
    assert sum(prompt.startswith("o") for prompt in drawn) / 300 == pytest.approx(0.75, abs=0.08)
    assert [e.prompt for e in again.data.take(300, 50)] == [e.prompt for e in read.data.take(300, 50)]
    assert set(read.data.metrics) == {"train/epoch", "data/data/share", "data/other/share"}


def test_data_of_a_mixture_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    spec = made_spec(write(tmp_path, "jsonl"), mixture={"gone": {"id": "/nowhere/a.jsonl"}})

    with pytest.raises(RunProblem) as caught:
        read_training_data(spec, TextModel(BUNDLED / "tiny-word-problems"), inputs_dir=tmp_path)
    with pytest.raises(SpecInvalid, match=r"more.weight is 0. Use a number from 1e-06"):
        made_spec(tmp_path / "a.jsonl", mixture={"more": {"id": "b.jsonl", "weight": 0}})

    assert caught.value.field == "data.mixture"
    assert caught.value.message.startswith("The data gone: There is no file")
