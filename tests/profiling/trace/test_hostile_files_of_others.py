"""Hostile files of other makers' formats: an import ends in a sentence or a store, soon, whatever stands in them."""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from profiling.trace import other_files
from profiling.trace.formats import whole_file
from profiling.trace.formats.sqlite_tables import Tables
from profiling.trace.importing import import_trace
from profiling.trace.limits import Unreadable
from profiling.trace.readers import chakra, folded_stacks
from profiling.trace.store import Store
from tests.contracts.trace_files import T
from tests.contracts.trace_files_of_others import BOOT, wire

SOON = 2.0
"""Seconds of this process's CPU; what is quadratic, or worse, takes minutes for the same input."""


class _Soon:
    def __enter__(self) -> None:
        self._begin = time.process_time()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert kind or time.process_time() - self._begin < SOON


def notes(path: Path) -> str:
    with Store(path) as store:
        return " ".join(note.text for note in store.notes)


@pytest.mark.parametrize(
    "head",
    [
        b"\n" * 60000 + b"x",
        b" \n" * 30000 + b"x",
        b"a" + b" " * 60000 + b"x",
        b"a " + b"1 " * 30000,
        b"a " + b"1" * 60000,
        b"#\n" * 30000 + b"a 1 1.1: x\n y",
        b"{" * 60000,
        b"a;" + b" 1.1" * 15000,
        b"Time (%)," * 6000,
        b"Start_Timestamp" * 4000,
        b"SQLite format 3\0" + b"CREATE TABLE " * 5000,
        b"\x0a" * 60000,
    ],
)
def test_no_beginning_of_a_file_takes_long_to_tell(head: bytes) -> None:
    with _Soon():
        other_files.told_of(head)
        other_files.looks_like(head)
        folded_stacks.PLUGIN.sniff(Path(), b"a;b" + head)


def speedscope(folder: Path, profile: dict[str, Any], frames: int) -> Path:
    path = folder / "a.speedscope.json"
    shared = {"frames": [{"name": f"f{i}"} for i in range(frames)]}
    content = {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": shared, "profiles": [profile]}
    path.write_text(json.dumps(content))
    return path


def test_frames_that_open_and_never_close_are_as_many_events_as_may_lie_in_each_other(tmp_path: Path) -> None:
    """Each event once cost as much as there were frames open."""
    events = [{"type": "O", "frame": i % 7, "at": i} for i in range(20_000)]
    events += [{"type": "C", "frame": 3, "at": 20_000}] * 10
    profile = {"type": "evented", "unit": "microseconds", "startValue": 0, "endValue": 50_000, "events": events}

    with _Soon():
        facts = import_trace(speedscope(tmp_path, profile, 7), tmp_path / "store")

    assert facts.events == 2048
    assert "frames are still open at the end" in notes(tmp_path / "store")


def test_a_stack_is_as_deep_as_stacks_are(tmp_path: Path) -> None:
    path = tmp_path / "a.folded"
    path.write_text("a;b 1\n" + ";".join(["f"] * 300_000) + " 3\n")

    assert import_trace(path, tmp_path / "store").events == 2048 + 2


def test_requests_that_all_overlap_share_rows(tmp_path: Path) -> None:
    """They were as many lanes, each looked at for each request, and more than 4,096 were refused."""
    spans = [
        {"traceId": f"{i}", "name": "r", "startTimeUnixNano": f"{T + i}", "endTimeUnixNano": T + 10**9 + i}
        for i in range(6000)
    ]
    spans += [{"name": "late", "startTimeUnixNano": T, "endTimeUnixNano": 2**64}, {"name": "none"}, {}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))

    facts = import_trace(path, tmp_path / "store")

    assert (facts.events, facts.lanes) == (6000, 1000)
    assert "3 spans were left out" in notes(tmp_path / "store")


def test_nodes_that_wait_for_nothing_follow_each_other() -> None:
    node = {"name": "n", "start": 0, "lasts": 1000, "after": (), "is_cpu": False, "is_collective": False}
    nodes = [chakra._Node(id=i, **node) for i in range(200_000)]  # type: ignore[arg-type]

    with _Soon():
        assert chakra._schedule(nodes)[199_999] == 199_999_000


def test_times_that_cannot_be_cost_their_event_alone(tmp_path: Path) -> None:
    """One timestamp beyond int64 once cost the whole file."""

    def event(at: int, *parts: bytes) -> bytes:
        return wire(1, wire(8, at) + wire(10, 1) + wire(11, b"".join(parts)))

    parents = [wire(1, wire(10, 1) + wire(60, wire(1, i) + wire(5, i % 3000 + 1))) for i in range(1, 3001)]
    ranges = [event(BOOT + i, wire(9, 3), wire(23, "x"), wire(11, 1 + i % 40)) for i in range(2000)]
    path = tmp_path / "a.pftrace"
    path.write_bytes(b"".join([*parents, event(2**64 - 1, wire(9, 3), wire(23, "far"), wire(11, 1)), *ranges]))

    assert import_trace(path, tmp_path / "store").events == 2000
    assert "1 event was left out" in notes(tmp_path / "store")

    line = wire(2, "t") + wire(3, T) + wire(4, wire(1, 1) + wire(2, 5) + wire(3, 7))
    line += wire(4, wire(1, 1) + wire(3, 7) + wire(5, 12))
    far = wire(2, "far") + wire(3, 2**63 - 1) + wire(4, wire(1, 1) + wire(2, 2**62))
    (tmp_path / "a.xplane.pb").write_bytes(wire(1, wire(2, "/host:CPU") + wire(3, line) + wire(3, far)))

    assert import_trace(tmp_path / "a.xplane.pb", tmp_path / "store").events == 1
    assert "1 event is sums of many" in notes(tmp_path / "store")
    assert "1 event was left out: the time is none" in notes(tmp_path / "store")


def test_json_beyond_memory_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser dies by a signal where memory ends: there was a number of an exit code instead of a sentence."""
    monkeypatch.setattr(whole_file, "_MOST_MEMORY", 1 << 20)
    profile = {"type": "sampled", "unit": "none", "samples": [[]] * 20_000, "weights": []}

    with pytest.raises(Unreadable, match=r"more values than the .* of memory"):
        import_trace(speedscope(tmp_path, profile, 1), tmp_path / "store")


@pytest.mark.parametrize("rest", [b"[" * 3_000_000, b"[" * 3_000_000 + b"]" * 2_999_999, b'"' + b"\\" * 3_000_000])
def test_json_that_is_cut_off_is_closed_soon(rest: bytes, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(b'{"rocprofiler-sdk-tool":' + rest)
    with _Soon(), pytest.raises(Unreadable):
        import_trace(path, tmp_path / "store")


def test_a_table_whose_pages_repeat_ends(tmp_path: Path) -> None:
    """Twelve pages, each sixty times the next one's parent, are more rows than can ever be read."""
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as opened:
        opened.execute("PRAGMA page_size = 512")
        opened.execute("CREATE TABLE t(a)")
    opened.close()
    pages = bytearray(path.read_bytes())
    root, depth, children = 2, 12, 60
    del pages[512:]

    def page(kind: int, cells: list[bytes], rightmost: int) -> bytes:
        head = bytes([kind, 0, 0]) + len(cells).to_bytes(2, "big")
        at, places, body = 512, b"", b""
        for cell in cells:
            at -= len(cell)
            places, body = places + at.to_bytes(2, "big"), cell + body
        head += at.to_bytes(2, "big") + b"\0" + (rightmost.to_bytes(4, "big") if kind == 5 else b"")
        return (head + places).ljust(at, b"\0") + body

    for number in range(root, root + depth):
        below = (number + 1).to_bytes(4, "big")
        pages += page(5, [below + bytes([i + 1]) for i in range(children)], number + 1)
    pages += page(13, [bytes([3, i + 1, 2, 1, 7]) for i in range(children)], 0)
    pages[28:32] = (len(pages) // 512).to_bytes(4, "big")
    path.write_bytes(pages)

    with Tables(path) as tables, pytest.raises(sqlite3.DatabaseError, match="more rows than the file has room for"):
        sum(1 for _ in tables.rows("t", "a"))


@pytest.mark.parametrize("stack", [[9], ["a"], [None], [1.5], 3, None, [[0]], {"a": 1}])
def test_a_sample_of_no_frame_is_left_out_by_name(tmp_path: Path, stack: Any) -> None:
    """An index beyond the list once ended the process without a sentence; one wrong sample cost all profiles."""
    profile = {"type": "sampled", "unit": "seconds", "samples": [[0], stack], "weights": [1, 1], "name": "main"}

    assert import_trace(speedscope(tmp_path, profile, 1), tmp_path / "store").events == 1
    assert f"1 sample was left out of main: number 2 is {stack}." in notes(tmp_path / "store")


def test_what_else_is_wrong_in_a_profile_is_named(tmp_path: Path) -> None:
    profile: dict[str, Any] = {"type": "sampled", "unit": "seconds", "samples": [[0], [0]], "weights": [-1, 2]}
    assert import_trace(speedscope(tmp_path, profile, 1), tmp_path / "store").events == 1
    assert "left out of profile 1: number 1 weighs -1." in notes(tmp_path / "store")

    with pytest.raises(Unreadable, match="profile 1 has 2 samples and 1 weights"):
        import_trace(speedscope(tmp_path, {**profile, "weights": [1]}, 1), tmp_path / "other")
    evented = {"type": "evented", "unit": "seconds", "events": [{"type": "O", "frame": 9, "at": 0}], "name": "main"}
    with pytest.raises(Unreadable, match="of the frame 9; there are those from 0 to 0"):
        import_trace(speedscope(tmp_path, evented, 1), tmp_path / "other")


def test_events_whose_times_cannot_be_are_left_out_by_name(tmp_path: Path) -> None:
    event: dict[str, Any] = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 7}
    events = [{**event, "name": "add", "ts": at, "dur": 1} for at in range(100, 120)]
    events += [{**event, "name": "mm", "ts": 104, "dur": -2.5}, {**event, "name": "far", "ts": 4e12, "dur": 1}]
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": events}))

    assert import_trace(tmp_path / "a.json", tmp_path / "store").events == 20
    assert notes(tmp_path / "store") == (
        "2 events were left out for their times: 'mm' lasts -2.500 µs; 'far' begins at 4,000,000.000 s, a month and "
        "more from the others."
    )
