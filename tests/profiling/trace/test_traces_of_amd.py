"""Formats of AMD's tools: what stands in a file is what stands in the store, in made files and in real ones."""

import csv
import gzip
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from profiling.analysis.parts import is_part, whole_processes
from profiling.analysis.summary import summarise
from profiling.evidence import RecordedTrace, phase_spans
from profiling.trace import lanes
from profiling.trace.category import Category
from profiling.trace.importing import import_trace, reader_of
from profiling.trace.limits import Unreadable
from profiling.trace.store import Store
from tests.contracts.trace_files import database
from tests.contracts.trace_files_of_others import (
    BOOT,
    rocpd_tables,
    rocprof_process,
    rocprof_tables,
    rpd_tables,
    varint,
    wire,
)
from tests.profiling.trace.stored_rows import imported, links, stored

DATA = Path(__file__).resolve().parents[2] / "data" / "formats"


def rocpd(folder: Path) -> Path:
    return database(folder / "results.db", rocpd_tables())


def rocpd_4(folder: Path) -> Path:
    """The same by schema 4, where a row names its times and its track."""
    times: list[tuple[int, int]] = []
    tracks: list[tuple[Any, ...]] = []
    tables: dict[str, list[tuple[Any, ...]]] = {}
    for table, rows in rocpd_tables().items():
        if '"end"' not in table:
            tables[table] = rows
            continue
        name, _, columns = table.rstrip(")").partition("(")
        keys = [key.strip(' "') for key in columns.split(",")]
        of_track = ("pid", "tid", "agent_id", "queue_id", "stream_id")
        kept = [key for key in keys if key not in (*of_track, "start", "end")]
        moved: list[tuple[Any, ...]] = []
        for row in rows:
            about = dict(zip(keys, row, strict=True))
            tracks.append((len(tracks) + 1, *(about.get(key) for key in of_track)))
            times += [(len(times) + 1, about["start"]), (len(times) + 2, about["end"])]
            moved.append((len(tracks), len(times) - 1, len(times), *(about[key] for key in kept)))
        tables[f"{name}(track_id, start_id, end_id, {', '.join(kept)})"] = moved
    end = next(iter(tables)).partition("(")[0].removeprefix("rocpd_metadata")
    tables[f"rocpd_track{end}(id, pid, tid, agent_id, queue_id, stream_id)"] = tracks
    tables[f"rocpd_timestamp{end}(id, value)"] = list(times)
    return database(folder / "results.db", tables)


def rocprof_json(folder: Path) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [rocprof_process()]}))
    return path


@pytest.mark.parametrize("make", [rocpd, rocpd_4, rocprof_json])
def test_rocprof_s_kernels_copies_calls_and_marks(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)

    rows = stored(path)

    kernel = Category.KERNEL
    assert rows["device 1 stream 3"] == [("gemm(float*)", kernel, BOOT + 1000 * i + 200, 700) for i in range(1, 5)]
    assert rows["device 1 stream 0"] == [("copy host to device", Category.COPY, BOOT + 100, 200)]
    assert rows["thread 71"][0] == ("forward", Category.RANGE, BOOT, 6000)
    assert rows["thread 71"][1:] == [("hipLaunchKernel", Category.RUNTIME, BOOT + 1000 * i, 100) for i in range(1, 5)]
    assert links(path) == [("hipLaunchKernel", "gemm(float*)")] * 4


@pytest.mark.parametrize("make", [rocpd, rocpd_4, rocprof_json])
def test_a_worker_on_amd_knows_what_its_device_is_called(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """A difference between two models of GPU was not said: the names were there, but of no device."""
    _, store = imported(make(tmp_path), tmp_path)
    with store:
        (worker,) = summarise([RecordedTrace(store=store)], phase_spans(())).workers
    assert (worker.has_device, worker.device_name) == (True, "AMD Instinct MI300X")


def test_a_packed_database_is_unpacked_once_and_read_as_it_is(tmp_path: Path) -> None:
    path = rocpd(tmp_path)
    packed = tmp_path / "results.db.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    assert reader_of(packed) is None  # not before it is unpacked
    assert import_trace(packed, tmp_path / "one") == import_trace(path, tmp_path / "two")
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(Unreadable, match="cut off"):
        import_trace(packed, tmp_path / "three")
    assert {each.name for each in tmp_path.iterdir()} == {"results.db", "results.db.gz", "one", "two"}


def test_processes_of_one_file_do_not_share_correlations(tmp_path: Path) -> None:
    other: dict[str, Any] = rocprof_process()
    other["metadata"]["pid"] = 72
    other["buffer_records"]["hip_api"] = []
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [rocprof_process(), other]}))

    assert links(path) == [("hipLaunchKernel", "gemm(float*)")] * 4


def test_recordings_that_were_merged_into_one_database_are_all_read(tmp_path: Path) -> None:
    path = database(tmp_path / "both.db", rocpd_tables("_a1") | rocpd_tables("_b2"))

    assert len(stored(path)["device 1 stream 3"]) == 8


def test_json_of_rocprof_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = rocprof_json(tmp_path)
    content = path.read_bytes()
    times = [match.start() for match in re.finditer(b'"dispatch_info"', content)]
    path.write_bytes(content[: times[2] + 40])

    assert len(stored(path)["device 1 stream 3"]) == 2


@pytest.mark.parametrize("what", ["kernel_trace", "hip_trace", "memory_copy_trace", "marker_api_trace"])
def test_real_tables_of_rocprof_keep_each_row(what: str, tmp_path: Path) -> None:
    path = tmp_path / f"{what}.csv"
    path.write_bytes((DATA / f"rocprofv3_doc_{what}.csv").read_bytes())
    with path.open() as file:
        wanted = sorted((int(r["Start_Timestamp"]), int(r["End_Timestamp"])) for r in csv.DictReader(file))

    found = sorted((begin, begin + lasts) for rows in stored(path).values() for _, _, begin, lasts in rows)

    assert found == wanted


def lent(stack: ExitStack, folder: Path) -> list[RecordedTrace]:
    """Return the stores of a folder, opened."""
    paths = sorted(folder.glob("*.store"))
    return [RecordedTrace(store=stack.enter_context(Store(path))) for path in paths]


@pytest.mark.parametrize("prefix", ["77", "file-77", "my_run"])
def test_tables_of_one_process_are_one_worker_whose_calls_launch_its_kernels(tmp_path: Path, prefix: str) -> None:
    for path in [*rocprof_tables(tmp_path, prefix=prefix), *rocprof_tables(tmp_path, prefix="other")[:2]]:
        import_trace(path, path.with_suffix(".store"))
    with ExitStack() as stack:
        recorded = lent(stack, tmp_path)
        whole = stack.enter_context(whole_processes(recorded, folder=tmp_path))
        shapes = [[(lane.kind, lane.pid, lane.depths, lane.events) for lane in one.store.lanes] for one in whole]
        (first, _other) = summarise(whole, phase_spans([])).workers

    assert sorted(map(len, shapes)) == [2, 2]
    whole_process = {("thread", 77, 2, 6), ("stream", 77, 1, 5)}  # the range stands around the calls
    assert whole_process in [set(one) for one in shapes]
    assert first.launches is not None
    assert (first.launches.linked, first.launches.delay_p50) == (first.launches.kernels, 499_000)
    assert not list(tmp_path.glob("parts-*"))


def test_tables_of_too_many_threads_together_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in rocprof_tables(tmp_path):
        import_trace(path, path.with_suffix(".store"))
    monkeypatch.setattr(lanes, "MOST_LANES", 1)
    with ExitStack() as stack:
        recorded = lent(stack, tmp_path)
        assert stack.enter_context(whole_processes(recorded, folder=tmp_path)) == recorded


def test_tables_of_counters_or_of_no_name_of_rocprof_are_whole_files(tmp_path: Path) -> None:
    (path, *_) = rocprof_tables(tmp_path)
    for name in ("counters.csv", "77_counter_collection.csv"):
        other = tmp_path / name
        other.write_bytes(path.read_bytes())
        import_trace(other, other.with_suffix(".store"))
        with Store(other.with_suffix(".store")) as store:
            assert not is_part(store)


def test_a_copy_of_no_stream_is_beside_none(tmp_path: Path) -> None:
    path = tmp_path / "copies.csv"
    path.write_text(
        '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Start_Timestamp","End_Timestamp"\n'
        '"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","Agent 0","Agent 4",10,20\n'
    )
    import_trace(path, tmp_path / "kept")
    with Store(tmp_path / "kept") as store:
        assert [(lane.device, lane.title) for lane in store.lanes] == [(4, "copies")]


def test_a_kernel_with_several_counters_is_one(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv"
    head, *rows = (DATA / "rocprofv3_doc_counter_collection.csv").read_text().splitlines()
    again = [row.replace('"SQ_WAVES"', '"GRBM_COUNT"') for row in rows]
    path.write_text("\n".join([head, *(row for pair in zip(rows, again, strict=True) for row in pair)]))

    assert sum(map(len, stored(path).values())) == len(rows)
    import_trace(path, tmp_path / "kept")
    with Store(tmp_path / "kept") as store:
        first = store.detail(0)
        assert first is not None
        assert (first.info["SQ_WAVES"], first.info["GRBM_COUNT"]) == (16384, 16384)
        assert not store.facts.has_clock  # what lies between kernels is the profiler's


def test_marks_of_a_moment_are_samples_of_their_thread(tmp_path: Path) -> None:
    end = "_a1"
    tables = rocpd_tables(end)
    events = next(name for name in tables if name.startswith("rocpd_event"))
    tables[events] += [(11, 5, 11, 0, 0, '{"message":"epoch 2"}'), (12, 4, 12, 0, 0, "{}")]
    tables[f"rocpd_track{end}(id, pid, tid)"] = [(6, 1, 1)]
    sample = f"rocpd_sample{end}(id, track_id, timestamp, event_id)"
    tables[sample] = [(1, 6, BOOT + 50, 11), (2, 6, BOOT + 60, 12)]  # the second is of a counter

    rows = stored(database(tmp_path / "results.db", tables))["thread 71"]

    assert [row for row in rows if row[3] == 0] == [("epoch 2", Category.RANGE, BOOT + 50, 0)]


def test_rocmprofiledata_s_operations_are_those_of_their_calls(tmp_path: Path) -> None:
    path = database(tmp_path / "trace.rpd", rpd_tables())

    rows = stored(path)

    assert rows["device 2 stream 0"] == [
        ("gemm(float*)", Category.KERNEL, BOOT + 400, 700),
        ("copy host to device", Category.COPY, BOOT + 1100, 700),
        ("gemm(float*)", Category.KERNEL, BOOT + 4000, 700),
        ("gemm(float*)", Category.KERNEL, BOOT + 5000, 700),
        ("FillBuffer", Category.MEMSET, BOOT + 6000, 700),
    ]
    assert [row[:2] for row in rows["thread 71"]] == [
        ("forward", Category.RANGE),
        ("aten::mm", Category.OPERATOR),
        ("hipLaunchKernel", Category.RUNTIME),
        ("hipMemcpyWithStream", Category.SYNC),
        ("hipGraphLaunch", Category.RUNTIME),
        ("ApiTable::writeRows", Category.OVERHEAD),
    ]
    graph = [("hipGraphLaunch", "gemm(float*)")] * 2
    first = [("hipLaunchKernel", "gemm(float*)"), ("hipMemcpyWithStream", "copy host to device")]
    assert links(path) == [*first, *graph]


def test_a_real_database_of_rocmprofiledata_is_read_whole(tmp_path: Path) -> None:
    path, target = tmp_path / "trace.rpd.gz", tmp_path / "kept"
    path.write_bytes((DATA / "rocmprofiledata_matmul.rpd.gz").read_bytes())

    rows = stored(path)
    import_trace(path, target)

    device = rows["device 2 stream 0"]
    lengths = {kind: sum(row[3] for row in device if row[1] == kind) for kind in {row[1] for row in device}}
    assert lengths == {Category.KERNEL: 26_399_795, Category.COPY: 334_758 + 157_178_063, Category.MEMSET: 5_440}
    assert len(device) == len(links(path)) == 85
    with Store(target) as store:
        (series,) = store.series
        assert (series.name, series.unit, series.device) == ("sclk", "MHz", 0)
        assert store.samples(series.id)[1].tolist()[:2] == [800.0, 1700.0]


def test_tracks_of_rocprof_in_perfetto_are_devices_that_launches_lead_to(tmp_path: Path) -> None:
    def flow(key: int) -> bytes:
        return varint(47 << 3 | 1) + key.to_bytes(8, "little")

    tracks = [(5, "COMPUTE GPU [3] QUEUE [1] GPU"), (6, "COPY to AGENT [2] STREAM [4] (GPU)"), (7, "THREAD 1 (90)")]
    packets = [wire(60, wire(1, key) + wire(2, name)) for key, name in tracks]
    for at, category, name, track, lasts in [
        (0, "hip_api", "hipLaunchKernel", 7, 100),
        (200, "kernel_dispatch", "gemm", 5, 300),
        (600, "memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", 6, 50),
        (700, "marker_api", "forward", 7, 50),
    ]:
        begin = wire(9, 1) + wire(23, name) + wire(22, category) + wire(11, track) + flow(2**63 + 8 + (at > 500))
        packets += [
            wire(8, BOOT + at) + wire(11, begin),
            wire(8, BOOT + at + lasts) + wire(11, wire(9, 2) + wire(11, track)),
        ]
    path = tmp_path / "rocprof.pftrace"
    path.write_bytes(b"".join(wire(1, wire(10, 1) + packet) for packet in packets))

    rows = stored(path)

    assert rows["device 3 stream 1"] == [("gemm", Category.KERNEL, BOOT + 200, 300)]
    assert [row[1] for row in rows["device 2 stream 4"]] == [Category.COPY]
    assert [row[1] for row in rows["THREAD 1 (90)"]] == [Category.RUNTIME, Category.RANGE]
    assert links(path) == [("hipLaunchKernel", "gemm")]
