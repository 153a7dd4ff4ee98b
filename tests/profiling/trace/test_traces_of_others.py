"""Formats of other makers' tools: what stands in a file is what stands in the store, in made files and in real ones."""

import csv
import gzip
import json
import marshal
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from profiling.trace.category import Category
from profiling.trace.formats.protobuf import Damaged, fields
from profiling.trace.importing import import_trace, reader_of
from profiling.trace.limits import Unreadable
from profiling.trace.store import Store
from tests.contracts.trace_files import T, database
from tests.contracts.trace_files_of_others import (
    BOOT,
    chakra_et,
    otlp,
    pftrace,
    rocpd_tables,
    rocprof_process,
    rpd_tables,
    varint,
    wire,
    xspace,
)

DATA = Path(__file__).resolve().parents[2] / "data" / "formats"
Row = tuple[str, Category, int, int]


def stored(path: Path) -> dict[str, list[Row]]:
    """Import a file; return (name, kind, begin, length) of the events of each lane, in the order of their begins."""
    target = path.parent / "store"
    import_trace(path, target)
    with Store(target) as store:
        titles = [
            f"device {lane.device} stream {lane.stream}" if lane.kind == "stream" else lane.thread or lane.title
            for lane in store.lanes
        ]
        events = store.events(columns=("lane", "name", "cat", "ts", "dur"))
        rows: dict[str, list[Row]] = {title: [] for title in titles}
        for lane, name, kind, begin, lasts in zip(*(events[key].tolist() for key in events), strict=True):
            rows[titles[lane]].append((store.names[name], Category(kind), begin, lasts))
    target.unlink()
    return {title: sorted(lane, key=lambda row: (row[2], -row[3])) for title, lane in rows.items()}


def links(path: Path) -> list[tuple[str, str]]:
    """Return (launch, what it launched) by name, in order."""
    target = path.parent / "store"
    import_trace(path, target)
    with Store(target) as store:
        events = store.events(columns=("name", "cat", "link", "ts"))
        called = {
            link: store.names[name]
            for name, kind, link in zip(*(events[key].tolist() for key in ("name", "cat", "link")), strict=True)
            if link and kind in (Category.RUNTIME, Category.SYNC)
        }
        found = [
            (ts, called[link], store.names[name])
            for name, kind, link, ts in zip(*(events[key].tolist() for key in events), strict=True)
            if link in called and kind not in (Category.RUNTIME, Category.SYNC)
        ]
    target.unlink()
    return [(call, name) for _, call, name in sorted(found)]


# -- AMD --


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


# -- XLA --


def test_xla_s_json_for_chrome_is_read_as_its_planes_are(tmp_path: Path) -> None:
    path, planes = tmp_path / "host.trace.json.gz", tmp_path / "host.xplane.pb"
    planes.write_bytes(xspace())

    def named(pid: int, tid: int | None, name: str) -> dict[str, Any]:
        of = {} if tid is None else {"tid": tid}
        return {
            "ph": "M",
            "pid": pid,
            **of,
            "name": "process_name" if tid is None else "thread_name",
            "args": {"name": name},
        }

    def event(pid: int, tid: int, at: float, lasts: float, name: str, **args: str) -> dict[str, Any]:
        return {"ph": "X", "pid": pid, "tid": tid, "ts": at, "dur": lasts, "name": name, "args": args}

    events = [named(702, None, "/device:GPU:1"), named(702, 13, "Stream #13(Compute)"), named(702, 1, "Steps")]
    events += [named(701, None, "/host:CPU"), named(701, 9, "python3"), event(702, 1, 0.5, 5, "7")]
    for i in range(5):
        args = {"correlation_id": str(i + 1)}
        events.append(event(702, 13, 0.5 + i, 0.7, "MemcpyD2H" if i == 4 else "loop_add_fusion", **args))
        events.append(event(701, 9, i, 0.1, "cuLaunchKernel", **args))
    events.append(event(701, 9, 0, 9, "$train.py:7 step"))
    text = json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]})
    path.write_bytes(gzip.compress(text.encode()))

    rows, of_planes = stored(path), stored(planes)

    def moved(lane: list[Row]) -> list[Row]:
        return [(name, kind, begin + T - 500, lasts) for name, kind, begin, lasts in lane]

    assert moved(rows["device 1 stream 13"]) == of_planes["device 1 stream 13"]
    assert moved(rows["python3"]) == of_planes["python3"]
    assert rows["Steps"] == [("step 7", Category.STEP, 500, 5000)]
    assert links(path) == links(planes)
    target = tmp_path / "kept"
    import_trace(path, target)
    with Store(target) as store:
        assert not [note.text for note in store.notes if note.severity == "warning"]


def test_a_profile_of_xla_has_streams_threads_and_launches(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(xspace())

    rows = stored(path)

    stream = rows["device 1 stream 13"]
    assert [row[:2] for row in stream] == [("loop_add_fusion", Category.KERNEL)] * 4 + [("MemcpyD2H", Category.COPY)]
    assert [row[2:] for row in stream] == [(T + 1000 * i, 700) for i in range(5)]
    assert rows["python3"][0] == ("$train.py:7 step", Category.PYTHON, T - 500, 9000)
    assert [name for _, name in links(path)] == ["loop_add_fusion"] * 4 + ["MemcpyD2H"]


def test_on_amd_s_devices_a_launch_is_called_as_its_kernel_and_copies_say_from_where_to_where(tmp_path: Path) -> None:
    path = tmp_path / "amd.xplane.pb"
    names = ("Cijk_gemm", "CopyDeviceToDevice", "hipMemcpyDtoDAsync", "a range")
    described = b"".join(_name(i + 1, name) for i, name in enumerate(names)) + wire(
        5, wire(1, 1) + wire(2, wire(1, 1) + wire(2, "correlation_id"))
    )

    def line(key: int, name: str, events: list[tuple[int, int]]) -> bytes:
        """Give each event by its name and correlation."""
        told = [
            wire(
                4,
                wire(1, of)
                + wire(2, i * 1_000_000)
                + wire(3, 700_000)
                + (wire(4, wire(1, 1) + wire(4, link)) if link else b""),
            )
            for i, (of, link) in enumerate(events)
        ]
        return wire(3, wire(1, key) + wire(2, name) + wire(3, T) + b"".join(told))

    device = wire(2, "/device:GPU:0") + line(3, "Stream #3", [(1, 7), (2, 8)]) + described
    host = wire(2, "/host:CPU") + line(9, "py_xla_execute", [(1, 7), (3, 8), (4, 0)]) + described
    path.write_bytes(wire(1, device) + wire(1, host))

    rows = stored(path)

    assert [row[1] for row in rows["device 0 stream 3"]] == [Category.KERNEL, Category.COPY]
    assert [row[1] for row in rows["py_xla_execute"]] == [Category.RUNTIME, Category.RUNTIME, Category.RANGE]
    assert links(path) == [("Cijk_gemm", "Cijk_gemm"), ("hipMemcpyDtoDAsync", "CopyDeviceToDevice")]


def test_copies_that_a_tpu_does_beside_its_work_are_copies(tmp_path: Path) -> None:
    path = tmp_path / "tpu.xplane.pb"
    events = [wire(4, wire(1, i + 1) + wire(2, i * 1_000_000) + wire(3, 700_000)) for i in range(4)]
    line = wire(1, 4) + wire(2, "Async XLA Ops") + wire(3, T) + b"".join(events)
    names = ("async-copy", "async-copy-start.3", "copy-done.12", "copy_fusion")
    plane = wire(2, "/device:TPU:0") + wire(3, line) + b"".join(_name(i + 1, name) for i, name in enumerate(names))
    path.write_bytes(wire(1, plane))

    (rows,) = stored(path).values()

    assert [row[1] for row in rows] == [Category.COPY] * 3 + [Category.KERNEL]


def _name(key: int, name: str) -> bytes:
    return wire(4, wire(1, key) + wire(2, wire(1, key) + wire(2, name)))


def test_a_profile_of_xla_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path, target = tmp_path / "cut.xplane.pb", tmp_path / "kept"
    whole = xspace()
    path.write_bytes(whole[: whole.index(b"cuLaunchKernel")])  # names stand at the end of a plane

    rows = stored(path)
    import_trace(path, target)

    assert [row[0] for row in rows["device 1 stream 13"]] == ["loop_add_fusion"] * 4 + ["MemcpyD2H"]
    assert [row[:2] for row in rows["python3"][1:]] == [("event 2", Category.OTHER)] * 5
    with Store(target) as store:
        assert ["cut off" in note.text for note in store.notes] == [True, False]
        assert "6 events have no name" in store.notes[1].text
    path.write_bytes(whole[: whole.index(b"Stream")])
    with pytest.raises(Unreadable, match=r"holds no events\. The file is cut off"):
        import_trace(path, tmp_path / "none")


def test_hosts_of_one_profile_have_processes_devices_and_links_of_their_own(tmp_path: Path) -> None:
    path, target = tmp_path / "hosts.xplane.pb", tmp_path / "kept"
    path.write_bytes(xspace() * 2 + wire(4, "node-a") + wire(4, "node-b"))

    rows = stored(path)
    import_trace(path, target)

    kernels = [("loop_add_fusion", Category.KERNEL, T + 1000 * i, 700) for i in range(4)]
    assert rows["device 1 stream 13"][:4] == rows["device 3 stream 13"][:4] == kernels
    assert len(links(path)) == 10
    with Store(target) as store:
        assert [lane.process for lane in store.lanes] == ["node-a", "node-a host:CPU", "node-b", "node-b host:CPU"]
        assert len(set(store.events(columns=("link",))["link"].tolist()) - {0}) == 10  # none is shared by two hosts


def test_a_real_profile_of_jax_links_each_kernel_with_its_launch(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb.gz"
    path.write_bytes((DATA / "xplane_gpu_te_fused_attn.xplane.pb.gz").read_bytes())

    rows = stored(path)

    assert len(rows["device 0 stream 2"]) == 150
    assert len(links(path)) == 150


def test_track_events_of_perfetto_nest_and_keep_the_time_of_day(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    path.write_bytes(pftrace())
    target = tmp_path / "kept"

    rows = stored(path)["main"]
    import_trace(path, target)

    assert rows[:2] == [("step", Category.RANGE, T, 900), ("forward", Category.RANGE, T + 100, 400)]
    assert rows[-1] == ("saved", Category.RANGE, T + 5000, 0)
    with Store(target) as store:
        (series,) = store.series
        assert (series.name, series.unit) == ("tokens", "tokens/s")
        assert [array.tolist() for array in store.samples(series.id)] == [
            [T + 1000 * i + 950 for i in range(4)],
            [100, 101, 102, 103],
        ]


def test_a_sequence_s_own_clock_counts_from_packet_to_packet_in_its_unit(tmp_path: Path) -> None:
    def clock(key: int, at: int, *more: bytes) -> bytes:
        return wire(1, wire(1, key) + wire(2, at) + b"".join(more))

    clocks = clock(1, T) + clock(6, BOOT) + clock(64, 0, wire(3, 1), wire(4, 1000))
    track = wire(60, wire(1, 5) + wire(2, "calls"))
    packets = [wire(13, 1) + wire(6, clocks) + wire(59, wire(58, 64)), track]
    packets += [wire(8, 3) + wire(11, wire(9, 3) + wire(23, f"call {i}") + wire(11, 5)) for i in range(3)]
    path = tmp_path / "own.pftrace"
    path.write_bytes(b"".join(wire(1, wire(10, 1) + packet) for packet in packets))

    assert [row[2] for row in stored(path)["calls"]] == [T + 3000, T + 6000, T + 9000]


def test_a_real_trace_of_nested_tracks_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "nested.pftrace.gz"
    path.write_bytes((DATA / "perfetto_track_event_nested.pftrace.gz").read_bytes())

    rows = stored(path)

    assert len(rows) == sum(map(len, rows.values())) == 1364
    assert "L1 Track 01 · L2 Track 02" in rows


def test_tracks_of_one_name_share_a_lane_and_so_do_those_beyond_all_bounds(tmp_path: Path) -> None:
    packets = [wire(60, wire(1, 1) + wire(3, wire(1, 71) + wire(6, "trainer")))]
    for i in range(6000):  # half of them one request each, as asynchronous tracks are
        name = "request" if i % 2 else f"worker {i}"
        packets += [
            wire(60, wire(1, i + 9) + wire(5, 1) + wire(2, name)),
            wire(8, BOOT + i) + wire(11, wire(9, 1) + wire(23, f"call {i}") + wire(11, i + 9)),
            wire(8, BOOT + i + 5) + wire(11, wire(9, 2) + wire(11, i + 9)),
        ]
    path, target = tmp_path / "tracks.pftrace", tmp_path / "kept"
    path.write_bytes(b"".join(wire(1, wire(10, 1) + packet) for packet in packets))

    rows = stored(path)
    import_trace(path, target)

    assert (len(rows["request"]), len(rows["other tracks"]), len(rows)) == (3000, 1001, 2001)
    with Store(target) as store:
        assert "1,001 tracks beyond the first 2,000 share one lane for each process." in [n.text for n in store.notes]


def test_a_trace_of_the_system_alone_says_where_it_can_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "phone.perfetto-trace"
    path.write_bytes(b"".join(wire(1, wire(8, BOOT + i) + wire(10, 1) + wire(1, b"")) for i in range(9)))

    with pytest.raises(Unreadable, match=r"ftrace.*ui\.perfetto\.dev"):
        import_trace(path, tmp_path / "store")


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x80", b"\x0f", b"\x00\x01", b"\xff" * 11, b"\x0d\x01"])
def test_what_is_no_message_is_told(data: bytes) -> None:
    with pytest.raises(Damaged):
        list(fields(data))


def test_numbers_of_any_size_are_read() -> None:
    for value in (0, 1, 127, 128, 300, 2**32, 2**64 - 1):
        assert list(fields(wire(1, 0) + varint(3 << 3) + varint(value)))[-1] == (3, 0, value)


# -- stacks, requests, execution traces --


def test_sampled_stacks_of_speedscope_last_as_long_as_they_were_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.speedscope.json"
    path.write_bytes((DATA / "speedscope_0_6_0_two_sampled.speedscope.json").read_bytes())

    rows = stored(path)["one"]

    second = 10**9
    begin = rows[0][2]
    assert [(name, at - begin, lasts) for name, _, at, lasts in rows] == [
        ("a", 0, 14 * second),
        ("b", 0, 14 * second),
        ("c", 0, 2 * second),
        ("d", 2 * second, 4 * second),
        ("c", 6 * second, 3 * second),
    ]


def test_folded_stacks_of_one_kind_lie_together(tmp_path: Path) -> None:
    path = tmp_path / "a.folded"
    path.write_bytes((DATA / "folded_with_invalids.txt").read_bytes())

    rows = stored(path)["all stacks"]

    begin, ms = rows[0][2], 10**6
    assert [(name, at - begin, lasts) for name, _, at, lasts in rows] == [
        ("a", 0, 14 * ms),
        ("b", 0, 14 * ms),
        ("c", 5 * ms, 5 * ms),
        ("d", 10 * ms, 4 * ms),
    ]


def test_requests_of_vllm_have_their_parts_and_share_lanes(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(json.dumps(document) for document in (otlp(), otlp(0))))

    rows = stored(path)

    assert [len(lane) for lane in rows.values()] == [12, 4]
    ms = 10**6
    assert [(name, at - T, lasts) for name, _, at, lasts in rows["requests, row 1"][:4]] == [
        ("llm_request", 0, 900 * ms),
        ("queue", 0, 100 * ms),
        ("prefill", 100 * ms, 200 * ms),
        ("decode", 300 * ms, 600 * ms),
    ]


def test_spans_in_snake_case_and_numbers_as_texts_are_the_same_spans(tmp_path: Path) -> None:
    attributes = [
        {"key": "gen_ai.latency.time_in_queue", "value": {"int_value": "1"}},
        {"key": "gen_ai.latency.time_in_model_prefill", "value": {"double_value": 0.5}},
    ]
    span = {"trace_id": "a", "name": "llm_request", "start_time_unix_nano": T, "end_time_unix_nano": T + 2 * 10**9}
    named = {"attributes": [{"key": "service.name", "value": {"string_value": "sglang"}}]}
    scopes = [{"spans": [span | {"attributes": attributes}]}]
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + orjson.dumps({"resource_spans": [{"resource": named, "scope_spans": scopes}]}))

    (rows,) = stored(path).values()

    begins = {name: at - T for name, _, at, _ in rows}
    assert begins == {"llm_request": 0, "queue": 0, "prefill": 10**9, "decode": 1_500_000_000}


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


def test_an_execution_trace_may_begin_with_its_version(tmp_path: Path) -> None:
    path = tmp_path / "a.et"
    nodes = [wire(1, i) + wire(2, "gemm") + wire(3, 4) + wire(6, 100 * (i - 1)) + wire(7, 10) for i in (1, 2)]
    path.write_bytes(b"".join(varint(len(one)) + one for one in (wire(1, "0.0.4"), *nodes)))

    assert [row[2:] for row in stored(path)["device 0 stream 0"]] == [(0, 10_000), (100_000, 10_000)]


def test_nodes_of_an_execution_trace_begin_when_what_they_wait_for_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "chakra.0.et"
    path.write_bytes(chakra_et())

    rows = stored(path)

    gemms = rows["device 0 stream 0"]
    begin = rows["operators"][0][2]
    assert [(at - begin, lasts) for _, _, at, lasts in gemms] == [(5000 + 10_000 * i, 10_000) for i in range(8)]
    assert rows["device 0 stream 1"] == [("all_reduce", Category.COMMUNICATION, begin + 35_000, 30_000)]


def test_an_execution_trace_without_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"workload_graph": [{"Id": 1, "Name": "aten::mm"}]}))

    with pytest.raises(Unreadable, match="holds no times"):
        import_trace(path, tmp_path / "store")


def test_a_report_of_nsight_compute_says_what_to_do_where_ncu_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    path = tmp_path / "kernels.ncu-rep"
    path.write_bytes(b"NVR\0\x02\0\0\0")

    with pytest.raises(Unreadable, match=r"ncu --import FILE\.ncu-rep --page raw --csv"):
        import_trace(path, tmp_path / "store")


# -- what is not read --


def test_a_database_of_nvprof_is_told_what_it_is(tmp_path: Path) -> None:
    path = database(tmp_path / "a.nvvp", {"StringTable(_id_, value)": [], "CUPTI_ACTIVITY_KIND_KERNEL(start, end)": []})

    with pytest.raises(Unreadable, match="nvprof"):
        reader_of(path)


def test_what_is_packed_and_empty_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b""))

    with pytest.raises(Unreadable, match="holds nothing or is damaged"):
        reader_of(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_text_of_utf_16_is_read_like_any_other(encoding: str, tmp_path: Path) -> None:
    text = (DATA / "rocprofv3_doc_kernel_trace.csv").read_text()
    bom = "\ufeff" if encoding == "utf-16-be" else ""
    plain, path, packed = (tmp_path / name for name in ("plain.csv", "kernels.csv", "kernels.csv.gz"))
    plain.write_text(text)
    path.write_bytes(f"{bom}{text}".encode(encoding))
    packed.write_bytes(gzip.compress(path.read_bytes()))

    assert stored(path) == stored(packed) == stored(plain)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ((DATA / "torch_et_simple_add.json").read_bytes(), "an execution trace of torch, which has no times"),
        ((DATA / "linux_perf_script.txt").read_bytes(), "the text of `perf script`"),
        ((DATA / "rocprofv3_doc_hip_api_stats.csv").read_bytes(), "statistics of rocprof"),
        (
            b'{"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": [{"attrs": [{"name": "op_schema"}]}]}',
            "of torch, which",
        ),
        (b'[{"traceId": "a1", "id": "b2", "timestamp": 5, "duration": 7}]', "spans of Zipkin"),
        (b'{"batches": [{"resource": {}, "scopeSpans": []}]}', "Tempo"),
        (b"\x0a\x40\x0a\x20\x0a\x1e\x0a\x0cservice.name" + bytes(40), "OTLP as protocol buffers"),
        (b'"Index","KernelName","gpu-id","BeginNs","EndNs","DurationNs"\n0,"a",1,5,7,2\n', "rocprof, the predecessor"),
        (b'Agent_Id;Kernel_Name;Start_Timestamp;End_Timestamp\n4;"a";5;7\n', "separated by semicolons"),
        (b'"ID";"Process ID";"Process Name"\n', "separated by semicolons"),
        (b"Processing [a.sqlite] with [cuda_gpu_kern_sum.py]\n\nTime (%),Total Time (ns),Instances\n", "`nsys stats`"),
        (b'{"id":38,"table":"StringIds","value":"compute_log_prob"}\n{"color":255}\n', "as lines of JSON"),
        (b"timestamp, name, utilization.gpu [%], memory.used [MiB]\n", "readings of nvidia-smi"),
        (b"main;step;matmul 0.125\nmain;step 2.5\n", "decimal counts"),
        (b'{"nodes": [{"id": 1, "callFrame": {"functionName": "(root)"}}], "samples": []}', "Chrome's or Node's tools"),
        (b'{"alloc_samples": 0, "args": [], "elapsed_time_sec": 1.5, "files": {}}', "Scalene"),
        (b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x12\x10" + bytes(16), "a profile of pprof"),
        (
            b"\x48\xd6\xdd\x05\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x50\xf3\x07" + bytes(16),
            "a profile of pprof",
        ),
        (b'{"label": "a", "duration": 49.4, "markers": [], "frames": []}', "Firefox"),
        (b'{"meta": {"interval": 1, "stackwalk": 1, "version": 27}, "libs": [], "threads": []}', "Firefox"),
        (b'{"version": 1, "recording": {"displayName": "a"}}', "Safari"),
        (b'{"version": 1.2, "mode": "cpu", "interval": 1000, "samples": 9, "missed_samples": 0}', "stackprof"),
        (b'{\n"program": "a", "arguments": ["a"], "rts_arguments": ["-pj"]}', "Haskell"),
        (b"Weight\tSelf Weight\t\tSymbol Names\n", "Instruments"),
        (b"# callgrind format\nevents: Instructions\n", "callgrind"),
        (b"@ inst_retired.any [35705 samples]\n\n20.86%  [7447]     a @ /boot/kernel/zfs.ko\n", "pmcstat"),
        (
            b"Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us)\n",
            "Ascend's profiler",
        ),
        (b"Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped\n", "a table of Ascend's profiler"),
        (
            b'{"(0, 1)": {"step": {"hcom_broadcast__501_0": {"0": {"Communication Time Info": {}}}}}}',
            "over collectives",
        ),
        (marshal.dumps({("a.py", 7, "step"): (1, 1, 0.5, 0.5, {})}), "cProfile"),
        (gzip.compress(gzip.compress(b"{}")), "packed twice by gzip"),
        (b"PERFILE2" + bytes(100), "a recording of Linux's perf"),
        (b'{"data": [{"traceID": "a", "spans": []}]}', "the page of Jaeger"),
        (b'{"resourceMetrics": []}', "metrics of OpenTelemetry"),
        (b"PK\x03\x04" + bytes(30) + b"archive/data.pkl", "a checkpoint of torch"),
        (b"PK\x03\x04" + bytes(60), "an archive"),
        (b"\x28\xb5\x2f\xfd" + bytes(60), "packed, and not by gzip"),
        (b"<!DOCTYPE html><html>", "a page"),
        (b'{"model": "x", "rows": [1]}', 'it looks like JSON with "model", "rows"'),
        (b"SQLite format 3\0" + bytes(200), "damaged database|an SQLite database"),
        (b"hello\n", "it looks like text"),
        (bytes(range(256)), "it looks like binary data"),
    ],
)
def test_a_file_that_is_not_read_is_told_what_it_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a file"
    path.write_bytes(content)

    with pytest.raises(Unreadable, match=said):
        reader_of(path)
