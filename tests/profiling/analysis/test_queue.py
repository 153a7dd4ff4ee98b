"""Curves that a trace implies, by hand: depth of a queue, bandwidth of copies, utilisation in bins."""

from pathlib import Path

import numpy as np

from profiling.analysis.queue import bandwidth, curve, queue_depth, tracks, utilisation
from profiling.trace.category import Category
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

T = 1_700_000_000_000_000_000
MS = 1_000_000


def test_a_queue_is_as_deep_as_calls_wait() -> None:
    times, depth = queue_depth(np.array([0, 1, 2, 9]), np.array([1, 5, 6, 9]))
    assert dict(zip(times.tolist(), depth.tolist(), strict=True)) == {0: 1, 1: 1, 2: 2, 5: 1, 6: 0, 9: 0}


def test_copies_at_once_add_their_bandwidth() -> None:
    start, stop = np.array([0, 500, 5_000]), np.array([1_000, 1_500, 5_000])
    times, rate = bandwidth(start, stop, np.array([1_000, 2_000, 4_000]))
    assert times.tolist() == [0, 500, 1_000, 1_500, 5_000, 6_000]  # one of no length counts as 1 us
    assert [round(value / 1e9, 6) for value in rate.tolist()] == [1, 3, 2, 0, 4, 0]


def test_utilisation_is_the_busy_share_of_each_millisecond() -> None:
    start, stop = np.array([0, MS // 4, 2 * MS]), np.array([MS // 2, 3 * MS // 4, 3 * MS])
    times, share = utilisation(start, stop, begin=0, end=int(3.5 * MS))
    assert times.tolist() == [0, MS, 2 * MS, 3 * MS]
    assert share.tolist() == [0.75, 0, 1, 0]
    wide, _ = utilisation(start, stop, begin=0, end=5_000 * MS)
    assert len(wide) == 1_000


def test_a_store_offers_what_can_be_made_of_it(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", source="test") as writer:
        thread = writer.lane("thread", process="p", pid=1, thread="main", tid=1)
        stream = writer.lane("stream", process="p", pid=1, device=0, stream=7)
        writer.add(thread, T, 10, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=1)
        writer.add(thread, T + 20, 10, writer.name("cudaMemcpyAsync"), Category.RUNTIME, link=2)
        writer.add(stream, T + 100, MS, writer.name("gemm"), Category.KERNEL, link=1)
        writer.add(stream, T + 2 * MS, 1_000, writer.name("Memcpy DtoH"), Category.COPY, link=2, bytes=5_000)
        writer.finish()
    with Store(tmp_path / "s") as store:
        made = {track.kind: track for track in tracks(store)}
        assert [track.kind for track in tracks(store)] == ["utilisation", "bandwidth", "queue"]
        times, depth = curve(store, made["queue"], begin=T, end=T + 3 * MS)
        assert (times - T).tolist() == [0, 20, 100, 2 * MS]
        assert depth.tolist() == [1, 2, 1, 0]
        assert curve(store, made["bandwidth"], begin=T, end=T + 3 * MS)[1].tolist() == [5e9, 0]
        # work that was called before the window still waits at its begin
        assert curve(store, made["queue"], begin=T + 50, end=T + 3 * MS)[1].tolist() == [1, 2, 1, 0]
