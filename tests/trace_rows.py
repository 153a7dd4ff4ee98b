"""Traces that tests start from: rows as the product makes them, and a small store beside them."""

import gzip
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from django.utils import timezone

from jobs.models import Layer, Project, Run, Trace
from jobs.traces.imports import source_path, store_path
from profiling.trace.category import Category
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

BEGIN = 1_763_700_000_000_000_000
MS = 1_000_000


@cache
def small_store() -> Path:
    """Return a store of two steps: a thread with operators and launches, a stream with kernels and a collective."""
    path = Path(tempfile.mkdtemp(prefix="pw-store-")) / "store"
    with StoreWriter(path, source="torch") as writer:
        thread = writer.lane("thread", process="python", pid=7, thread="main", tid=1)
        stream = writer.lane("stream", process="python", pid=7, device=0, stream=7)
        for step in (3, 4):
            at = BEGIN + (step - 3) * 100 * MS
            writer.add(thread, at, 100 * MS, writer.name(f"ProfilerStep#{step}"), Category.STEP)
            for i in range(10):
                info = writer.info('{"grid": [1, 2, 3]}')
                begin, link = at + i * 10 * MS, step * 100 + i
                writer.add(thread, begin, 2 * MS, writer.name("aten::mm"), Category.OPERATOR, info=info)
                writer.add(thread, begin + MS, MS // 10, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=link)
                writer.add(stream, begin + 2 * MS, 4 * MS, writer.name("gemm<128>"), Category.KERNEL, link=link)
            writer.add(stream, at + 96 * MS, 2 * MS, writer.name("ncclDevKernel_AllReduce"), Category.COMMUNICATION)
        memory = writer.counter("allocated", "bytes", device=0, process="python")
        for i in range(50):
            writer.count(memory, BEGIN + i * 4 * MS, float(i * 1000))
        writer.note("info", "Made for a test.")
        writer.finish()
    return path


@cache
def small_facts() -> dict[str, object]:
    """Return the facts of that store that a row keeps."""
    with Store(small_store()) as store:
        facts = store.facts
    names = ("events", "lanes", "begin", "end", "names", "samples", "origin", "revision")
    return {each: getattr(facts, each) for each in names}


def make_trace(project: Project, *, run: Run | None = None, name: str = "trace", **fields: Any) -> Trace:
    """Return an uploaded trace whose one layer is imported."""
    trace = Trace.objects.create(project=project, run=run, name=name, **fields)
    make_layer(trace)
    return trace


def make_layer(trace: Trace, *, state: str = "ready", data: bytes = b"bin", **fields: Any) -> Layer:
    """Return a layer of the trace with its file, and with a store if it is ready."""
    values = {"file_name": "rank0.json", "size": len(data), "received": len(data), "sha256": "0" * 64, **fields}
    layer = Layer.objects.create(trace=trace, state=state, kind="torch", **values)
    source_path(layer).parent.mkdir(parents=True, exist_ok=True)
    source_path(layer).write_bytes(data)
    if state == "ready":
        shutil.copyfile(small_store(), store_path(layer))
        Layer.objects.filter(pk=layer.pk).update(facts=small_facts(), ended_at=timezone.now())
        layer.refresh_from_db()
    return layer


def torch_file() -> bytes:
    """Return a trace as torch writes it, by hand."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 7, "tid": 1, "ts": 0, "dur": 900},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 1, "ts": 10, "dur": 50},
        {"ph": "X", "cat": "cpu_op", "name": "<img src=x onerror=alert(1)>", "pid": 7, "tid": 1, "ts": 100, "dur": 50},
    ]
    whole = {"schemaVersion": 1, "baseTimeNanoseconds": BEGIN, "traceEvents": events}
    return gzip.compress(json.dumps(whole).encode())
