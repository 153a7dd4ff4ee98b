"""What is written comes back; a store that is not finished is not there."""

import json
from pathlib import Path

import numpy as np
import pytest

from profiling.trace.category import Category, of_kernel
from profiling.trace.lanes import MOST_LANES, TooMuch
from profiling.trace.names import LONGEST_NAME
from profiling.trace.schema import REVISION, StoreFacts
from profiling.trace.store import NotAStore, Store
from profiling.trace.texts import LONGEST_INFO
from profiling.trace.writer import StoreWriter

T = 1_760_000_000 * 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "layer.store"


def write_small(path: Path) -> StoreFacts:
    with StoreWriter(path, source="test") as writer:
        thread = writer.lane("thread", process="policy", pid=7, thread="main", tid=70)
        stream = writer.lane("stream", process="policy", pid=7, device=0, stream=3)
        writer.add(stream, T + 60, 30, writer.name("gemm"), Category.KERNEL, link=5, outer=9)
        writer.add(thread, T + 10, 20, writer.name("aten::mm"), Category.OPERATOR, outer=9)
        details = writer.info('{"grid": [1, 2, 3]}')
        writer.add(thread, T, 100, writer.name("step"), Category.STEP, bytes=11, info=details)
        writer.add(thread, T + 12, 5, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=5)
        memory = writer.counter("allocated", "B", device=0, process="policy")
        for moment, value in ((T + 50, 2.0), (T + 20, 1.0), (T + 60, float("nan"))):
            writer.count(memory, moment, value)
        writer.note("warning", "cut off")
        writer.meta("host", "node-1")
        return writer.finish()


def test_events_come_back_by_lane_and_start_with_their_depth(path: Path) -> None:
    facts = write_small(path)

    sizes = {"events": 4, "lanes": 2, "names": 4, "samples": 2}
    assert facts == StoreFacts(**sizes, begin=T, end=T + 100, origin=T >> 40 << 40, revision=REVISION)
    with Store(path) as store:
        events = store.events()
        assert [store.names[name] for name in events["name"]] == ["step", "aten::mm", "cudaLaunchKernel", "gemm"]
        assert events["lane"].tolist() == [0, 0, 0, 1]
        assert events["depth"].tolist() == [0, 1, 2, 0]
        assert events["ts"].tolist() == [T, T + 10, T + 12, T + 60]
        assert events["dur"].tolist() == [100, 20, 5, 30]
        assert events["cat"].tolist() == [Category.STEP, Category.OPERATOR, Category.RUNTIME, Category.KERNEL]
        assert events["link"].tolist() == [0, 0, 5, 5]
        assert events["outer"].tolist() == [0, 9, 0, 9]
        assert events["bytes"].tolist() == [11, 0, 0, 0]
        thread, stream = store.lanes
        assert (thread.depths, thread.events) == (3, 3)
        assert (stream.kind, stream.device, stream.stream, stream.events) == ("stream", 0, 3, 1)
        assert (store.begin, store.end) == (T, T + 100)
        assert store.facts == facts
        assert store.meta["host"] == "node-1"
        assert [(note.severity, note.text) for note in store.notes] == [("warning", "cut off")]
        assert store.series[0].samples == 2
        times, values = store.samples(0)
        assert times.tolist() == [T + 20, T + 50]
        assert values.tolist() == [1.0, 2.0]


def test_a_window_a_lane_and_a_category_choose_events(path: Path) -> None:
    write_small(path)
    with Store(path) as store:

        def starts(**chosen: object) -> list[int]:
            return (store.events(columns=("ts",), **chosen)["ts"] - T).tolist()  # type: ignore[arg-type]

        assert starts(begin=T + 16, end=T + 60) == [0, 10, 12]
        assert starts(begin=T + 17, end=T + 60) == [0, 10]  # an event that ends at T + 17 does not touch it
        assert starts(lanes=[1]) == [60]
        assert starts(categories=[Category.RUNTIME, Category.KERNEL]) == [12, 60]
        assert starts(lanes=[]) == []
        with pytest.raises(ValueError, match="no column end"):
            store.events(columns=("end",))


def test_an_event_tells_its_details_and_what_it_caused(path: Path) -> None:
    write_small(path)
    with Store(path) as store:
        ids = dict(zip(*[store.events(columns=("ts", "id"))[key].tolist() for key in ("ts", "id")], strict=True))
        launch = store.detail(ids[T + 12])
        assert launch.event.name == "cudaLaunchKernel"
        assert [event.name for event in launch.linked] == ["gemm"]
        assert [event.name for event in store.detail(ids[T + 10]).operators] == ["gemm"]
        assert store.detail(ids[T]).info == {"grid": [1, 2, 3]}
        assert store.detail(99) is None


def test_a_search_finds_names_in_any_case_and_takes_signs_as_they_are(path: Path) -> None:
    write_small(path)
    with Store(path) as store:
        (found,) = store.search("LAUNCH", 10)
        assert (found.name, found.events, found.total, found.begin) == ("cudaLaunchKernel", 1, 5, T + 12)
        assert [each.name for each in store.search("", 2)] == ["step", "gemm"]
        assert store.search("%", 10) == []
        assert store.search("' OR 1=1 --", 10) == []


def test_many_columns_are_the_same_as_many_events(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 250_000
    columns = {
        "lane": rng.integers(0, 2, n),
        "ts": T + rng.integers(0, 10**9, n),
        "dur": rng.integers(0, 1000, n),
        "name": rng.integers(0, 2, n),
        "cat": rng.integers(0, 15, n),
        "bytes": np.arange(n),
    }
    kept = []
    for way in ("columns", "one by one"):
        with StoreWriter(tmp_path / way, source="test") as writer:
            for thread in ("a", "b"):
                writer.lane("thread", process="p", pid=1, thread=thread)
                writer.name(thread)
            if way == "columns":
                writer.add_many(columns)
            else:
                for lane, ts, dur, name, cat, size in zip(*[each.tolist() for each in columns.values()], strict=True):
                    writer.add(lane, ts, dur, name, cat, bytes=size)
            assert writer.finish().events == n
        with Store(tmp_path / way) as store:
            kept.append(store.events())
    for column, values in kept[0].items():
        assert np.array_equal(values, kept[1][column]), column
    order = np.lexsort((-columns["dur"], columns["ts"], columns["lane"]))
    assert np.array_equal(kept[0]["ts"], columns["ts"][order])


def test_a_writer_that_is_not_finished_leaves_nothing(path: Path) -> None:
    with StoreWriter(path, source="test") as writer:
        writer.add(writer.lane("thread", process="p", pid=1), T, 1, writer.name("a"), 0)
    assert list(path.parent.iterdir()) == []


def test_a_finished_store_lies_alone(path: Path) -> None:
    write_small(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_store_may_be_empty(path: Path) -> None:
    with StoreWriter(path, source="test") as writer:
        facts = writer.finish()
    assert (facts.events, facts.begin, facts.end) == (0, 0, 0)
    with Store(path) as store:
        assert store.lanes == ()
        assert len(store.events()["ts"]) == 0
        assert store.search("a", 1) == []


def test_details_are_bounded_and_kept_apart(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiling.trace.texts._KNOWN_INFOS", 3)
    with StoreWriter(path, source="test") as writer:
        lane, name = writer.lane("thread", process="p", pid=1), writer.name("a")
        texts = [json.dumps({"n": i % 5}) for i in range(20)] + [json.dumps({"n": "x" * LONGEST_INFO})]
        for i, text in enumerate(texts):
            writer.add(lane, T + i, 1, name, 0, info=writer.info(text))
        writer.finish()
    with Store(path) as store:
        found = store.events(columns=("id",))["id"].tolist()
        told = [store.detail(event).info for event in found]
        assert told[:-1] == [{"n": i % 5} for i in range(20)]
        assert told[-1] == {"left out": "16,009 characters"}


@pytest.mark.parametrize("content", [b"", b"something else" * 1000])
def test_another_file_is_no_store(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStore, match=r"layer\.store"):
        Store(path)
    path.unlink()
    with pytest.raises(NotAStore, match=r"layer\.store"):
        Store(path)


def test_an_event_with_a_broken_clock_is_left_out_and_told(path: Path) -> None:
    with StoreWriter(path, source="test") as writer:
        lane, name = writer.lane("thread", process="p", pid=1), writer.name("a")
        for start, duration in ((T, 5), (T + 10, 5), (T + 20, 5), (3, 5), (T, -1), (T, 1 << 60), (-5, 1), (1 << 62, 1)):
            writer.add(lane, start, duration, name, 0)
        facts = writer.finish()
    assert (facts.events, facts.begin, facts.end) == (3, T, T + 25)
    with Store(path) as store:
        assert "5 events were left out" in store.notes[0].text


def test_what_a_hostile_trace_makes_too_much_of_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiling.trace.texts.MOST_NAMES", 4)
    with StoreWriter(path, source="test") as writer:
        assert writer.name("x" * LONGEST_NAME + "1") != writer.name("x" * LONGEST_NAME + "2")  # told apart by a hash
        assert writer.name("\ud800") == 2
        assert len({writer.name(f"name {i}") for i in range(9)}) == 2  # the fourth, and the one for all others
        for i in range(MOST_LANES):
            writer.lane("thread", process="p", pid=1 << 200, tid=i)
        with pytest.raises(TooMuch, match="4,096"):
            writer.lane("thread", process="p", pid=1, thread="one more")
        with pytest.raises(OverflowError):
            writer.add(0, 1 << 63, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Category.COMMUNICATION),
        ("ncclKernel_AllGather", Category.COMMUNICATION),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", Category.COMMUNICATION),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn", Category.KERNEL),
        ("void at::native::reduce_kernel<512, 1>", Category.KERNEL),
    ],
)
def test_kernels_that_communicate_are_told_by_name(name: str, category: Category) -> None:
    assert of_kernel(name) is category
