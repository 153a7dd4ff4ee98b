"""Traces of torch: real ones against a plain pass over their JSON, odd ones that people have, hostile ones."""

import gzip
import json
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from profiling.trace.category import DEVICE, Category
from profiling.trace.formats import unpack
from profiling.trace.importing import import_trace
from profiling.trace.limits import Limits, Unreadable
from tests.profiling.trace.stored_rows import imported, trace_of

DATA = Path(__file__).resolve().parents[2] / "data" / "traces"
T = 1_760_000_000_000_000  # us

BASE_TIME = ',\n "displayTimeUnit": "ms",\n "baseTimeNanoseconds": 1727743122000000000\n}'


def op(name: str, start: float, lasts: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 70, "ts": T + start, "dur": lasts, **more}


@pytest.mark.parametrize("name", ["torch_diff_test", "torch_sampled_rank0"])
def test_a_real_trace_comes_in_whole(name: str, tmp_path: Path) -> None:
    source = DATA / f"{name}.json.gz"
    with gzip.open(source) as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e.get("cat") != "Trace"]
    count: Counter[Any] = Counter()
    busy: defaultdict[Any, int] = defaultdict(int)
    for event in events:
        on_device = event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        key = (on_device, event["pid"] if on_device else -1, event["tid"], event["name"])
        count[key] += 1
        busy[key] += round(event["dur"] * 1000)

    facts, store = imported(source, tmp_path)

    with store:
        assert facts.events == len(events)
        assert facts.begin == min(round(e["ts"] * 1000) for e in events)
        assert facts.end == max(round(e["ts"] * 1000) + round(e["dur"] * 1000) for e in events)
        found = store.events()
        told: Counter[Any] = Counter()
        told_busy: defaultdict[Any, int] = defaultdict(int)
        for lane, number, duration, category in zip(
            *[found[key].tolist() for key in ("lane", "name", "dur", "cat")], strict=True
        ):
            about = store.lanes[lane]
            assert (about.kind == "stream") is (category in DEVICE)
            place = (True, about.device, about.stream) if about.kind == "stream" else (False, -1, about.tid)
            told[*place, store.names[number]] += 1
            told_busy[*place, store.names[number]] += duration
        assert told == count
        assert told_busy == busy
        assert store.notes == ()
        rank, world = {"torch_diff_control": (3, 8), "torch_diff_test": (1, 2), "torch_sampled_rank0": (0, 128)}[name]
        assert (store.meta["rank"], store.meta["world_size"], store.meta["backend"]) == (rank, world, "nccl")
        assert {lane.process for lane in store.lanes} == {events_process(source, store.lanes[0].pid)}


def events_process(source: Path, pid: int) -> str:
    with gzip.open(source) as file:
        return next(
            e["args"]["name"]
            for e in json.load(file)["traceEvents"]
            if e["ph"] == "M" and e["name"] == "process_name" and e["pid"] == pid
        )


def test_every_kernel_of_a_real_trace_finds_its_launch(tmp_path: Path) -> None:
    _, store = imported(DATA / "torch_diff_control.json.gz", tmp_path)
    with store:
        launches = set(store.events(categories=[Category.RUNTIME, Category.SYNC], columns=("link",))["link"].tolist())
        kernels = store.events(categories=[Category.KERNEL, Category.COMMUNICATION], columns=("link", "ts", "id"))
        assert len(kernels["link"]) == 8568
        assert set(kernels["link"].tolist()) <= launches
        (launch,) = store.detail(int(kernels["id"][0])).linked
        assert launch.name == "cudaLaunchKernel"
        assert launch.ts < kernels["ts"][0]


def test_kinds_of_events_get_their_categories_and_lanes(tmp_path: Path) -> None:
    gpu = {"pid": 1, "tid": 7, "args": {"device": 1, "stream": 7, "correlation": 44, "External id": 9}}
    events = [
        op("aten::mm", 0, 10, args={"External id": 9, "Input Dims": [[2, 3]], "Sequence number": 5}),
        op("ProfilerStep#12", 0, 90, cat="user_annotation"),
        op("update", 1, 80, cat="user_annotation"),
        op("mine", 2, 70, cat="user_annotation"),
        op("gloo:all_reduce", 3, 10, cat="user_annotation"),
        op("nccl:all_reduce", 20, 10, cat="user_annotation"),
        op("execute_context_0(0)_generation_16(16)", 40, 10, cat="user_annotation"),
        op("train.py(5): step", 60, 5, cat="python_function"),
        op("cudaLaunchKernel", 4, 2, cat="cuda_runtime", args={"correlation": 44, "External id": 9}),
        op("hipDeviceSynchronize", 7, 2, cat="cuda_runtime", args={"correlation": 45}),
        op("cuLaunchKernelEx", 9, 1, cat="cuda_driver", args={"correlation": 46}),
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": T + 5, "dur": 3.5, **gpu},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16", "ts": T + 9, "dur": 4}
        | {**gpu, "args": {**gpu["args"], "In msg nelems": 100, "dtype": "BFloat16", "Collective name": "allreduce"}},  # type: ignore[dict-item]
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "ts": T + 14, "dur": 1}
        | {**gpu, "args": {**gpu["args"], "bytes": 4096}},  # type: ignore[dict-item]
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": T + 16, "dur": 1, **gpu},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "mine", "ts": T + 5, "dur": 12, **gpu},
        {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "ts": T + 5, "dur": 1, **gpu},
        {"ph": "s", "cat": "ac2g", "id": 44, "pid": 7, "tid": 70, "ts": T + 4, "name": "ac2g"},
        {"ph": "f", "cat": "fwdbwd", "id": 44, "pid": 7, "tid": 70, "ts": T + 4, "name": "fwdbwd", "bp": "e"},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": T, "dur": 1e6},
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": T, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 7, "tid": 0, "ts": T, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 70, "ts": T, "args": {"name": "thread 70 (main)"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 7, "ts": T, "args": {"name": "stream 7 "}},
    ]
    path = trace_of(tmp_path, events, deviceProperties=[{"id": 1, "name": "NVIDIA H200", "totalGlobalMem": 1}])
    facts, store = imported(path, tmp_path)

    with store:
        found = store.events()
        names = [store.names[name] for name in found["name"]]
        categories = {
            (name, store.lanes[lane].kind): Category(category).name
            for name, lane, category in zip(names, found["lane"], found["cat"], strict=True)
        }
        assert categories == {
            ("aten::mm", "thread"): "OPERATOR",
            ("ProfilerStep#12", "thread"): "STEP",
            ("update", "thread"): "PHASE",
            ("mine", "thread"): "RANGE",
            ("gloo:all_reduce", "thread"): "COMMUNICATION",
            ("nccl:all_reduce", "thread"): "RANGE",
            ("execute_context_0(0)_generation_16(16)", "thread"): "BATCH",
            ("train.py(5): step", "thread"): "PYTHON",
            ("cudaLaunchKernel", "thread"): "RUNTIME",
            ("hipDeviceSynchronize", "thread"): "SYNC",
            ("cuLaunchKernelEx", "thread"): "RUNTIME",
            ("gemm", "stream"): "KERNEL",
            ("ncclDevKernel_AllReduce_Sum_bf16", "stream"): "COMMUNICATION",
            ("Memcpy HtoD (Pageable -> Device)", "stream"): "COPY",
            ("Memset (Device)", "stream"): "MEMSET",
            ("mine", "range"): "RANGE",
            ("Stream Wait Event", "range"): "SYNC",
        }
        rows = {name: i for i, name in enumerate(names)}
        assert facts.events == len(rows) + 1  # "mine" stands on the CPU and on the device
        gemm, nccl, copy = (
            rows["gemm"],
            rows["ncclDevKernel_AllReduce_Sum_bf16"],
            rows["Memcpy HtoD (Pageable -> Device)"],
        )
        assert (found["link"][gemm], found["outer"][gemm], found["dur"][gemm]) == (44, 9, 3500)
        assert found["outer"][rows["aten::mm"]] == 9
        assert (found["bytes"][nccl], found["bytes"][copy]) == (200, 4096)
        detail = store.detail(int(store.events(categories=[Category.OPERATOR], columns=("id",))["id"][0]))
        assert detail.info == {"Input Dims": [[2, 3]]}
        (stream,) = [lane for lane in store.lanes if lane.kind == "stream"]
        assert (stream.process, stream.pid, stream.device, stream.stream, stream.thread) == (
            "python",
            7,
            1,
            7,
            "stream 7",
        )
        assert store.lanes[0].thread == "thread 70 (main)"
        assert store.meta["devices"][0]["name"] == "NVIDIA H200"


def test_traces_of_torch_1_8_to_1_11_have_other_words(tmp_path: Path) -> None:
    launched = {"correlation": 570, "external id": 160, "external ts": T}
    stream = {"pid": 0, "tid": "stream 7", "args": {"device": 0, "stream": 7, **launched}}
    events = [
        op("aten::copy_", 0, 90, cat="Operator", tid="70", args={"Device": 7, "External id": 160}),
        op("cudaMemcpyAsync", 5, 10, cat="Runtime", tid="70", args={"cbid": 41, **launched}),
        {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "ts": T + 20, "dur": 4, **stream},
        {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "ts": T + 30, "dur": 2, **stream},
        {"ph": "X", "cat": "Kernel", "name": "volta_sgemm_128x64_nn", "ts": T + 40, "dur": 8, **stream},
        {"ph": "s", "cat": "async", "id": 570, "name": "launch", "pid": 7, "tid": 70, "ts": T + 5},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Traces", "tid": "x", "ts": T, "dur": 99},
    ]
    _, store = imported(
        trace_of(tmp_path, events, computeProperties=[{"id": 0, "name": "Tesla V100-DGXS-32GB"}]), tmp_path
    )

    with store:
        found = store.events()
        names = [store.names[int(name)] for name in found["name"]]
        kinds = dict(zip(names, (Category(int(cat)) for cat in found["cat"]), strict=True))
        assert kinds == {
            "aten::copy_": Category.OPERATOR,
            "cudaMemcpyAsync": Category.RUNTIME,
            "Memcpy HtoD (Pageable -> Device)": Category.COPY,
            "Memset (Device)": Category.MEMSET,
            "volta_sgemm_128x64_nn": Category.KERNEL,
        }
        links = {
            name: (int(link), int(outer))
            for name, link, outer in zip(names, found["link"], found["outer"], strict=True)
        }
        assert links["volta_sgemm_128x64_nn"] == links["cudaMemcpyAsync"] == (570, 160)
        (device,) = [lane for lane in store.lanes if lane.kind == "stream"]
        assert (device.device, device.stream, device.events) == (0, 7, 3)
        assert store.meta["devices"][0]["name"] == "Tesla V100-DGXS-32GB"


@pytest.mark.parametrize("late", [False, True])
def test_times_count_from_the_base_that_the_trace_names(tmp_path: Path, late: bool) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 4364001069205.076, "dur": 1.5}
    base = 1_790_857_026_000_000_000
    top = {"traceEvents": [event], "baseTimeNanoseconds": base}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(top if late else dict(reversed(top.items()))))
    facts, store = imported(path, tmp_path)
    with store:
        assert (facts.begin, facts.end) == (base + 4364001069205076, base + 4364001069205076 + 1500)


def test_memory_and_counters_become_series(tmp_path: Path) -> None:
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 70}
    events = [
        op("a", 0, 1),
        {
            **memory,
            "ts": T + 5,
            "args": {"Total Allocated": 100, "Total Reserved": 0, "Device Id": -1, "Device Type": 0},
        },
        {
            **memory,
            "ts": T + 6,
            "args": {"Total Allocated": 64, "Total Reserved": 512, "Device Id": 1, "Device Type": 1},
        },
        {"ph": "C", "name": "power", "pid": 0, "ts": T + 7, "args": {"watts": 310.5, "note": "x"}},
    ]
    _, store = imported(trace_of(tmp_path, events), tmp_path)
    with store:
        told = {(s.name, s.unit, s.device): [a.tolist() for a in store.samples(s.id)] for s in store.series}
    at = T * 1000
    assert told == {
        ("allocated", "B", -1): [[at + 5000], [100.0]],
        ("reserved", "B", -1): [[at + 5000], [0.0]],
        ("allocated", "B", 1): [[at + 6000], [64.0]],
        ("reserved", "B", 1): [[at + 6000], [512.0]],
        ("power: watts", "", -1): [[at + 7000], [310.5]],
    }


def test_each_process_has_its_own_curve_of_a_counter(tmp_path: Path) -> None:
    count = {"ph": "C", "name": "Used Mem"}
    events = [
        {**count, "pid": "rank0", "ts": T, "args": {"used": 5}},
        {**count, "pid": "rank1", "ts": T + 1, "args": {"used": 900}},
        {**count, "pid": "rank0", "ts": T + 2, "args": {"used": 6}},
        {"ph": "M", "name": "process_name", "pid": "rank1", "args": {"name": "trainer"}},
    ]
    _, store = imported(trace_of(tmp_path, events), tmp_path)
    with store:
        told = {s.process: store.samples(s.id)[1].tolist() for s in store.series}
    assert told == {"rank0": [5, 6], "trainer rank1": [900]}


def test_begin_and_end_make_one_event_and_texts_are_no_numbers(tmp_path: Path) -> None:
    mark = {"pid": "worker a", "tid": "thread b", "cat": "x"}
    events = [
        {"ph": "B", "name": "outer", "ts": T, **mark},
        {"ph": "B", "name": "inner", "ts": T + 1, **mark},
        {"ph": "E", "ts": T + 2, **mark},
        {"ph": "E", "ts": T + 5, **mark},
        {"ph": "E", "ts": T + 6, **mark},
        {"ph": "B", "name": "open", "ts": T + 7, **mark},
    ]
    _, store = imported(trace_of(tmp_path, events), tmp_path)
    with store:
        assert store.events()["dur"].tolist() == [5000, 1000]
        assert (store.lanes[0].process, store.lanes[0].pid, store.lanes[0].thread) == ("worker a", -1, "thread b")
        assert [note.text for note in store.notes] == [
            "1 range was never closed and is left out.",
            "1 end of ranges has no beginning and is left out.",
        ]


def test_an_end_with_a_name_ends_the_range_of_that_name(tmp_path: Path) -> None:
    mark = {"pid": 1, "tid": 2}
    events = [
        {"ph": kind, "name": name, "ts": T + at, **mark}
        for kind, name, at in (
            ("B", "outer", 0), ("B", "lost", 1), ("E", "outer", 9), ("B", "next", 10), ("E", "next", 12),
        )
    ]  # fmt: skip
    _, store = imported(trace_of(tmp_path, events), tmp_path)
    with store:
        rows = store.events(columns=("name", "dur"))
        told = {store.names[n]: dur for n, dur in zip(rows["name"], rows["dur"].tolist(), strict=True)}
        assert told == {"outer": 9000, "next": 2000}
        assert [note.text[:35] for note in store.notes] == [
            "1 range was never closed and is lef",
            "1 end belongs to another range than",
        ]


def test_asynchronous_events_of_one_kind_share_rows_that_none_overlaps_in(tmp_path: Path) -> None:
    events = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "server"}}] + [
        {"ph": kind, "cat": "request", "name": name, "id": key, "pid": 1, "tid": at, "ts": T + at}
        for kind, name, key, at in (
            ("b", "generate", "0x7", 0), ("b", "prefill", "0x7", 1), ("b", "generate", "0x8", 2),
            ("e", "prefill", "0x7", 3), ("e", "generate", "0x7", 9), ("S", "generate", "0x9", 10),
            ("F", "generate", "0x9", 11), ("e", "generate", "0x8", 12), ("e", "generate", "0x8", 13),
            ("b", "never", "0xa", 14),
        )
    ]  # fmt: skip
    _, store = imported(trace_of(tmp_path, events), tmp_path)
    with store:
        rows = store.events(columns=("lane", "name", "ts", "dur"))
        told = [
            (store.lanes[lane].title, store.names[name], begin - T * 1000, lasts)
            for lane, name, begin, lasts in zip(*(rows[key].tolist() for key in rows), strict=True)
        ]
        assert sorted(told) == [
            ("request 1", "generate", 0, 9000),
            ("request 1", "generate", 10_000, 1000),
            ("request 1", "prefill", 1000, 2000),
            ("request 2", "generate", 2000, 10_000),
        ]
        assert {lane.process for lane in store.lanes} == {"server"}
        assert [note.text[:15] for note in store.notes] == ["1 range was nev", "1 end of ranges"]


def test_a_list_alone_and_a_byte_order_mark_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([op("a", 0, 1), op("b", 2, 1)]).encode())
    assert imported(path, tmp_path)[0].events == 2


def test_what_is_not_a_number_costs_only_its_event(tmp_path: Path) -> None:
    odd: list[Any] = [
        op("good", 0, 1),
        op("no length", 0, float("nan")),
        op("endless", 0, float("inf")),
        op("text", 0, "five"),  # type: ignore[arg-type]
        {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": T, "dur": 1},
        op("list", 0, 1, args=[1]),
        op("link", 0, 1, cat="cuda_runtime", args={"correlation": 1 << 70}),
        op("link", 0, 1, cat="cuda_runtime", args={"correlation": "x"}),
        "no event",
        None,
        7,
        op("good", 2, 1),
    ]
    facts, store = imported(trace_of(tmp_path, odd), tmp_path)
    with store:
        assert facts.events == 2
        assert store.notes[0].text.startswith("10 events were left out")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("share", [0.999, 0.7, 0.2])
def test_a_trace_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path, packed: bool, share: float) -> None:
    events = [op(f"aten::op{i % 9}", 10 * i, 5, args={"n": [{"a": i}, {"b": i}]}) for i in range(8_000)]
    written = json.dumps({"traceEvents": events, "x": 1}, indent=1).encode()
    whole = gzip.compress(written) if packed else written
    path = tmp_path / "trace.json"
    path.write_bytes(whole[: int(len(whole) * share)])
    facts, store = imported(path, tmp_path)
    with store:
        assert share * 0.9 < facts.events / len(events) < share + 0.05
        starts = store.events(columns=("ts",))["ts"]
        assert starts.tolist() == [(T + 10 * i) * 1000 for i in range(len(starts))]
        assert len(store.notes) == 1
        assert "cut off" in store.notes[0].text


@pytest.mark.parametrize(("left_out", "has_clock"), [("}", True), ("000000\n}", False), (BASE_TIME, False)])
def test_a_trace_without_its_end_has_its_clock_where_that_is_still_there(
    tmp_path: Path, left_out: str, has_clock: bool
) -> None:
    """As torch writes it: the moment from which times count is the last thing of all."""
    events = [op("aten::mm", 10 * i, 5) | {"ts": 5_590_677_563_691.019 + 10 * i} for i in range(9)]
    written = json.dumps({"traceEvents": events, "traceName": "a.json"}, indent=1).removesuffix("\n}") + BASE_TIME
    assert written.endswith(left_out)
    path = tmp_path / "trace.json"
    path.write_text(written.removesuffix(left_out))

    facts, store = imported(path, tmp_path)

    with store:
        assert facts.events == 9
        assert (facts.begin > 1_700_000_000 * 10**9) == has_clock


def test_a_trace_cut_off_in_its_events_says_that_its_clock_is_lost(tmp_path: Path) -> None:
    events = [op("aten::mm", 10 * i, 5) | {"ts": 5_590_677_563_691.019 + 10 * i} for i in range(9)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events})[:-40])

    _, store = imported(path, tmp_path)

    with store:
        assert ["cut off" in note.text or "not those of the clock" in note.text for note in store.notes] == [True, True]


def test_packed_files_in_many_members_and_with_padding_are_whole(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": [op("a", i, 1) for i in range(3000)]}).encode()
    members = b"".join(gzip.compress(whole[i : i + 500]) for i in range(0, len(whole), 500))
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"") * 5000 + members + b"\0" * 512)
    facts, store = imported(path, tmp_path)
    with store:
        assert (facts.events, store.notes) == (3000, ())


def test_bytes_that_are_no_text_and_control_characters_cost_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": [op("good", i, 1) for i in range(50)]}).encode()
    path.write_bytes(text.replace(b'"good"', b'"b\xffd\x01"', 1))
    facts, store = imported(path, tmp_path)
    with store:
        assert facts.events == 50
        assert store.names == ["b\ufffdd\x01", "good"]


def test_a_piece_of_nonsense_ends_the_reading_with_a_note(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [op("a", i, 1) for i in range(100)]})
    path = tmp_path / "trace.json"
    at = text.index('"ph"', len(text) // 2)
    path.write_text(text[:at] + "\x01\x02 nonsense }, {" + text[at:])
    facts, store = imported(path, tmp_path)
    with store:
        assert 40 <= facts.events <= 60
        assert "damaged" in store.notes[0].text


def test_keys_after_the_list_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    frames = {str(i): {"name": f"frame {i}"} for i in range(100_000)}
    text = json.dumps({"traceEvents": [op("a", i, 1) for i in range(5)], "stackFrames": frames, "host_name": "node-1"})
    path.write_text(text)
    facts, store = imported(path, tmp_path)
    with store:
        assert (facts.events, store.meta["host_name"], store.notes) == (5, "node-1", ())


def bomb(unpacked: int) -> bytes:
    """A packed file of one endless text."""
    packer = zlib.compressobj(9, wbits=31)
    made = packer.compress(b'{"traceEvents":[{"ph":"X","name":"')
    for _ in range(unpacked >> 24):
        made += packer.compress(b"a" * (1 << 24))
    return made + packer.flush()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "The file is empty"),
        (b"hello", "of no format that can be read here: .*torch profiler"),
        (b'{"schemaVersion":1}', "holds no list traceEvents"),
        (b'{"traceEvents": []}', "holds no events"),
        (b'{"traceEvents": {}}', "holds no list traceEvents"),
        (b'{"traceEvents": [' + b"[" * 10**6 + b"]" * 10**6 + b"]}", "nests deeper"),
        (b'{"traceEvents": [' + b'{"a":' * 10**6 + b"1" + b"}" * 10**6 + b"]}", "nests deeper|holds no events"),
        (b'{"traceEvents": [{"ph":"X","name":"' + b"a" * (33 << 20), "longer than 32 MiB"),
    ],
    ids=["empty", "text", "head", "no events", "no list", "nested lists", "nested objects", "one long text"],
)
def test_a_hostile_or_empty_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=sentence):
        import_trace(path, tmp_path / "target.store")
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]


def test_a_bomb_is_seen_before_it_goes_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(bomb(64 << 20))
    with pytest.raises(Unreadable, match="32 MiB"):  # nothing is kept of a text without an end
        import_trace(path, tmp_path / "a.store")
    head = b'{"traceEvents":[' + json.dumps(op("a", 0, 1)).encode()
    monkeypatch.setattr(unpack, "_FREE", 1 << 20)
    path.write_bytes(gzip.compress(head + b" " * (20 << 20) + b"]}"))
    with pytest.raises(Unreadable, match="250 times its size"):
        import_trace(path, tmp_path / "a.store")
    many = gzip.compress(b"".join([head, *[b"," + json.dumps(op("a", 0, 1)).encode()] * 5000, b"]}"]))
    path.write_bytes(many)
    with pytest.raises(Unreadable, match="more than 0 GiB unpacked"):
        import_trace(path, tmp_path / "a.store", limits=Limits(unpacked=1 << 18))
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json.gz"]


def test_more_events_than_allowed_are_left_out_and_told(tmp_path: Path) -> None:
    path = trace_of(tmp_path, [op("aten::add", i, 1) for i in range(40_000)])
    facts, store = imported(path, tmp_path, limits=Limits(events=1000))
    with store:
        assert 1000 <= facts.events < 40_000
        assert "the rest is left out" in store.notes[0].text
