"""Idle gaps, collectives and the tail of rollouts, computed by hand."""

import numpy as np
import pytest

from profiling.analysis.communication import communication, plain_name, stragglers
from profiling.analysis.idle import idle_by_cause, longest_gaps
from profiling.analysis.intervals import interval, total, union
from profiling.analysis.phases import WorkerPhases
from profiling.analysis.rollout import batches, counts_of, rollout, tail_of_batches
from tests.profiling.analysis.made import work

MS = 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_gaps_name_their_cause_and_what_the_launching_thread_was_in() -> None:
    recorded = work(
        [
            ("s1", "kernel", "a", 0, 10 * MS),
            ("other", "operator", "aten::embedding", 8 * MS, 15 * MS),
            ("other", "range", "prepare", 0, 20 * MS),
            ("other", "runtime", "cudaLaunchKernel", 14 * MS, 15 * MS, {"link": 9}),
            ("main", "step", "ProfilerStep#1", 0, 100 * MS),
            ("main", "runtime", "cudaStreamSynchronize", 30 * MS, 52 * MS),
            ("s1", "kernel", "b", 15 * MS, 30 * MS, {"link": 9}),
            ("s1", "kernel", "c", 50 * MS, 60 * MS),
            ("s1", "kernel", "d", 60 * MS + 5, 100 * MS),
        ],
        end=100 * MS,
    )
    phases = WorkerPhases(own={"update": interval(0, 100 * MS)})
    found = longest_gaps(recorded, phases, interval(0, 100 * MS))
    assert [(gap.begin, gap.end, gap.cause, gap.inside, gap.phase) for gap in found] == [
        (30 * MS, 50 * MS, "synchronisation", "cudaStreamSynchronize", "update"),
        (10 * MS, 15 * MS, "launch", "aten::embedding", "update"),
    ]
    causes = idle_by_cause(recorded, phases, interval(0, 100 * MS))
    assert {cause: total(own) for cause, own in causes.items()} == {
        "launch": 5 * MS,
        "synchronisation": 20 * MS,
        "unattributed": 5,
    }


def test_communication_is_exposed_where_nothing_computes() -> None:
    found = communication(
        work(
            [
                ("s1", "kernel", "gemm", 0, 50),
                ("s2", "communication", NCCL, 40, 70, {"bytes": 600}),
                ("s2", "communication", NCCL, 80, 90, {"bytes": 600}),
                ("s1", "communication", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 85, 95),
            ]
        ),
        0,
        1000,
    )
    assert (found.busy, found.exposed, found.overlapped) == (45, 35, 10)
    assert found.is_same_stream is True
    reduce, send = found.collectives
    assert (reduce.name, reduce.calls, reduce.total, reduce.exposed, reduce.bytes) == ("AllReduce", 2, 40, 30, 1200)
    assert (send.name, send.p50, send.bytes) == ("SendRecv", 10, 0)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        (NCCL, "AllReduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", "ReduceScatter"),
        ("gloo:all_reduce", "all_reduce"),
        ("void vllm::cross_device_reduce_1stage<2>", "void vllm::cross_device_reduce_1stage<2>"),
    ],
)
def test_a_collective_has_one_name_whatever_the_protocol(name, plain) -> None:
    assert plain_name(name) == plain


def test_the_straggler_is_last_to_enter() -> None:
    def rank(number, *starts):
        return work([("s1", "communication", NCCL, start, 100) for start in starts], rank=number)

    found = stragglers([rank(0, 10, 50), rank(1, 13, 59), rank(2, 12, 50)], 0, 1000)
    assert [(one.rank, one.last, one.of, one.median, one.total) for one in found] == [
        (1, 2, 2, 3, 12),
        (2, 0, 2, 0, 2),
        (0, 0, 2, 0, 0),
    ]
    # Nothing tells which is which where their numbers differ.
    assert stragglers([rank(0, 10, 50), rank(1, 13)], 0, 1000) == ()
    assert stragglers([rank(0, 10)], 0, 1000) == ()


def test_passes_of_an_engine_tell_what_was_in_them() -> None:
    assert counts_of("execute_context_1(37)_generation_15(15)") == (1, 37, 15, 15)
    told = "execute_context_2(sq512sk900sqsq9000sqsk90)_generation_30(sq30sk4000sqsq30sqsk4000)"
    assert counts_of(told) == (2, 512, 30, 30)
    assert counts_of("execute_model") is None
    assert counts_of(f"execute_context_{'9' * 40}(0)_generation_1(1)") is None


def test_the_tail_begins_when_nine_in_ten_are_done() -> None:
    running = [20, 20, 18, 4, 2, 2, 1]
    recorded = work(
        [
            ("main", "batch", f"execute_context_0(0)_generation_{n}({n})", 10 * i, 10 * i + 8)
            for i, n in enumerate(running)
        ]
    )
    own = batches(recorded, 0, 1000)
    assert own.requests.tolist() == running
    tail = tail_of_batches(own)
    assert tail is not None
    assert (tail.begin, tail.tail, tail.end) == (0, 38, 68)  # 2 of 20 are a tenth, no more
    assert tail.share == 30 / 68
    found = rollout(recorded, [(0, 100)], 0, 1000)
    assert found is not None
    assert (found.passes, found.most_requests, found.tokens, found.mean_requests) == (7, 20, 67, 67 / 7)
    assert found.tails == (tail,)
    assert found.points[3] == (30, 4)
    assert rollout(work([]), [], 0, 1000) is None


def test_phases_that_a_worker_has_not_are_waited_for() -> None:
    recorded = work([("s1", "kernel", "a", 0, 10)])
    phases = WorkerPhases(own={"update": interval(0, 20)}, other_workers=interval(20, 60))
    causes = idle_by_cause(recorded, phases, interval(0, 80))
    assert {cause: total(own) for cause, own in causes.items()} == {"waiting": 40, "unattributed": 30}
    assert total(union(np.array([0]), np.array([80]))) == 10 + 40 + 30
