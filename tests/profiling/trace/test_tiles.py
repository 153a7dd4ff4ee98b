"""Tiles show what is in the store: against a computation that looks at every event and every column."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiling.trace import tiles
from profiling.trace.store import Store
from profiling.trace.tiles import COLUMNS, MOST_BYTES, MOST_EXACT, tile
from profiling.trace.writer import StoreWriter

T = 1_760_000_000 * 10**9
Event = tuple[int, int, int, int]  # lane, start, duration, name


def written(path: Path, events: list[Event], *, lanes: int = 3, names: list[str] | None = None) -> Store:
    with StoreWriter(path, source="test") as writer:
        for lane in range(lanes):
            writer.lane("thread", process="p", pid=1, tid=lane)
        for text in names or [f"name {i}" for i in range(7)]:
            writer.name(text)
        for lane, start, duration, name in events:
            writer.add(lane, start, duration, name, name % 16)
        writer.finish()
    return Store(path)


def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Take a tile apart as a browser does."""
    assert len(data) <= MOST_BYTES
    (size,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + size])
    n = header["n"] if header["exact"] else len(header["rows"]) * COLUMNS
    kinds = (
        [("row", "<u2"), ("name", "<u2"), ("start", "<f8"), ("duration", "<f8"), ("id", "<u4")]
        if header["exact"]
        else [("busy", "u1"), ("name", "<u2")]
    )
    at, arrays = 4 + size, {}
    for key, kind in kinds:
        at += -at % 8
        arrays[key] = np.frombuffer(data, kind, n, at)
        at += arrays[key].nbytes
    assert at == len(data)
    return header, arrays


def random_events(count: int, span: int, *, seed: int = 5, lanes: int = 3) -> list[Event]:
    """Nested and crossing events of all lengths from 0 to the whole span; most are short."""
    rng = np.random.default_rng(seed)
    found: list[Event] = [(0, T, span, 0)]
    for _ in range(count):
        start = int(rng.integers(0, span))
        most = np.log10(span) - (0 if rng.random() < 0.005 else 3)
        duration = int(min(10 ** rng.uniform(0, most), span - start)) if rng.random() > 0.05 else 0
        found.append((int(rng.integers(0, lanes)), T + start, duration, int(rng.integers(0, 7))))
    return found


def check(store: Store, level: int, index: int, *, longest_is_exact: bool = True) -> None:
    """Compare a tile with what every event says."""
    header, arrays = read(tile(store, level=level, index=index))
    width = 1 << level
    begin = store.facts.origin + index * COLUMNS * width
    events = store.events(
        begin=begin, end=begin + COLUMNS * width, columns=("id", "lane", "depth", "ts", "dur", "name")
    )
    rows = sorted(set(zip(events["lane"].tolist(), events["depth"].tolist(), strict=True)))
    assert header["rows"] == [list(row) for row in rows]
    assert (header["level"], header["index"], header["omitted"]) == (level, index, 0)
    assert header["exact"] is (len(events["ts"]) <= MOST_EXACT)
    if header["exact"]:
        assert header["n"] == len(events["ts"])
        told = {
            number: (header["rows"][row], header["names"][name], header["cats"][name], start, duration)
            for number, row, name, start, duration in zip(
                *[arrays[key].tolist() for key in ("id", "row", "name", "start", "duration")], strict=True
            )
        }
        assert told == {
            number: ([lane, depth], store.names[name], name % 16, ts - begin, dur)
            for number, lane, depth, ts, dur, name in zip(*[each.tolist() for each in events.values()], strict=True)
        }
        return
    busy = np.zeros((len(rows), COLUMNS))
    parts: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for lane, depth, ts, dur, name in zip(
        *[events[key].tolist() for key in ("lane", "depth", "ts", "dur", "name")], strict=True
    ):
        row, first = rows.index((lane, depth)), max((ts - begin) // width, 0)
        for column in range(first, min(max((ts + dur - 1 - begin) // width, (ts - begin) // width), COLUMNS - 1) + 1):
            low, high = max(ts - begin, column * width), min(ts + dur - begin, (column + 1) * width)
            busy[row, column] += high - low
            parts.setdefault((row, column), []).append((high - low, store.names[name]))
    assert np.array_equal(arrays["busy"].reshape(busy.shape), np.clip(np.ceil(busy * 255 / width), 0, 255))
    for (row, column), name in np.ndenumerate(arrays["name"].reshape(busy.shape)):
        if (row, column) not in parts:
            assert name == 65535
            continue
        here = parts[row, column]
        usual = (
            [text for part, text in here if part == max(here)[0]] if longest_is_exact else [text for _, text in here]
        )
        assert header["names"][name] in usual


def all_tiles(store: Store, level: int) -> range:
    bits = level + tiles.TILE_BITS
    return range((store.begin - store.facts.origin) >> bits, ((store.end - store.facts.origin) >> bits) + 1)


def test_exact_tiles_hold_every_event_that_touches_them(tmp_path: Path) -> None:
    with written(tmp_path / "a", random_events(300, 10**6)) as store:
        assert store.pyramid == ()
        for level in (0, 6, 9, 12, 20, 40):
            for index in list(all_tiles(store, level))[:5]:
                check(store, level, index)
        beside = list(all_tiles(store, 9))[-1] + 3
        header, _ = read(tile(store, level=9, index=beside))
        assert (header["rows"], header["n"]) == ([], 0)


def test_columns_show_how_long_each_row_was_busy(tmp_path: Path) -> None:
    with written(tmp_path / "a", random_events(MOST_EXACT + 900, 10**7)) as store:
        assert store.pyramid == ()
        (index, *_) = all_tiles(store, 15)
        check(store, 15, index)
        check(store, 17, next(iter(all_tiles(store, 17))))


def test_the_pyramid_shows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST_READ", 1000)
    monkeypatch.setattr(tiles, "_BLOCK", 1500)  # cells of one place come from several blocks
    with written(tmp_path / "a", random_events(MOST_EXACT + 1500, 2 * 10**9)) as store:
        assert store.pyramid == (20, 22)
        for level in (18, 19, 20, 21, 22, 23, 26):
            for index in all_tiles(store, level):
                check(store, level, index, longest_is_exact=level <= 21)


def test_a_tile_of_chosen_lanes_has_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST_READ", 1000)
    with written(tmp_path / "a", random_events(3 * MOST_EXACT, 10**9)) as store:
        for level in (12, 18, 22):
            (index, *_) = all_tiles(store, level)
            whole, arrays = read(tile(store, level=level, index=index))
            chosen, mine = read(tile(store, level=level, index=index, lanes=[1]))
            assert {lane for lane, _ in chosen["rows"]} == {1}
            assert chosen["rows"] == [row for row in whole["rows"] if row[0] == 1]
            if not whole["exact"] and not chosen["exact"]:
                at = [i for i, row in enumerate(whole["rows"]) if row[0] == 1]
                assert np.array_equal(mine["busy"].reshape(-1, COLUMNS), arrays["busy"].reshape(-1, COLUMNS)[at])
        assert read(tile(store, level=20, index=index, lanes=[]))[0]["rows"] == []


def test_many_rows_and_long_names_stay_within_the_size(tmp_path: Path) -> None:
    names = [f"\u00fc{i}" + "\u4e2d" * 1990 for i in range(6000)]
    events = [(i % 300, T + i * 100, 50, i) for i in range(6000)]  # 160 rows hold 3200 of them
    with written(tmp_path / "a", events, lanes=300, names=names) as store:
        for level in (9, 10, 22):
            (index, *_) = all_tiles(store, level)
            header, arrays = read(tile(store, level=level, index=index))
            touched = len(set(store.events(end=store.facts.origin + ((index + 1) * COLUMNS << level))["lane"].tolist()))
            assert len(header["rows"]) == min(touched, 160)
            assert len(header["rows"]) + header["omitted"] == touched
            used = arrays["name"][arrays["name"] != 65535]
            assert used.max() < len(header["names"])
            assert all(len(name) <= 100 for name in header["names"])
            assert ("…" in header["names"]) is (level < 22)  # the last one shows 160 names in one column


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ({"level": -1, "index": 0}, "level is -1; it may be 0 to 50"),
        ({"level": 51, "index": 0}, "level is 51"),
        ({"level": 10, "index": -1}, "index is -1"),
        ({"level": 50, "index": 1 << 40}, "index is 1099511627776; at level 50 it may be 0 to 7"),
        ({"level": 10, "index": 0, "lanes": [3]}, "lanes 0 to 2"),
        ({"level": 10, "index": 0, "lanes": [-1]}, "lanes 0 to 2"),
    ],
)
def test_a_tile_that_cannot_be_is_refused(tmp_path: Path, place: dict[str, Any], sentence: str) -> None:
    with written(tmp_path / "a", [(0, T, 5, 0)]) as store, pytest.raises(ValueError, match=sentence):
        tile(store, **place)


def test_a_tile_of_an_empty_store_is_empty(tmp_path: Path) -> None:
    with written(tmp_path / "a", []) as store:
        header, _ = read(tile(store, level=20, index=0))
        assert (header["rows"], header["n"], header["exact"]) == ([], 0, True)


def test_many_long_events_at_once_are_painted_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each crosses every column: all parts of all of them at once would be five million."""
    events = [(0, number, 10**9, 0) for number in range(MOST_EXACT + 5_000)]
    with written(tmp_path / "store", events) as store:
        pieces: list[int] = []
        clip = tiles.clip

        def counted(row: Any, *arguments: Any, **options: Any) -> Any:
            pieces.append(len(row))
            return clip(row, *arguments, **options)

        monkeypatch.setattr(tiles, "clip", counted)
        header, arrays = read(tile(store, level=21, index=0))

    assert max(pieces) <= 2_000
    assert header["n"] == len(events)
    assert arrays["busy"].max() == 255
