"""Steps that end with the device work that they launched, by physics; iterations that nothing marks."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.repetition import common, repeated
from profiling.analysis.steps import (
    UNKNOWN,
    LaunchedWork,
    WorkerSteps,
    across,
    host_steps,
    number_of,
    steps_by_launch,
    worker_steps,
)
from profiling.analysis.summary import open_trace, summarise
from profiling.analysis.window import steps as steps_of_store
from profiling.evidence import RecordedTrace, Step, phase_spans
from profiling.trace.category import Category
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

NONE = phase_spans(())
AT = 1_700_000_000_000_000_000
MS = 1_000_000


def ahead(path: Path, *, earlier: int = 2, steps: int = 5, kernel: float = 25, cut: int = 0) -> RecordedTrace:
    """Return a recording of host steps of 10 ms that each launch one kernel in their second ms; times in ms.

    The device is at work on `earlier` kernels of earlier steps when it begins, and does one kernel after the other.
    `cut` kernels at the end are not recorded.
    """
    with StoreWriter(path, source="made") as writer:
        thread = writer.lane("thread", process="python", pid=1, thread="main", tid=1)
        stream = writer.lane("stream", process="python", pid=1, device=0, stream=7)
        at = 0.0
        for i in range(-earlier, steps - cut):
            at = max(at, 10.0 * i + 2)
            link = i + 1 if i >= 0 else 1000 - i
            writer.add(stream, AT + int(at * MS), int(kernel * MS), writer.name("gemm"), Category.KERNEL, link=link)
            at += kernel
        for i in range(steps):
            begin = AT + 10 * i * MS
            writer.add(thread, begin, 10 * MS, writer.name(f"ProfilerStep#{i}"), Category.STEP)
            writer.add(thread, begin + MS, MS, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=i + 1)
            asked = writer.name("cudaFuncGetAttributes")  # old traces number these like the launch
            writer.add(thread, begin, MS // 2, asked, Category.RUNTIME, link=i + 1)
        writer.finish()
    return RecordedTrace(store=Store(path))


def in_ms(steps: Sequence[Step]) -> list[tuple[int, float, float]]:
    return [(step.number, (step.begin - AT) / MS, (step.end - AT) / MS) for step in steps]


def test_a_step_lasts_as_long_as_the_kernel_that_it_launched(tmp_path: Path) -> None:
    one = ahead(tmp_path / "a")
    found = summarise([one], NONE)
    assert found.source == "marks"
    # two earlier of 25 ms are on the device until 50: then each step is one kernel
    assert in_ms(found.budget.steps) == [(i, 50 + 25 * i, 75 + 25 * i) for i in range(5)]
    (worker,) = found.workers
    (kernel,) = worker.kernels
    assert (kernel.calls, kernel.total, worker.busy) == (5, 125 * MS, 125 * MS)
    outside = worker.outside
    assert outside is not None
    assert (outside.before, outside.before_ns) == (2, 50 * MS)
    assert (outside.host_step, outside.own_step) == (10 * MS, 25 * MS)
    assert outside.outside == 50 * MS
    assert outside.share == pytest.approx(50 / 175)
    assert [part.kind for step in found.budget.workers[0].steps for part in step.parts] == ["compute"] * 5
    assert in_ms(steps_of_store(one.store)) == in_ms(found.budget.steps)
    # a step is the same one in a window, although its launch lies outside
    part = summarise([one], NONE, (AT + 74 * MS, AT + 130 * MS))
    assert in_ms(part.budget.steps) == [(1, 75, 100), (2, 100, 125)]
    assert part.workers[0].launches is not None
    assert part.workers[0].launches.linked == 2


def test_a_copy_that_waits_for_its_end_is_what_its_step_launched(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", source="test") as writer:
        thread = writer.lane("thread", process="python", pid=1, tid=1)
        stream = writer.lane("stream", process="python", pid=1, device=0, stream=7)
        calls = [
            ("hipMemcpyWithStream", 10, 5, 1),
            ("hipStreamSynchronize", 20, 2, 2),
            ("hipMemcpyWithStream", 50, 5, 3),
        ]
        for k in range(2):
            writer.add(thread, AT + 40 * k * MS, 40 * MS, writer.name(f"ProfilerStep#{k}"), Category.STEP)
        for name, at, lasts, link in calls:
            writer.add(thread, AT + at * MS, lasts * MS, writer.name(name), Category.SYNC, link=link)
        for name, at, link in (("copy", 11, 1), ("gemm", 30, 2), ("copy", 51, 3)):  # the second one's launch is missing
            kind = Category.COPY if name == "copy" else Category.KERNEL
            writer.add(stream, AT + at * MS, 4 * MS, writer.name(name), kind, link=link)
        writer.finish()
    with Store(tmp_path / "store") as store:
        found = worker_steps(store, store.lanes)
        summary = summarise([RecordedTrace(store=store)], phase_spans(()))
    assert in_ms(found.steps) == [(0, 0, 40), (1, 40, 80)]
    assert (found.before, found.before_ns) == (0, 0), "a stream works in the order of launches"
    # before either copy the device waits for its call
    assert summary.workers[0].idle["synchronisation"] == 4 * MS


def test_work_without_a_launch_behind_launched_work_was_not_launched_before_the_recording(tmp_path: Path) -> None:
    """As accelerators tell of parts of what was launched: a stream works in the order of launches."""
    with StoreWriter(tmp_path / "a", source="made") as writer:
        thread = writer.lane("thread", process="python", pid=1, thread="main", tid=1)
        stream = writer.lane("stream", process="python", pid=1, device=0, stream=7)
        writer.add(thread, AT, 10 * MS, writer.name("ProfilerStep#3"), Category.STEP)
        writer.add(thread, AT + MS, MS, writer.name("launch"), Category.RUNTIME, link=1)
        for at, lasts, link in ((0, 1, 0), (2, 3, 1), (5, 9, 0)):
            writer.add(stream, AT + at * MS, lasts * MS, writer.name("fc"), Category.KERNEL, link=link)
        writer.finish()
    found = summarise([RecordedTrace(store=Store(tmp_path / "a"))], NONE)
    outside = found.workers[0].outside
    assert outside is not None
    assert (outside.before, [step.seconds for step in found.budget.steps]) == (1, [0.009])


@pytest.mark.parametrize("earlier", [0, 1, 3])
def test_the_mean_step_is_the_kernel_however_far_the_cpu_is_ahead(tmp_path: Path, earlier: int) -> None:
    found = summarise([ahead(tmp_path / "a", earlier=earlier)], NONE)
    walls = [step.end - step.begin for step in found.budget.steps]
    assert walls[1:] == [25 * MS] * 4
    assert walls[0] == (25 if earlier else 27) * MS  # nothing runs before the first launch
    assert summarise([ahead(tmp_path / "b", earlier=0, kernel=5)], NONE).budget.steps[2].seconds == 0.010


def test_what_the_recording_cut_off_is_no_step(tmp_path: Path) -> None:
    found = summarise([ahead(tmp_path / "a", cut=2)], NONE)
    assert [step.number for step in found.budget.steps] == [0, 1, 2]
    outside = found.workers[0].outside
    assert outside is not None
    assert outside.dropped == (3, 4)


def work(*rows: tuple[int, int, int]) -> LaunchedWork:
    """Return operations (begin, end, call), by begin."""
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return LaunchedWork(begin=columns[0], end=columns[1], call=columns[2])


def hosts(*bounds: tuple[int, int]) -> list[Step]:
    return [Step(number=i, begin=a, end=b) for i, (a, b) in enumerate(bounds, 1)]


@pytest.mark.parametrize(
    ("rows", "steps", "dropped"),
    [
        # without a device, or where no launch was recorded, the marks are the steps
        ([], [(0, 10), (10, 20)], ()),
        ([(2, 30, UNKNOWN)], [(0, 10), (10, 20)], ()),
        # one call that launched two kernels (a graph) on two streams, and the work of step 2 after it
        ([(3, 9, 1), (4, 14, 1), (15, 19, 12), (15, 16, 12)], [(0, 14), (14, 20)], ()),
        # the last step has less than 80 % of the operations of the one before
        ([(i, i + 1, 1) for i in range(5)] + [(12, 13, 11)] * 3, [(0, 10)], (2,)),
        ([(i, i + 1, 1) for i in range(5)] + [(12, 13, 11)] * 4, [(0, 10), (10, 20)], ()),
        # work that ends after the first of its own has begun does not move the first step
        ([(-5, 4, UNKNOWN), (-5, 6, UNKNOWN), (5, 8, 1), (11, 12, 11)], [(4, 10), (10, 20)], ()),
    ],
)
def test_the_rule_case_by_case(
    rows: list[tuple[int, int, int]], steps: list[tuple[int, int]], dropped: tuple[int, ...]
) -> None:
    found = steps_by_launch(hosts((0, 10), (10, 20)), work(*rows))
    assert [(step.begin, step.end) for step in found.steps] == steps
    assert found.dropped == dropped


def test_across_ranks_a_step_goes_from_the_first_to_the_last_and_none_overlaps() -> None:
    one, other = host_steps([("ProfilerStep#3", 0, 50), ("ProfilerStep#4", 50, 90)]), hosts((5, 55))
    other = [Step(number=3, begin=5, end=55), Step(number=4, begin=55, end=88)]
    sides = [WorkerSteps(steps=tuple(steps)) for steps in (one, other)]
    assert [(step.number, step.begin, step.end) for step in across(sides)] == [(3, 0, 55), (4, 55, 90)]
    assert [step.number for step in across([*sides, WorkerSteps(dropped=(4,))])] == [3]


def test_a_step_is_called_after_its_number() -> None:
    assert [number_of(name) for name in ("ProfilerStep#1009", "step 12", "warm-up", "9" * 30)] == [1009, 12, None, None]


def test_iterations_are_found_by_what_repeats() -> None:
    step = [1, 2, 2, 3, 2, 2, 4]
    assert repeated(np.array(step * 10)).tolist() == list(range(0, 70, 7))
    assert len(repeated(np.array([9, 9, *step * 4, *step[:3]]))) == 4  # what a recording cut at both ends
    assert not len(repeated(np.array([9] * 40 + step * 4)))  # most of it is something else
    assert not len(repeated(np.random.default_rng(1).integers(0, 30, 400)))
    assert not len(repeated(np.array([1, 2])))
    other = np.array([0, 11, 12, 13, 14, 15, 0, 21, 22, 23, 24, 25, 0, 31, 32, 33, 34, 35] * 2)
    assert repeated(other).tolist() != list(range(0, 36, 6))  # even distances, other kernels between


def test_the_first_iteration_may_differ_from_the_others() -> None:
    """In training it makes gradients and an optimizer's state: 7 kernels instead of 9 in the ones after it."""
    first, step = [1, 2, 2, 3, 2, 2, 4], [1, 5, 5, 2, 2, 3, 2, 2, 4]
    assert repeated(np.array(first + step * 9)).tolist() == list(range(7, 7 + 81, 9))
    assert not len(repeated(np.array(first + step * 3 + first * 3 + step)))  # one in the middle may not


def test_iterations_of_several_workers_go_together_where_they_are_as_many() -> None:
    one, other = hosts((0, 10), (10, 20)), hosts((1, 12), (12, 19))
    assert [(step.begin, step.end) for step in common([tuple(one), tuple(other)])] == [(0, 12), (12, 20)]
    assert common([tuple(one), tuple(other[:1])]) == tuple(one)
    assert common([(), ()]) == ()


def unmarked(path: Path, *, iterations: int = 6, lasts: int = 10) -> RecordedTrace:
    """Return a recording without marks: iterations of three kernels, `lasts` ms the second."""
    with StoreWriter(path, source="made") as writer:
        stream = writer.lane("stream", process="python", pid=1, device=0, stream=7)
        at = AT
        for _ in range(iterations):
            for name, ms in (("embed", 2), ("gemm", lasts), ("head", 3)):
                writer.add(stream, at, ms * MS, writer.name(name), Category.KERNEL)
                at += ms * MS
        writer.finish()
    return RecordedTrace(store=Store(path))


def test_a_trace_without_marks_has_iterations_a_window_or_all_of_it(tmp_path: Path) -> None:
    one = unmarked(tmp_path / "a")
    found = summarise([one], NONE)
    assert (found.source, found.numbers) == ("repetition", [])
    assert [step.seconds for step in found.budget.steps] == [0.015] * 5
    whole = summarise([one], NONE, by="window")
    assert (whole.source, [step.seconds for step in whole.budget.steps]) == ("window", [0.09])
    part = open_trace([one], NONE, (AT, AT + 40 * MS)).stretches
    assert (part.source, len(part.steps)) == ("repetition", 2)
    assert open_trace([one], NONE, (AT, AT + 12 * MS)).stretches.source == "window"


@pytest.mark.parametrize(
    ("stray", "kind", "source"),
    [
        (False, Category.KERNEL, "repetition"),
        (True, Category.KERNEL, "window"),
        (False, Category.COMMUNICATION, "window"),
    ],
)
def test_one_kernel_again_and_again_is_no_iteration_beside_others_nor_is_a_collective(
    tmp_path: Path, stray: bool, kind: Category, source: str
) -> None:
    with StoreWriter(tmp_path / "a", source="made") as writer:
        lanes = [writer.lane("stream", process="python", pid=1, device=0, stream=stream) for stream in (7, 20)]
        for i in range(40):
            writer.add(lanes[0], AT + 10 * i * MS, 5 * MS, writer.name("fill"), kind)
        if stray:
            writer.add(lanes[1], AT, MS, writer.name("head"), Category.KERNEL)
        writer.finish()
    assert summarise([RecordedTrace(store=Store(tmp_path / "a"))], NONE).source == source


@pytest.mark.parametrize(("others", "source"), [(1, "repetition"), (6, "window")])
def test_iterations_of_one_stream_are_none_of_a_device_that_works_elsewhere(
    tmp_path: Path, others: int, source: str
) -> None:
    """A solver spread its work over 18 streams: iterations of one held 6 % of what the device did."""
    with StoreWriter(tmp_path / "a", source="made") as writer:
        for stream in range(others + 1):
            lane = writer.lane("stream", process="python", pid=1, device=0, stream=stream)
            for i in range(9):  # two kernels in turn; in the other streams all at once, after the first's iterations
                at = 20 * i if not stream else 200 + 20 * stream + i
                for name in ("gather", f"solve {0 if not stream else i}"):
                    writer.add(lane, AT + at * MS, (5 if not stream else 4) * MS, writer.name(name), Category.KERNEL)
                    at += 6
        writer.finish()
    assert summarise([RecordedTrace(store=Store(tmp_path / "a"))], NONE).source == source


def test_collectives_that_wait_long_are_not_what_repeats(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", source="made") as writer:
        lanes = [writer.lane("stream", process="python", pid=1, device=0, stream=stream) for stream in (7, 20)]
        for i in range(10):
            for at, name in ((0, "embed"), (3, "gemm"), (6, "head")):
                writer.add(lanes[0], AT + (100 * i + at) * MS, 2 * MS, writer.name(name), Category.KERNEL)
            for at in (10, 40, 70):
                name = writer.name("ncclDevKernel_Generic")
                writer.add(lanes[1], AT + (100 * i + at) * MS, 25 * MS, name, Category.COMMUNICATION)
        writer.finish()
    found = summarise([RecordedTrace(store=Store(tmp_path / "a"))], NONE)
    assert (found.source, len(found.budget.steps)) == ("repetition", 9)
