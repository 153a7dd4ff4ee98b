"""Payloads of NVTX ranges in exports of nsys: numbers, recorded here, and the bytes of NCCL's calls.

The latter after the documented structures and the schemas of a real export: neither the real exports here nor the nsys
of this machine (2022.4) hold such payloads themselves.
"""

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profiling.launch_nsys import problem_of_install
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.store import Store
from tests.contracts.trace_files import database
from tests.profiling.nsys_report import profiled
from tests.profiling.trace.test_nsys_traces import H100, PROCESS, THREAD, small

NAMES = ("ncclDevKernel_AllReduce_Sum_bf16", "cudaLaunchKernelExC_v11060", "cudaEventRecord_v3020", "gemm")
NVTX = "NVTX_EVENTS(start, end, eventType, text, globalTid, textId, domainId, int64Value, binaryData TEXT)"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, shortName)"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)"
ENTRIES = (
    "NVTX_PAYLOAD_SCHEMA_ENTRIES(domainId, schemaId, idx, flags, type, name, description, arrayOrUnionDetail, offset)"
)
ALL_REDUCE, COMM = (1 << 24) + 4, (1 << 24) + 14


def payload(size: int, *, schema: int = ALL_REDUCE) -> bytes:
    return struct.pack("<4Q2Q", 1, schema, 16, 32, 0xABCDEF, size)


def schemas() -> list[tuple[Any, ...]]:
    """Return the entries that a real export holds."""
    with sqlite3.connect(f"file:{H100}?mode=ro", uri=True) as plain:
        return plain.execute("SELECT * FROM NVTX_PAYLOAD_SCHEMA_ENTRIES").fetchall()


def sent(
    path: Path, ranges: Sequence[tuple[int, int, str, Any]], launches: Sequence[tuple[int, int]]
) -> tuple[dict[str, list[int]], list[int]]:
    """Return the bytes of ranges by name and those of the kernels of communication, in the order of their launches.

    Ranges are (start, end, name, payload), launches (start, number of the kernel's name).
    """
    tables = {
        **small(),
        "StringIds(id, value)": list(enumerate(NAMES)),
        ENTRIES: schemas(),
        NVTX: [(start, end, 59, name, THREAD, None, 1, None, data) for start, end, name, data in ranges],
        CALLS: [(at, at + 1, THREAD, number, 1) for number, (at, _) in enumerate(launches, 1)]
        + [(at, at + 1, THREAD, number, 2) for number, (at, _) in enumerate(launches, 1)],
        KERNELS: [(at + 1000, at + 1500, 0, 7, number, PROCESS, name) for number, (at, name) in enumerate(launches, 1)],
    }
    target = path / "a.store"
    import_trace(database(path / "a.sqlite", tables), target)
    with Store(target) as store:
        found: dict[str, list[int]] = {}
        told = store.events(categories=[Category.RANGE])
        for name, size in zip(told["name"].tolist(), told["bytes"].tolist(), strict=True):
            found.setdefault(store.names[name], []).append(size)
        return found, store.events(categories=[Category.COMMUNICATION])["bytes"].tolist()


def test_a_call_gives_its_bytes_to_the_kernel_that_it_launches(tmp_path: Path) -> None:
    ranges = [(100, 200, "ncclAllReduce", payload(4096)), (300, 400, "ncclAllReduce", payload(10))]
    found, kernels = sent(tmp_path, ranges, [(150, 0), (350, 0), (360, 3), (500, 0)])
    assert found == {"ncclAllReduce": [4096, 10]}
    assert kernels == [4096, 0, 0]  # the second call launched two kernels, and nobody knows which sent what


def test_the_end_of_a_group_sends_what_its_calls_have_asked_for(tmp_path: Path) -> None:
    ranges = [
        (90, 95, "ncclGroupStart", None),
        (100, 120, "ncclAllReduce", payload(1000)),
        (130, 140, "ncclAllReduce", payload(24)),
        (200, 300, "ncclGroupEnd", None),
        (400, 420, "ncclAllReduce", payload(7)),
        (430, 500, "ncclGroupEnd", None),
        (600, 700, "ncclGroupEnd", None),
    ]
    found, kernels = sent(tmp_path, ranges, [(250, 0), (450, 0), (650, 0)])
    assert found["ncclAllReduce"] == [1000, 24, 7]
    assert kernels == [1024, 7, 0]


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"short",
        payload(5)[:-1],
        payload(5, schema=COMM),  # tells of a communicator alone
        payload(1 << 63),
        struct.pack("<4Q2Q", 1, ALL_REDUCE, 1 << 60, 32, 1, 5),
        struct.pack("<4Q2Q", 1, ALL_REDUCE, 4, 32, 1, 5),
        "not hexadecimal",
        7,
    ],
)
def test_a_payload_that_is_none_has_no_bytes(tmp_path: Path, data: Any) -> None:
    assert sent(tmp_path, [(100, 200, "ncclAllReduce", data)], [(150, 0)]) == ({"ncclAllReduce": [0]}, [0])


def test_a_payload_in_hexadecimal_is_read_too(tmp_path: Path) -> None:
    assert sent(tmp_path, [(100, 200, "ncclAllReduce", payload(5).hex())], [(150, 0)])[1] == [5]


RANGES = """
import nvtx
with nvtx.annotate("whole", domain="theirs", payload=4096):
    pass
with nvtx.annotate("part", domain="theirs", payload=0.5):
    pass
with nvtx.annotate("none", domain="theirs"):
    pass
"""


@pytest.mark.skipif(bool(problem_of_install()), reason="needs nsys")
def test_a_number_that_somebody_attaches_to_a_range_is_shown(tmp_path: Path) -> None:
    script = tmp_path / "ranges.py"
    script.write_text(RANGES)
    report = tmp_path / "a.nsys-rep"
    profiled(report, str(script))
    import_trace(report, tmp_path / "a.store")
    with Store(tmp_path / "a.store") as store:
        told = {
            name: store.detail(store.search(name, 1)[0].event).info.get("payload") for name in ("whole", "part", "none")
        }
    assert told == {"whole": 4096, "part": 0.5, "none": None}
