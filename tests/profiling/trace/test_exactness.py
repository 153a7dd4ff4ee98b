"""What an import keeps to the nanosecond, counts once and tells apart, in traces of torch and exports of nsys."""

import json
import pickle
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from profiling.analysis.summary import summarise
from profiling.analysis.window import summarise_window
from profiling.evidence import RecordedTrace, phase_spans
from profiling.trace.category import Category, of_kernel
from profiling.trace.importing import import_trace
from profiling.trace.limits import Unreadable
from profiling.trace.names import LONGEST_NAME, shortened
from profiling.trace.store import Store

DATA = Path(__file__).resolve().parents[2] / "data" / "traces"
US = 1_661_203_462_598_772  # a time of day, in us


def opened(path: Path) -> Store:
    import_trace(path, path.with_suffix(".store"))
    return Store(path.with_suffix(".store"))


def trace_of(folder: Path, events: list[str], **top: Any) -> Path:
    """Write events that are JSON already, as numbers of Python would be rounded."""
    path = folder / "trace.json"
    head = json.dumps({"schemaVersion": 1, **top})[:-1]
    path.write_text(f'{head}, "traceEvents": [\n{", ".join(events)}\n]}}')
    return path


def op(ts: str, dur: str = "1", *, name: str = "aten::mm", more: str = "") -> str:
    return f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 7, "tid": 70, "ts": {ts}, "dur": {dur}{more}}}'


def test_times_of_day_keep_their_nanoseconds(tmp_path: Path) -> None:
    drawn = random.Random(1)
    times = sorted(US * 1000 + drawn.randrange(10**9) for _ in range(1000))
    times += [times[-1] + 1, times[-1] + 2]  # neighbours
    events = [op(f"{ns // 1000}.{ns % 1000:03}") for ns in times]
    with opened(trace_of(tmp_path, events)) as store:
        assert store.events(columns=("ts",))["ts"].tolist() == times
    # begins and ends, and what only the slow way can read (NaN)
    pair = [op(f"{US}.001").replace('"X"', '"B"'), op(f"{US}.009").replace('"X"', '"E"')]
    odd = op(f"{US}.123", more=', "args": {"loss": NaN}')
    with opened(trace_of(tmp_path, [*pair, odd])) as store:
        found = store.events(columns=("ts", "dur"))
        assert found["ts"].tolist() == [US * 1000 + 1, US * 1000 + 123]
        assert found["dur"].tolist() == [8, 1000]


def test_times_after_a_base_keep_their_nanoseconds_too(tmp_path: Path) -> None:
    base, drawn = 1_790_857_026_000_000_000, random.Random(2)
    times = sorted(8 * 10**15 - drawn.randrange(10**12) for _ in range(1000))  # three months after the base
    events = [op(f"{ns // 1000}.{ns % 1000:03}") for ns in times]
    with opened(trace_of(tmp_path, events, baseTimeNanoseconds=base)) as store:
        assert store.events(columns=("ts",))["ts"].tolist() == [base + ns for ns in times]


def test_lengths_may_be_texts_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    events = [op(f"{US}", '"5.250"'), op(f"{US}", '"soon"', name="late"), op('"never"', name="early"), op("1", "null")]
    with opened(trace_of(tmp_path, events)) as store:
        assert store.events(columns=("dur",))["dur"].tolist() == [5250]
        (note,) = store.notes
    assert note.text.startswith(
        "3 events were left out, as a time or a name is missing or is none: number 2 ('late'): "
    )
    assert "dur is 'soon'" in note.text
    assert "number 3 ('early')" in note.text


def test_a_file_that_is_cut_off_says_up_to_which_time(tmp_path: Path) -> None:
    path = trace_of(tmp_path, [op(f"{US + 1000 * i}") for i in range(100)])
    path.write_bytes(path.read_bytes()[:-500])
    with opened(path) as store:
        (note,) = store.notes
        seconds = (store.end - store.begin) / 1e9
    assert f"The last event ends {seconds:.3f} s after the first begins." in note.text
    assert "100% of what the file holds" in note.text


def gpu(name: str, ts: int, dur: int = 5, *, cat: str = "kernel", **args: Any) -> str:
    about = {"device": 3, "stream": 7, **args}
    event = {"ph": "X", "cat": cat, "name": name, "pid": 3, "tid": 7, "ts": ts, "dur": dur, "args": about}
    return json.dumps(event)


def test_what_is_there_twice_counts_once(tmp_path: Path) -> None:
    events = [gpu("gemm", 10 * i, correlation=i + 1) for i in range(50)]
    events += [op(str(10 * i), name=f"op{i}") for i in range(50)]
    with opened(trace_of(tmp_path, events)) as store:
        once = summarise_window(store, begin=store.begin, end=store.end + 1)
        assert store.notes == ()
    with opened(trace_of(tmp_path, events + events)) as store:
        assert summarise_window(store, begin=store.begin, end=store.end + 1) == once
        assert [note.text.split(":")[0] for note in store.notes] == [
            "100 events were in the file twice, equal in all that is known"
        ]
    # two operators at one moment of a coarse clock are two
    with opened(trace_of(tmp_path, [*events, op("0", name="op0")])) as store:
        assert (store.facts.events, store.notes) == (101, ())


def test_names_that_differ_far_behind_are_two_names(tmp_path: Path) -> None:
    names = ["k" * 3000 + end for end in "ab"]
    with opened(trace_of(tmp_path, [gpu(name, 10 * i) for i, name in enumerate(names)])) as store:
        assert len(store.names) == 2
        assert all(len(name) <= LONGEST_NAME for name in store.names)
    assert shortened("short") == "short"
    assert shortened(shortened(names[0])) == shortened(names[0])


@pytest.mark.parametrize(
    ("kind", "category"),
    [
        ("kernel", Category.KERNEL),
        ("mtia_ccp_events", Category.KERNEL),
        ("hpu_op", Category.KERNEL),
        ("xpu_kernel", Category.KERNEL),
        ("privateuse1_memcpy", Category.COPY),
        ("mtia_memset", Category.MEMSET),
        ("collective_comm", Category.COMMUNICATION),
    ],
)
def test_work_of_other_accelerators_is_device_work(tmp_path: Path, kind: str, category: Category) -> None:
    events = [gpu("some work", 0, cat=kind, correlation=1)]
    runtime = json.loads(op("0")) | {"cat": f"{kind.split('_')[0]}_runtime", "args": {"correlation": 1}}
    with opened(trace_of(tmp_path, [*events, json.dumps({**runtime, "name": "launchKernel"})])) as store:
        (lane,) = [lane for lane in store.lanes if lane.kind == "stream"]
        assert (lane.device, lane.stream, lane.events) == (3, 7, 1)
        found = store.events(lanes=[lane.id], columns=("cat",))["cat"].tolist()
        assert found == [int(category)]
        assert len(store.events(categories=[Category.RUNTIME])["ts"]) == 1


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("__amd_rocclr_copyBuffer", Category.COPY),
        ("__amd_rocclr_copyBufferAligned.kd", Category.COPY),
        ("MEMORY_COPY_HOST_TO_DEVICE", Category.COPY),
        ("__amd_rocclr_fillBufferAligned", Category.MEMSET),
        ("void at::native::copy_kernel", Category.KERNEL),
        ("ncclDevKernel_AllReduce", Category.COMMUNICATION),
    ],
)
def test_copies_and_fills_that_rocm_runs_as_kernels(name: str, category: Category) -> None:
    assert of_kernel(name) is category


def test_a_kernel_is_linked_with_its_launch_and_not_with_what_asked_beside_it(tmp_path: Path) -> None:
    calls = [("cudaFuncGetAttributes", 0), ("cudaLaunchKernel", 2), ("cudaOccupancyMaxActiveBlocks", 4)]
    events = [
        op(str(at), name=name, more=', "args": {"correlation": 9}').replace("cpu_op", "cuda_runtime")
        for name, at in calls
    ]
    with opened(trace_of(tmp_path, [*events, gpu("gemm", 20, correlation=9)])) as store:
        number = int(store.events(categories=[Category.KERNEL], columns=("id",))["id"][0])
        detail = store.detail(number)
        assert detail is not None
        assert [one.name for one in detail.linked] == ["cudaLaunchKernel"]
        (worker,) = summarise([RecordedTrace(store=store)], phase_spans(())).workers
        assert worker.launches is not None
        assert worker.launches.delay_p50 == 17_000  # after the launch, which ends at 3 us


def test_sums_tell_the_host_from_the_device(tmp_path: Path) -> None:
    host = op("0", "10", name="forward").replace("cpu_op", "user_annotation")
    with opened(trace_of(tmp_path, [host, gpu("forward", 5, 30, cat="gpu_user_annotation")])) as store:
        found = summarise_window(store, begin=store.begin, end=store.end)
        assert [(one.name, one.on_device, one.total) for one in found.names] == [
            ("forward", True, 30_000),
            ("forward", False, 10_000),
        ]


def test_waits_are_on_the_device_of_their_process(tmp_path: Path) -> None:
    source = DATA / "nsys_h100_2gpu_1s.sqlite"
    import_trace(source, tmp_path / "store")
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as database:
        devices = dict(
            database.execute("SELECT (globalPid >> 24) & 0xFFFFFF, deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1")
        )
    with Store(tmp_path / "store") as store:
        waits = [lane for lane in store.lanes if lane.title.startswith("waits")]
        assert {lane.device for lane in waits} == {0, 1}
        for lane in waits:
            assert lane.device == devices[lane.pid]
            assert lane.stream < 1 << 31
            assert lane.title == f"waits, GPU {lane.device}" + (f", stream {lane.stream}" if lane.stream >= 0 else "")
        assert len({(lane.pid, lane.title) for lane in waits}) == len(waits)


def export(path: Path, kernels: list[tuple[int, int, int]], calls: list[tuple[int, int, int, int]]) -> Path:
    """Write a stripped export: kernels (start, end, correlation) without a process, calls with their thread's."""
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE StringIds(id INTEGER, value TEXT); CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
            "correlationId INTEGER, demangledName INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, globalTid INTEGER, "
            "correlationId INTEGER, nameId INTEGER);"
            "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000');"
        )
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, 1)", kernels)
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 2)", calls)
    return path


@pytest.mark.parametrize(
    ("threads", "linked"),
    [([1 << 24 | 5] * 2, 2), ([1 << 24 | 5, 2 << 24 | 6], 2)],
    ids=["one process", "two, each with a number of its own"],
)
def test_a_stripped_export_finds_launches_and_loses_no_event(tmp_path: Path, threads: list[int], linked: int) -> None:
    calls = [(-4000 + 100 * i, -3950 + 100 * i, tid, i + 1) for i, tid in enumerate(threads)]
    kernels = [(1000 + 100 * i, 1050 + 100 * i, i + 1) for i in range(2)]
    with opened(export(tmp_path / "stripped.sqlite", kernels, calls)) as store:
        assert (store.facts.events, store.begin, store.end) == (4, 0, 5150)
        assert [note.severity for note in store.notes] == ["info"]
        work = summarise([RecordedTrace(store=store)], phase_spans(())).workers
        assert sum(one.launches.linked for one in work if one.launches) == linked


def test_a_memory_snapshot_that_is_cut_off_is_called_so(tmp_path: Path) -> None:
    snapshot = {"segments": [{"address": i, "total_size": 512, "blocks": []} for i in range(100)], "device_traces": []}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot)[:-300])
    with pytest.raises(Unreadable, match=r"The snapshot is cut off: it ends after 0\.0 MiB in the middle of a value"):
        import_trace(path, tmp_path / "store")
