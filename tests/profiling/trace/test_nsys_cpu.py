"""Samples of the CPU and scheduling in exports of nsys, and the idle time they explain. Computed by hand, in ms."""

from pathlib import Path
from typing import Any

import pytest

from profiling.analysis.flame import flame
from profiling.analysis.summary import WorkerSummary, summarise
from profiling.evidence import RecordedTrace, phase_spans
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.lanes import MOST_LANES
from profiling.trace.store import Store
from tests.contracts.trace_files import database

MS = 10**6
SESSION = 1_760_000_000 * 10**9
PROCESS = 5 << 24 | 1 << 48
THREAD, HELPER = PROCESS | 77, PROCESS | 78

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, shortName)"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)"
SYSTEM = "OSRT_API(start, end, globalTid, nameId)"
SCHEDULED = "SCHED_EVENTS(start, cpu, isSchedIn, globalTid)"
SAMPLES = "COMPOSITE_EVENTS(id, start, cpu, threadState, globalTid, cpuCycles)"
CHAINS = (
    "SAMPLING_CALLCHAINS(id, symbol, module, kernelMode, thumbCode, unresolved, specialEntry, originalIP, "
    "unwindMethod, stackDepth)"
)

Tables = dict[str, list[tuple[Any, ...]]]


def frame(sample: int, depth: int, symbol: int, module: int, unresolved: int | None = None) -> tuple[Any, ...]:
    return sample, symbol, module, None, None, unresolved, None, 140514179305278, 8, depth


TEXTS = ["gemm", "cudaLaunchKernel_v7000", "read", "compute(float*)", "build/bin/app", "main", "0x7f9a", "0x7f9b"]
WORK: Tables = {
    "StringIds(id, value)": [*enumerate([*TEXTS, "/usr/lib64/libcuda.so.580"], 1)],
    "TARGET_INFO_SESSION_START_TIME(utcEpochNs)": [(SESSION,)],
    "ANALYSIS_DETAILS(duration)": [(130 * MS,)],
    KERNELS: [(10 * MS, 20 * MS, 0, 7, 1, PROCESS, 1), (100 * MS, 110 * MS, 0, 7, 2, PROCESS, 1)],
    CALLS: [(8 * MS, 9 * MS, THREAD, 1, 2), (98 * MS, 99 * MS, THREAD, 2, 2)],
    SYSTEM: [(50 * MS, 60 * MS, THREAD, 3)],
}
SCHEDULING: Tables = {
    SCHEDULED: [
        (5 * MS, 3, 1, THREAD),
        (30 * MS, 3, 0, THREAD),
        (70 * MS, 4, 1, THREAD),
        (120 * MS, 4, 0, THREAD),
        (22 * MS, 1, 1, HELPER),  # it launches nothing: what it does explains nothing
        (28 * MS, 1, 1, HELPER),  # the event between the two was lost
        (68 * MS, 1, 0, HELPER),
    ]
}
SAMPLED: Tables = {
    SAMPLES: [
        *((i, at * MS, 3, 1, THREAD, 1) for i, at in enumerate([22, 23, 24, 80, 81], 1)),
        (6, 65 * MS, 3, 2, THREAD, 1),  # it did not run
        (7, 66 * MS, 3, 1, THREAD, 1),  # without a stack
    ],
    CHAINS: [
        *(frame(i, depth, symbol, 5) for i in (1, 2, 3) for depth, symbol in enumerate([4, 6])),
        frame(4, 0, 7, 9, 1),
        frame(5, 0, 8, 9, 1),
        frame(6, 0, 4, 5),
    ],
}


def opened(folder: Path, tables: Tables) -> Store:
    path = database(folder / "a.sqlite", tables)
    import_trace(path, folder / "store")
    return Store(folder / "store")


def worker(folder: Path, tables: Tables) -> tuple[WorkerSummary, dict[str, float]]:
    with opened(folder, tables) as store:
        (one,) = summarise([RecordedTrace(store=store)], phase_spans(())).workers
    return one, {cause: ns / MS for cause, ns in one.idle.items() if ns}


def told(store: Store, category: Category) -> list[tuple[str, str, float, float]]:
    columns = store.events(categories=[category])
    return [
        (store.names[name], store.lanes[lane].title, (at - SESSION) / MS, lasts / MS)
        for name, lane, at, lasts in zip(*(columns[key].tolist() for key in ("name", "lane", "ts", "dur")), strict=True)
    ]


def test_samples_are_frames_and_scheduling_is_spans_of_a_thread(tmp_path: Path) -> None:
    with opened(tmp_path, {**WORK, **SCHEDULING, **SAMPLED}) as store:
        assert sorted(told(store, Category.NATIVE), key=lambda row: (row[2], -row[3], row[0] != "main (app)")) == [
            ("main (app)", "CPU samples", 22, 7),  # until five times the median distance of 1 ms
            ("compute(float*) (app)", "CPU samples", 22, 7),
            ("[unknown] (libcuda.so.580)", "CPU samples", 80, 2),  # addresses of a module are one frame
        ]
        assert sorted(told(store, Category.SCHEDULING), key=lambda row: row[2]) == [
            ("on a CPU", "scheduling", 5, 25),
            ("on a CPU", "scheduling", 28, 40),
            ("not on a CPU", "scheduling", 30, 40),
            ("on a CPU", "scheduling", 70, 50),
        ]
        first, last = store.program
        assert ((first - SESSION) / MS, (last - SESSION) / MS) == (8, 110)  # what was seen from outside is not it
        tree = flame(store, begin=store.begin, end=store.end, by="frames")
        assert {node.name: node.total / MS for node in tree.nodes} == {
            "main (app)": 7,
            "compute(float*) (app)": 7,
            "[unknown] (libcuda.so.580)": 2,
        }


def test_calls_that_took_long_say_who_called_them(tmp_path: Path) -> None:
    columns = CHAINS.removeprefix("SAMPLING_CALLCHAINS")
    tables: Tables = {
        **{key: rows for key, rows in WORK.items() if key not in (CALLS, SYSTEM)},
        CALLS.replace(")", ", callchainId)"): [(8 * MS, 9 * MS, THREAD, 1, 2, 7), (98 * MS, 99 * MS, THREAD, 2, 2, 0)],
        SYSTEM.replace(")", ", callchainId)"): [(50 * MS, 60 * MS, THREAD, 3, 1), (62 * MS, 63 * MS, THREAD, 3, None)],
        f"OSRT_CALLCHAINS{columns}": [frame(1, depth, symbol, 5) for depth, symbol in enumerate([3, 4, 6])],
        f"CUDA_CALLCHAINS{columns}": [frame(7, 0, 2, 5), frame(7, 1, 7, 9, 1)],
    }
    with opened(tmp_path, tables) as store:
        details = {hit.name: store.detail(hit.event) for text in ("read", "Launch") for hit in store.search(text, 9)}
    assert {name: each and each.info for name, each in details.items()} == {
        "read": {"called from": "compute(float*) (app) ← main (app)"},
        "cudaLaunchKernel": {"called from": "[unknown] (libcuda.so.580)"},
    }


def test_idle_time_is_named_by_what_the_launching_thread_did(tmp_path: Path) -> None:
    one, idle = worker(tmp_path, {**WORK, **SCHEDULING, **SAMPLED})
    assert idle == {
        "launch": 2,  # 8..9, 98..99
        "system": 10,  # 50..60: it had no CPU then, but the call says why
        "native": 40,  # 9..10, 20..30, 70..98, 99..100
        "off_cpu": 30,  # 30..50, 60..70
    }
    (gap, _) = sorted(one.gaps, key=lambda each: each.begin - each.end)
    assert (gap.cause, gap.inside) == ("native", "compute(float*) (app)")
    assert not one.has_stacks


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"unattributed": 70}),
        (SAMPLED, {"native": 9, "unattributed": 61}),  # 22..29, 80..82
        (SCHEDULING, {"native": 40, "off_cpu": 30}),
        ({SAMPLES: SAMPLED[SAMPLES]}, {"unattributed": 70}),  # samples without stacks
        ({"SCHED_EVENTS(start, globalTid)": [(1, THREAD)]}, {"unattributed": 70}),  # a column is missing
        (
            {
                "COMPOSITE_EVENTS(id, start, globalTid)": [(1, 22 * MS, THREAD), (2, "x", THREAD)],
                "SCHED_EVENTS(start, isSchedIn, globalTid)": [(1, 1.0, THREAD), (2, "x", THREAD), (None, 0, THREAD)],
                "SAMPLING_CALLCHAINS(id, symbol, stackDepth)": [(1, 4, 0), (None, None, None)],
            },
            {"unattributed": 70},  # of one sample nothing says how long it stands
        ),
        ({SCHEDULED: [(5 * MS, 3, 1, HELPER), (99 * MS, 3, 0, HELPER)]}, {"unattributed": 70}),  # another thread
    ],
)
def test_a_table_or_column_that_is_missing_leaves_the_rest(
    tmp_path: Path, more: Tables, expected: dict[str, float]
) -> None:
    _, idle = worker(tmp_path, {**WORK, **more})
    assert idle == {"launch": 2, "system": 10, **expected}


def test_threads_of_the_whole_machine_do_not_use_up_the_lanes(tmp_path: Path) -> None:
    strangers = [(at, 0, at % 2, PROCESS + (i << 24)) for i in range(1, 6000) for at in (1, 2)]
    with opened(tmp_path, {**WORK, SCHEDULED: [*strangers, *SCHEDULING[SCHEDULED]]}) as store:
        assert len(told(store, Category.SCHEDULING)) == 256 + 3
        (note,) = store.notes
        assert note.text == "5,744 threads are shown without samples or scheduling: there are too many."


def test_threads_that_fill_a_store_leave_out_what_was_seen_of_them(tmp_path: Path) -> None:
    threads = [PROCESS + i for i in range(100, 3100)]
    tables = {
        **WORK,
        SYSTEM: [(1, 2, tid, 3) for tid in threads],
        SCHEDULED: [(at, 0, at % 2, tid) for tid in threads for at in (1, 2)],
    }
    with opened(tmp_path, tables) as store:
        assert len(told(store, Category.SYSTEM)) == 3000
        assert len(store.lanes) == MOST_LANES
        assert len(told(store, Category.SCHEDULING)) == MOST_LANES - 3000 - 2  # the launching thread, and a stream
