"""The budget of a step against cases computed by hand, and that it always adds up."""

from hypothesis import given
from hypothesis import strategies as st

from profiling.analysis.budget import KINDS, budget
from profiling.analysis.stretches import stretches_of
from profiling.evidence import Step, phase_spans
from tests.profiling.analysis.made import work

NONE = phase_spans(())
STEP = (Step(number=1, begin=0, end=100),)


def _spans(*rows):
    """Return spans of (role, rank, phase, start, end), all of step 1."""
    return phase_spans((role, rank, 1, phase, phase, 0, start, end - start) for role, rank, phase, start, end in rows)


def _parts(step):
    return {(part.phase, part.kind): part.ns for part in step.parts}


def test_each_moment_counts_once_and_compute_hides_the_rest() -> None:
    found = budget(
        {
            ("policy", 0): work(
                [
                    ("s1", "kernel", "gemm", 10, 30),
                    ("s2", "communication", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 40),
                    ("s3", "copy", "Memcpy HtoD", 35, 50),
                    ("main", "operator", "aten::mm", 0, 5),
                    ("main", "runtime", "cudaLaunchKernel", 4, 9),
                    ("main", "sync", "cudaDeviceSynchronize", 50, 60),
                    ("main", "collector", "gc", 60, 63),
                    ("main", "overhead", "Buffer Flush", 62, 66),
                    ("main", "range", "enumerate(DataLoader)#_Single.__next__", 66, 70),
                ],
                end=90,
            )
        },
        NONE,
        STEP,
    )
    (worker,) = found.workers
    assert _parts(worker.steps[0]) == {
        ("", "compute"): 20,
        ("", "communication"): 10,  # 30..40: the rest is hidden by the kernel
        ("", "copy"): 10,  # 40..50
        ("", "launch"): 10,  # 9..10 lies between two recorded calls
        ("", "synchronisation"): 10,
        ("", "collector"): 2,
        ("", "profiler"): 4,  # before the collector, whose pause it may have caused
        ("", "data_wait"): 4,
        ("", "unattributed"): 20,  # 70..90
        ("", "not_recorded"): 10,
    }
    assert found.path == ()


def test_without_a_device_operators_are_the_compute_and_collectives_what_no_other_thread_hides() -> None:
    rows = [
        ("main", "operator", "aten::mm", 0, 30),
        ("main", "operator", "c10d::allreduce_", 40, 80),
        ("main", "communication", "gloo:all_reduce", 45, 75),
        ("other", "operator", "aten::add", 60, 70),
    ]
    (worker,) = budget({("policy", 0): work(rows)}, NONE, STEP).workers
    assert not worker.has_device
    # 30..40 lies between two operators, 40..45 and 75..80 in the one that waits; from 80 on nothing was recorded
    assert worker.by_kind() == {"compute": 40, "communication": 20, "program": 20, "unattributed": 20}


def test_launches_without_the_device_s_work_do_not_tell_what_operators_did() -> None:
    rows = [("main", "operator", "aten::mm", 0, 30), ("main", "runtime", "cudaLaunchKernel", 5, 8)]
    (worker,) = budget({("policy", 0): work(rows)}, NONE, STEP).workers
    assert (worker.is_recorded, worker.by_kind()) == (False, {"not_recorded": 100})


def test_a_worker_waits_while_only_others_have_a_phase() -> None:
    spans = _spans(
        ("driver", 0, "rollout", 0, 40),
        ("vllm", 0, "rollout", 2, 38),
        ("driver", 0, "update", 40, 95),
        ("policy", 0, "update", 41, 90),
        ("policy", 1, "update", 41, 94),
    )
    recorded = work([("s1", "kernel", "gemm", 50, 80)], end=200)
    found = budget({("policy", 0): recorded}, spans, STEP)
    by_worker = {(worker.role, worker.rank): _parts(worker.steps[0]) for worker in found.workers}
    assert by_worker["policy", 0] == {
        ("update", "compute"): 30,
        ("update", "unattributed"): 19,
        ("", "waiting"): 46,
        ("", "unattributed"): 5,
    }
    assert by_worker["policy", 1] == {("update", "not_recorded"): 53, ("", "waiting"): 42, ("", "not_recorded"): 5}
    # The step waits for the rank that ends last; nobody recorded it, and the driver's own part neither.
    path = {(part.role, part.rank, part.phase, part.kind): part.ns for part in found.path[0].parts}
    assert path == {
        ("vllm", 0, "rollout", "not_recorded"): 36,
        ("driver", 0, "rollout", "not_recorded"): 4,
        ("policy", 1, "update", "not_recorded"): 53,
        ("driver", 0, "update", "not_recorded"): 2,
        ("driver", 0, "", "not_recorded"): 5,
    }


times = st.tuples(st.integers(0, 120), st.integers(0, 40))
rows = st.tuples(
    st.sampled_from(["main", "other", "s1", "s2"]),
    st.sampled_from(
        ["kernel", "communication", "copy", "operator", "runtime", "sync", "collector", "range", "overhead"]
    ),
    times,
)
spans = st.tuples(st.sampled_from(["driver", "policy", "vllm"]), st.sampled_from(["rollout", "update", "eval"]), times)


@given(st.lists(rows, max_size=12), st.lists(spans, max_size=6), st.integers(0, 60), st.integers(60, 140))
def test_a_budget_adds_up_whatever_was_recorded(found, phases, begin, end) -> None:
    recorded = work(
        [(lane, category, f"{category}-{i}", a, a + n) for i, (lane, category, (a, n)) in enumerate(found)],
        begin=begin,
        end=end,
    )
    told = _spans(*((role, 0, phase, a, a + n) for role, phase, (a, n) in phases))
    steps = (Step(number=1, begin=10, end=70), Step(number=2, begin=70, end=130))
    answer = budget({("policy", 0): recorded}, told, steps)
    for table in (*(worker.steps for worker in answer.workers), answer.path):
        for step in table:
            assert sum(part.ns for part in step.parts) == step.wall == 60
            assert {part.kind for part in step.parts} <= set(KINDS)
            assert all(part.ns > 0 for part in step.parts)
    assert bool(answer.path) == any(role == "driver" for role, _, _ in phases)


def test_a_step_counts_whose_phases_begin_a_little_before_its_trace() -> None:
    spans = phase_spans(
        (role, 0, step, phase, phase, 0, start, 40)
        for step, at in ((1, 0), (2, 100), (3, 200))
        for role, phase, start in (
            ("driver", "rollout", at),
            ("driver", "update", at + 50),
            ("policy", "update", at + 52),
        )
    )
    recorded = work([("s1", "kernel", "gemm", 105, 196)], begin=103, end=204)
    whole = stretches_of(spans, {("policy", 0): recorded}, {}, 103, 204, is_whole=True).steps
    assert [(step.number, step.begin, step.end) for step in whole] == [(2, 100, 200)]
    (worker,) = budget({("policy", 0): recorded}, spans, whole).workers
    assert worker.by_kind() == {"compute": 91, "waiting": 2, "unattributed": 4, "not_recorded": 3}
