"""Kernels, operators and copies of a trace that was written down by hand."""

import numpy as np

from profiling.analysis.intervals import interval, union
from profiling.analysis.kernels import Copies, DeviceSide
from profiling.analysis.operators import operators, ranges
from profiling.analysis.stats import grouped, percentile
from profiling.analysis.work import plain_names
from tests.profiling.analysis.made import work

ROWS = [
    ("main", "range", "forward", 0, 40),
    ("main", "operator", "aten::linear", 0, 30),
    ("main", "operator", "aten::addmm", 5, 25),
    ("main", "runtime", "cudaLaunchKernel", 10, 20, {"link": 1}),
    ("main", "operator", "aten::relu", 32, 38),
    ("main", "runtime", "cudaLaunchKernel", 33, 35, {"link": 2}),
    ("other", "operator", "aten::mul", 0, 100),
    ("other", "runtime", "cudaMemcpyAsync", 50, 52, {"link": 3}),
    ("s1", "kernel", "gemm", 30, 38, {"link": 1}),
    ("s2", "kernel", "relu", 36, 46, {"link": 2}),
    ("s1", "copy", "Memcpy HtoD (Pageable -> Device)", 60, 80, {"link": 3, "bytes": 4000}),
    ("s1", "kernel", "graph", 90, 95, {"link": 77, "outer": 5}),
    ("main", "operator", "torch::graph", 85, 88, {"outer": 5}),
]
SIDE = DeviceSide(work(ROWS), interval(0, 1000))


def test_a_kernel_is_of_the_innermost_operator_around_its_launch_or_of_the_number_that_it_bears() -> None:
    assert {kernel.name: kernel.operator for kernel in SIDE.kernels()} == {
        "gemm": "aten::addmm",
        "relu": "aten::relu",
        "Memcpy HtoD (Pageable -> Device)": "aten::mul",  # launched on the other thread
        "graph": "torch::graph",  # its launch was not recorded
    }


def test_a_task_that_a_thread_without_operators_launched_is_of_the_number_that_it_bears() -> None:
    calls = [
        ("queue", "runtime", "launch", 40, 42, {"link": 8}),
        ("main", "runtime", "launch", 60, 62, {"link": 9}),
        ("s1", "kernel", "queued", 50, 55, {"link": 8, "outer": 5}),
        ("s1", "kernel", "outside", 70, 75, {"link": 9, "outer": 5}),
    ]
    side = DeviceSide(work([("main", "operator", "aten::mm", 0, 30, {"outer": 5}), *calls]), interval(0, 1000))

    assert {kernel.name: kernel.operator for kernel in side.kernels()} == {"queued": "aten::mm", "outside": ""}


def test_own_times_of_kernels_add_up_to_the_busy_time() -> None:
    by_name = {kernel.name: (kernel.total, kernel.own) for kernel in SIDE.kernels()}
    assert by_name["gemm"] == (8, 8)
    assert by_name["relu"] == (10, 8)  # the kernel before it was still running
    assert sum(own for _, own in by_name.values()) == 8 + 8 + 20 + 5


def test_operators_have_their_kernels_time_with_and_without_what_they_call() -> None:
    found = {one.name: (one.calls, one.total, one.own, one.device, one.device_total) for one in operators(SIDE)}
    assert found["aten::linear"] == (1, 30, 10, 0, 8)
    assert found["aten::addmm"] == (1, 20, 20, 8, 8)
    assert found["aten::mul"] == (1, 100, 100, 20, 20)
    assert [one.name for one in operators(SIDE, most=1)] == ["aten::mul"]
    (forward,) = ranges(SIDE)
    assert (forward.name, forward.total, forward.device) == ("forward", 40, 18)


def test_launches_are_held_against_their_kernels() -> None:
    found = SIDE.launches()
    assert (found.kernels, found.linked) == (3, 2)
    assert found.short_share == 0.5  # gemm ran 8 after a launch of 10
    assert (found.delay_p50, found.delay_p99) == (1, 10)  # 36 - 35, 30 - 20
    assert found.median_kernel == 8
    assert found.launch_p50 == 2


def test_copies_tell_their_bytes_and_rate() -> None:
    (copy,) = SIDE.copies()
    assert copy == Copies(kind="Memcpy HtoD (Pageable -> Device)", calls=1, total=20, bytes=4000)
    assert copy.rate == 4000 / 20e-9
    assert Copies(kind="Memset", calls=1, total=3, bytes=0).rate is None


def test_kernels_count_for_the_phase_that_launched_them() -> None:
    phases = {"rollout": union(np.array([0]), np.array([25])), "update": union(np.array([25]), np.array([40]))}
    assert SIDE.by_phase(phases) == {"rollout": 8, "update": 10, "": 25}


def test_a_window_has_what_begins_in_it() -> None:
    side = DeviceSide(work(ROWS), interval(31, 60))
    assert [kernel.name for kernel in side.kernels()] == ["relu"]
    assert {one.name for one in operators(side)} == {"aten::relu"}


def test_percentiles_are_values_that_occur() -> None:
    values = np.array([5, 1, 4, 2, 3, 10, 20])
    found = grouped(np.array([1, 1, 1, 1, 1, 2, 2]), values)
    assert found.keys.tolist() == [1, 2]
    assert (found.count.tolist(), found.total.tolist()) == ([5, 2], [15, 30])
    assert (found.p50.tolist(), found.p99.tolist()) == ([3, 10], [5, 20])
    assert (found.least.tolist(), found.most.tolist()) == ([1, 10], [5, 20])
    assert percentile(np.empty(0, np.int64), 50) is None
    assert not len(grouped(np.empty(0, np.int64), np.empty(0, np.int64)).keys)


def test_calls_that_bear_their_number_are_of_one_operator() -> None:
    names, plain = plain_names(
        ["aten::mm, op_id = 12", "aten::mm, op_id = 7, seq = 3", "aten::mm", "a, b = 3", "aten::mm, seq = 9, op_id = 4"]
    )
    assert names == ["aten::mm", "a, b = 3"]
    assert plain.tolist() == [0, 0, 0, 1, 0]
    assert len(plain_names([])[1]) == 0
    of_dlprof = [f"{{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [{{'shape': ({n},)}}]}}" for n in (1, 2)]
    assert plain_names(of_dlprof)[0] == ["torch.nn.functional.linear"]
    assert plain_names(["hcom_allReduce__210_0_1", "hcom_allReduce__576_12_1"])[0] == ["hcom_allReduce"]
