"""Recordings of Ascend's devices as torch_npu writes them: databases and traces for Chrome, made by hand after real
ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from profiling.analysis.summary import summarise
from profiling.evidence import RecordedTrace, phase_spans
from profiling.trace.category import Category
from tests.contracts.trace_files import database
from tests.profiling.trace.stored_rows import imported, stored

T = 1_736_410_576_000_000_000
TID, WORKER = 71 << 32 | 71, 71 << 32 | 90
NO_CONTEXT = (1 << 32) - 1
US = 1000
ALL_REDUCE = "hcom_allReduce__210_0_1"
"""Of a group by a number, the first of it."""


def of_torch_npu(path: Path) -> Path:
    """Write a database: a step of 900 us, in which a product is launched from the queue's thread, and a collective.

    Its operators have times as texts, its tasks rows for what is around the collective and for what it is made of.
    """
    names = [
        "ProfilerStep#50", "aclnnAddmm", "Enqueue", "main.py(7): train", "aclnnAddmm@acl", "AI_CORE", "KERNEL_AICORE",
        "MatMulV2", ALL_REDUCE, "SDMA", "Notify Wait", "Write Value", "HcclAllreduce", "group", "EVENT_WAIT",
    ]  # fmt: skip
    number = {name: i for i, name in enumerate(names, 100)}
    tables: dict[str, list[tuple[Any, ...]]] = {
        "STRING_IDS(id, value)": [(i, name) for name, i in number.items()],
        "ENUM_API_TYPE(id, name)": [(50001, "op"), (50002, "queue"), (50003, "trace"), (20000, "acl")],
        "CONNECTION_IDS(id, connectionId)": [(0, 9210), (1, 263), (2, 502)],
        "PYTORCH_API(startNs TEXT, endNs TEXT, globalTid, connectionId, name, type)": [
            (str(T), str(T + 900 * US), TID, None, number["ProfilerStep#50"], 50001),
            (str(T + 10 * US), str(T + 20 * US), TID, 1, number["aclnnAddmm"], 50001),
            (str(T + 12 * US), str(T + 14 * US), TID, 0, number["Enqueue"], 50002),
            (str(T + 2 * US), str(T + 800 * US), TID, None, number["main.py(7): train"], 50003),
            (str(T + 30 * US), str(T + 40 * US), TID, 2, number["HcclAllreduce"], 50001),
        ],
        "CANN_API(startNs, endNs, type, globalTid, connectionId, name)": [
            (T + 22 * US, T + 28 * US, 20000, WORKER, 263, number["aclnnAddmm@acl"]),
            (T + 42 * US, T + 50 * US, 20000, WORKER, 502, number["HcclAllreduce"]),
        ],
        "TASK(startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId)": [
            (T + begin * US, T + end * US, 0, connection, task, 71, number[kind], NO_CONTEXT, stream)
            for task, (begin, end, connection, kind, stream) in enumerate(
                [
                    (100, 300, 263, "KERNEL_AICORE", 2),
                    (101, 110, 263, "KERNEL_AICORE", 2),  # a part of it
                    (199, 601, 502, "AI_CORE", 4),  # around the collective
                    (200, 350, 502, "Notify Wait", 4),
                    (350, 590, 502, "SDMA", 4),
                    (590, 591, 502, "Write Value", 4),
                    (591, 600, 502, "EVENT_WAIT", 4),
                ]
            )
        ],
        "COMPUTE_TASK_INFO(name, globalTaskId)": [(number["MatMulV2"], 0)],
        "COMMUNICATION_TASK_INFO(name, globalTaskId)": [(number[ALL_REDUCE], task) for task in (3, 4, 5)],
        "COMMUNICATION_OP(opName, startNs, endNs, connectionId, groupName, dataType, count)": [
            (number[ALL_REDUCE], T + 200 * US, T + 600 * US, 502, number["group"], 11, 4_097_000)
        ],
        "ENUM_HCCL_DATA_TYPE(id, name)": [(3, "FP16"), (11, "BFP16")],
        "RANK_DEVICE_MAP(rankId, deviceId)": [(0, 0)],
        "NPU_INFO(id, name)": [(0, "Ascend910B")],
    }  # fmt: skip
    return database(path, tables)


def test_a_database_of_torch_npu_tells_steps_operators_frames_and_what_computes(tmp_path: Path) -> None:
    path = of_torch_npu(tmp_path / "ascend_pytorch_profiler_0.db")

    facts, store = imported(path, tmp_path)

    with store:
        assert store.notes == ()
        summary = summarise((RecordedTrace(store=store),), phase_spans(()))
    (worker,), (budget,) = summary.workers, summary.budget.workers
    assert facts.events == 5 + 2 + 7 + 1
    assert [(step.number, step.end - step.begin) for step in summary.budget.steps] == [(50, 900 * US)]
    assert worker.device_name == "Ascend910B"
    assert worker.outside is not None
    assert worker.launches is not None
    assert worker.outside.before == 0, "the parts of a collective were launched with it"
    assert worker.launches.linked == worker.launches.kernels == 2
    by_kind = budget.by_kind()
    assert (by_kind["compute"], by_kind["communication"]) == (200 * US, 300 * US)
    assert worker.has_stacks
    assert {kernel.name: kernel.operator for kernel in worker.kernels} == {
        "MatMulV2": "aclnnAddmm", "hcom_allReduce": "HcclAllreduce", "SDMA": "HcclAllreduce",
    }  # fmt: skip
    assert worker.communication is not None
    (collective,) = worker.communication.collectives
    assert collective.bytes == 2 * 4_097_000
    lanes = stored(path)
    assert [(name, kind) for name, kind, _, _ in lanes["device 0 stream 2"]] == [("MatMulV2", Category.KERNEL)]


@pytest.mark.parametrize("connection_of", [lambda number: number, lambda number: number * 10**16 + NO_CONTEXT])
def test_arrows_of_any_number_lead_to_tasks_of_ascend(tmp_path: Path, connection_of: Any) -> None:
    """As newer traces have it: an arrow's number is that of the connection alone, or has no meaning of its own."""

    def named(pid: int, name: str, tid: int = 0, what: str = "process_name") -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}

    def event(pid: int, tid: int, name: str, at: float, lasts: float, number: int, kind: str = "") -> dict[str, Any]:
        where = {"pid": pid, "tid": tid, "ts": f"{T // US + at:.3f}", "dur": lasts}
        args = {"connection_id": number} | ({"Task Type": kind} if kind else {})
        return {"ph": "X", "name": name, **where, "args": args}

    def arrow(number: int, cat: str, *ends: tuple[int, int, float]) -> list[dict[str, Any]]:
        about = {"name": f"{cat}{number}", "cat": cat, "id": str(number)}
        return [
            {**about, "ph": sign, "pid": pid, "tid": tid, "ts": f"{T // US + at:.3f}"}
            for sign, (pid, tid, at) in zip("sf", ends, strict=True)
        ]

    events = [
        named(800, "Ascend Hardware"), named(702, "CANN"), named(900, "HCCL"),
        named(900, "Group g Communication", 5, "thread_name"),
        {**event(71, 71, "ProfilerStep#50", 0, 900, 0), "cat": "cpu_op"},
        {**event(71, 71, "aclnnAddmm", 10, 10, 0), "cat": "cpu_op"},
        {**event(71, 71, "HcclAllreduce", 30, 10, 0), "cat": "cpu_op"},
        event(702, 90, "AscendCL@aclnnAddmm", 22, 6, 936),
        event(702, 90, "Node@hcom_allReduce_", 42, 8, 1174),
        event(800, 2, "MatMulV2", 100, 200, 936, "AI_CORE"),
        event(800, 4, "Notify Wait", 200, 150, 1174, "Notify Wait"),
        event(800, 4, "SDMA", 350, 240, 1174, "SDMA"),
        event(800, 4, "Write Value", 590, 1, 1174, "Write Value"),
        event(800, 4, "PROFILING_DISABLE", 700, 0.02, 0, "PLACE_HOLDER_SQE"),
        event(900, 5, "hcom_allReduce_", 200, 400, 1174),
        *arrow(connection_of(936), "HostToDevice", (702, 90, 23), (800, 2, 100)),
        *arrow(connection_of(1174), "HostToDevice", (702, 90, 43), (900, 5, 200)),
        *arrow(1, "async_npu", (71, 71, 10), (800, 2, 100)),
        *arrow(2, "async_npu", (71, 71, 30), (900, 5, 200)),
    ]  # fmt: skip
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))

    _, store = imported(path, tmp_path)
    with store:
        summary = summarise((RecordedTrace(store=store),), phase_spans(()))
    (worker,), (budget,) = summary.workers, summary.budget.workers
    by_kind = budget.by_kind()
    assert (by_kind["compute"], by_kind["communication"]) == (200 * US, 300 * US)
    assert worker.outside is not None
    assert worker.launches is not None
    assert worker.outside.before == 0
    assert worker.launches.linked == worker.launches.kernels == 2
    assert {kernel.name: kernel.operator for kernel in worker.kernels} == {
        "MatMulV2": "aclnnAddmm", "hcom_allReduce_": "HcclAllreduce", "SDMA": "HcclAllreduce",
    }  # fmt: skip
