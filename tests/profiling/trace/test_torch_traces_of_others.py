"""Chrome traces that other makers' tools write in torch's manner: Ascend's, AMD's, Meta's."""

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from profiling.trace.category import Category
from tests.profiling.trace.stored_rows import imported, links, stored, trace_of

T = 1_760_000_000_000_000  # us


def told(path: Path, folder: Path) -> dict[str, list[tuple[str, Category, int]]]:
    """Return the events of a trace by lane: name, kind and length [us]."""
    _, store = imported(path, folder)
    with store:
        rows = store.events(columns=("lane", "name", "cat", "dur"))
        lanes: dict[str, list[tuple[str, Category, int]]] = defaultdict(list)
        for lane, name, kind, lasts in zip(*(rows[key].tolist() for key in rows), strict=True):
            at = store.lanes[lane]
            where = f"device {at.device} stream {at.stream}" if at.device >= 0 else at.thread
            lanes[f"{where} {at.title}".strip()].append((store.names[name], Category(kind), lasts // 1000))
    return dict(lanes)


def test_ascend_s_traces_have_tasks_waits_calls_collectives_and_steps(tmp_path: Path) -> None:
    def named(pid: int, name: str, **threads: str) -> list[dict[str, Any]]:
        of_threads = [
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": int(tid[1:]), "args": {"name": thread}}
            for tid, thread in threads.items()
        ]
        return [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}, *of_threads]

    def event(pid: int, tid: int, name: str, lasts: float, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{T}.125", "dur": lasts, "args": args}

    events = [
        {**event(7, 7, "ProfilerStep#3", 900), "cat": "cpu_op"},
        {**event(7, 7, "aclnnMm", 20), "cat": "cpu_op"},
        *named(800, "Ascend Hardware", t3="Stream 3"),
        {"ph": "M", "name": "process_labels", "pid": 800, "tid": 0, "args": {"labels": "NPU 2"}},
        *named(702, "CANN", t7="Thread 7"),
        *named(900, "Communication", t0="Group 0 Communication", t1="Plane 0"),
        *named(950, "Overlap Analysis", t0="Computing"),
        event(702, 7, "Node@launch", 5, connection_id=8),
        event(702, 7, "AscendCL@aclrtSynchronizeStream", 6, connection_id=0),
        event(800, 3, "aclnnMm_MatMul", 40, **{"Task Type": "AI_CORE", "Stream Id": 3, "connection_id": 8}),
        event(800, 3, "MEMCPY_ASYNC", 3, **{"Task Type": "SDMA", "Stream Id": 3, "connection_id": 4294967295}),
        event(800, 3, "EVENT_WAIT", 200, **{"Task Type": "EVENT_WAIT_SQE", "Stream Id": 3}),
        event(900, 0, "hcom_allReduce__721_0_1", 60, connection_id=9),
        event(900, 1, "Notify_Wait", 50),
        event(950, 0, "Computing", 40),
    ]
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))

    lanes = told(path, tmp_path)

    assert lanes == {
        "7": [("ProfilerStep#3", Category.STEP, 900), ("aclnnMm", Category.OPERATOR, 20)],
        "Thread 7 CANN": [
            ("AscendCL@aclrtSynchronizeStream", Category.SYNC, 6),
            ("Node@launch", Category.RUNTIME, 5),
        ],
        "device 2 stream 3": [("aclnnMm_MatMul", Category.KERNEL, 40), ("MEMCPY_ASYNC", Category.COPY, 3)],
        "device 2 stream 3 waits, stream 3": [("EVENT_WAIT", Category.SYNC, 200)],
        "device 2 stream -1 Communication: Group 0 Communication": [
            ("hcom_allReduce__721_0_1", Category.COMMUNICATION, 60)
        ],
        "device 2 stream -1 Communication: Plane 0": [("Notify_Wait", Category.RANGE, 50)],
        "device 2 stream -1 Overlap Analysis: Computing": [("Computing", Category.RANGE, 40)],
    }
    _, store = imported(path, tmp_path)
    with store:
        rows = store.events(columns=("name", "link"))
        linked = {store.names[name]: link for name, link in zip(*(rows[key].tolist() for key in rows), strict=True)}
        assert linked["Node@launch"] == linked["aclnnMm_MatMul"] == 8
        assert linked["MEMCPY_ASYNC"] == 0
        assert {(lane.process, lane.pid) for lane in store.lanes if lane.kind != "range"} == {("7", 7)}, "one program"


@pytest.mark.parametrize("arrows_first", [False, True])
def test_arrows_lead_from_calls_and_operators_to_tasks_of_ascend(tmp_path: Path, arrows_first: bool) -> None:
    """As msprof writes them at level 0: the calls of AscendCL have numbers of their own."""

    def named(pid: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}

    def event(pid: int, name: str, at: float, lasts: float, number: int) -> dict[str, Any]:
        args = {"connection_id": number}
        return {"ph": "X", "name": name, "pid": pid, "tid": 3, "ts": f"{T + at:.3f}", "dur": lasts, "args": args}

    def arrow(number: int, at: float, to: float) -> list[dict[str, Any]]:
        about = {"name": "HostToDevice", "cat": "HostToDevice", "id": str(number << 32 | 0xFFFFFFFF), "tid": 3}
        begin = {**about, "ph": "s", "pid": 702, "ts": f"{T + at:.3f}"}
        return [begin, {**about, "ph": "f", "bp": "e", "pid": 800, "ts": f"{T + to:.3f}"}]

    def of_operator(number: int, at: float, to: float) -> list[dict[str, Any]]:
        about = {"name": "torch_to_npu", "cat": "async_npu", "id": number, "bp": "e", "tid": 3}
        begin = {**about, "ph": "s", "pid": 7, "ts": f"{T + at:.3f}"}
        return [begin, {**about, "ph": "f", "pid": 800, "ts": f"{T + to:.3f}"}]

    names = [named(800, "Ascend Hardware"), named(702, "CANN")]
    calls = [event(702, "AscendCL@aclnnMm", 0, 20, 9), event(702, "AscendCL@aclnnAdd", 30, 20, 12)]
    inner = [event(702, "Node@launch", 5, 2, 11)]  # ends before the arrows of the call around it begin
    tasks = [event(800, name, at, 4, number) for name, at, number in (("cast", 40, 8), ("mm", 44, 10), ("add", 60, 13))]
    arrows = [*arrow(8, 10, 40), *arrow(10, 12, 44), *arrow(13, 30, 60)]
    operators = [{**event(7, name, at, 9, 0), "cat": "cpu_op"} for name, at in (("aten::mm", 1), ("aten::add", 31))]
    arrows += [*of_operator(1, 1, 40), *of_operator(2, 1, 44), *of_operator(3, 31, 60)]
    parts = [arrows, operators, calls, inner, tasks] if arrows_first else [operators, tasks, calls, inner, arrows]
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([*names, *itertools.chain.from_iterable(parts)]))

    _, store = imported(path, tmp_path)

    with store:
        rows = store.events(columns=("name", "link", "outer"))
        found = [(store.names[name], *more) for name, *more in zip(*(rows[key].tolist() for key in rows), strict=True)]
    assert {name: outer for name, _, outer in found if outer} == {
        "aten::mm": 1, "cast": 1, "mm": 1, "aten::add": 2, "add": 2,
    }  # fmt: skip
    assert {name: link for name, link, _ in found if link} == {
        "AscendCL@aclnnMm": 8, "cast": 8, "mm": 8, "Node@launch": 11, "AscendCL@aclnnAdd": 13, "add": 13,
    }  # fmt: skip


def test_tasks_that_collectives_are_made_of_do_not_compute_and_iterations_are_steps(tmp_path: Path) -> None:
    named = {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "Ascend Hardware"}}
    label = {"ph": "M", "name": "process_labels", "pid": 3, "tid": 0, "args": {"labels": "NPU 5"}}

    def task(name: str, kind: str, lasts: float) -> dict[str, Any]:
        args = {"Task Type": kind, "Stream Id": 13}
        return {"ph": "X", "name": name, "pid": 3, "tid": 13, "ts": T, "dur": lasts, "args": args}

    iteration = {"ph": "X", "name": "Iteration 4", "cat": "Iteration Time", "pid": 3, "tid": 99, "ts": T, "dur": 80}
    events = [
        named,
        label,
        task("Default/MatMul-op3", "AI_CORE", 40),
        task("REDUCE_ASYNC_V2", "REDUCE_ASYNC_V2", 6),
        task("MEMCPY_ASYNC", "MEMCPY_ASYNC", 7),
        task("NOTIFY_RECORD", "NOTIFY_RECORD", 1),
        task("EVENT_RESET", "EVENT_RESET", 1),
        iteration,
    ]
    path = tmp_path / "msprof.json"
    path.write_text(json.dumps(events))
    lanes = told(path, tmp_path)
    assert sorted(lanes["device 5 stream 13"]) == [
        ("Default/MatMul-op3", Category.KERNEL, 40),
        ("MEMCPY_ASYNC", Category.COPY, 7),
        ("REDUCE_ASYNC_V2", Category.COPY, 6),
    ]
    assert len(lanes["device 5 stream 13 waits, stream 13"]) == 2
    assert lanes["device 5 stream -1 iterations"] == [("Iteration 4", Category.STEP, 80)]


def test_a_wait_among_the_tasks_of_another_accelerator_is_no_work(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "mtia_ccp_events", "name": name, "pid": 9, "tid": 4, "ts": T + at, "dur": lasts}
        for name, at, lasts in (("event_wait", 0, 90), ("fc-dtype_Float", 100, 5))
    ]
    lanes = told(trace_of(tmp_path, events), tmp_path)
    assert lanes == {
        "device 9 stream 4 waits, stream 4": [("event_wait", Category.SYNC, 90)],
        "device 9 stream 4": [("fc-dtype_Float", Category.KERNEL, 5)],
    }


def test_the_converter_of_rocmprofiledata_tells_the_kind_of_work_in_words(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    rows = [
        ("2", "0", "gemm", 26, "KernelExecution"), ("2", "0", "attention", 4, "Task"),
        ("2", "0", "CopyHostToDevice", 9, "CopyHostToDevice"), ("71", "72", "hipLaunchKernel", 3, ""),
        ("71", "72", "hipMemcpyWithStream", 8, ""), ("71", "72", "forward", 30, "forward"),
    ]  # fmt: skip
    lines = [
        json.dumps({"pid": p, "tid": t, "name": n, "ts": str(T), "dur": str(d), "ph": "X", "args": {"desc": k}})
        for p, t, n, d, k in rows
    ]
    path.write_text("[ {}\n," + "\n,".join(lines) + "]\n")
    lanes = told(path, tmp_path)
    assert {name: kind for rows in lanes.values() for name, kind, _ in rows} == {
        "gemm": Category.KERNEL,
        "attention": Category.KERNEL,
        "CopyHostToDevice": Category.COPY,
        "hipLaunchKernel": Category.RUNTIME,
        "hipMemcpyWithStream": Category.SYNC,
        "forward": Category.RANGE,
    }
    assert len(lanes["device 2 stream 0"]) == 3


def test_arrows_of_rocmprofiledata_s_converter_join_a_call_with_all_that_it_launched(tmp_path: Path) -> None:
    def event(pid: int, tid: int, name: str, at: float, lasts: float, kind: str) -> dict[str, Any]:
        times = {"ts": str(T + at), "dur": str(lasts)}
        return {"ph": "X", "pid": str(pid), "tid": str(tid), "name": name, **times, "args": {"desc": kind}}

    def arrow(number: int, called: float, begun: float) -> list[dict[str, Any]]:
        ends = ("s", 71, 72, min(called - 2, begun)), ("f", 2, 0, begun)
        told = {"cat": "api_op", "name": "api_op", "id": str(number)}
        return [{**told, "ph": p, "pid": str(pid), "tid": str(tid), "ts": str(T + at)} for p, pid, tid, at in ends]

    events = [
        event(2, 0, "gemm", 20, 5, "KernelExecution"),
        event(2, 0, "add", 30, 5, "KernelExecution"),
        event(2, 0, "copy", 52, 3, "CopyDeviceToHost"),
        event(71, 72, "hipLaunchKernel", 0, 1.5, ""),  # shorter than the 2 us by which its arrow begins early
        event(71, 72, "hipGraphLaunch", 10, 8, "graph"),
        event(71, 72, "hipMemcpyWithStream", 50, 9, ""),
        event(71, 72, "aten::mm", 0, 40, "aten::mm"),
        event(2, 0, "aten::mm", 19, 7, "UserMarker frame: 1 ops"),
        *arrow(4, 1.5, 20),
        *arrow(5, 18, 30),
        *arrow(6, 59, 52),
        *arrow(7, 59, 999),  # ends where nothing begins
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{}, *events]))
    assert links(path) == [("hipLaunchKernel", "gemm"), ("hipGraphLaunch", "add"), ("hipMemcpyWithStream", "copy")]
    _, store = imported(path, tmp_path)
    with store:
        assert {lane.pid for lane in store.lanes if lane.kind == "stream"} == {71}  # the process that launches


def test_rocprof_s_tables_are_calls_copies_and_kernels_with_exact_times(tmp_path: Path) -> None:
    def event(table: int, tid: int, name: str, begin: int, end: int, **args: str) -> dict[str, Any]:
        exact = {"BeginNs": str(begin), "EndNs": str(end), "pid": "517", **args}
        times = {"ts": str(begin // 1000), "dur": str(max((end - begin) // 1000, 1))}
        return {"ph": "X", "pid": str(table), "tid": str(tid), "name": name, **times, "args": exact}

    def arrow(number: int, at: int, table: int, begin: int) -> list[dict[str, Any]]:
        told = {"cat": "DataFlow", "name": "dep", "id": number}
        return [
            {**told, "ph": "s", "pid": 2, "tid": 519, "ts": at},
            {**told, "ph": "t", "pid": table, "tid": 1, "ts": begin // 1000},
        ]

    of_gpu = {"dev-id": "2", "queue-id": "0", "stream-id": "1"}
    events = [
        event(0, 519, "forward", 1_000_000, 1_090_000),
        event(1, 1, "CopyHostToDevice", 1_031_126, 1_031_606, **of_gpu),
        event(2, 519, "hipMemcpy", 1_020_001, 1_040_001, args="( dst(1))"),
        event(2, 519, "hipLaunchKernel", 1_041_930, 1_041_990),
        event(3, 519, "hsa_signal_wait_scacquire", 1_022_000, 1_030_000),
        event(8, 1, "gemm", 1_041_985, 1_047_941, **of_gpu),
        event(520, 1, "<barrier packet>", 1_048_000, 1_049_000, **of_gpu),
        *arrow(0, 1030, 1, 1_031_126),
        *arrow(7, 1041, 8, 1_041_985),
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"traceEvents": [{}, *events], "otherData": {}}))
    assert stored(path) == {
        "thread 519": [
            ("forward", Category.RANGE, 1_000_000, 90_000),
            ("hipMemcpy", Category.RUNTIME, 1_020_001, 20_000),
            ("hsa_signal_wait_scacquire", Category.SYNC, 1_022_000, 8000),  # on a lane of its own
            ("hipLaunchKernel", Category.RUNTIME, 1_041_930, 60),
        ],
        "device 2 stream 1": [
            ("copy host to device", Category.COPY, 1_031_126, 480),
            ("gemm", Category.KERNEL, 1_041_985, 5956),
        ],
    }
    assert links(path) == [("hipMemcpy", "copy host to device"), ("hipLaunchKernel", "gemm")]
