"""The flame graph of a window: times by hand, own and total, callers, recursion, what is cut off at the edges."""

from pathlib import Path

import pytest

from profiling.analysis import flame as flames
from profiling.analysis.flame import flame, own_times
from profiling.analysis.functions import functions_of
from profiling.analysis.too_many import TooManyEvents
from profiling.evidence import RecordedTrace
from profiling.trace.category import Category
from profiling.trace.frames import FRAMES
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

T = 1_700_000_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with StoreWriter(tmp_path / "s", source="test") as writer:
        main = writer.lane("thread", process="p", pid=1, thread="main", tid=1)
        other = writer.lane("thread", process="p", pid=1, thread="other", tid=2)
        frames = writer.lane("thread", process="p", pid=1, thread="main", tid=1, title=FRAMES)
        writer.frames(frames)
        for lane, at, lasts, name in (
            (main, 0, 100, "linear"),
            (main, 10, 30, "addmm"),
            (main, 50, 30, "addmm"),
            (other, 0, 40, "linear"),
            (other, 20, 10, "linear"),
            (main, 200, 100, "optimizer"),
        ):
            writer.add(lane, T + at, lasts, writer.name(name), Category.OPERATOR)
        for at, lasts, name in (
            (0, 90, "train.py(1): main"),
            (5, 80, "torch/a.py(1): f"),
            (10, 60, "torch/b.py(2): g"),
        ):
            writer.add(frames, T + at, lasts, writer.name(name), Category.PYTHON)
        writer.finish()
    return Store(tmp_path / "s")


def test_equal_paths_are_one_node_with_its_own_time(store: Store) -> None:
    found = flame(store, begin=T, end=T + 250, by="operators")

    nodes = {(one.name, one.parent): (one.count, one.total, one.own, one.depth) for one in found.nodes}
    linear = next(i for i, one in enumerate(found.nodes) if one.name == "linear" and one.parent < 0)
    assert nodes == {
        ("linear", -1): (2, 140, 70, 0),
        ("addmm", linear): (2, 60, 60, 1),
        ("linear", linear): (1, 10, 10, 1),
        ("optimizer", -1): (1, 50, 50, 0),  # half of it lies in the window
    }
    assert (found.total, found.events, found.left_out) == (190, 6, 0)
    assert sum(one.own for one in found.nodes) == found.total


def test_names_have_their_callers_and_recursion_counts_once(store: Store) -> None:
    names = {one.name: one for one in flame(store, begin=T, end=T + 250, by="operators").names}

    assert (names["linear"].count, names["linear"].total, names["linear"].own) == (3, 140, 80)
    assert [(one.name, one.own) for one in names["linear"].callers] == [("", 70), ("linear", 10)]
    assert [(one.name, one.own) for one in names["addmm"].callers] == [("linear", 60)]


def test_frames_inside_frameworks_stand_in_their_place(store: Store) -> None:
    found = flame(store, begin=T, end=T + 100, by="frames")

    assert [(one.name, one.parent, one.own) for one in found.nodes] == [
        ("train.py(1): main", -1, 10),
        ("torch/a.py(1): f", 0, 20),
        ("torch/b.py(2): g", 1, 60),
    ]


def test_a_window_without_events_is_empty_and_a_full_one_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flame(store, begin=T + 120, end=T + 130, by="operators").nodes == ()
    assert flame(store, begin=T, end=T + 9, by="ranges").nodes == ()
    monkeypatch.setattr(flames, "MOST_EVENTS", 3)
    with pytest.raises(TooManyEvents, match="holds 6 of these events; 3 are"):
        flame(store, begin=T, end=T + 250, by="operators")


def test_small_nodes_are_left_out_and_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flames, "MOST_NODES", 2)
    found = flame(store, begin=T, end=T + 250, by="operators")
    assert [(one.name, one.total) for one in found.nodes] == [("linear", 140), ("addmm", 60)]
    assert found.left_out == 2


def test_own_times_of_names_and_of_functions_whose_lines_do_not_count(store: Store) -> None:
    assert own_times(store, begin=T, end=T + 250, by="operators") == {"linear": 80, "addmm": 60, "optimizer": 50}
    assert functions_of([RecordedTrace(store=store)], (T, T + 50)) == {
        "train.py: main": 5,
        "torch/a.py: f": 5,
        "torch/b.py: g": 40,
    }
    assert functions_of([RecordedTrace(store=store)], (T + 300, T + 400)) == {}
