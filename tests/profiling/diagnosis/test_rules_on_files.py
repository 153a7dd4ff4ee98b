"""Rules on files as other tools write them, by their documented formats, through the readers. Computed by hand.

None of these tools runs here: pages of DCGM's exporter and memory snapshots need a GPU, msprof needs Ascend.
"""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profiling.diagnosis.finding import Finding, finding_of, rules
from profiling.evidence import Evidence, RecordedTrace
from profiling.trace.importing import import_trace
from profiling.trace.store import Store
from tests.contracts.trace_files import database

T = 1_760_000_000 * 10**9
MS, MIB = 1_000_000, 1 << 20


def said(path: Path, *keys: str) -> list[Finding]:
    """Import a file and return what the rules say of it."""
    target = path.with_suffix(".store")
    target.unlink(missing_ok=True)
    import_trace(path, target)
    with Store(target) as store:
        evidence = Evidence(recorded=(RecordedTrace(store=store),))
        return [finding_of(key, rules()[key], evidence) for key in keys]


def value(found: Finding) -> float:
    assert found.observation is not None
    return round(found.observation.value, 3)


def states(path: Path, *keys: str) -> list[str]:
    return [found.state for found in said(path, *keys)]


# -- pages of the DCGM exporter --

SM, DRAM = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
TENSOR, CLOCK, XID = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_XID_ERRORS"


def pages(path: Path, values: dict[tuple[str, str, int], Sequence[float]]) -> Path:
    """Write what `curl .../metrics` gave each second: (field, node, GPU) -> its values."""
    lines = []
    for i in range(max(map(len, values.values()))):
        lines.append(f"# time {T // 10**9 + i}.000")
        for (field, node, gpu), told in values.items():
            kind = "counter" if field == XID else "gauge"
            lines += [f"# HELP {field} As the exporter's list of counters describes it.", f"# TYPE {field} {kind}"]
            labels = f'gpu="{gpu}",UUID="GPU-{node}-{gpu}",pci_bus_id="00000000:1B:00.0",device="nvidia{gpu}"'
            more = f'modelName="NVIDIA H100 80GB HBM3",Hostname="{node}",DCGM_FI_DRIVER_VERSION="535.129.03"'
            lines.append(f"{field}{{{labels},{more}}} {told[i]:f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pages_of_dcgm_feed_the_rules_of_counters(tmp_path: Path) -> None:
    page = pages(
        tmp_path / "dcgm.txt",
        {
            (SM, "node-1", 0): [0.9, 0.9, 0.9, 0.9],
            (SM, "node-2", 0): [0.3, 0.4, 0.5, 0.4],
            (DRAM, "node-1", 0): [0.7, 0.7, 0.7, 0.7],
            (DRAM, "node-2", 0): [0.2, 0.2, 0.2, 0.2],
            (TENSOR, "node-1", 0): [0.1, 0.1, 0.1, 0.1],
            (TENSOR, "node-2", 0): [0.5, 0.5, 0.5, 0.5],
            (CLOCK, "node-1", 0): [1980, 1980, 1980, 1980],
            (CLOCK, "node-2", 0): [1980, 1485, 1485, 1485],
            (XID, "node-1", 0): [0, 0, 0, 0],
        },
    )
    idle, bandwidth, throttling = said(page, "sm_idle", "memory_bandwidth", "throttling")
    assert (idle.state, idle.level, value(idle)) == ("fires", "bad", 0.4)
    assert "device 0 of node-2" in idle.sentence()
    # both nodes have a GPU 0: that of node-1 reads much and multiplies little
    assert (bandwidth.state, value(bandwidth)) == ("fires", 0.7)
    assert "device 0 of node-1" in bandwidth.sentence()
    assert (throttling.state, value(throttling)) == ("fires", 0.25)


def test_pages_of_a_healthy_node_are_clear(tmp_path: Path) -> None:
    steady: dict[tuple[str, str, int], Sequence[float]] = {
        (SM, "node-1", 0): [0.9] * 4,
        (DRAM, "node-1", 0): [0.7] * 4,  # full, and multiplying: not bound by memory
        (TENSOR, "node-1", 0): [0.6] * 4,
        (CLOCK, "node-1", 0): [1980] * 4,
        (XID, "node-1", 0): [0] * 4,
    }
    page = pages(tmp_path / "dcgm.txt", steady)
    assert states(page, "sm_idle", "memory_bandwidth", "throttling") == ["clear"] * 3
    (broken,) = said(pages(tmp_path / "xid.txt", {**steady, (XID, "node-1", 0): [0, 0, 79, 79]}), "throttling")
    assert broken.state == "fires"
    assert "79" in broken.sentence()


def test_the_exporters_usual_list_lacks_sm_active_and_says_so(tmp_path: Path) -> None:
    page = pages(tmp_path / "dcgm.txt", {(CLOCK, "node-1", 0): [1980] * 4})
    idle, bandwidth = said(page, "sm_idle", "memory_bandwidth")
    assert (idle.state, bandwidth.state) == ("not_enough_data", "not_enough_data")
    assert "SM_ACTIVE switched on" in idle.record


# -- memory snapshots --


def snapshot(path: Path, *, reserved: int, used: int) -> Path:
    """Write a snapshot as torch.cuda.memory does: segments of `reserved` MiB, of which `used` MiB were given out."""
    at = T // 1000
    frames = [{"filename": "model.py", "line": 7, "name": "forward"}]
    entries = [
        {"action": "segment_alloc", "addr": 0, "size": reserved * MIB, "stream": 0, "time_us": at, "frames": []},
        {"action": "alloc", "addr": 0, "size": used * MIB, "stream": 0, "time_us": at + 10, "frames": frames},
    ]
    blocks = [
        {"size": used * MIB, "requested_size": used * MIB, "address": 0, "state": "active_allocated", "frames": frames},
        {
            "size": (reserved - used) * MIB,
            "requested_size": 0,
            "address": used * MIB,
            "state": "inactive",
            "frames": [],
        },
    ]
    segment = {
        "device": 0,
        "address": 0,
        "total_size": reserved * MIB,
        "allocated_size": used * MIB,
        "active_size": used * MIB,
        "requested_size": used * MIB,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
    settings = {"expandable_segments": False, "garbage_collection_threshold": 0.0}
    told = {"segments": [segment], "device_traces": [entries], "allocator_settings": settings}
    path.write_bytes(pickle.dumps(told, protocol=4))
    return path


def test_a_memory_snapshot_feeds_the_rule_of_fragmentation(tmp_path: Path) -> None:
    (found,) = said(snapshot(tmp_path / "a.pickle", reserved=10 * 1024, used=5 * 1024), "fragmentation")
    assert found.state == "not_enough_data"  # a snapshot does not say how much memory there is
    assert "how much memory the device has" in found.record
    assert states(snapshot(tmp_path / "b.pickle", reserved=1000, used=950), "fragmentation") == ["clear"]


# -- databases of msprof --

TID, DEVICE, PROCESS = 71 << 32 | 90, 2, 71
Task = tuple[float, float, int, int]  # start and end in ms, stream, type


def of_ascend(path: Path, tasks: Sequence[Task], collectives: Sequence[tuple[float, float]], *, says: bool) -> Path:
    """Write a database by the documented schema; `says`: it tells on which device a collective ran."""
    names = {1: "AI_CORE", 2: "MEMCPY_ASYNC", 3: "MatMulV2", 4: "hcom_allReduce_", 5: "group", 6: "aclnnMatmul"}
    calls = [
        (T + int(at * MS) - 15_000, T + int(at * MS) - 5_000, 0, TID, 100 + i, 6) for i, (at, *_) in enumerate(tasks)
    ]
    ran = [
        (T + int(at * MS), T + int(end * MS), DEVICE, 100 + i, 900 + i, PROCESS, kind, 0, stream, i)
        for i, (at, end, stream, kind) in enumerate(tasks)
    ]
    where = ", deviceId" if says else ""
    talk = [(4, T + int(at * MS), T + int(end * MS), 0, 5, *([DEVICE] if says else [])) for at, end in collectives]
    tables: dict[str, list[tuple[Any, ...]]] = {
        "STRING_IDS(id, value)": list(names.items()),
        "CANN_API(startNs, endNs, type, globalTid, connectionId, name)": calls,
        "TASK(startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId, "
        "taskId)": ran,
        "COMPUTE_TASK_INFO(name, globalTaskId)": [(3, 900 + i) for i, task in enumerate(tasks) if task[3] == 1],
        f"COMMUNICATION_OP(opName, startNs, endNs, connectionId, groupName{where})": talk,
        "RANK_DEVICE_MAP(rankId, deviceId)": [(3, DEVICE)],
    }
    return database(path, tables)


@pytest.mark.parametrize("says", [True, False])
def test_a_database_of_msprof_feeds_the_rules_of_devices(tmp_path: Path, says: bool) -> None:
    # 100 ms: 30 of products, 30 of a collective of which 10 are hidden, 10 of a copy; idle for 40
    tasks = [(0.02, 10, 5, 1), (20, 30, 5, 1), (50, 60, 5, 1), (90, 100, 6, 2)]
    path = of_ascend(tmp_path / "ascend_pytorch_profiler_3.db", tasks, [(50, 80)], says=says)
    idle, exposed, overlap, bound = said(path, "device_idle", "communication_exposed", "no_overlap", "cpu_bound")
    assert (idle.state, value(idle)) == ("fires", 0.6)
    assert (exposed.state, value(exposed)) == ("fires", 0.2)
    assert (overlap.state, value(overlap)) == ("fires", 0.333)
    assert (bound.state, value(bound)) == ("fires", 0.4)
    assert idle.sentence().startswith("Device 2 is busy for 60 %")


def test_a_busy_device_of_ascend_is_clear(tmp_path: Path) -> None:
    path = of_ascend(tmp_path / "ascend_pytorch_profiler_0.db", [(0.02, 100, 5, 1)], [(10, 60)], says=True)
    assert states(path, "device_idle", "communication_exposed", "no_overlap") == ["clear"] * 3
    assert states(path, "cpu_bound") == ["not_enough_data"]  # of a single launch
