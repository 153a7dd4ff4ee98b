"""Memory over time, by hand."""

import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.memory import at, fragmentation, memory, memory_of, running, thinned
from profiling.trace.importing import import_trace
from profiling.trace.store import Store


def _curve(*points):
    return np.array([t for t, _ in points], np.int64), np.array([v for _, v in points], float)


def test_the_peak_has_its_moment_and_what_was_reserved_then() -> None:
    found = memory_of(
        {"allocated": _curve((0, 10), (5, 60), (9, 20)), "reserved": _curve((0, 40), (4, 80), (8, 120))}, device=0
    )
    assert found is not None
    assert (found.peak, found.peak_at, found.reserved) == (60, 5, 80)
    assert found.fragmentation == 0.25
    assert [(curve.name, curve.peak, curve.peak_at, curve.at_peak) for curve in found.curves] == [
        ("allocated", 60, 5, 60),
        ("reserved", 120, 8, 80),
    ]


def test_categories_add_up_where_nobody_told_the_sum() -> None:
    found = memory_of({"weights": _curve((0, 10)), "activations": _curve((2, 5), (4, 30), (6, 0))}, device=-1)
    assert found is not None
    assert (found.peak, found.peak_at, found.reserved, found.fragmentation) == (40, 4, None, None)
    assert [curve.at_peak for curve in found.curves] == [10, 30]
    assert memory_of({"allocated": _curve()}, device=0) is None


def test_changes_add_up_and_a_curve_holds_its_value() -> None:
    assert running(np.array([5.0, -2.0, 4.0])).tolist() == [5, 3, 7]
    curve = _curve((10, 5), (20, 3))
    assert [at(*curve, moment) for moment in (9, 10, 19, 20, 99)] == [0, 5, 5, 3, 3]


def test_a_thinned_curve_keeps_every_peak() -> None:
    times = np.arange(100_000)
    values = np.sin(times / 50.0)
    values[77_777], values[33_333] = 9.0, -9.0
    points = thinned(times, values)
    assert len(points) <= 400
    assert (77_777, 9.0) in points
    assert (33_333, -9.0) in points
    assert [t for t, _ in points] == sorted({t for t, _ in points})


@pytest.mark.parametrize(
    ("allocated", "reserved", "share"), [(80, 100, 0.2), (0, 0, None), (5, None, None), (9, 8, None)]
)
def test_fragmentation_is_what_of_the_reserved_is_not_used(allocated, reserved, share) -> None:
    assert fragmentation(allocated, reserved) == share


def test_a_snapshot_tells_who_held_most_at_the_peak(tmp_path) -> None:
    us = 1000
    frames = [{"filename": "/somewhere/train.py", "line": 7, "name": "step"}]
    other = [{"filename": "/somewhere/model.py", "line": 3, "name": "forward"}]
    mib = 1 << 20
    entries = [
        {"action": "segment_alloc", "addr": 1, "size": 64 * mib, "time_us": 10},
        {"action": "alloc", "addr": 1, "size": 8 * mib, "time_us": 11, "frames": frames},
        {"action": "alloc", "addr": 2, "size": 16 * mib, "time_us": 12, "frames": other},
        {"action": "alloc", "addr": 3, "size": 4 * mib, "time_us": 13, "frames": frames},
        {"action": "free_completed", "addr": 2, "size": 16 * mib, "time_us": 14},
        {"action": "alloc", "addr": 4, "size": 2 * mib, "time_us": 15, "frames": frames},
    ]
    block = {"size": 14 * mib, "state": "active_allocated", "frames": frames}
    segment = {
        "device": 0,
        "total_size": 64 * mib,
        "allocated_size": 14 * mib,
        "active_size": 14 * mib,
        "blocks": [block],
    }
    (tmp_path / "s.pickle").write_bytes(pickle.dumps({"segments": [segment], "device_traces": [entries]}))
    import_trace(tmp_path / "s.pickle", tmp_path / "store")
    with Store(tmp_path / "store") as store:
        (found,) = memory(store, 0, 1 << 62, role="policy", rank=1)
    assert (found.peak, found.peak_at, found.reserved) == (28 * mib, 13 * us, 64 * mib)
    assert found.fragmentation == 36 / 64
    assert (found.role, found.rank, found.is_at_peak) == ("policy", 1, True)
    assert [(held.place, held.bytes, held.blocks) for held in found.holders] == [
        ("/somewhere/model.py:3 forward", 16 * mib, 1),
        ("/somewhere/train.py:7 step", 12 * mib, 2),
    ]


def test_a_real_timeline_adds_up_by_category(tmp_path) -> None:
    source = Path(__file__).parents[2] / "data" / "traces" / "torch_memory_timeline.raw.gz"
    import_trace(source, tmp_path / "store")
    # A plain pass: what is held after all changes of each moment, those from before first.
    rows = sorted(json.loads(gzip.decompress(source.read_bytes())), key=lambda row: row[0])
    first = next(row[0] for row in rows if row[0] > 0)
    held, by_moment = [0] * 8, {}
    for moment, _, size, category in rows:
        held[category] += size
        by_moment[max(moment, first)] = list(held)
    peak_at = max(by_moment, key=lambda moment: sum(by_moment[moment]))
    with Store(tmp_path / "store") as store:
        (found,) = memory(store, 0, 1 << 62)
    assert (found.peak, found.peak_at) == (sum(by_moment[peak_at]), peak_at)
    at_peak = {curve.name: curve.at_peak for curve in found.curves}
    order = ("weights", "optimizer", "inputs", "temporary", "activations", "gradients", "autograd", "unknown")
    assert [at_peak[name] for name in order] == by_moment[peak_at]
    assert (found.reserved, found.fragmentation, found.holders) == (None, None, ())
