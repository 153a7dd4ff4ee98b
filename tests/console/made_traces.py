"""Traces that were imported, for tests of their pages."""

from pathlib import Path

from jobs.models import Capture, Project, Trace
from jobs.traces.imports import store_path
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.schema import StoreFacts
from profiling.trace.writer import StoreWriter
from tests.trace_rows import make_layer

REAL = Path(__file__).parents[1] / "data" / "traces"
US = 1000


def imported(
    project: Project, *, file: Path | None, capture: Capture | None = None, slow: int = 0, steps: int = 3
) -> Trace:
    """Return a trace with one ready layer: of a file, or made up, with kernels that take `slow` more each [us]."""
    name = file.name if file else f"made, {slow} slower"
    run = capture.run if capture else None
    trace = Trace.objects.create(project=project, run=run, capture=capture, name=name)
    layer = make_layer(trace)
    path = store_path(layer)
    path.unlink()
    facts = import_trace(file, path) if file else _made(path, slow=slow, steps=steps)
    layer.facts = {"events": facts.events, "begin": facts.begin, "end": facts.end, "origin": facts.origin}
    layer.save()
    return trace


def _made(path: Path, *, slow: int, steps: int) -> StoreFacts:
    """Write steps of 100 us and `slow` more: one operator, whose kernel ends with the step."""
    with StoreWriter(path, source="made") as writer:
        thread = writer.lane("thread", process="python", pid=1, thread="main", tid=1)
        stream = writer.lane("stream", process="python", pid=1, device=0, stream=7)
        at = 1_700_000_000_000_000
        for step in range(1, steps + 1):
            whole = 100 + slow
            writer.add(thread, at * US, whole * US, writer.name(f"ProfilerStep#{step}"), Category.STEP)
            writer.add(thread, at * US, 40 * US, writer.name("aten::mm"), Category.OPERATOR)
            writer.add(thread, (at + 30) * US, 10 * US, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=step)
            kernel = writer.name("<script>gemm</script>")
            writer.add(stream, (at + 40) * US, (60 + slow) * US, kernel, Category.KERNEL, link=step)
            at += whole
        return writer.finish()
