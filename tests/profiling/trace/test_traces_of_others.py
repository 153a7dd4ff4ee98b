"""Formats of other makers' tools: what stands in a file is what stands in the store, in made files and in real ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from profiling.trace.category import Category
from profiling.trace.formats.protobuf import Damaged, fields
from profiling.trace.importing import import_trace
from profiling.trace.limits import Unreadable
from profiling.trace.store import Store
from tests.contracts.trace_files import T
from tests.contracts.trace_files_of_others import (
    BOOT,
    chakra_et,
    otlp,
    pftrace,
    varint,
    wire,
    xspace,
)
from tests.profiling.trace.stored_rows import Row, imported, links, stored

DATA = Path(__file__).resolve().parents[2] / "data" / "formats"


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


@pytest.mark.parametrize("form", ["planes", "JSON"])
@pytest.mark.parametrize("tells_device", [False, True])
def test_a_host_s_numbered_ranges_are_steps_and_a_cpu_runs_operators_itself(
    form: str, tells_device: bool, tmp_path: Path
) -> None:
    told: list[tuple[str, dict[str, int | str]]] = [
        ("train", {"step_num": 3}),
        ("dot.1", {"hlo_op": "dot.1"}),
        ("measure", {"step_num": 3}),
        ("all-reduce.2", {"hlo_op": "all-reduce.2"}),
        ("train", {"step_num": 4}),
        ("train", {}),
    ]
    if form == "planes":
        keys = ("step_num", "hlo_op")
        events = b"".join(
            wire(4, wire(1, i + 1) + wire(2, i * 1_000_000) + wire(3, 700_000) + _statistics(keys, args))
            for i, (_, args) in enumerate(told)
        )
        host = wire(2, "/host:CPU") + wire(3, wire(1, 9) + wire(2, "python3") + wire(3, T) + events)
        host += b"".join(_name(i + 1, name) for i, (name, _) in enumerate(told))
        host += b"".join(wire(5, wire(1, i + 1) + wire(2, wire(1, i + 1) + wire(2, key))) for i, key in enumerate(keys))
        steps = wire(3, wire(1, 1) + wire(2, "Steps") + wire(3, T) + wire(4, wire(1, 1) + wire(3, 900_000)))
        path = tmp_path / "host.xplane.pb"
        device = wire(1, wire(2, "/device:TPU:0") + steps + _name(1, "7")) if tells_device else b""
        path.write_bytes(wire(1, host) + device)
    else:
        rows: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}},
            {"ph": "M", "pid": 1, "tid": 9, "name": "thread_name", "args": {"name": "python3"}},
        ]
        if tells_device:
            rows += [
                {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/device:TPU:0"}},
                {"ph": "M", "pid": 2, "tid": 1, "name": "thread_name", "args": {"name": "Steps"}},
                {"ph": "X", "pid": 2, "tid": 1, "ts": 0, "dur": 1, "name": "7", "args": {}},
            ]
        for i, (name, args) in enumerate(told):
            texts = {key: str(value) for key, value in args.items()}
            rows.append({"ph": "X", "pid": 1, "tid": 9, "ts": i, "dur": 0.7, "name": name, "args": texts})
        path = tmp_path / "host.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": rows}).encode()))

    of_host = [row[:2] for row in stored(path)["python3"]]

    first, last = ("train", "train") if tells_device else ("train 3", "train 4")
    is_step = Category.RANGE if tells_device else Category.STEP
    assert of_host == [
        (first, is_step),
        ("dot.1", Category.OPERATOR),
        ("measure", Category.RANGE),
        ("all-reduce.2", Category.COMMUNICATION),
        (last, is_step),
        ("train", Category.RANGE),
    ]


def _statistics(keys: tuple[str, ...], args: dict[str, int | str]) -> bytes:
    """Return statistics of an event, by the numbers of their names."""
    return b"".join(
        wire(4, wire(1, keys.index(key) + 1) + (wire(4, value) if isinstance(value, int) else wire(5, value)))
        for key, value in args.items()
    )


def test_devices_of_xla_are_called_by_their_model_or_by_what_they_have(tmp_path: Path) -> None:
    path = tmp_path / "amd.xplane.pb"
    path.write_bytes(gzip.decompress((DATA / "xplane_gpu_te_fused_attn.xplane.pb.gz").read_bytes()))
    _, store = imported(path, tmp_path)
    with store:
        assert store.meta["devices"] == [
            {"id": 0, "name": "AMD GPU of 256 units and 288 GiB", "totalGlobalMem": 309_220_868_096, "computeMajor": 9}
        ]

    line = wire(3, wire(1, 4) + wire(2, "XLA Ops") + wire(3, T) + wire(4, wire(1, 1) + wire(2, 5) + wire(3, 700_000)))
    model = wire(5, wire(1, 2) + wire(2, wire(1, 2) + wire(2, "device_type_string")))
    plane = wire(2, "/device:TPU:1") + line + _name(1, "fusion") + model + wire(6, wire(1, 2) + wire(5, "TPU v6 Lite"))
    path.write_bytes(wire(1, plane))
    _, store = imported(path, tmp_path)
    with store:
        assert store.meta["devices"] == [{"id": 1, "name": "TPU v6 Lite"}]


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


def test_counts_of_austin_are_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "a.austin"
    path.write_text(
        "# austin: 3.4.0\n# interval: 100\n# mode: wall\nP1;T1;a.py:main:1 300\nP1;T1;a.py:main:1;b:f:2 50\n"
    )
    (rows,) = stored(path).values()
    assert [(name, lasts) for name, _, _, lasts in rows if name[1] != "1"] == [
        ("a.py:main:1", 350_000),
        ("b:f:2", 50_000),
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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_text_of_utf_16_is_read_like_any_other(encoding: str, tmp_path: Path) -> None:
    text = (DATA / "rocprofv3_doc_kernel_trace.csv").read_text()
    bom = "\ufeff" if encoding == "utf-16-be" else ""
    plain, path, packed = (tmp_path / name for name in ("plain.csv", "kernels.csv", "kernels.csv.gz"))
    plain.write_text(text)
    path.write_bytes(f"{bom}{text}".encode(encoding))
    packed.write_bytes(gzip.compress(path.read_bytes()))

    assert stored(path) == stored(packed) == stored(plain)
