"""The smaller formats: memory of torch, Ray, NCCL, DCGM, Ascend. What is not run here is made by hand."""

import gzip
import json
import pickle
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiling.analysis.memory import memory
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.limits import Limits, Unreadable
from profiling.trace.readers.torch_memory_timeline import CATEGORIES
from profiling.trace.schema import StoreFacts
from profiling.trace.store import Store
from tests.contracts.trace_files import database

DATA = Path(__file__).resolve().parents[2] / "data" / "traces"
T = 1_760_000_000 * 10**9


def imported(path: Path, folder: Path) -> tuple[StoreFacts, Store]:
    target = folder / f"{path.name}.store"
    facts = import_trace(path, target)
    return facts, Store(target)


def samples(store: Store) -> dict[tuple[str, int], tuple[list[int], list[float]]]:
    found = {}
    for series in store.series:
        times, values = store.samples(series.id)
        found[series.name, series.device] = (times.tolist(), values.tolist())
    return found


# -- memory timeline --


def test_a_real_memory_timeline_adds_up(tmp_path: Path) -> None:
    source = DATA / "torch_memory_timeline.raw.gz"
    with gzip.open(source) as file:
        rows = json.load(file)

    facts, store = imported(source, tmp_path)

    with store:
        told = samples(store)
    first = min(row[0] for row in rows if row[0] > 0)
    assert (facts.begin, facts.end) == (first, max(row[0] for row in rows))
    times, values = (np.array(each) for each in told["allocated", 0])
    for moment in (first, rows[len(rows) // 2][0], rows[-1][0]):
        until = [row for row in rows if row[0] <= moment]
        assert values[np.searchsorted(times, moment, side="right") - 1] == sum(row[2] for row in until)
        for number, name in enumerate(CATEGORIES):
            mine_times, mine = told[name, 0]
            at = np.searchsorted(mine_times, moment, side="right") - 1
            assert (mine[at] if at >= 0 else 0) == sum(row[2] for row in until if row[3] == number), name


def test_categories_are_in_the_order_of_torch() -> None:
    from torch.profiler import _memory_profiler as theirs

    names = {
        "PARAMETER": "weights",
        "OPTIMIZER_STATE": "optimizer",
        "INPUT": "inputs",
        "TEMPORARY": "temporary",
        "ACTIVATION": "activations",
        "GRADIENT": "gradients",
        "AUTOGRAD_DETAIL": "autograd",
    }
    order = {number: names[kind.name] if kind else "unknown" for kind, number in theirs._CATEGORY_TO_INDEX.items()}
    assert tuple(order[number] for number in range(8)) == CATEGORIES


def test_a_timeline_that_is_cut_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.json"
    path.write_text(json.dumps([[T + i, 2, 10, 0] for i in range(9)])[:-30])
    _, store = imported(path, tmp_path)
    with store:
        assert any("cut off" in note.text for note in store.notes)
        assert samples(store)["weights", 0][1][0] == 10


# -- memory snapshot --


def frames(place: str) -> list[dict[str, Any]]:
    inside = {"filename": "/env/torch/nn/functional.py", "line": 5, "name": "linear"}
    return [inside, {"filename": place, "line": 7, "name": "forward"}]


def snapshot(**more: Any) -> dict[str, Any]:
    mib = 1 << 20
    blocks = [
        {
            "size": 6 * mib,
            "requested_size": 6 * mib,
            "address": 16,
            "state": "active_allocated",
            "frames": frames("m.py"),
        },
        {"size": 3 * mib, "address": 99, "state": "inactive", "frames": []},
        {"size": mib, "address": 120, "state": "active_allocated", "frames": []},
    ]
    entries = [
        {"action": "segment_alloc", "addr": 16, "size": 4 * mib, "time_us": T // 1000, "frames": []},
        {"action": "alloc", "addr": 99, "size": 3 * mib, "time_us": T // 1000 + 10, "frames": frames("old.py")},
        {"action": "free_requested", "addr": 99, "size": 3 * mib, "time_us": T // 1000 + 20},
        {"action": "free_completed", "addr": 99, "size": 3 * mib, "time_us": T // 1000 + 21},
        {"action": "alloc", "addr": 16, "size": 6 * mib, "time_us": T // 1000 + 30, "frames": frames("m.py")},
        {"action": "oom", "size": 80 * mib, "device_free": 5, "time_us": T // 1000 + 40},
    ]
    segment = {"device": 0, "address": 16, "total_size": 10 * mib, "allocated_size": 7 * mib, "active_size": 7 * mib}
    return {"segments": [{**segment, "blocks": blocks}], "device_traces": [entries], **more}


def test_a_snapshot_shows_memory_over_time_and_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot(), protocol=4))
    _, store = imported(path, tmp_path)
    with store:
        mib = 1 << 20
        told = samples(store)
        # At the end 7 MiB are allocated; before the last 6 MiB there was 1, with the 3 that came and went 4.
        assert told["allocated", 0][1] == [mib, 4 * mib, 4 * mib, mib, 7 * mib, 7 * mib]
        assert told["reserved", 0][1] == [10 * mib] * 6
        assert told["allocated", 0][0][0] == T
        spans = store.events()
        assert [store.names[name] for name in spans["name"]] == ["old.py:7 forward", "m.py:7 forward"]
        assert spans["bytes"].tolist() == [3 * mib, 6 * mib]
        assert spans["dur"].tolist() == [11_000, 10_000]
        assert store.meta["holders"] == [
            {"place": "m.py:7 forward", "bytes": 6 * mib, "blocks": 1},
            {"place": "unknown place", "bytes": mib, "blocks": 1},
        ]
        (device,) = store.meta["memory"]
        assert (device["reserved"], device["allocated"], device["largest_free"]) == (10 * mib, 7 * mib, 3 * mib)
        assert [note.severity for note in store.notes] == ["error"]
        assert "Out of memory on device 0: 83,886,080 bytes were asked for, 5 were free" in store.notes[0].text


def test_a_history_without_times_is_shown_in_its_order(tmp_path: Path) -> None:
    timed = snapshot()
    for entry in timed["device_traces"][0]:
        entry.pop("time_us")
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(timed))

    facts, store = imported(path, tmp_path)

    with store:
        mib = 1 << 20
        assert samples(store)["allocated", 0][1] == [1 * mib, 4 * mib, 4 * mib, 1 * mib, 7 * mib, 7 * mib]
        assert not facts.has_clock
        assert any("in order" in note.text for note in store.notes)


def test_a_snapshot_without_history_shows_what_was_held(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot(device_traces=[[]]), protocol=4))
    _, store = imported(path, tmp_path)
    with store:
        mib = 1 << 20
        told = samples(store)
        assert (told["allocated", 0][1], told["reserved", 0][1]) == ([7 * mib], [10 * mib])
        assert not store.facts.has_clock
        (one,) = memory(store, store.begin, store.end + 1)
        assert (one.peak, one.reserved) == (7 * mib, 10 * mib)
        assert [(site.place, site.bytes) for site in one.holders][:1] == [("m.py:7 forward", 6 * mib)]
        assert "_record_memory_history" in store.notes[0].text


def test_a_list_of_segments_is_a_snapshot_without_history(tmp_path: Path) -> None:
    path = tmp_path / "segments.pickle"
    (segment,) = snapshot()["segments"]
    path.write_bytes(pickle.dumps([{**segment, "segment_type": "large"}], protocol=4))
    _, store = imported(path, tmp_path)
    with store:
        assert samples(store)["allocated", 0][1] == [7 << 20]


def test_who_holds_memory_is_a_line_of_python_whatever_else_is_on_the_stack(tmp_path: Path) -> None:
    def frame(filename: str, line: int, name: str) -> dict[str, Any]:
        return {"filename": filename, "line": line, "name": name}

    native = [
        frame("memory_snapshot.cpp", 0, "torch::cuda::(anonymous namespace)::gather_with_cpp()"),
        frame("??", 0, "at::native::empty_cuda(c10::ArrayRef<long>)"),
    ]
    python = [frame("C:\\env\\torch\\functional.py", 373, "einsum"), frame("C:\\me\\model.py", 5, "silu")]
    stacks = [[*native, *python], native]
    path = tmp_path / "snapshot.pickle"
    blocks = [{"size": 9 - i, "state": "active_allocated", "frames": stack} for i, stack in enumerate(stacks)]
    path.write_bytes(pickle.dumps({"segments": [{"device": 0, "total_size": 20, "blocks": blocks}]}, protocol=4))
    _, store = imported(path, tmp_path)
    with store:
        assert [one["place"] for one in store.meta["holders"]] == [
            "C:\\me\\model.py:5 silu",
            "??:0 at::native::empty_cuda(c10::ArrayRef<long>)",
        ]


class Harmful:
    """Would write a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.target, "done"))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_that_calls_something_is_refused_before_it_does(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "harm"
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "x": Harmful(target)}, protocol=protocol))
    with pytest.raises(Unreadable, match=r"asks for \S+, and such files ask for nothing"):
        import_trace(path, tmp_path / "a.store")
    assert [each.name for each in tmp_path.iterdir()] == ["snapshot.pickle"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"segments": 5}, protocol=4), "no list of segments"),
        (pickle.dumps(snapshot(), protocol=4)[:-40], "cut off"),
        (b"\x80\x04]r\xff\xff\xff\x7f\x8c\x08segments.", "damaged|no list of segments"),  # a place far up in the memory
        (b"\x80\x05\x8c\x08segments\x96\xff\xff\xff\xff\xff\xff\xff\x0f.", "damaged"),  # says that it holds an exabyte
        (b"\x80\x04\x8c\x08segments0" + b"(" * 200_000 + b"l" * 200_000 + b".", "or 64 levels"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc"}]]}, protocol=4), "holds no events"),
        (pickle.dumps({"segments": [None, {"blocks": [7]}], "device_traces": 8}, protocol=4), "holds no events"),
    ],
    ids=["wrong type", "cut off", "memo", "exabyte", "nested", "no times", "odd types"],
)
def test_a_pickle_of_something_else_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=sentence):
        import_trace(path, tmp_path / "a.store")


# -- Ray --


def test_a_timeline_of_ray_shows_tasks_by_worker(tmp_path: Path) -> None:
    def task(kind: str, name: str, start: float, lasts: float) -> dict[str, Any]:
        at = T / 1000 + start
        return {
            "cat": kind,
            "name": name,
            "pid": "10.0.0.1",
            "tid": "worker:ab",
            "ts": at,
            "dur": lasts,
            "ph": "X",
            "cname": "x",
        }

    events = [
        {"name": "process_name", "ph": "M", "pid": "10.0.0.1", "args": {"name": "Node 10.0.0.1"}},
        task("task::rollout", "task::rollout", 0, 1000) | {"args": {"task_id": "t1"}},
        task("task:deserialize_arguments", "task:deserialize_arguments", 0, 100),
        task("task:execute", "task:execute", 100, 900),
        {"ph": "X", "name": "no time"},
    ]
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(events))
    facts, store = imported(path, tmp_path)
    with store:
        assert facts.events == 3
        (lane,) = store.lanes
        assert (lane.process, lane.thread, lane.depths) == ("10.0.0.1", "worker:ab", 2)
        found = store.events()
        assert [store.names[n] for n in found["name"]] == [
            "task::rollout",
            "task:deserialize_arguments",
            "task:execute",
        ]
        assert found["cat"].tolist() == [Category.RANGE, Category.OTHER, Category.RANGE]
        assert abs(int(found["ts"][0]) - T) < 1000
        assert store.notes[0].text.startswith("1 event was left out")


# -- NCCL --

LINE = (
    "node-1:71:90 [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x7f recvbuff 0x7f count 1024 datatype 9 op 0 root 0 "
    "comm 0x55 [nranks=8] stream 0x66"
)


def test_a_log_of_nccl_shows_calls_with_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    lines = [
        "node-1:71:71 [0] NCCL INFO NCCL version 2.26.2+cuda12.4",
        f"[2025-10-09 08:53:20] {LINE}",
        f"[2025-10-09 08:53:21.5] {LINE}",
        LINE,
        "node-1:71:90 [0] NCCL WARN Call to ibv_modify_qp failed",
        "something else",
    ]
    path.write_text("\n".join(lines))
    facts, store = imported(path, tmp_path)
    with store:
        found = store.events()
        assert found["ts"].tolist() == [T, T + 1_500_000_000]
        assert found["bytes"].tolist() == [2048, 2048]
        assert facts.names == 1
        assert store.names == ["ncclAllReduce"]
        assert (store.lanes[0].process, store.lanes[0].pid, store.lanes[0].device) == ("node-1", 71, 0)
        assert store.detail(0).info["nranks"] == "8"
        assert store.meta["tool_version"] == "2.26.2+cuda12.4"
        texts = [note.text for note in store.notes]
        assert "NCCL on node-1: Call to ibv_modify_qp failed" in texts
        assert "1 collective was left out: no time stands on the line." in texts


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(LINE, "not when: set NCCL_DEBUG_TIMESTAMP_LEVELS=ALL"), ("a:1:2 [0] NCCL INFO Bootstrap", "names no collective")],
)
def test_a_log_that_cannot_be_placed_says_what_to_set(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(text)
    with pytest.raises(Unreadable, match=sentence):
        import_trace(path, tmp_path / "a.store")


# -- DCGM --

PAGE = """# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H200",Hostname="node-1"}} {active}{time}
DCGM_FI_DEV_FB_USED{{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H200",Hostname="node-1"}} 512{time}
DCGM_FI_DEV_SM_CLOCK{{gpu="1",UUID="GPU-b",device="nvidia1",modelName="NVIDIA H200",Hostname="node-1"}} 1980{time}
"""


@pytest.mark.parametrize("by_line", [False, True])
def test_pages_of_dcgm_become_series(tmp_path: Path, by_line: bool) -> None:
    path = tmp_path / "dcgm.txt"
    pages = []
    for i, active in enumerate((0.25, 0.75)):
        seconds = T // 10**9 + i
        head = "" if by_line else f"# time {seconds}.000\n"
        pages.append(head + PAGE.format(active=active, time=f" {seconds * 1000}" if by_line else ""))
    path.write_text("".join(pages))
    _, store = imported(path, tmp_path)
    with store:
        assert {(s.name, s.unit, s.device, s.process) for s in store.series} == {
            ("DCGM_FI_PROF_SM_ACTIVE", "ratio", 0, "node-1"),
            ("DCGM_FI_DEV_FB_USED", "B", 0, "node-1"),
            ("DCGM_FI_DEV_SM_CLOCK", "MHz", 1, "node-1"),
        }
        told = samples(store)
        assert told["DCGM_FI_PROF_SM_ACTIVE", 0] == ([T, T + 10**9], [0.25, 0.75])
        assert told["DCGM_FI_DEV_FB_USED", 0][1] == [512 << 20] * 2
        assert store.notes == ()


def test_pages_without_times_say_how_to_write_them(tmp_path: Path) -> None:
    path = tmp_path / "dcgm.txt"
    path.write_text(PAGE.format(active=1, time=""))
    with pytest.raises(Unreadable, match=r"have no times. Write a line `# time <Unix seconds>`"):
        import_trace(path, tmp_path / "a.store")


QUERY = """timestamp, index, name, temperature.gpu, power.draw [W], utilization.gpu [%], memory.used [MiB], pstate
2026/10/09 08:53:20.250, 0, NVIDIA H200, 55, 412.50 W, 97 %, 512 MiB, P0
2026/10/09 08:53:20.251, 1, NVIDIA H200, 41, [N/A], 0 %, 16 MiB, P8
2026/10/09 08:53:21.250, 0, NVIDIA H200, 56, 420.00 W, 98 %, 513 MiB, P0
"""
DMON = """#Date       Time        gpu    pwr  gtemp     sm     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      %     MB
 20261009   08:53:20      0    412     55     97    512
 20261009   08:53:20      1      -     41      0     16
#Date       Time        gpu    pwr  gtemp     sm     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      %     MB
 20261009   08:53:21      0    420     56     98    513
"""


def test_readings_of_nvidia_smi_become_series(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    first = int(datetime(2026, 10, 9, 8, 53, 20, tzinfo=UTC).timestamp()) * 10**9
    path.write_text(QUERY)
    _, store = imported(path, tmp_path)
    with store:
        told = samples(store)
        units = {(series.name, series.unit) for series in store.series}
    assert told["utilization.gpu", 0] == ([first + 250 * 10**6, first + 1250 * 10**6], [97, 98])
    assert told["utilization.gpu", 1] == ([first + 251 * 10**6], [0])
    assert told["memory.used", 0][1] == [512 << 20, 513 << 20]
    assert told["power.draw", 0][1] == [412.5, 420]
    assert ("power.draw", 1) not in told  # [N/A] is no number, and neither is P8
    assert units == {("temperature.gpu", "°C"), ("power.draw", "W"), ("utilization.gpu", "%"), ("memory.used", "B")}

    path.write_text(DMON)
    (tmp_path / "smi.csv.store").unlink()
    _, store = imported(path, tmp_path)
    with store:
        told = samples(store)
        units = {(series.name, series.unit) for series in store.series}
    assert told["sm", 0] == ([first, first + 10**9], [97, 98])
    assert told["fb", 1][1] == [16 << 20]
    assert units == {("pwr", "W"), ("gtemp", "°C"), ("sm", "%"), ("fb", "B")}


def test_readings_without_a_usable_time_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text("timestamp, index, utilization.gpu [%]\nyesterday, 0, 97 %\n")
    with pytest.raises(Unreadable, match="has a time and a number"):
        import_trace(path, tmp_path / "a.store")


# -- Ascend (made by hand after the documents; never run on Ascend) --


@pytest.mark.parametrize("zipped", [False, True])
def test_a_database_of_ascend_by_its_documented_schema(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "ascend_pytorch_profiler_3.db"
    tid = 71 << 32 | 90
    tables: dict[str, list[tuple[Any, ...]]] = {
        "STRING_IDS(id, value)": [
            (1, "aten::mm"), (2, "aclrtSynchronizeStream"), (3, "update"), (4, "AI_CORE"), (5, "MatMulV2"),
            (6, "hcom_allReduce_"), (7, "group"), (8, "MEMCPY_ASYNC"), (9, "aclnnMatmul"), (10, "EVENT_WAIT"),
        ],
        "PYTORCH_API(startNs, endNs, globalTid, connectionId, name)": [(T, T + 100, tid, 0, 1)],
        "CANN_API(startNs, endNs, type, globalTid, connectionId, name)": [
            (T + 10, T + 20, 0, tid, 55, 9), (T + 60, T + 90, 0, tid, 56, 2),
        ],
        "MSTX_EVENTS(startNs, endNs, eventType, rangeId, category, message, globalTid, endGlobalTid, domainId, "
        "connectionId)": [(T, T + 300, 2, 1, 0, 3, tid, tid, 0, 0)],
        "TASK(startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId, "
        "taskId)": [
            (T + 30, T + 50, 2, 55, 900, 71, 4, 0, 5, 1), (T + 50, T + 55, 2, 57, 901, 71, 8, 0, 5, 2),
            (T + 55, T + 58, 2, 58, 902, 71, 10, 0, 5, 3),
        ],
        "COMPUTE_TASK_INFO(name, globalTaskId)": [(5, 900)],
        "COMMUNICATION_OP(opName, startNs, endNs, connectionId, groupName)": [(6, T + 100, T + 200, 60, 7)],
        "RANK_DEVICE_MAP(rankId, deviceId)": [(3, 2)],
    }  # fmt: skip
    database(path, tables)
    if zipped:
        whole = tmp_path / "policy-3.msprof.zip"
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", "[]")
            archive.write(path, "../../x_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_3.db")
        path = whole
    _, store = imported(path, tmp_path)
    with store:
        found = store.events()
        told = {
            (store.names[name], Category(cat).name, store.lanes[lane].kind, start - T, lasts)
            for name, cat, lane, start, lasts in zip(
                *[found[key].tolist() for key in ("name", "cat", "lane", "ts", "dur")], strict=True
            )
        }
        assert told == {
            ("aten::mm", "OPERATOR", "thread", 0, 100),
            ("aclnnMatmul", "RUNTIME", "thread", 10, 10),
            ("aclrtSynchronizeStream", "SYNC", "thread", 60, 30),
            ("update", "PHASE", "range", 0, 300),
            ("MatMulV2", "KERNEL", "stream", 30, 20),
            ("MEMCPY_ASYNC", "COPY", "stream", 50, 5),
            ("EVENT_WAIT", "SYNC", "range", 55, 3),
            ("hcom_allReduce_", "COMMUNICATION", "stream", 100, 100),
        }
        (kernel,) = store.search("MatMulV2", 1)
        (call,) = store.detail(kernel.event).linked
        assert call.name == "aclnnMatmul"
        assert store.meta["rank"] == 3
        thread = next(lane for lane in store.lanes if lane.kind == "thread")
        assert (thread.pid, thread.tid) == (71, 90)


def test_a_zip_with_the_trace_alone_and_one_with_a_bomb(tmp_path: Path) -> None:
    at = T / 1000
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": f"{at:.0f}.125", "dur": 9},
        {"ph": "X", "name": "MatMulV2", "pid": 5, "tid": 3, "ts": f"{at + 2:.0f}.5", "dur": 3.5}
        | {"args": {"Task Type": "AI_CORE", "Stream Id": 3, "Device Id": 1}},
        {"ph": "X", "cat": "cpu_op", "name": "late", "pid": 1, "tid": 2, "ts": "1e99999999", "dur": 9},
    ]
    path = tmp_path / "policy-0.msprof.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", json.dumps(events))
    _, store = imported(path, tmp_path)
    with store:
        found = store.events()
        assert found["ts"].tolist() == [T + 125, T + 2500]
        assert found["cat"].tolist() == [Category.OPERATOR, Category.KERNEL]
        stream = store.lanes[found["lane"][1]]
        assert (stream.kind, stream.device, stream.stream) == ("stream", 1, 3)
        assert store.notes[0].text.startswith("1 event was left out")

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace_view.json", b"[" + b" " * (24 << 20))
    with pytest.raises(Unreadable, match="unpacks to more than it may"):
        import_trace(path, tmp_path / "a.store", limits=Limits(ratio=20))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("something.txt", "x")
    with pytest.raises(Unreadable, match=r"an archive\. Unpack it"):
        import_trace(path, tmp_path / "a.store")
