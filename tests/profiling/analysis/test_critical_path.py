"""The critical path, by hand: over launches, the order of streams, synchronisations, and ranks."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from profiling.analysis import critical_path as paths
from profiling.analysis.critical_path import PathSegment, critical_path, device_share, read_workers
from profiling.analysis.too_many import TooManyEvents
from profiling.trace.category import Category
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

T = 1_700_000_000_000_000_000

Event = tuple[str, int, int, str, int]  # lane, begin, length, name, link
CATEGORIES = {
    "aten": Category.OPERATOR,
    "cuda": Category.RUNTIME,
    "cudaDeviceSynchronize": Category.SYNC,
    "nccl": Category.COMMUNICATION,
}


def made(path: Path, events: Sequence[Event]) -> Store:
    with StoreWriter(path, source="test") as writer:
        lanes = {"main": writer.lane("thread", process="p", pid=1, thread="main", tid=1)}
        lanes["other"] = writer.lane("thread", process="p", pid=1, thread="autograd", tid=2)
        lanes["s7"] = writer.lane("stream", process="p", pid=1, device=0, stream=7)
        lanes["s20"] = writer.lane("stream", process="p", pid=1, device=0, stream=20)
        for lane, begin, length, name, link in events:
            words = [name, *(key for key in CATEGORIES if name.startswith(key))]
            category = CATEGORIES.get(name) or (CATEGORIES[words[1]] if len(words) > 1 else Category.KERNEL)
            writer.add(lanes[lane], T + begin, length, writer.name(name), category, link=link)
        writer.finish()
    return Store(path)


def path_of(*stores: Store, begin: int = 0, end: int = 1000) -> list[tuple[str, str, int, int]]:
    works = read_workers(stores, begin=T + begin, end=T + end)
    found: tuple[PathSegment, ...] = critical_path(works, begin=T + begin, end=T + end)
    assert all(one.end == two.begin for one, two in itertools.pairwise(found)), "no moment is left out"
    return [(one.what, one.name, one.begin - T, one.end - T) for one in found]


def test_a_late_launch_is_on_the_path_and_a_full_stream_is(tmp_path: Path) -> None:
    store = made(
        tmp_path / "s",
        [
            ("main", 0, 40, "aten::a", 0),
            ("main", 30, 5, "cudaLaunchKernel", 1),
            ("s7", 45, 100, "gemm 1", 1),
            ("main", 60, 20, "aten::b", 0),
            ("main", 70, 5, "cudaLaunchKernel ", 2),  # long before the stream is free
            ("s7", 150, 50, "gemm 2", 2),
        ],
    )
    assert path_of(store) == [
        ("host", "aten::a", 0, 30),
        ("host", "cudaLaunchKernel", 30, 35),
        ("launch", "cudaLaunchKernel", 35, 45),
        ("device", "gemm 1", 45, 145),
        ("gap", "", 145, 150),
        ("device", "gemm 2", 150, 200),
    ]


def test_work_without_length_at_the_end_of_a_wait_does_not_hold_the_walk_up(tmp_path: Path) -> None:
    """Clocks of whole microseconds give short work no length: the walk went from it to the wait and back for ever."""
    store = made(
        tmp_path / "s",
        [
            ("main", 0, 10, "cudaLaunchKernel", 1),
            ("s7", 20, 60, "gemm", 1),
            ("main", 30, 100, "cudaDeviceSynchronize", 0),
            ("s7", 130, 0, "Memset", 0),
            ("main", 140, 10, "cudaLaunchKernel ", 2),
            ("s7", 160, 40, "gemm 2", 2),
        ],
    )
    assert path_of(store) == [
        ("host", "cudaLaunchKernel", 0, 10),
        ("launch", "cudaLaunchKernel", 10, 20),
        ("device", "gemm", 20, 80),
        ("host", "cudaDeviceSynchronize", 80, 130),
        ("gap", "", 130, 140),
        ("host", "cudaLaunchKernel ", 140, 150),
        ("launch", "cudaLaunchKernel ", 150, 160),
        ("device", "gemm 2", 160, 200),
    ]


def test_a_path_of_too_many_segments_is_refused_and_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "MOST_SEGMENTS", 4)
    store = made(tmp_path / "s", [("s7", 10 * i, 10, f"gemm {i}", 0) for i in range(5)])
    assert len(path_of(store, begin=15)) == 4
    with pytest.raises(TooManyEvents, match="more than 4 segments"):
        path_of(store)


def test_queued_work_of_an_idle_stream_leads_to_the_stream_that_it_waited_for(tmp_path: Path) -> None:
    store = made(
        tmp_path / "s",
        [
            ("main", 0, 10, "cudaLaunchKernel", 1),
            ("main", 10, 10, "cudaLaunchKernel", 2),
            ("main", 20, 10, "cudaLaunchKernel", 3),
            ("s7", 12, 30, "gemm 1", 1),
            ("s20", 25, 160, "nccl all-reduce", 2),
            ("s7", 190, 40, "gemm 2", 3),
        ],
    )
    assert path_of(store) == [
        ("host", "cudaLaunchKernel", 0, 10),
        ("host", "cudaLaunchKernel", 10, 20),
        ("launch", "cudaLaunchKernel", 20, 25),
        ("device", "nccl all-reduce", 25, 185),
        ("gap", "", 185, 190),
        ("device", "gemm 2", 190, 230),
    ]


def test_a_synchronisation_leads_to_the_work_that_it_waited_for(tmp_path: Path) -> None:
    store = made(
        tmp_path / "s",
        [
            ("main", 0, 10, "cudaLaunchKernel", 1),
            ("s20", 20, 100, "gemm 1", 1),
            ("s7", 15, 30, "short", 0),
            ("main", 12, 118, "cudaDeviceSynchronize", 0),
            ("main", 140, 10, "cudaLaunchKernel", 2),
            ("s7", 160, 40, "gemm 2", 2),
        ],
    )
    assert path_of(store) == [
        ("host", "cudaLaunchKernel", 0, 10),
        ("launch", "cudaLaunchKernel", 10, 20),
        ("device", "gemm 1", 20, 120),
        ("host", "cudaDeviceSynchronize", 120, 130),
        ("gap", "", 130, 140),
        ("host", "cudaLaunchKernel", 140, 150),
        ("launch", "cudaLaunchKernel", 150, 160),
        ("device", "gemm 2", 160, 200),
    ]


def test_the_path_goes_on_with_the_thread_that_worked_before(tmp_path: Path) -> None:
    store = made(
        tmp_path / "s",
        [
            ("main", 0, 50, "aten::forward", 0),
            ("main", 20, 5, "cudaLaunchKernel", 1),
            ("s7", 30, 5, "gemm", 1),
            ("other", 60, 30, "aten::backward", 0),
            ("other", 80, 5, "cudaLaunchKernel", 2),
            ("s7", 90, 10, "gemm", 2),
        ],
    )
    assert path_of(store) == [
        ("host", "aten::forward", 0, 50),
        ("gap", "", 50, 60),
        ("host", "aten::backward", 60, 80),
        ("host", "cudaLaunchKernel", 80, 85),
        ("launch", "cudaLaunchKernel", 85, 90),
        ("device", "gemm", 90, 100),
    ]


def test_a_collective_waits_for_the_last_rank(tmp_path: Path) -> None:
    def rank(number: int, late: int) -> Store:
        return made(
            tmp_path / f"{number}",
            [
                ("main", 0, 5, "cudaLaunchKernel", 1),
                ("s7", 10, 40 + late, f"gemm of {number}", 1),
                ("main", 6, 2, "cudaLaunchKernel ", 2),
                ("s7", 50 + late, 150 - late, "ncclDevKernel_AllReduce_Sum_f32", 2),
            ],
        )

    assert path_of(rank(0, 0), rank(1, 60)) == [
        ("host", "cudaLaunchKernel", 0, 5),
        ("launch", "cudaLaunchKernel", 5, 10),
        ("device", "gemm of 1", 10, 110),
        ("device", "ncclDevKernel_AllReduce_Sum_f32", 110, 200),
    ]


def test_a_window_cuts_the_path_off_and_one_without_events_has_none(tmp_path: Path) -> None:
    store = made(tmp_path / "s", [("main", 0, 5, "cudaLaunchKernel", 1), ("s7", 10, 90, "gemm", 1)])
    assert path_of(store, begin=50, end=80) == [("device", "gemm", 50, 80)]
    assert path_of(store, begin=500, end=600) == []
    works = read_workers([store], begin=T, end=T + 100)
    assert device_share(critical_path(works, begin=T, end=T + 100)) == 0.9


def test_a_trace_of_a_cpu_has_a_path_of_operators(tmp_path: Path) -> None:
    store = made(tmp_path / "s", [("main", 0, 30, "aten::a", 0), ("main", 40, 20, "aten::b", 0)])
    assert path_of(store) == [("host", "aten::a", 0, 30), ("gap", "", 30, 40), ("host", "aten::b", 40, 60)]


def test_too_long_a_window_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(tmp_path / "s", [("main", 0, 30, "aten::a", 0), ("main", 40, 20, "aten::b", 0)])
    monkeypatch.setattr(paths, "MOST_EVENTS", 1)
    with pytest.raises(TooManyEvents, match="holds 2 events; a critical path is looked for among 1 at most"):
        read_workers([store], begin=T, end=T + 100)
