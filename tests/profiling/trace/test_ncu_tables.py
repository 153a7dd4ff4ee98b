"""Tables of Nsight Compute, after those of several versions: both forms, units, languages, and files that are none."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiling.analysis.summary import open_works, summarise
from profiling.analysis.window import summarise_window
from profiling.diagnosis.finding import diagnose
from profiling.evidence import Evidence, RecordedTrace, phase_spans
from profiling.trace.category import Category
from profiling.trace.importing import import_trace, reader_of
from profiling.trace.limits import Limits, Unreadable
from profiling.trace.readers.ncu_csv import ORIGIN
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

ABOUT = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
         "Device", "CC")  # fmt: skip
OLD = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream")
LONG = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")
NOISE = '==PROF== Connected to process 71\nloss, 1.25\n==PROF== Profiling "gemm": 0%....100% - 9 passes\n'


def table(*rows: Any) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()


def about(number: int, name: str, *, stream: int = 7) -> tuple[str, ...]:
    return (f"{number}", "71", "python", "node-1", name, "1", f"{stream}", "(256, 1, 1)", "(4096, 2, 1)", "0", "9.0")


def read(path: Path, text: str, **options: Any) -> Store:
    path.write_text(text)
    target = path.with_name(f"{path.name}.store")
    import_trace(path, target, **options)
    return Store(target)


def shown(store: Store) -> list[tuple[str, int, int]]:
    found = store.events()
    rows = zip(found["name"].tolist(), found["ts"].tolist(), found["dur"].tolist(), strict=True)
    return sorted(((store.names[name], at - ORIGIN, lasts) for name, at, lasts in rows), key=lambda row: row[1])


def test_the_wide_form_of_the_raw_page(tmp_path: Path) -> None:
    metrics = {
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "40.00", "12.5"),
        "gpu__time_duration.sum": ("us", "1,205.50", "3.2"),
        "launch__registers_per_thread": ("register/thread", "158", "16"),
        "launch__shared_mem_per_block_static": ("Kbyte/block", "4.096", "0"),
        "launch__func_cache_config": ("", "CachePreferNone", "CachePreferNone"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "55.515539", "3"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "25.868285", "n/a"),
    }
    text = NOISE + table(
        (*ABOUT, *metrics),
        ("",) * len(ABOUT) + tuple(unit for unit, *_ in metrics.values()),
        about(0, "void gemm<128>(float *, int)") + tuple(row[1] for row in metrics.values()),
        about(1, "ncclDevKernel_AllReduce_Sum_bf16", stream=20) + tuple(row[2] for row in metrics.values()),
    )
    with read(tmp_path / "raw.csv", text) as store:
        assert shown(store) == [
            ("void gemm<128>(float *, int)", 0, 1_205_500),
            ("ncclDevKernel_AllReduce_Sum_bf16", 1_205_500, 3_200),
        ]
        assert store.events()["cat"].tolist() == [Category.KERNEL, Category.COMMUNICATION]
        assert [(lane.kind, lane.process, lane.pid, lane.device, lane.stream) for lane in store.lanes] == [
            ("stream", "python", 71, 0, 7),
            ("stream", "python", 71, 0, 20),
        ]
        assert store.detail(0).info == {
            "grid": [4096, 2, 1],
            "block": [256, 1, 1],
            "DRAM throughput %": 40,
            "registersPerThread": 158,
            "staticSharedMemory": 4096,
            "SM throughput %": 55.515539,
            "achieved occupancy %": 25.868285,
        }
        assert store.facts.has_clock is False
        assert "one after another, from 2000-01-01 on" in store.notes[0].text


def test_the_long_form_of_the_details_page(tmp_path: Path) -> None:
    def metric(number: int, section: str, name: str, unit: str, value: str) -> tuple[str, ...]:
        return (*about(number, f"kernel_{number}"), section, name, unit, value, *[""] * len(RULES))

    sol = "GPU Speed Of Light Throughput"
    text = table(
        (*ABOUT, *LONG, *RULES),
        metric(0, sol, "Memory Throughput", "%", "14.26"),
        metric(0, sol, "DRAM Throughput", "%", "9.50"),
        metric(0, sol, "Duration", "ns", "2,848"),
        metric(0, sol, "Compute (SM) Throughput", "%", "0.09"),
        (*about(0, "kernel_0"), sol, "", "", "", "SOLBottleneck", "OPT", "Small grid,\nfew waves", "global", "95"),
        metric(0, "Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "470.2"),
        metric(0, "Launch Statistics", "Registers Per Thread", "register/thread", "32"),
        metric(0, "Occupancy", "Achieved Occupancy", "%", "72.5"),
        metric(0, "Occupancy", "Theoretical Occupancy", "%", "100"),
        metric(1, sol, "Duration", "msecond", "1.5"),
    )
    with read(tmp_path / "details.csv", text) as store:
        assert shown(store) == [("kernel_0", 0, 2848), ("kernel_1", 2848, 1_500_000)]
        assert store.detail(0).info == {
            "grid": [4096, 2, 1],
            "block": [256, 1, 1],
            "memory throughput %": 14.26,
            "DRAM throughput %": 9.5,
            "SM throughput %": 0.09,
            "registersPerThread": 32,
            "achieved occupancy %": 72.5,
            "theoretical occupancy %": 100,
        }


def test_an_old_table_names_the_launch_and_its_shape_in_metrics(tmp_path: Path) -> None:
    names = [f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"]
    row = ("0", "71", "cfd", "127.0.0.1", "compute_flux", "2020-Apr-07 17:01:05", "1", "7")
    text = table(
        (*OLD, "gpu__time_duration.sum", *names),
        ("",) * len(OLD) + ("nsecond", *["block"] * 6),
        (*row, "1250000", "8", "2", "1", "128", "1", "1"),
    )
    with read(tmp_path / "old.csv", text) as store:
        assert shown(store) == [("compute_flux", 0, 1_250_000)]
        assert store.detail(0).info == {
            "grid": [8, 2, 1],
            "block": [128, 1, 1],
            "launched": "2020-Apr-07 17:01:05",
        }


def test_numbers_of_another_language(tmp_path: Path) -> None:
    rows = [
        (*about(0, "a"), "x", "gpu__time_duration.sum", "ns", "117.344"),
        (*about(0, "a"), "x", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "65,77"),
    ]
    with read(tmp_path / "a.csv", table((*ABOUT, *LONG), *rows)) as store:
        assert shown(store) == [("a", 0, 117_344)]
        assert store.detail(0).info["SM throughput %"] == 65.77
    with read(tmp_path / "b.csv", table((*ABOUT, *LONG), rows[0])) as store:
        assert shown(store) == [("a", 0, 117)]  # nothing says that it is no point


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (table((*ABOUT, *LONG)), "holds no kernel"),
        (table((*ABOUT, *LONG), (*about(0, "a"), "x", "Registers Per Thread", "", "3")), "not how long they took"),
        (
            table(("Process ID", "Kernel Name", "Invocations", *LONG[:3], "Minimum", "Maximum", "Average"), ["1"] * 9),
            "without --print-summary",
        ),
        (table((*ABOUT, *LONG), (*about(0, "a"), "x", "Duration", "ns", "1" * 39)), "not how long they took"),
    ],
)
def test_a_table_without_kernels_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(Unreadable, match=sentence):
        read(tmp_path / "a.csv", text)


def test_what_is_hostile_costs_only_itself(tmp_path: Path) -> None:
    rows = [(*about(i, f"k{i}"), "x", "Duration", "ns", "10") for i in range(5)]
    text = table((*ABOUT, *LONG), *rows) + '"5","71","' + "x" * 300_000
    with read(tmp_path / "cut.csv", text) as store:
        assert len(shown(store)) == 5
        assert "cut off or damaged" in " ".join(note.text for note in store.notes)
    with read(tmp_path / "many.csv", table((*ABOUT, *LONG), *rows), limits=Limits(events=3)) as store:
        assert len(shown(store)) == 3
        assert "Only the first 3 kernels were read; the rest is left out." in [note.text for note in store.notes]
    other = tmp_path / "other.csv"
    other.write_text("step,loss\n1,2\n")
    with pytest.raises(Unreadable, match="of no format"):
        reader_of(other)


def test_a_long_name_of_a_column_is_read_once(tmp_path: Path) -> None:
    columns = ("Kernel Name", "gpu__time_duration.sum [us]", "[ " * 60_000 + "]")  # minutes, if each [ is tried
    with read(tmp_path / "a.csv", table(columns, ("k", "5", "1"))) as store:
        assert shown(store) == [("k", 0, 5000)]


def test_lengths_are_summed_up_and_nothing_reads_as_busy(tmp_path: Path) -> None:
    rows = [(*about(i, "gemm" if i % 2 else "ncclKernel_AllReduce"), "x", "Duration", "ns", "500") for i in range(6)]
    with read(tmp_path / "a.csv", table((*ABOUT, *LONG), *rows)) as store:
        recorded = RecordedTrace(store=store)

        (worker,) = summarise([recorded], phase_spans(())).workers
        assert [
            (kernel.name, kernel.calls, kernel.total) for kernel in sorted(worker.kernels, key=lambda one: one.name)
        ] == [
            ("gemm", 3, 1500),
            ("ncclKernel_AllReduce", 3, 1500),
        ]
        assert (worker.recorded, worker.idle, worker.gaps, worker.communication) == (0, {}, (), None)
        assert summarise([recorded], phase_spans(())).budget.steps == ()
        assert not summarise([recorded], phase_spans(())).has_clock
        assert summarise_window(store, begin=store.begin, end=store.end).devices == ()
        assert open_works([recorded], phase_spans(())) == ({}, (), False)
        found = {one.key: one.state for one in diagnose(Evidence(recorded=(recorded,)))}
        for rule in (
            "device_idle",
            "long_gap",
            "communication_exposed",
            "no_overlap",
            "recompilation",
            "profiler_overhead",
        ):
            assert found[rule] == "not_enough_data"

        with StoreWriter(tmp_path / "b", source="test") as writer:
            lane = writer.lane("thread", process="p", pid=1, thread="main")
            writer.add(lane, 1_760_000_000 * 10**9, 100, writer.name("aten::mm"), Category.OPERATOR)
            writer.finish()
        with Store(tmp_path / "b") as timed:  # beside a file with a clock it does not make the window a life long
            assert summarise([recorded, RecordedTrace(store=timed)], phase_spans(())).begin == timed.begin


def test_a_real_table_of_an_h200(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "data" / "traces" / "h200_ncu.csv"
    with source.open(newline="") as file:
        head, _units, *rows = csv.reader(file)
    wanted = [(row[head.index("Kernel Name")], float(row[head.index("gpu__time_duration.sum")])) for row in rows]

    import_trace(source, tmp_path / "store")

    with Store(tmp_path / "store") as store:
        events = store.events(columns=("name", "dur", "ts"))
        order = np.argsort(events["ts"])
        kept = [(store.names[events["name"][i]], events["dur"][i]) for i in order]
    assert [name for name, _ in kept] == [name for name, _ in wanted]
    assert sum(lasts for _, lasts in kept) == pytest.approx(1000 * sum(us for _, us in wanted), rel=1e-3)
