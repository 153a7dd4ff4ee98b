"""What a hostile file makes an importer do is bounded, and what the importer lacks is told as what it is."""

import gzip
import json
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import duckdb
import pytest

from profiling.trace import tiles
from profiling.trace.category import Category
from profiling.trace.formats import json_list, plain_pickle, unpack
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


class _CountedZlib:
    """Stands for zlib, and counts what is handed to it."""

    error = zlib.error

    def __init__(self) -> None:
        self.members = self.given = 0

    def decompressobj(self, bits: int) -> Any:
        self.members += 1
        packed, count = zlib.decompressobj(bits), self

        class Counted:
            eof = property(lambda _: packed.eof)
            unused_data = property(lambda _: packed.unused_data)

            def decompress(self, data: bytes, most: int) -> bytes:
                count.given += len(data)
                return packed.decompress(data, most)

        return Counted()


def test_the_beginning_of_a_file_of_empty_members_is_a_few_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at in the web process, and each member used to copy the rest of the first mebibyte."""
    counted = _CountedZlib()
    monkeypatch.setattr(unpack, "zlib", counted)
    empty = gzip.compress(b"", mtime=0)
    path = tmp_path / "a.json.gz"
    path.write_bytes(empty * ((1 << 20) // len(empty)))

    assert unpack.head(path) == b""

    assert counted.members <= 8192
    assert counted.given <= 8192 << 12


def test_the_beginning_goes_on_over_the_members_of_an_honest_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    text = bytes(range(256)) * 400
    path.write_bytes(b"".join(gzip.compress(text[i : i + 10_000], mtime=0) for i in range(0, len(text), 10_000)))

    assert unpack.head(path) == text[: 1 << 16]
    assert unpack.head(path, 20_001) == text[:20_001]


def _laughs(rounds: int) -> Any:
    """Return a list of two of a list of two ...: a few hundred bytes of pickle for 2 ** rounds values."""
    value: Any = [0, 0]
    for _ in range(rounds):
        value = [value, value]
    return value


@pytest.mark.parametrize("place", ["pg_config", "sizes", "process_group", "profiling_name"])
def test_a_pickle_that_stands_for_more_than_can_be_walked_through_is_refused(tmp_path: Path, place: str) -> None:
    laughs = _laughs(40)
    entry = {"time_created_ns": T, "collective_seq_id": 1, "input_sizes": [[1]], "process_group": ("0", "x")}
    dump = {"pg_config": {"0": {"ranks": [0]}}, "pg_status": {}, "entries": [entry]}
    if place == "pg_config":
        dump["pg_config"] = {"0": {"ranks": laughs}}
    else:
        entry["input_sizes" if place == "sizes" else place] = [laughs, laughs]
    path = tmp_path / "a.fr.pickle"
    path.write_bytes(pickle.dumps(dump))
    assert path.stat().st_size < 700

    with pytest.raises(Unreadable, match="a pickle of more than 1,000,000 values"):
        import_trace(path, tmp_path / "a.store")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pickle.dumps({"segments": {(1, 2): 3}}), "keys that are neither texts nor numbers"),
        (pickle.dumps({"segments": {1, 2}}), "a pickle with sets"),
        (pickle.dumps({"segments": frozenset({1})}), "a pickle with sets"),
        (b"\x80\x02(X\x08\0\0\0segmentsK\x01(K\x01K\x02tK\x03d.", "keys that are neither"),
        (b"\x80\x02}X\x08\0\0\0segments]q\0h\0as.", "part of itself"),
    ],
    ids=["a key with values in it", "a set", "a frozen set", "a key of an old instruction", "a list in itself"],
)
def test_a_pickle_holds_what_can_be_hashed_and_walked_through(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(data)

    with pytest.raises(Unreadable, match=why):
        import_trace(path, tmp_path / "a.store")


def test_what_stands_in_many_places_counts_in_each_and_is_looked_into_once() -> None:
    stack = [{"line": i} for i in range(100)]
    entries = [{"frames": stack} for _ in range(1000)]

    plain_pickle.check_size(entries, most_values=1000 * 310)
    with pytest.raises(Unreadable, match="more than 200,000 values"):
        plain_pickle.check_size(entries, most_values=1000 * 200)
    with pytest.raises(Unreadable, match="8 levels"):
        plain_pickle.check_size(_laughs(8), most_values=10**6, most_depth=8)


def test_only_texts_and_numbers_are_written_as_a_text() -> None:
    values = ("abcdef", 7, 1.5, 10**5000, _laughs(30), {"a": 1}, None)

    assert [plain_pickle.text(value, 4) for value in values] == ["abcd", "7", "1.5", "", "", "", ""]
