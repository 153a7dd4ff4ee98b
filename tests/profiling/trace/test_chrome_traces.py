"""Chrome traces of tools that are no profiler of devices: samples of stacks, VizTracer, torch's first profiler."""

import json
from pathlib import Path
from typing import Any

import pytest

from profiling.trace.category import Category
from tests.profiling.trace.stored_rows import imported, stored, trace_of

PYTHON, OPERATOR, KERNEL = Category.PYTHON, Category.OPERATOR, Category.KERNEL


def test_samples_stand_until_the_next_one_of_their_thread(tmp_path: Path) -> None:
    def sample(tid: int, at: float, **more: Any) -> dict[str, Any]:
        return {"ph": "P", "pid": 1, "tid": tid, "name": "sample", "ts": at, **more}

    frames = {"1": {"name": "main"}, "2": {"name": "step", "parent": "1"}, "3": {"name": "wait", "parent": "1"}}
    events = [
        sample(7, 110, sf=2),  # the second of its thread
        sample(7, 100, sf=2),
        sample(8, 100, stack=["loop", "poll"]),
        sample(7, 120, sf=3),
        sample(7, 300, sf=9),  # of a frame that is not there, and long after
        {"ph": "X", "pid": 1, "tid": 7, "name": "task", "ts": 100, "dur": 5},
    ]
    beside = [{"cpu": 0, "tid": 9, "ts": 50, "name": "cycles", "sf": 1, "weight": 1}]
    path = trace_of(tmp_path, events, stackFrames=frames, samples=beside)
    facts, store = imported(path, tmp_path)
    with store:
        rows = store.events(columns=("lane", "name", "ts", "dur"))
        found: dict[int, list[tuple[str, float, float]]] = {}
        for lane, name, at, lasts in zip(*(rows[key].tolist() for key in rows), strict=True):
            if store.lanes[lane].title == "samples":
                found.setdefault(store.lanes[lane].tid, []).append((store.names[name], at / 1000, lasts / 1000))
        notes = [note.text for note in store.notes]
    # distances of thread 7 are 10, 10 and 180 us, the median is 10: the third stack stands for 50 us
    assert {tid: sorted(own) for tid, own in found.items()} == {
        7: [("main", 100, 70), ("step", 100, 20), ("wait", 120, 50)],
        8: [("loop", 100, 0), ("poll", 100, 0)],
        9: [("main", 50, 0)],
    }
    assert facts.has_clock
    assert [text for text in notes if "names no frame" in text] == [
        "1 sample of stacks names no frame that the trace holds."
    ]


def test_pieces_of_a_profile_of_v8_are_stacks_of_its_thread(tmp_path: Path) -> None:
    def piece(at: float, **data: Any) -> dict[str, Any]:
        return {"ph": "P", "pid": 1, "tid": 99, "id": "0x2", "name": "ProfileChunk", "ts": at, "args": {"data": data}}

    def node(number: int, parent: int | None, name: str, url: str = "") -> dict[str, Any]:
        of = {} if parent is None else {"parent": parent}
        return {"id": number, "callFrame": {"functionName": name, "url": url}, **of}

    begins = {"ph": "P", "pid": 1, "tid": 7, "id": "0x2", "name": "Profile", "ts": 1000}
    events = [
        {**begins, "args": {"data": {"startTime": 1000}}},
        piece(
            1100,
            cpuProfile={
                "nodes": [node(1, None, "(root)"), node(2, 1, "main", "file:///a/b.js"), node(3, 2, "")],
                "samples": [2, 3],
            },
            timeDeltas=[20, 10],
        ),
        piece(1200, cpuProfile={"samples": [3, 2]}, timeDeltas=[10, 10]),
    ]
    assert stored(trace_of(tmp_path, events))["7"] == [
        ("main (b.js)", PYTHON, 1_020_000, 40_000),  # the last one stands as long as is usual
        ("(anonymous)", PYTHON, 1_030_000, 20_000),
    ]


def test_functions_of_viztracer_are_frames(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "pid": 3, "tid": 4, "name": "fit (/a/b.py:7)", "ts": 10.5, "dur": 4, "cat": kind}
        for kind in ("FEE", "fee")
    ]
    (rows,) = stored(trace_of(tmp_path, events[:1])).values()
    (others,) = stored(trace_of(tmp_path, events[1:])).values()
    assert rows == others == [("fit (/a/b.py:7)", PYTHON, 10_500, 4000)]


def test_torch_s_first_profiler_joins_an_operator_with_its_kernels(tmp_path: Path) -> None:
    def event(pid: str, tid: int, name: str, at: float, lasts: float) -> dict[str, Any]:
        return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": at, "dur": lasts, "args": {}}

    def arrow(phase: str, pid: str, tid: int, at: float) -> dict[str, Any]:
        return {"ph": phase, "pid": pid, "tid": tid, "name": "aten::mm", "ts": at, "id": 0, "cat": "cpu_to_cuda"}

    cpu, cuda = "CPU functions", "CUDA functions"
    events = [
        event(cpu, 1, "aten::mm", 100, 30),
        arrow("s", cpu, 1, 100),
        arrow("f", cuda, 0, 120),
        event(cuda, 0, "gemm", 120, 50),
        event(cpu, 1, "aten::add", 140, 10),
    ]
    path = trace_of(tmp_path, events)
    assert stored(path) == {
        "1": [("aten::mm", OPERATOR, 100_000, 30_000), ("aten::add", OPERATOR, 140_000, 10_000)],
        "device 0 stream 0": [("gemm", KERNEL, 120_000, 50_000)],
    }
    _, store = imported(path, tmp_path)
    with store:
        rows = store.events(columns=("name", "outer"))
        numbers = {store.names[name]: outer for name, outer in zip(*map(list, rows.values()), strict=True)}
    assert numbers["aten::mm"] == numbers["gemm"] > 0 == numbers["aten::add"]


def test_launches_without_any_work_are_told(tmp_path: Path) -> None:
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 9, "dur": 1}
    told = []
    for events in ([launch], [launch, kernel]):
        _, store = imported(trace_of(tmp_path, events), tmp_path)
        with store:
            told.append([note.severity for note in store.notes if "none of that work" in note.text])
    assert told == [["warning"], []]


def test_a_list_that_is_never_closed_is_whole_and_one_that_breaks_off_is_not(tmp_path: Path) -> None:
    event = '{"ph": "X", "name": "ALLREDUCE", "pid": 1, "ts": 5, "dur": 2},\n'
    told = []
    for i, text in enumerate((f"[\n{event}{event.replace('5', '9')}", f"[\n{event}{event[:-9]}", f"[{event[:-2]}")):
        path = tmp_path / f"{i}.json"
        path.write_text(text)
        facts, store = imported(path, tmp_path)
        with store:
            told.append((facts.events, ["cut off" in note.text for note in store.notes]))
    assert told == [(2, []), (1, [True]), (1, [])]


def test_nccl_s_example_of_a_profiler_writes_words_without_quotes(tmp_path: Path) -> None:
    def lines(count: int) -> str:
        text = "[\n"
        for i in range(count):
            told = f'"cat": "COLL", "id": {i}, "pid": 1, "tid": 1'
            more = '"args": {"datatype": ncclFloat32, "Stream": 0x262ca50, "Buffer": (nil)}'
            text += f'{{"name": "AllReduce", {told}, "ph": "b", "ts": {i * 10}.000000, {more}}},\n'
            text += f'{{"name": "AllReduce", {told}, "ph": "e", "ts": {i * 10 + 4}.500000}},\n'
        return text + "{}]\n"

    path = tmp_path / "nccl.json"
    for count in (2, 20_000):  # the second has several pieces
        path.write_text(lines(count))
        (rows,) = stored(path).values()
        assert len(rows) == count
        assert rows[1] == ("AllReduce", Category.COMMUNICATION, 10_000, 4500)
    assert rows[-1][2] == (count - 1) * 10_000


def test_a_timeline_of_tensorflow_has_streams_and_the_operators_of_the_executor(tmp_path: Path) -> None:
    names = [
        "/job:localhost/replica:0/task:0/device:GPU:0 Compute",
        "/device:GPU:0/stream:13 Compute",
        "/device:GPU:0/stream:all Compute",
        "/device:GPU:0/memcpy Compute",
        "/job:localhost/replica:0/task:0/cpu:0 Compute",
        "/gpu:1/stream:all Compute",  # of a device that tells of no single stream
        "/device:GPU:0/stream:13 Tensors",
    ]

    def op(pid: int, tid: int, name: str, at: int, lasts: int, node: str = "layer/node") -> dict[str, Any]:
        args = {"name": node, "op": name}
        return {"ph": "X", "cat": "Op", "pid": pid, "tid": tid, "name": name, "ts": at, "dur": lasts, "args": args}

    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in enumerate(names)
    ]
    events += [
        op(0, 0, "Conv2D", 100, 5),
        op(0, 1, "MatMul", 102, 4),
        op(4, 0, "Placeholder", 90, 2),
        op(1, 0, "Conv2D#id=7#", 110, 20),
        op(1, 1, "MatMul#id=8#", 125, 10),
        op(1, 0, "MEMCPYHtoD", 140, 3),
        op(2, 0, "Conv2D#id=7#", 110, 20),  # once more
        op(3, 0, "MEMCPYHtoD", 140, 3),  # once more
        op(5, 0, "NcclAllReduce", 150, 9),
    ]
    copy, talk = Category.COPY, Category.COMMUNICATION
    assert stored(trace_of(tmp_path, events)) == {
        "GPU:0 row 0": [("Conv2D", OPERATOR, 100_000, 5000)],
        "GPU:0 row 1": [("MatMul", OPERATOR, 102_000, 4000)],
        "CPU:0 row 0": [("Placeholder", OPERATOR, 90_000, 2000)],
        "device 0 stream 13": [
            ("Conv2D", KERNEL, 110_000, 20_000),
            ("MatMul", KERNEL, 125_000, 10_000),
            ("MEMCPYHtoD", copy, 140_000, 3000),
        ],
        "device 1 stream -1": [("NcclAllReduce", talk, 150_000, 9000)],
    }


@pytest.mark.parametrize("opening", ["[\n", ""])
@pytest.mark.parametrize("closing", ["\n]\n", "\n]", ""])
def test_events_that_have_a_line_each_need_no_commas(tmp_path: Path, opening: str, closing: str) -> None:
    """DFTracer writes its traces so, some versions with texts in place of numbers."""
    named = {"name": "thread_name", "ph": "M", "pid": "1", "tid": "7", "args": {"name": "reader"}}
    read: dict[str, Any] = {"name": "read", "cat": "POSIX", "ph": "X", "pid": "1", "tid": "7", "dur": "4"}
    reads = [{**read, "ts": str(at)} for at in (10, 20, 30)]
    reads[1]["args"] = {"path": "a}\n{b"}  # in a text there is no line's end
    path = tmp_path / "trace.pfw"
    path.write_text(opening + "\n".join(json.dumps(event) for event in (named, *reads)) + closing)
    facts, store = imported(path, tmp_path)
    with store:
        assert [store.lanes[0].thread, [note.text for note in store.notes]] == ["reader", []]
        assert store.events(columns=("ts",))["ts"].tolist() == [10_000, 20_000, 30_000]
    assert facts.events == 3


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("", []),
        ("\n \0\0", []),
        ("garbage", ["Text that is no part of it follows the trace in its file."]),
        ('\n{"traceEvents": []}', [
            "Another document follows the trace in its file, and the rest is left out: bring each trace as a file of "
            "its own."
        ]),
    ],
)  # fmt: skip
def test_what_follows_a_trace_in_its_file_is_told_and_costs_it_nothing(
    tmp_path: Path, rest: str, told: list[str]
) -> None:
    """The time of day stands at the end of torch's traces: it was lost with what followed, which nobody was told of."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 7, "ts": 5, "dur": 3}
    base = 1_760_000_000_000_000_000
    for i, whole in enumerate(
        (json.dumps({"traceEvents": [event], "baseTimeNanoseconds": base}), json.dumps([{**event, "ts": base / 1000}]))
    ):
        path = tmp_path / f"{i}.json"
        path.write_text(whole + rest)
        facts, store = imported(path, tmp_path)
        with store:
            assert [note.text for note in store.notes] == told
        assert facts.begin - base in (0, 5_000)
