"""A small whole file of each format of traces, by the name of its reader's file: two moments at least, made by hand."""

import csv
import io
import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

T = 1_760_000_000 * 10**9
US = T // 1000
MIB = 1 << 20
Tables = Mapping[str, Sequence[tuple[Any, ...]]]


def database(path: Path, tables: Tables) -> Path:
    """Write a database with tables of "NAME(columns)" -> rows."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as opened:
        for table, rows in tables.items():
            opened.execute(f"CREATE TABLE {table}")
            for row in rows:
                opened.execute(f"INSERT INTO {table.partition('(')[0]} VALUES ({','.join('?' * len(row))})", row)
    opened.close()
    return path


def _dcgm(folder: Path) -> Path:
    path = folder / "dcgm.txt"
    label = '{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H200",Hostname="node-1"}'
    page = "# TYPE DCGM_FI_PROF_SM_ACTIVE gauge\nDCGM_FI_PROF_SM_ACTIVE{label} 0.{i}\nDCGM_FI_DEV_FB_USED{label} 5{i}\n"
    path.write_text("".join(f"# time {T // 10**9 + i}.5\n" + page.format(label=label, i=i) for i in range(8)))
    return path


def _flight(path: Path, dumped: Callable[[Any], bytes]) -> Path:
    def entry(number: int) -> dict[str, Any]:
        created = T + number * 1000
        return {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": created,
            "input_sizes": [[8]],
            "input_dtypes": ["BFloat16"],
            "state": "completed",
            "time_discovered_completed_ns": created + 500,
            "frames": [{"filename": "train.py", "line": 7, "name": "step"}],
        }

    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    path.write_bytes(dumped({"version": "2.10", "pg_config": groups, "entries": [entry(i) for i in range(1, 9)]}))
    return path


def _memory_snapshot(folder: Path) -> Path:
    path = folder / "policy-0.snapshot.pickle"
    frames = [{"filename": "model.py", "line": 7, "name": "forward"}]
    block = {"size": 2 * MIB, "address": 16, "state": "active_allocated", "frames": frames}
    segment = {"device": 0, "total_size": 4 * MIB, "allocated_size": 2 * MIB, "active_size": 2 * MIB, "blocks": [block]}
    first = {"action": "segment_alloc", "addr": 16, "size": 4 * MIB, "time_us": US, "frames": []}
    history = [
        {"action": action, "addr": 16, "size": 2 * MIB, "time_us": US + 10 * i, "frames": frames}
        for i, action in enumerate(["alloc", "free_completed"] * 4 + ["alloc"], 1)
    ]
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[first, *history]]}, protocol=4))
    return path


def ascend_tables() -> dict[str, list[tuple[Any, ...]]]:
    """Return eight tasks of a device with their calls, after the documented schema."""
    thread = 71 << 32 | 90
    return {
        "STRING_IDS(id, value)": [(1, "AI_CORE"), (2, "MatMulV2"), (3, "aclnnMatmul")],
        "CANN_API(startNs, endNs, type, globalTid, connectionId, name)": [
            (T + 100 * i, T + 100 * i + 10, 0, thread, i, 3) for i in range(1, 9)
        ],
        "TASK(startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId, "
        "taskId)": [(T + 100 * i + 20, T + 100 * i + 90, 2, i, 900 + i, 71, 1, 0, 5, i) for i in range(1, 9)],
        "COMPUTE_TASK_INFO(name, globalTaskId)": [(2, 900 + i) for i in range(1, 9)],
    }


def _msprof_zip(folder: Path) -> Path:
    inside = database(folder / "ascend_pytorch_profiler_3.db", ascend_tables())
    path = folder / "policy-3.msprof.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(inside, "x_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_3.db")
    inside.unlink()
    return path


def _nccl_log(folder: Path) -> Path:
    path = folder / "nccl.log"
    call = "opCount 1a sendbuff 0x7f recvbuff 0x7f count 1024 datatype 9 op 0 root 0 comm 0x55 [nranks=8] stream 0x66"
    lines = [f"[2025-10-09 08:53:2{i}] node-1:71:90 [0] NCCL INFO AllReduce: {call}" for i in range(8)]
    path.write_text("\n".join(["node-1:71:71 [0] NCCL INFO NCCL version 2.26.2+cuda12.4", *lines]) + "\n")
    return path


def ncu_table() -> str:
    """Return eight kernels as ncu prints them, below a line of its own."""
    head = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Device", "CC")
    metrics = ("gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed")
    rows = [(*head, *metrics), ("",) * len(head) + ("us", "%")]
    rows += [
        (f"{i}", "71", "python", "node-1", f"gemm_{i}", "1", "7", "0", "9.0", f"{i + 1}.5", "55.5") for i in range(8)
    ]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return f"==PROF== Connected to process 71\n{text.getvalue()}"


def _ncu_csv(folder: Path) -> Path:
    path = folder / "ncu.csv"
    path.write_text(ncu_table())
    return path


def nsys_tables() -> dict[str, list[tuple[Any, ...]]]:
    """Return eight kernels with their launches, after the schema of nsys 2022."""
    process = 5 << 24 | 1 << 48
    thread = process | 77
    return {
        "StringIds(id, value)": [(1, "gemm"), (2, "cudaLaunchKernel_v7000"), (3, "python"), (4, "step 3")],
        "EXPORT_META_DATA(name, value)": [("EXPORT_SCHEMA_VERSION", "3.0.0"), ("EXPORT_PRODUCT_VERSION", "2022.4.2.1")],
        "TARGET_INFO_SESSION_START_TIME(utcEpochNs, utcTime)": [(T, "")],
        "ANALYSIS_DETAILS(duration, startTime, stopTime)": [(10**9, 5, 10**9 + 5)],
        "PROCESSES(globalPid, name)": [(process, "worker")],
        "ThreadNames(nameId, globalTid)": [(3, thread)],
        "CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)": [
            (1000 * i, 1000 * i + 100, thread, i, 2) for i in range(1, 9)
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, shortName, "
        "gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread)": [
            (1000 * i + 200, 1000 * i + 900, 0, 7, i, process, 1, 8, 1, 1, 128, 1, 1, 32) for i in range(1, 9)
        ],
    }


def _nsys_rep(folder: Path) -> Path:
    path = folder / "policy-0.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n" + database(folder / "inside", nsys_tables()).read_bytes())
    (folder / "inside").unlink()
    return path


def _ray_timeline(folder: Path) -> Path:
    path = folder / "timeline.json"
    events = [
        {"cat": kind, "name": kind, "pid": "10.0.0.1", "tid": "worker:ab", "ts": US + at, "dur": lasts, "ph": "X"}
        for i in range(4)
        for kind, at, lasts in (("task::rollout", 1000 * i, 900), ("task:execute", 1000 * i + 100, 700))
    ]
    path.write_text(json.dumps(events))
    return path


def _torch(folder: Path) -> Path:
    path = folder / "policy-0.pt.trace.json"
    events = [
        {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": US + at, "dur": lasts}
        for i in range(4)
        for kind, name, at, lasts in (
            ("user_annotation", f"ProfilerStep#{i + 1}", 1000 * i, 900),
            ("cpu_op", "aten::mm", 1000 * i + 100, 300),
        )
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"}))
    return path


def _nvidia_smi(folder: Path) -> Path:
    path = folder / "smi.csv"
    rows = [f"2026/10/09 08:53:2{i}.{i}00, {gpu}, {90 + i} %, {i} MiB\n" for i in range(8) for gpu in range(2)]
    path.write_text("timestamp, index, utilization.gpu [%], memory.used [MiB]\n" + "".join(rows))
    return path


def _torch_memory_timeline(folder: Path) -> Path:
    path = folder / "memory.raw.json"
    path.write_text(json.dumps([[T + 1000 * i, 1 if i % 2 else 2, 512, i % 8] for i in range(1, 17)]))
    return path


FILES: Mapping[str, Sequence[Callable[[Path], Path]]] = {
    "dcgm": (_dcgm,),
    "flight_recorder": (
        lambda folder: _flight(folder / "rank0.fr.json", lambda told: json.dumps(told).encode()),
        lambda folder: _flight(folder / "dump_0.fr.pickle", lambda told: pickle.dumps(told, protocol=2)),
    ),
    "memory_snapshot": (_memory_snapshot,),
    "msprof": (lambda folder: database(folder / "ascend_pytorch_profiler_3.db", ascend_tables()),),
    "msprof_zip": (_msprof_zip,),
    "nccl_log": (_nccl_log,),
    "ncu_csv": (_ncu_csv,),
    "nsys": (lambda folder: database(folder / "report.sqlite", nsys_tables()),),
    "nsys_rep": (_nsys_rep,),
    "nvidia_smi": (_nvidia_smi,),
    "ray_timeline": (_ray_timeline,),
    "torch": (_torch,),
    "torch_memory_timeline": (_torch_memory_timeline,),
}
"""By the name of a reader's file: what makes a file of its format in a folder."""
