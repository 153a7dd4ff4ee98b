"""Exports of nsys: a real one against plain SQL, both schemas, a report made here, and databases that are none."""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from profiling.launch_nsys import problem_of_install, runtime_env
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.limits import Limits, Unreadable
from profiling.trace.readers import nsys_rep
from profiling.trace.schema import StoreFacts
from profiling.trace.store import Store
from tests.contracts.trace_files import database

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "traces"
H100 = DATA / "nsys_h100_2gpu_1s.sqlite"
SESSION = 1_760_000_000 * 10**9


def imported(path: Path, folder: Path, **more: Any) -> tuple[StoreFacts, Store]:
    target = folder / f"{path.name}.store"
    facts = import_trace(path, target, **more)
    return facts, Store(target)


def test_a_real_export_comes_in_whole(tmp_path: Path) -> None:
    with sqlite3.connect(f"file:{H100}?mode=ro", uri=True) as plain:

        def ask(query: str) -> list[tuple[Any, ...]]:
            return plain.execute(query).fetchall()

        (session,) = ask("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")[0]
        tables = {
            (Category.COPY,): "CUPTI_ACTIVITY_KIND_MEMCPY",
            (Category.MEMSET,): "CUPTI_ACTIVITY_KIND_MEMSET",
            (Category.OVERHEAD,): "CUPTI_ACTIVITY_KIND_OVERHEAD",
            (Category.KERNEL, Category.COMMUNICATION): "CUPTI_ACTIVITY_KIND_KERNEL",
            (Category.OPERATOR, Category.RANGE): "NVTX_EVENTS",
        }
        totals = {
            key: ask(f"SELECT count(*), sum(end - start), min(start), max(end) FROM {table}")[0]
            for key, table in tables.items()
        }
        calls = ask("SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME")[0]
        waits = ask("SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")[0]
        kernels = Counter(
            {
                (name, device, stream): count
                for name, device, stream, count in ask(
                    "SELECT s.value, k.deviceId, k.streamId, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                    "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1, 2, 3"
                )
            }
        )
        matched = ask(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
            "ON r.correlationId = k.correlationId AND (r.globalTid >> 24) = (k.globalPid >> 24)"
        )[0][0]
        copied = ask("SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY")[0][0]

    facts, store = imported(H100, tmp_path)

    with store:
        for categories, (count, busy, begin, end) in totals.items():
            found = store.events(categories=categories)
            assert (len(found["ts"]), int(found["dur"].sum())) == (count, busy), categories
            assert int(found["ts"].min()) == session + begin
            assert int((found["ts"] + found["dur"]).max()) == session + end
        found = store.events(categories=[Category.RUNTIME, Category.SYNC])
        on_thread = [store.lanes[lane].kind == "thread" for lane in found["lane"]]
        assert (sum(on_thread), int(found["dur"][on_thread].sum())) == calls
        assert len(on_thread) - sum(on_thread) == waits[0]
        assert facts.events == sum(total[0] for total in totals.values()) + calls[0] + waits[0]
        launched = store.events(categories=[Category.KERNEL, Category.COMMUNICATION])
        lanes = [store.lanes[lane] for lane in launched["lane"]]
        assert kernels == Counter(
            (store.names[name], lane.device, lane.stream) for name, lane in zip(launched["name"], lanes, strict=True)
        )
        assert len(set(launched["link"].tolist())) == len(launched["link"])  # also among the two processes
        assert sum(link in set(found["link"][on_thread].tolist()) for link in launched["link"].tolist()) == matched
        assert int(store.events(categories=[Category.COPY])["bytes"].sum()) == copied
        assert "cudaLaunchKernel" in store.names
        assert "aten::view" in store.names
        assert (store.meta["tool"], store.meta["schema_version"]) == ("nsys", "3.25.0")
        assert store.notes == ()
        assert {(lane.pid, lane.device, lane.stream) for lane in store.lanes if lane.kind == "stream"} == {
            (111, 0, 7),
            (112, 1, 15),
        }


NVTX = (
    "NVTX_EVENTS(start, end, eventType, rangeId, category, color, text, globalTid, endGlobalTid, textId, domainId, "
    "int64Value)"
)
KERNELS = (
    "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, shortName, "
    "gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread)"
)
COPIES = (
    "CUPTI_ACTIVITY_KIND_MEMCPY(start, end, deviceId, streamId, correlationId, globalPid, bytes, "
    "copyKind, srcKind, dstKind)"
)
PROCESS = 5 << 24 | 1 << 48
THREAD = PROCESS | 77


def small() -> dict[str, list[tuple[Any, ...]]]:
    return {
        "StringIds(id, value)": [(1, "gemm"), (2, "cudaLaunchKernel_v7000"), (3, "python"), (4, "step 3"), (5, "read")],
        "EXPORT_META_DATA(name, value)": [("EXPORT_SCHEMA_VERSION", "3.0.0"), ("EXPORT_PRODUCT_VERSION", "2022.4.2.1")],
        "TARGET_INFO_SESSION_START_TIME(utcEpochNs, utcTime)": [(SESSION, "")],
        "ANALYSIS_DETAILS(duration, startTime, stopTime)": [(10**9, 5, 10**9 + 5)],
        "PROCESSES(globalPid, name)": [(PROCESS, "worker")],
        "ThreadNames(nameId, globalTid)": [(3, THREAD)],
    }


def test_the_old_schema_with_ranges_of_ours_and_of_others(tmp_path: Path) -> None:
    ms = 10**6
    rows: list[tuple[Any, ...]] = [
        (0, None, 75, None, None, None, "pitwall", THREAD, None, None, 1, None),
        (0, None, 75, None, None, None, "NCCL", THREAD, None, None, 2, None),
        (10 * ms, 500 * ms, 60, 1, None, None, None, THREAD, None, 4, 1, 3),
        (20 * ms, 300 * ms, 59, None, None, None, "rollout", THREAD, None, None, 1, 3),
        (310 * ms, 996 * ms, 59, None, None, None, "update", THREAD, None, None, 1, 3),
        (320 * ms, 330 * ms, 59, None, None, None, "update", THREAD, None, None, 0, None),
        (
            340 * ms,
            350 * ms,
            59,
            None,
            None,
            None,
            "aten::mm, seq = 9, op_id = 12, sizes = [[2]]",
            THREAD,
            None,
            None,
            0,
            None,
        ),
        (360 * ms, 370 * ms, 59, None, None, None, "ncclAllReduce", THREAD, None, None, 2, None),
        (380 * ms, None, 34, None, None, None, "a mark", THREAD, None, None, 0, None),
        (390 * ms, None, 59, None, None, None, "still open", THREAD, None, None, 0, None),
        (998 * ms, 999 * ms, 59, None, None, None, "end of recording", THREAD, None, None, 1, None),
        (None, None, 59, None, None, None, "no time", THREAD, None, None, 0, None),
        ("x", 5, 59, None, None, None, "no number", THREAD, None, None, 0, None),
    ]
    _, store = imported(database(tmp_path / "a.sqlite", {**small(), NVTX: rows}), tmp_path)
    with store:
        found = store.events()
        told = [
            (store.names[name], Category(category).name, store.lanes[lane].kind, (start - SESSION) // ms, lasts // ms)
            for name, category, lane, start, lasts in zip(
                *[found[key].tolist() for key in ("name", "cat", "lane", "ts", "dur")], strict=True
            )
        ]
        assert sorted(told, key=lambda row: row[3]) == [
            ("step 3", "STEP", "range", 10, 490),
            ("rollout", "PHASE", "thread", 20, 280),
            ("update", "PHASE", "thread", 310, 686),
            ("update", "PHASE", "thread", 320, 10),
            ("aten::mm", "OPERATOR", "thread", 340, 10),
            ("ncclAllReduce", "RANGE", "thread", 360, 10),
            ("a mark", "RANGE", "thread", 380, 0),
            ("end of recording", "RANGE", "thread", 998, 1),
        ]
        (lane,) = [lane for lane in store.lanes if lane.kind == "thread"]
        assert (lane.process, lane.pid, lane.thread, lane.tid) == ("worker", 5, "python", 77)
        step = store.detail(store.search("step 3", 1)[0].event)
        assert step.info == {"step": 3}
        cut, unusable = store.notes
        assert cut.text == "2 ranges were still open when the session ended and are cut: still open, update."
        assert unusable.text.startswith("2 rows were left out")
        assert store.meta["session"] == [SESSION, SESSION + 10**9]


def test_devices_calls_metrics_and_messages(tmp_path: Path) -> None:
    other = PROCESS + (1 << 24)
    tables = {
        **small(),
        KERNELS: [
            (100, 200, 0, 7, 5, PROCESS, 1, 8, 1, 1, 128, 1, 1, 32),
            (100, 250, 1, 7, 5, other, 1, 8, 1, 1, 128, 1, 1, 32),
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)": [
            (50, 60, THREAD, 5, 2),
            (51, 61, other | 3, 5, 2),
        ],
        COPIES: [
            (300, 400, 0, 7, 6, PROCESS, 1 << 20, 1, 0, 2),
            (500, 600, 0, 7, 0, PROCESS, 1 << 16, 11, None, None),  # of unified memory
        ],
        "OSRT_API(start, end, globalTid, nameId)": [(10, 20, THREAD, 5)],
        "TARGET_INFO_GPU_METRICS(typeId, sourceId, typeName, metricId, metricName)": [
            (256, 1, "", 3, "SMs Active [Throughput %]")
        ],
        "GPU_METRICS(timestamp, typeId, metricId, value)": [(100, 256, 3, 40), (200, 256, 3, 60), (300, 256, 9, 1)],
        "DIAGNOSTIC_EVENT(timestamp, severity, text)": [(1, 1, "fine"), (2, 2, "lost some events"), (3, 3, "no CUPTI")],
        "TARGET_INFO_GPU(id, name, totalMemory, smCount)": [(0, "NVIDIA H100", 80 << 30, 132)],
    }
    _, store = imported(database(tmp_path / "a.sqlite", tables), tmp_path)
    with store:
        kernels = store.events(categories=[Category.KERNEL], columns=("link", "id", "lane"))
        assert len(set(kernels["link"].tolist())) == 2
        for number, lane in zip(kernels["id"].tolist(), kernels["lane"].tolist(), strict=True):
            detail = store.detail(number)
            assert detail.info == {"grid": [8, 1, 1], "block": [128, 1, 1], "registersPerThread": 32}
            (call,) = detail.linked
            assert call.name == "cudaLaunchKernel"
            assert store.lanes[call.lane].pid == store.lanes[lane].pid
        copies = sorted(name for name in store.names if name.startswith("Memcpy"))
        assert copies == ["Memcpy HtoD (Pageable -> Device)", "Memcpy unified HtoD"]
        assert store.events(categories=[Category.SYSTEM])["dur"].tolist() == [10]
        (series,) = store.series
        assert (series.name, series.unit, series.device) == ("SMs Active", "ratio", 0)
        assert store.samples(0)[1].tolist() == [0.4, 0.6]
        assert [(note.severity, note.text) for note in store.notes[:2]] == [
            ("warning", "nsys: lost some events"),
            ("error", "nsys: no CUPTI"),
        ]
        assert store.meta["devices"] == [
            {"id": 0, "name": "NVIDIA H100", "memory": 80 << 30, "multiprocessors": 132, "bus": None}
        ]


def test_calls_of_libraries_nest_among_those_of_their_thread(tmp_path: Path) -> None:
    names = ["cublasGemmEx", "cudnnConvolutionForward", "MPI_Allreduce", "MPI_File_write_all", "MPI_Init", "Compute"]
    tables = {
        "StringIds(id, value)": list(enumerate(names)),
        "CUBLAS_EVENTS(start, end, eventClass, globalTid, nameId)": [(100, 200, 1, THREAD, 0)],
        "CUDNN_EVENTS(start, end, eventClass, globalTid, nameId)": [(200, 300, 1, THREAD, 1)],
        "MPI_COLLECTIVES_EVENTS(start, end, globalTid, textId)": [(300, 400, THREAD, 2), (400, 500, THREAD, 3)],
        "MPI_OTHER_EVENTS(start, end, globalTid, textId)": [(0, 100, THREAD, 4)],
        "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH(start, end, nameId, globalTid)": [(500, 600, 5, THREAD)],
        "CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)": [],
    }
    _, store = imported(database(tmp_path / "a.sqlite", tables), tmp_path)
    with store:
        rows = store.events(columns=("ts", "dur", "name", "cat", "lane"))
        order = rows["ts"].argsort()
        assert len(set(rows["lane"].tolist())) == 1
        assert rows["dur"].tolist() == [100] * 6
        told = [
            (store.names[name], kind)
            for name, kind in zip(rows["name"][order].tolist(), rows["cat"][order].tolist(), strict=True)
        ]
    assert told == [
        ("MPI_Init", Category.RANGE),
        ("cublasGemmEx", Category.RANGE),
        ("cudnnConvolutionForward", Category.RANGE),
        ("MPI_Allreduce", Category.COMMUNICATION),
        ("MPI_File_write_all", Category.RANGE),
        ("Compute", Category.RANGE),
    ]


def test_an_early_export_does_not_describe_itself(tmp_path: Path) -> None:
    tables: dict[str, list[tuple[Any, ...]]] = {
        "StringIds(id, value)": [(1, "gemm")],
        "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, shortName)": [
            (1000, 1400, 0, 7, 3, 1 << 24, 1)
        ],
    }
    import_trace(database(tmp_path / "a.sqlite", tables), tmp_path / "a.store")
    with Store(tmp_path / "a.store") as store:
        rows = store.events(columns=("name", "dur"))
        assert [(store.names[name], dur) for name, dur in zip(*map(list, rows.values()), strict=True)] == [
            ("gemm", 400)
        ]


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"users(id, name)": [(1, "a")]}, "of no format that can be read here"),
        (small(), "holds no events"),
        ({**small(), "NVTX_EVENTS(start)": [(1,)]}, "holds no events"),
    ],
    ids=["other tables", "no tables of events", "no columns"],
)
def test_a_database_of_something_else_is_refused(
    tmp_path: Path, tables: dict[str, list[tuple[Any, ...]]], sentence: str
) -> None:
    path = database(tmp_path / "a.sqlite", tables)
    with pytest.raises(Unreadable, match=sentence):
        import_trace(path, tmp_path / "a.store")


def test_a_view_in_the_place_of_a_table_is_never_asked(tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite", small())
    with sqlite3.connect(path) as opened:
        endless = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start FROM n"
        opened.execute(f"CREATE VIEW OSRT_API AS {endless}")
    opened.close()
    with pytest.raises(Unreadable, match="holds no events"):
        import_trace(path, tmp_path / "a.store")


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    content = bytearray(H100.read_bytes())
    content[4096 * 3 : 4096 * 200] = b"\xff" * (4096 * 197)
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match="damaged"):
        import_trace(path, tmp_path / "a.store")


def test_more_events_than_allowed_are_left_out_and_told(tmp_path: Path) -> None:
    facts, store = imported(H100, tmp_path, limits=Limits(events=1000))
    with store:
        assert facts.events == 1000
        assert "the rest is left out" in store.notes[0].text


RECORD = """
import json, sys, time
from pathlib import Path
from profiling import profile
from profiling.captures import recording

profile.configure("auto")
recording.start(sys.argv[1], folder=Path("."), name="c")
for step in (1, 2):
    recording.at_step(step)
    for phase in ("rollout", "update"):
        with profile.mark(phase, step=step):
            until = time.perf_counter() + 0.01
            while time.perf_counter() < until:
                pass
path = recording.stop()
while recording.outcome(path).size < 0 and not recording.outcome(path).problem:
    time.sleep(0.02)
assert not recording.outcome(path).problem, recording.outcome(path)
print(json.dumps([(s.phase, s.step, s.start, s.duration) for s in profile.drain()]))
print(path)
"""


def recorded(tool: str, folder: Path) -> tuple[list[Any], Path]:
    """Record four phases of two steps in a process of its own; return our own spans and the file."""
    program = folder / "program.py"
    program.write_text(RECORD)
    command = [sys.executable, str(program), tool]
    if tool == "nsys":
        executable = runtime_env(ready="on", trace="nvtx")["py_executable"]
        command = ["bash", "-c", f"exec {executable} {program} {tool}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines, done.stderr
    return json.loads(lines[-1]), folder / done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "tool",
    ["torch", pytest.param("nsys", marks=pytest.mark.skipif(bool(problem_of_install()), reason="needs nsys"))],
)
def test_a_recording_made_here_stands_on_the_clock_of_our_own_spans(tmp_path: Path, tool: str) -> None:
    spans, path = recorded(tool, tmp_path)
    _, store = imported(path, tmp_path)
    with store:
        phases = store.events(categories=[Category.PHASE])
        told = sorted(
            (start, store.names[name], lasts)
            for start, name, lasts in zip(*[phases[key].tolist() for key in ("ts", "name", "dur")], strict=True)
        )
        ours = sorted((start, phase, lasts) for phase, _, start, lasts in spans if phase in ("rollout", "update"))
        assert [row[1] for row in told] == [row[1] for row in ours] == ["rollout", "update"] * 2
        # A wrong clock moves every edge; a process that is put aside between the two ways to mark moves one.
        edges = [(a[0] - b[0], a[0] + a[2] - b[0] - b[2]) for a, b in zip(told, ours, strict=True)]
        assert median(abs(apart) for pair in edges for apart in pair) < 1_000_000, edges
        steps = store.events(categories=[Category.STEP])
        wanted = {"torch": ["ProfilerStep#1", "ProfilerStep#2"], "nsys": ["step 1", "step 2"]}[tool]
        assert [store.names[name] for name in steps["name"]] == wanted
        assert [note for note in store.notes if note.severity != "info"] == []


def test_a_report_without_nsys_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n and nothing that nsys knows")
    monkeypatch.setattr(nsys_rep, "find_nsys", lambda: "")
    with pytest.raises(Unreadable, match=r"nsys is not installed .* `nsys export -t sqlite FILE.nsys-rep`"):
        import_trace(path, tmp_path / "a.store")


@pytest.mark.skipif(bool(problem_of_install()), reason="needs nsys")
def test_a_broken_report_is_refused_in_the_words_of_nsys(tmp_path: Path) -> None:
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n and nothing that nsys knows")
    with pytest.raises(Unreadable, match=r"nsys .*cannot read the report: "):
        import_trace(path, tmp_path / "a.store")
    assert [each.name for each in tmp_path.iterdir()] == ["a.nsys-rep"]
