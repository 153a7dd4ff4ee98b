"""Arrows of an event: to the end of the chain, from whichever end."""

from pathlib import Path

import pytest

from profiling.analysis.flows import arrows, peer, place_of
from profiling.trace.category import Category
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

T = 1_700_000_000_000_000_000
US = 1000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Forward on the main thread, backward on autograd's, one kernel of each; an operator that has nothing to do with
    them, and three all-reduces."""
    with StoreWriter(tmp_path / "s", source="test") as writer:
        main = writer.lane("thread", process="p", pid=1, thread="main", tid=1)
        autograd = writer.lane("thread", process="p", pid=1, thread="autograd", tid=2)
        stream = writer.lane("stream", process="p", pid=1, device=0, stream=7)

        def add(lane: int, at: float, lasts: float, name: str, category: Category, link: int = 0) -> None:
            writer.add(lane, T + int(at * US), int(lasts * US), writer.name(name), category, link=link)

        add(main, 0, 100, "aten::linear", Category.OPERATOR)
        add(main, 10, 80, "aten::addmm", Category.OPERATOR)
        add(main, 20, 10, "cudaLaunchKernel", Category.RUNTIME, 1)
        add(stream, 40, 50, "gemm forward", Category.KERNEL, 1)
        add(autograd, 200, 90, "AddmmBackward0", Category.OPERATOR)
        add(autograd, 220, 10, "cuLaunchKernel", Category.RUNTIME, 2)
        add(stream, 240, 50, "gemm backward", Category.KERNEL, 2)
        add(main, 400, 10, "aten::add", Category.OPERATOR)
        for at in (500, 600, 700):
            add(stream, at, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", Category.COMMUNICATION)
        writer.arrow(5, main, T + 10 * US, is_end=False)
        writer.arrow(5, autograd, T + 200 * US + 400, is_end=True)  # a trace tells its times in microseconds
        writer.arrow(6, main, T + 900 * US, is_end=False)  # of an operator that was not recorded
        writer.finish()
    return Store(tmp_path / "s")


@pytest.mark.parametrize("name", ["gemm forward", "cudaLaunchKernel", "aten::addmm", "aten::linear", "AddmmBackward0"])
def test_the_chain_is_the_same_from_each_of_its_events(store: Store, name: str) -> None:
    found = [
        (one.kind, one.source.name, one.target.name)
        for event in store.events(columns=("id",))["id"].tolist()
        if store.event(event).name == name
        for one in arrows(store, event)
    ]
    assert found == [
        ("launch", "cudaLaunchKernel", "gemm forward"),
        ("launch", "cuLaunchKernel", "gemm backward"),
        ("backward", "aten::addmm", "AddmmBackward0"),
    ]


def test_an_event_that_is_linked_with_nothing_has_none(store: Store) -> None:
    (add,) = (n for n in store.events(columns=("id",))["id"].tolist() if store.event(n).name == "aten::add")
    assert arrows(store, add) == []


def test_a_collective_is_the_one_of_its_place_on_another_rank(store: Store) -> None:
    third = max(
        (store.event(n) for n in store.events(columns=("id",))["id"].tolist() if "nccl" in store.event(n).name),
        key=lambda event: event.ts,
    )
    assert place_of(store, third) == ("AllReduce", 2, 3)
    assert peer(store, "AllReduce", 2, 3) == third
    assert peer(store, "AllReduce", 2, 4) is None  # ranks that did not record the same ones
    assert peer(store, "Broadcast", 0, 1) is None
