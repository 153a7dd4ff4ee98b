"""What a hostile file makes an importer do is bounded, and what the importer lacks is told as what it is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from profiling.trace import tiles
from profiling.trace.category import Category
from profiling.trace.formats import json_list
from profiling.trace.importing import import_trace
from profiling.trace.limits import Limits, Unreadable
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

ROOT = Path(__file__).resolve().parents[3]
T = 1_760_000_000 * 10**9


def test_samples_beyond_the_most_are_left_out_and_told(tmp_path: Path) -> None:
    memory = {"Device Type": 0, "Device Id": -1, "Bytes": 8}
    events = [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": i}
        | {"args": {**memory, "Total Allocated": 8 * i, "Total Reserved": 0}}
        for i in range(1000)
    ]
    events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 1})
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": T, "traceEvents": events}))

    facts = import_trace(path, tmp_path / "a.store", limits=Limits(samples=150))

    assert (facts.events, facts.samples) == (1, 150)
    with Store(tmp_path / "a.store") as store:
        assert "Only the first 150 samples were read; the rest is left out." in [note.text for note in store.notes]


def test_a_list_that_only_seems_to_begin_is_looked_at_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look parses all that comes before it: five thousand looks were minutes."""
    parsed: list[int] = []
    value = json_list._value

    def counted(given: bytes) -> Any:
        parsed.append(len(given))
        return value(given)

    monkeypatch.setattr(json_list, "_value", counted)
    path = tmp_path / "a.json"
    path.write_text('{"a": [' + '{"traceEvents": []},' * 5000 + "{}]}")
    with pytest.raises(Unreadable, match="holds no list traceEvents"):
        import_trace(path, tmp_path / "a.store")
    assert len(parsed) <= 20


def test_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    """DuckDB says so in an error of its transactions."""
    source = ROOT / "tests" / "data" / "traces" / "torch_diff_control.json.gz"
    command = [sys.executable, "-m", "profiling.trace.importing", str(source), str(tmp_path / "a.store")]
    command += ["--name", "rank0.json.gz", "--most-bytes", "200000"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = [json.loads(line) for line in process.stdout]  # its standard input stays open until it has ended
    assert said[-1] == {
        "problem": "rank0.json.gz cannot be imported: the console's disk has no space for what the import writes."
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "said", "told", "text"),
    [
        (duckdb.OutOfMemoryException, "could not allocate", MemoryError, "could not allocate"),
        (duckdb.IOException, "No such device", OSError, "has no space"),
        (duckdb.TransactionException, "Could not write file: No space left on device", OSError, "has no space"),
        (duckdb.ConversionException, "Type INT64 with value -1", Unreadable, "cannot be sorted into a trace"),
    ],
)
def test_an_error_of_the_database_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], said: str, told: type[Exception], text: str
) -> None:
    def fail(_: StoreWriter) -> None:
        raise kind(said)

    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}')
    monkeypatch.setattr(StoreWriter, "finish", fail)
    with pytest.raises(told, match=text):
        import_trace(path, tmp_path / "a.store")
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_long_events_are_put_into_the_pyramid_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them may be long, and each lies in several buckets: at once they would not fit into memory."""
    monkeypatch.setattr(tiles, "MOST_READ", 100)
    monkeypatch.setattr(tiles, "_BLOCK", 500)
    seen: list[int] = []
    clip = tiles.clip

    def counted(row: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(len(row))
        return clip(row, *arguments, **options)

    monkeypatch.setattr(tiles, "clip", counted)
    with StoreWriter(tmp_path / "a.store", source="test") as writer:
        lane = writer.lane("thread", process="p", pid=1)
        name = writer.name("long")
        for i in range(4000):  # of nine buckets of 65 us or more each
            writer.add(lane, T + i * 1000, 1_500_000, name, Category.OPERATOR)
        writer.add(lane, T, 10**9, name, Category.OPERATOR)  # so long that it is in no bucket
        writer.finish()

    assert max(seen) <= 500
    assert sum(seen) == 4000  # each event came into one level
    with Store(tmp_path / "a.store") as store:
        assert len(store.pyramid) > 1
