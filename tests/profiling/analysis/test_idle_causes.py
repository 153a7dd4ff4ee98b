"""Causes of idle time, from everything that was recorded: frames, launches, loaders. Computed by hand, in ms."""

from pathlib import Path

import pytest

from profiling.analysis.frames import own_name
from profiling.analysis.idle import idle_by_cause
from profiling.analysis.intervals import interval, total
from profiling.analysis.phases import WorkerPhases
from profiling.analysis.summary import WorkerSummary, summarise
from profiling.evidence import phase_spans
from profiling.trace.category import Category
from tests.profiling.analysis.made import work
from tests.profiling.made_traces import MS, Event, Trace, recorded

KERNEL, PYTHON, OPERATOR = Category.KERNEL, Category.PYTHON, Category.OPERATOR
STEPS: list[Event] = [(0, 100, "ProfilerStep#1", Category.STEP), (100, 100, "ProfilerStep#2", Category.STEP)]


def summary(path: Path, trace: Trace) -> WorkerSummary:
    """Import a trace of 200 ms and return what its worker did."""
    return summarise([recorded(path / "store", trace)], phase_spans(())).workers[0]


def test_preprocessing_between_two_steps_is_named_with_its_line(tmp_path: Path) -> None:
    stack: list[Event] = [
        (0, 200, "runpy.py(196): _run_module_as_main", PYTHON),
        (0, 200, "train.py(1): <module>", PYTHON),
        (60, 90, "train.py(30): prepare", PYTHON),
        (62, 40, "data/augment.py(12): crop", PYTHON),
        (70, 20, "<built-in method sleep of module object at 0x7f>", PYTHON),
        (110, 20, "torch/utils/_contextlib.py(112): decorate_context", PYTHON),
    ]
    trace = Trace(
        device=[(0, 50, "gemm", KERNEL), (150, 50, "gemm", KERNEL)],
        launches=[(0, 1), (149, 1)],
        host=[*STEPS, *stack, (50, 5, "aten::to", OPERATOR)],
        window=200,
    )
    worker = summary(tmp_path, trace)
    assert {cause: ns / MS for cause, ns in worker.idle.items()} == {"launch": 6, "python": 94}
    (gap,) = worker.gaps
    assert (gap.cause, gap.inside) == ("python", "train:prepare:30")
    assert [(one.name, one.ns / MS, one.gaps) for one in worker.python] == [
        ("train:prepare:30", 49, 1),  # 60..62, 102..149, and 149..150 belongs to the launch
        ("data.augment:crop:12", 40, 1),
        ("train:<module>:1", 5, 1),
    ]
    assert worker.has_stacks


def test_frames_of_short_gaps_and_of_other_threads_are_not_named(tmp_path: Path) -> None:
    trace = Trace(
        device=[(0.5 * i, 0.4, "gemm", KERNEL) for i in range(400)],
        host=[*STEPS, (0, 200, "train.py(1): <module>", PYTHON)],
        pool=[(0, 200, "loader.py(9): work", PYTHON)],
        window=200,
    )
    worker = summary(tmp_path, trace)
    assert set(worker.idle) == {"unattributed"}
    assert worker.python == ()


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("train.py(30): prepare", "train:prepare:30"),
        ("/data/me/project/data/prep.py(7): load", "project.data.prep:load:7"),
        ("verl/trainer/ray_trainer.py(12): fit", "verl.trainer.ray_trainer:fit:12"),
        ("torch/nn/modules/module.py(1532): _call_impl", ""),
        ("/venv/lib/python3.12/site-packages/torch/optim/adamw.py(10): step", ""),
        ("threading.py(1012): run", ""),
        ("multiprocessing/process.py(108): run", ""),
        ("<frozen importlib._bootstrap>(1022): _find_and_load", ""),
        ("importlib/__init__.py(88): import_module", ""),
        ("<built-in method sleep of module object at 0x7f>", ""),
        ("nn.Module: Linear_0", ""),
    ],
)
def test_a_frame_of_the_program_is_called_by_module_function_and_line(frame: str, name: str) -> None:
    assert own_name(frame) == name


def test_launch_is_split_by_who_was_late() -> None:
    events = work(
        [
            ("main", "runtime", "cudaLaunchKernel", 0, 5, {"link": 1}),
            ("main", "runtime", "cudaLaunchKernel", 5, 10, {"link": 2}),  # queued long before its kernel begins
            ("main", "runtime", "cudaLaunchKernel", 390, 395, {"link": 3}),  # late: the device has stood still
            ("s1", "kernel", "a", 5, 100, {"link": 1}),
            ("s2", "kernel", "b", 200, 300, {"link": 2}),
            ("s1", "kernel", "c", 400, 500, {"link": 3}),
        ],
        end=500,
    )
    causes = idle_by_cause(events, WorkerPhases(), interval(0, 500))
    assert {cause: total(own) for cause, own in causes.items()} == {"dependency": 100, "launch": 105}


def test_only_the_leading_thread_waits_for_data_and_for_the_device() -> None:
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    rows = [
        ("main", "runtime", "cudaLaunchKernel", 0, 1, {"link": 1}),
        ("main", "runtime", "cudaLaunchKernel", 90, 91, {"link": 2}),
        ("s1", "kernel", "a", 1, 10, {"link": 1}),
        ("s1", "kernel", "b", 92, 100, {"link": 2}),
        ("main", "range", loader, 20, 60),
        ("main", "communication", "gloo:barrier", 60, 80),
        ("other", "range", loader, 0, 100),
        ("other", "sync", "cudaEventSynchronize", 0, 100),
    ]
    causes = idle_by_cause(work(rows, end=100), WorkerPhases(), interval(0, 100))
    # what is left are less than 1 ms between two calls
    assert {cause: total(own) for cause, own in causes.items()} == {"data_wait": 40, "communication": 20, "launch": 23}


def test_a_wait_or_a_range_of_any_thread_tells_where_the_cpu_was(tmp_path: Path) -> None:
    trace = Trace(
        device=[(0, 10, "gemm", KERNEL), (60, 10, "gemm", KERNEL), (150, 50, "gemm", KERNEL)],
        launches=[(0, 1), (59, 1), (149, 1)],
        host=[(75, 60, "Optimizer.step#Shampoo.step", Category.RANGE)],
        pool=[(5, 53, "$api.py:3154 block_until_ready", PYTHON)],
        window=200,
    )
    worker = summary(tmp_path, trace)
    # 10..58 the frame waits, 59..60 is the second launch; 75..135 the range, 149..150 the third launch
    assert {cause: ns / MS for cause, ns in worker.idle.items()} == {
        "synchronisation": 48,
        "launch": 62,
        "unattributed": 20,
    }
    assert [(gap.cause, gap.inside) for gap in worker.gaps] == [
        ("launch", "Optimizer.step#Shampoo.step"),
        ("synchronisation", "$api.py:3154 block_until_ready"),
    ]


def test_idle_time_of_the_cpu_lies_between_operators_or_in_a_range(tmp_path: Path) -> None:
    host: list[Event] = [
        (0, 10, "aten::mm", OPERATOR),
        (10.5, 9.5, "aten::mm", OPERATOR),
        (30, 5, "aten::mm", OPERATOR),
        (40, 30, "write_checkpoint", Category.RANGE),
    ]
    worker = summary(tmp_path, Trace(host=host, window=200))
    # 10..10.5 is a short pause, 40..70 the range; of 20..30, 35..40 and what follows nothing is known
    assert {cause: ns / MS for cause, ns in worker.idle.items()} == {"program": 30.5, "unattributed": 145}


def test_a_thread_that_launches_is_in_calls_of_the_system_and_between_calls(tmp_path: Path) -> None:
    trace = Trace(
        device=[(0, 10, "gemm", KERNEL), (150, 50, "gemm", KERNEL)],
        launches=[(0, 1), (149, 1)],
        host=[
            (20, 90, "read", Category.SYSTEM),
            (110.8, 0.2, "cudaMalloc", Category.RUNTIME),
            (111.5, 0.5, "cudaFree", Category.RUNTIME),
        ],
        pool=[(10, 138, "futex", Category.SYSTEM)],
        window=200,
    )
    worker = summary(tmp_path, trace)
    # 20..110 the call; 110..110.8 and 111..111.5 between calls, 110.8..111 and 111.5..112 in them, 149..150 the launch
    assert {cause: ns / MS for cause, ns in worker.idle.items()} == {
        "system": 90,
        "launch": 3,
        "unattributed": 47,
    }
    assert [(gap.cause, gap.inside) for gap in worker.gaps] == [("system", "read")]


def test_launches_that_are_put_into_a_graph_are_not_late(tmp_path: Path) -> None:
    trace = Trace(
        device=[(0, 10, "fill", KERNEL), (160, 40, "gemm", KERNEL)],
        launches=[(0, 1), (159, 1)],
        host=[
            (20, 1, "hipStreamBeginCapture", Category.RUNTIME),
            (22, 60, "aten::mm", OPERATOR),
            (30, 1, "hipLaunchKernel", Category.RUNTIME),
            (84, 1, "hipStreamEndCapture", Category.RUNTIME),
            (90, 30, "cudaGraphInstantiateWithFlags_v11040", Category.RUNTIME),
            (150, 5, "cudaStreamBeginCapture_v10000", Category.RUNTIME),  # which the recording does not see end
        ],
        window=200,
    )
    worker = summary(tmp_path, trace)
    assert {cause: ns / MS for cause, ns in worker.idle.items()} == {
        "capture": 95,  # 20..85 and 90..120
        "launch": 6,  # 150..155, 159..160
        "unattributed": 49,
    }


def test_what_the_profiler_does_before_and_after_the_program_is_no_idle_time(tmp_path: Path) -> None:
    trace = Trace(
        device=[(10, 20, "gemm", KERNEL), (40, 20, "gemm", KERNEL)],
        launches=[(0, 1), (31, 1)],
        host=[(-90, 60, "CUPTI init", Category.OVERHEAD), (70, 40, "CUPTI flush", Category.OVERHEAD)],
        window=60,
    )
    worker = summary(tmp_path, trace)
    assert (worker.recorded / MS, worker.busy / MS) == (60, 40)
    assert "profiler" not in {cause for cause, ns in worker.idle.items() if ns}
