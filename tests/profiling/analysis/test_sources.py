"""The line of code beside a kernel: of the call that launched it, hours before it ran or just then."""

from pathlib import Path

from profiling.analysis.sources import source_of, stack_of
from profiling.trace.category import Category
from profiling.trace.frames import FRAMES
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

T = 1_700_000_000_000_000_000


def test_a_kernel_is_of_the_line_that_launched_it(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", source="test") as writer:
        thread = writer.lane("thread", process="p", pid=1, thread="main", tid=1)
        frames = writer.lane("thread", process="p", pid=1, thread="main", tid=1, title=FRAMES)
        writer.frames(frames)
        stream = writer.lane("stream", process="p", pid=1, device=0, stream=7)
        for at, lasts, name in (
            (0, 900, "train.py(9): main"),
            (10, 100, "model.py(40): forward"),
            (20, 80, "torch/nn/functional.py(1): linear"),
            (25, 70, "torch/_ops.py(2): __call__"),
            (30, 60, "<built-in method linear>"),
            (200, 100, "loss.py(7): loss"),
        ):
            writer.add(frames, T + at, lasts, writer.name(name), Category.PYTHON)
        writer.add(thread, T + 40, 5, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=1)
        writer.add(stream, T + 250, 50, writer.name("gemm"), Category.KERNEL, link=1)  # while loss.py is open
        writer.add(stream, T + 400, 50, writer.name("copy of nobody"), Category.COPY)
        writer.finish()
    with Store(tmp_path / "s") as store:
        found = [store.detail(number) for number in range(store.facts.events)]
        details = {detail.event.name: detail for detail in found if detail is not None}
        stack = stack_of(store, details["gemm"])
        assert [frame.name for frame in stack] == [
            "train.py(9): main",
            "model.py(40): forward",
            "torch/nn/functional.py(1): linear",
            "torch/_ops.py(2): __call__",
            "<built-in method linear>",
        ]
        source = source_of(stack)
        assert source is not None
        assert source.name == "model.py(40): forward"
        assert stack_of(store, details["copy of nobody"]) == []
        assert source_of([]) is None
