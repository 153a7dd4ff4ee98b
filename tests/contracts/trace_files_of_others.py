"""Small whole files of formats of other makers: AMD, XLA, Perfetto, OpenTelemetry, profilers of stacks."""

import base64
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.contracts.trace_files import T, database, ncu_table

BOOT = 63_857_982_592_000
"""A time of a machine's own clock [ns]."""


# -- AMD --


def _rocprof_csv(folder: Path) -> Path:
    path = folder / "31_kernel_trace.csv"
    head = ("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name")
    head += ("Correlation_Id", "Start_Timestamp", "End_Timestamp", "Workgroup_Size_X", "Grid_Size_X")
    with path.open("w", newline="") as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        table.writerow(head)
        for i in range(8):
            row = ("KERNEL_DISPATCH", "Agent 4", 1, 2, 71, i, 9, "gemm", i + 1, BOOT + 100 * i, BOOT + 100 * i + 90)
            table.writerow((*row, 64, 1024))
    return path


def rocprof_process() -> dict[str, Any]:
    """Return a process of rocprofv3's JSON: four calls, the kernels that they launched, a copy and a mark."""
    calls = [
        {"kind": 1, "operation": 1, "thread_id": 71, "correlation_id": {"internal": i},
         "start_timestamp": BOOT + 1000 * i, "end_timestamp": BOOT + 1000 * i + 100}
        for i in range(1, 5)
    ]  # fmt: skip
    kernels = [
        {"kind": 2, "operation": 0, "correlation_id": {"internal": i}, "stream_id": {"handle": 3},
         "start_timestamp": BOOT + 1000 * i + 200, "end_timestamp": BOOT + 1000 * i + 900,
         "dispatch_info": {"agent_id": {"handle": 12}, "queue_id": {"handle": 1}, "kernel_id": 5,
                           "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 640, "y": 1, "z": 1}}}
        for i in range(1, 5)
    ]  # fmt: skip
    copy = {"kind": 3, "operation": 1, "correlation_id": {"internal": 9}, "bytes": 4096, "stream_id": {"handle": 0},
            "start_timestamp": BOOT + 100, "end_timestamp": BOOT + 300,
            "src_agent_id": {"handle": 11}, "dst_agent_id": {"handle": 12}}  # fmt: skip
    mark = {"kind": 4, "operation": 0, "thread_id": 71, "correlation_id": {"internal": 10},
            "start_timestamp": BOOT, "end_timestamp": BOOT + 6000}  # fmt: skip
    kinds = [("NONE", []), ("HIP_RUNTIME_API", ["hipInit", "hipLaunchKernel"]), ("KERNEL_DISPATCH", [])]
    kinds += [("MEMORY_COPY", ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]), ("MARKER_CORE_API", ["roctxRangePush"])]
    return {
        "metadata": {"pid": 71, "command": ["/usr/bin/python3", "train.py"]},
        "agents": [
            {"id": {"handle": 11}, "type": 1, "logical_node_type_id": 0, "product_name": "a CPU"},
            {"id": {"handle": 12}, "type": 2, "logical_node_type_id": 1, "product_name": "AMD Instinct MI300X"},
        ],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": operations} for kind, operations in kinds],
            "marker_api": [{"key": 10, "value": "forward"}],
        },
        "kernel_symbols": [{"kernel_id": 5, "kernel_name": "gemm.kd", "formatted_kernel_name": "gemm(float*)"}],
        "buffer_records": {"hip_api": calls, "kernel_dispatch": kernels, "memory_copy": [copy], "marker_api": [mark]},
    }


def _rocprof_json(folder: Path) -> Path:
    path = folder / "71_results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [rocprof_process()]}))
    return path


def rocpd_tables(end: str = "_0000ddb5_8903_7903_b269_cd8d3745bb8a") -> dict[str, list[tuple[Any, ...]]]:
    """Return the same process as tables of rocpd, after the schema of ROCm 7."""
    kernels = [(i, BOOT + 1000 * i + 200, BOOT + 1000 * i + 900, 1, 2, 7, 3, 5, i) for i in range(1, 5)]
    calls = [(i, BOOT + 1000 * i, BOOT + 1000 * i + 100, 1, 1, 1, i) for i in range(1, 5)]
    sizes = (640, 1, 1, 64, 1, 1)
    return {
        f"rocpd_metadata{end}(id, tag, value)": [(1, "schema_version", "3")],
        f"rocpd_string{end}(id, guid, string)": [
            (1, "", "hipLaunchKernel"), (2, "", "MEMORY_COPY_HOST_TO_DEVICE"), (3, "", "roctxThreadRangeA"),
            (4, "", "HIP_RUNTIME_API"), (5, "", "MARKER_CORE_API"),
        ],
        f"rocpd_info_process{end}(id, pid, command)": [(1, 71, "/usr/bin/python3 train.py")],
        f"rocpd_info_thread{end}(id, tid)": [(1, 71)],
        f"rocpd_info_agent{end}(id, type, type_index, product_name)": [
            (1, "CPU", 0, "a CPU"), (2, "GPU", 1, "AMD Instinct MI300X"),
        ],
        f"rocpd_info_kernel_symbol{end}(id, kernel_name, display_name)": [(5, "gemm.kd", "gemm(float*)")],
        f"rocpd_event{end}(id, category_id, stack_id, parent_stack_id, correlation_id, extdata)": [
            *((i, 4, i, 0, 0, "{}") for i in range(1, 5)), (9, 4, 9, 0, 0, "{}"),
            (10, 5, 10, 0, 0, '{"message":"forward"}'),
        ],
        f"rocpd_kernel_dispatch{end}(id, start, \"end\", pid, agent_id, queue_id, stream_id, kernel_id, event_id, "
        "grid_size_x, grid_size_y, grid_size_z, workgroup_size_x, workgroup_size_y, workgroup_size_z)": [
            (*row, *sizes) for row in kernels
        ],
        f'rocpd_memory_copy{end}(id, start, "end", pid, src_agent_id, dst_agent_id, stream_id, size, name_id, '
        "event_id)": [(1, BOOT + 100, BOOT + 300, 1, 1, 2, 0, 4096, 2, 9)],
        f'rocpd_region{end}(id, start, "end", pid, tid, name_id, event_id)': [
            *calls, (9, BOOT, BOOT + 6000, 1, 1, 3, 10),
        ],
    }  # fmt: skip


def rocprof_tables(folder: Path, *, prefix: str = "77") -> list[Path]:
    """Return tables of one process: five launches, a ms apart, of kernels that begin 0.5 ms later, and a range."""
    calls = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp"
    kernels = "Agent_Id,Stream_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp"
    ms = 1_000_000
    tables = {
        "hip_api": [calls, *(f"HIP_API,hipLaunchKernel,77,7,{i},{i * ms},{i * ms + 1000}" for i in range(1, 6))],
        "kernel": [kernels, *(f"Agent 4,1,gemm,{i},{i * ms + ms // 2},{i * ms + 900_000}" for i in range(1, 6))],
        "marker_api": [calls, f"MARKER_CORE_RANGE_API,forward,77,7,9,{ms - 5},{6 * ms}"],
    }
    for what, lines in tables.items():
        (folder / f"{prefix}_{what}_trace.csv").write_text("\n".join(lines) + "\n")
    return [folder / f"{prefix}_{what}_trace.csv" for what in tables]


def rpd_tables() -> dict[str, list[tuple[Any, ...]]]:
    """Return a process as tables of rocmProfileData, after its schema 3: a launch, a graph's launch, a copy, ranges."""
    texts = ("", "hipLaunchKernel", "hipGraphLaunch", "hipMemcpyWithStream", "UserMarker", "KernelExecution", "Task")
    texts += ("CopyHostToDevice", "gemm(float*)", "ApiTable::writeRows", "Marker", "FillBuffer")
    names = {text: i + 1 for i, text in enumerate(texts)}
    arguments = ("", "forward", "aten::mm, seq = 7, sizes = [[2, 3], [3, 5]]")

    def call(key: int, name: str, begin: int, lasts: int, argument: int = 1) -> tuple[Any, ...]:
        return ((1 << 32) + key, 71, 71, BOOT + begin, BOOT + begin + lasts, names[name], argument)

    def operation(key: int, kind: str, begin: int, text: str = "") -> tuple[Any, ...]:
        return ((1 << 32) + key, 2, 0, BOOT + begin, BOOT + begin + 700, names[text], names[kind])

    return {
        "rocpd_metadata(id, tag, value)": [(1, "schema_version", "3")],
        "rocpd_string(id, string)": [(i + 1, text) for i, text in enumerate(texts)],
        "rocpd_ustring(id, string)": [(i + 1, text) for i, text in enumerate(arguments)],
        'rocpd_api(id, pid, tid, start, "end", apiName_id, args_id)': [
            call(1, "UserMarker", 0, 9000, 2), call(2, "UserMarker", 100, 500, 3), call(3, "hipLaunchKernel", 200, 100),
            call(4, "hipMemcpyWithStream", 1000, 900), call(5, "hipGraphLaunch", 3000, 50),
            call(6, "ApiTable::writeRows", 8000, 400),
        ],
        'rocpd_op(id, gpuId, queueId, start, "end", description_id, opType_id)': [
            operation(1, "KernelExecution", 400, "gemm(float*)"), operation(2, "CopyHostToDevice", 1100),
            operation(3, "Task", 4000, "gemm(float*)"), operation(4, "Task", 5000, "gemm(float*)"),
            operation(5, "FillBuffer", 6000), operation(6, "Marker", 7000),
        ],
        "rocpd_api_ops(id, api_id, op_id)": [
            (i, (1 << 32) + api, (1 << 32) + op) for i, (api, op) in enumerate([(3, 1), (4, 2), (5, 3), (5, 4)])
        ],
        "rocpd_copyapi(api_ptr_id, size)": [((1 << 32) + 4, 4096)],
        "rocpd_monitor(id, deviceType, deviceId, monitorType, start, \"end\", value)": [
            (1, "gpu", 2, "sclk", BOOT, BOOT + 900, "800"), (2, "gpu", 2, "sclk", BOOT + 900, BOOT + 2000, "1700"),
        ],
    }  # fmt: skip


# -- protocol buffers --


def wire(number: int, value: int | bytes | str) -> bytes:
    """Return a field: a number as a varint, all else with its length before it."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a number, seven bits a byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _named(number: int, key: int, name: str) -> bytes:
    return wire(number, wire(1, key) + wire(2, wire(1, key) + wire(2, name)))


def xspace() -> bytes:
    """Return a GPU with four kernels and a copy, a host with their launches and a frame of Python."""
    correlation = [wire(4, wire(1, 1) + wire(4, i)) for i in range(1, 6)]
    kernels = [
        wire(4, wire(1, 5 if i == 4 else 1) + wire(2, i * 1_000_000) + wire(3, 700_000) + correlation[i])
        for i in range(5)
    ]
    stream = wire(1, 13) + wire(2, "Stream #13(Compute)") + wire(3, T) + b"".join(kernels)
    device = wire(2, "/device:GPU:1") + wire(3, stream) + _named(4, 1, "loop_add_fusion") + _named(4, 5, "MemcpyD2H")
    launches = [wire(4, wire(1, 2) + wire(2, i * 1_000_000) + wire(3, 100_000) + correlation[i]) for i in range(5)] + [
        wire(4, wire(1, 3) + wire(2, 0) + wire(3, 9_000_000))
    ]
    host = wire(2, "/host:CPU") + wire(3, wire(1, 9) + wire(2, "python3") + wire(3, T - 500) + b"".join(launches))
    names = _named(4, 2, "cuLaunchKernel") + _named(4, 3, "$train.py:7 step")
    statistics = _named(5, 1, "correlation_id")
    return wire(1, device + statistics) + wire(1, host + names + statistics)


def pftrace() -> bytes:
    """Return a process with a thread of nested ranges, an instant and a counter; the time of day is told."""
    clocks = b"".join(wire(1, wire(1, clock) + wire(2, at)) for clock, at in ((1, T), (6, BOOT)))
    track = 7 << 40
    described = [
        wire(60, wire(1, 1) + wire(3, wire(1, 71) + wire(6, "trainer"))),
        wire(60, wire(1, track) + wire(5, 1) + wire(4, wire(1, 71) + wire(2, 90) + wire(5, "main"))),
        wire(60, wire(1, 3) + wire(5, 1) + wire(2, "tokens") + wire(8, wire(6, "tokens/s"))),
    ]
    names = wire(12, b"".join(wire(2, wire(1, i) + wire(2, name)) for i, name in ((1, "step"), (2, "forward"))))
    packets = [wire(6, clocks), *described]

    def event(at: int, *parts: bytes) -> bytes:
        return wire(8, BOOT + at) + wire(11, b"".join(parts))

    for i in range(4):
        packets += [
            event(1000 * i, wire(9, 1), wire(10, 1), wire(11, track)),
            event(1000 * i + 100, wire(9, 1), wire(10, 2), wire(11, track)),
            event(1000 * i + 500, wire(9, 2), wire(11, track)),
            event(1000 * i + 900, wire(9, 2), wire(11, track)),
            event(1000 * i + 950, wire(9, 4), wire(30, 100 + i), wire(11, 3)),
        ]
    packets.append(event(5000, wire(9, 3), wire(23, "saved"), wire(11, track)))
    first = wire(10, 1) + wire(13, 1) + names
    return wire(1, first) + b"".join(wire(1, wire(10, 1) + packet) for packet in packets)


def _bytes(name: str, make: Callable[[], bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(make())
        return path

    return write


def chakra_et() -> bytes:
    """Return ten nodes: an operator, eight kernels that wait for each other, and a collective of the fourth."""
    about = wire(2, wire(1, "schema") + wire(29, "1.0.1"))
    on_cpu = wire(10, wire(1, "is_cpu_op") + wire(26, 1))
    nodes = [wire(1, 1) + wire(2, "aten::mm") + wire(3, 4) + wire(7, 5) + on_cpu]
    nodes += [wire(1, i) + wire(2, "gemm") + wire(3, 4) + wire(5, varint(i - 1)) + wire(7, 10) for i in range(2, 10)]
    nodes.append(wire(1, 10) + wire(2, "all_reduce") + wire(3, 7) + wire(5, varint(4)) + wire(7, 30))
    return b"".join(varint(len(one)) + one for one in (about, *nodes))


# -- text --


def _speedscope(folder: Path) -> Path:
    path = folder / "profile.speedscope.json"
    frames = [{"name": "main", "file": "train.py", "line": 1}, {"name": "step"}, {"name": "wait"}]
    sampled = {"type": "sampled", "name": "main", "unit": "milliseconds", "startValue": 5, "endValue": 35}
    sampled |= {"samples": [[0, 1], [0, 1, 2], [0, 2], [0]] * 3, "weights": [1, 2, 3, 4] * 3}
    schema = "https://www.speedscope.app/file-format-schema.json"
    path.write_text(json.dumps({"$schema": schema, "shared": {"frames": frames}, "profiles": [sampled]}))
    return path


def _folded(folder: Path) -> Path:
    path = folder / "stacks.folded"
    path.write_text("".join(f"main;step_{i};forward {i + 1}\n" for i in range(8)) + "main;step_0;backward 4\n")
    return path


def otlp(num_requests: int = 4) -> dict[str, Any]:
    """Return requests of a vLLM server, one after the other but for the second, which overlaps the first."""

    def span(i: int) -> dict[str, Any]:
        begin = T + (i if i != 1 else 0) * 10**9
        seconds = {"gen_ai.latency.time_in_queue": 0.1, "gen_ai.latency.time_to_first_token": 0.3}
        return {
            "traceId": f"{i:032x}",
            "spanId": f"{i:016x}",
            "name": "llm_request",
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(begin + 900_000_000),
            "attributes": [{"key": key, "value": {"doubleValue": value}} for key, value in seconds.items()],
        }

    service = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]}
    spans = [{"scope": {"name": "vllm"}, "spans": [span(i) for i in range(num_requests)]}]
    return {"resourceSpans": [{"resource": service, "scopeSpans": spans}]}


def _otlp_json(folder: Path) -> Path:
    path = folder / "traces.json"
    path.write_text(json.dumps(otlp()))
    return path


def _ncu_rep(folder: Path) -> Path:
    path = folder / "kernels.ncu-rep"
    path.write_bytes(b"NVR\0\n" + base64.encodebytes(ncu_table().encode()))
    return path


FILES_OF_OTHERS: Mapping[str, Sequence[Callable[[Path], Path]]] = {
    "chakra": (_bytes("chakra.0.et", chakra_et),),
    "folded_stacks": (_folded,),
    "ncu_rep": (_ncu_rep,),
    "otlp_json": (_otlp_json,),
    "perfetto": (_bytes("run.pftrace", pftrace),),
    "rocpd": (lambda folder: database(folder / "71_results.db", rocpd_tables()),),
    "rocprof_csv": (_rocprof_csv,),
    "rocprof_json": (_rocprof_json,),
    "rpd": (lambda folder: database(folder / "trace.rpd", rpd_tables()),),
    "speedscope": (_speedscope,),
    "xplane": (_bytes("host.xplane.pb", xspace),),
}
"""By the name of a reader's file: what makes a file of its format in a folder."""
