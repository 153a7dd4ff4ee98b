"""What was planned beside what was measured: each line holds the right pair, and nothing that was not measured is 0."""

import math
from dataclasses import replace
from typing import Any

import pytest

from jobs.adapters.logs.gathering import canonical
from jobs.catalog.spec.parse import parse_spec
from jobs.ingest.store import AttemptCache as Stored
from jobs.ingest.store import store
from jobs.planner.constant import shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.memory.cpu import host_fleet
from jobs.planner.read.context import Models
from jobs.planner.read.spec import read_job
from jobs.planner.result import Cost, Estimate, Interval, PeakMemory, PhaseMemory, PoolEstimate, StepTime
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.steps import PACES
from jobs.planning.plan_vs_measured import (
    PlannedRow,
    RunMeasurements,
    SpecEstimate,
    plan_of_cpu,
    planned_rows,
    read_measured,
)
from profiling import events
from tests.batches import T0, delivery
from tests.rows import NOW, make_run

GIB = 1 << 30


def around(middle: float) -> Interval:
    return Interval(low=0.8 * middle, middle=middle, high=1.25 * middle)


def pool(name: str, phases: dict[str, PeakMemory], *, others: dict[str, PeakMemory] | None = None) -> PoolEstimate:
    """A pool whose own role works in each phase; `others` are what other roles hold there."""
    beside = others or {}
    made = [
        PhaseMemory(phase=phase, role=name, memory=own, by_role={name: own, **beside}) for phase, own in phases.items()
    ]
    return PoolEstimate(name=name, num_devices=2, limit=80 * GIB, phases=tuple(made))


POLICY = {
    "old_logprobs": PeakMemory(terms={"weights": 2 * GIB, "logits": GIB, "overhead": GIB}),
    "update": PeakMemory(terms={"weights": 2 * GIB, "gradients": GIB, "optimizer": 6 * GIB, "overhead": GIB}),
}
ESTIMATE = Estimate(
    verdict="fits",
    pools=(
        pool("policy", POLICY, others={"vllm": PeakMemory(terms={"overhead": GIB})}),
        pool("reference", {"reference": PeakMemory(terms={"weights": 2 * GIB})}),
    ),
    pool="policy",
    phase="update",
    term="optimizer",
    band=0.1,
    rollout=None,
    time=StepTime(
        phases={"rollout": around(4.0), "update": around(2.0)},
        step=around(7.0),
        tokens_per_second=around(1000),
        bottleneck="rollout",
        mfu=0.3,
    ),
    cost=Cost(seconds=None, device_hours=None, money=None, currency="USD"),
    host_bytes=0,
    shm_bytes=0,
    checkpoint_bytes=0,
    export_bytes=0,
    used=(),
)


def row(rows: tuple[PlannedRow, ...], quantity: str, phase: str, role: str = "", term: str = "") -> PlannedRow:
    (found,) = [r for r in rows if (r.quantity, r.phase, r.role, r.term) == (quantity, phase, role, term)]
    return found


def test_seconds_stand_beside_the_interval_of_their_phase() -> None:
    rows = planned_rows(
        SpecEstimate(estimate=ESTIMATE), RunMeasurements(seconds={"rollout": 4.4, "reward": 0.1, "step": 9.0})
    )

    rollout, update = row(rows, "seconds", "rollout"), row(rows, "seconds", "update")
    assert (rollout.measured, rollout.is_inside) == (4.4, True)
    assert rollout.difference == pytest.approx(0.1)
    assert (update.predicted, update.measured) == (around(2.0), None)
    assert update.difference is None  # not measured is not 0
    assert update.is_inside is None
    reward = row(rows, "seconds", "reward")
    assert (reward.predicted, reward.measured, reward.difference) == (None, 0.1, None)
    assert row(rows, "seconds", "step").is_inside is False
    assert [r.phase for r in rows if r.quantity == "seconds"] == ["rollout", "reward", "update", "step"]


def test_bytes_are_those_of_the_role_that_works() -> None:
    rows = planned_rows(
        SpecEstimate(estimate=ESTIMATE), RunMeasurements(peaks={("policy", "update"): 9.5 * GIB}, source="process")
    )

    update = row(rows, "bytes", "update", "policy")
    assert update.predicted is not None
    assert update.predicted.middle == 10 * GIB  # without vllm's own
    assert update.predicted.low == pytest.approx(9 * GIB)
    assert update.predicted.high == pytest.approx(11 * GIB)
    assert update.difference == pytest.approx(-0.05)
    assert update.is_inside is True
    assert row(rows, "bytes", "reference", "reference").measured is None
    keys = [(r.role, r.phase) for r in rows if r.quantity == "bytes" and not r.term]
    assert keys == [("policy", "old_logprobs"), ("policy", "update"), ("reference", "reference")]


def test_a_process_that_gives_nothing_back_is_held_against_its_fullest_phase_alone() -> None:
    peaks = {("policy", "old_logprobs"): 8.0 * GIB, ("policy", "update"): 9.5 * GIB}
    told = RunMeasurements(peaks=peaks, source="process")

    rows = planned_rows(SpecEstimate(estimate=ESTIMATE), told, frees_memory=False)

    assert row(rows, "bytes", "update", "policy").is_inside is True
    scoring = row(rows, "bytes", "old_logprobs", "policy")
    assert (scoring.measured, scoring.difference, scoring.is_inside) == (8.0 * GIB, None, None)
    assert (
        row(planned_rows(SpecEstimate(estimate=ESTIMATE), told), "bytes", "old_logprobs", "policy").is_inside is False
    )


def test_a_measurement_of_the_device_does_not_see_the_context() -> None:
    rows = planned_rows(
        SpecEstimate(estimate=ESTIMATE), RunMeasurements(peaks={("policy", "update"): 9.0 * GIB}, source="device")
    )

    assert row(rows, "bytes", "update", "policy").difference == pytest.approx(0.0)


def test_states_are_held_against_the_fullest_phase() -> None:
    rows = planned_rows(
        SpecEstimate(estimate=ESTIMATE),
        RunMeasurements(states={("policy", "optimizer"): 3.0 * GIB, ("critic", "weights"): 5.0}),
    )

    optimizer = row(rows, "bytes", "", "policy", "optimizer")
    assert optimizer.difference == pytest.approx(-0.5)
    assert row(rows, "bytes", "", "policy", "gradients").measured is None
    critic = row(rows, "bytes", "", "critic", "weights")
    assert (critic.predicted, critic.measured) == (None, 5.0)


@pytest.mark.parametrize(
    ("term", "held", "is_inside"),
    [
        ("optimizer", 6.1 * GIB, True),
        ("optimizer", 5.9 * GIB, True),
        ("optimizer", 6.2 * GIB, False),
        ("gradients", 1.1 * GIB, True),  # a tensor that lies across the edge of a part is kept whole
        ("gradients", 1.2 * GIB, False),
    ],
)
def test_states_may_be_padded_and_rounded(term: str, held: float, is_inside: bool) -> None:
    k = shipped_constants().with_values({"memory.states_band": 0.02, "memory.gradients_band": 0.15})
    rows = planned_rows(SpecEstimate(estimate=ESTIMATE, constants=k), RunMeasurements(states={("policy", term): held}))

    assert row(rows, "bytes", "", "policy", term).is_inside is is_inside


def test_a_state_is_what_is_there_all_the_time_not_what_is_gathered_for_a_while() -> None:
    gathering = {**POLICY, "weight_sync": PeakMemory(terms={"weights": 9 * GIB})}
    made = replace(ESTIMATE, pools=(pool("policy", gathering),))

    predicted = row(
        planned_rows(SpecEstimate(estimate=made), RunMeasurements()), "bytes", "", "policy", "weights"
    ).predicted

    assert predicted is not None
    assert predicted.middle == 2 * GIB


def test_what_a_trainer_tells_as_one_stands_beside_the_sum_of_its_phases() -> None:
    time = replace(
        ESTIMATE.time, phases={"rollout": around(4.0), "old_logprobs": around(1.0), "reference": around(0.5)}
    )
    plan = SpecEstimate(estimate=replace(ESTIMATE, time=time))

    rows = planned_rows(plan, RunMeasurements(seconds={"rollout": 4.0, "experience": 1.8}))

    assert [r.phase for r in rows if r.quantity == "seconds"] == ["rollout", "experience", "step"]
    assert row(rows, "seconds", "experience").predicted == around(1.5)
    assert row(rows, "seconds", "experience").difference == pytest.approx(0.2)
    rows = planned_rows(
        plan, RunMeasurements(seconds={"experience": 1.8, "reference": 0.6})
    )  # it tells a part by itself
    assert [r.phase for r in rows if r.quantity == "seconds"] == ["rollout", "old_logprobs", "reference", "step"]


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["time/critic_update_seconds", "timing_s/update_critic"])
def test_the_critics_update_is_part_of_the_update(name: str) -> None:
    run = make_run(state="running", spec={"algorithm": "sft"})
    told = [
        events.metric({"time/update_seconds": 2.0, name: 0.5}, attempt=1, step=number, t=T0 + number)
        for number in (1, 2, 3)
    ]
    store([delivery(run.pk, 1, told)], memory=Stored(), now=NOW)

    assert read_measured(run.pk).seconds == {"update": 2.5}


@pytest.mark.parametrize(
    ("trainer", "theirs", "seconds"),
    [
        ("verl", {"timing_s/gen": 4.0, "timing_s/old_log_prob": 1.0, "timing_s/values": 0.5}, {"old_logprobs": 1.5}),
        ("verl", {"timing_s/update_actor": 2.0, "timing_s/update_critic": 1.0}, {"update": 3.0}),
        ("openrlhf", {"train/timing/make_experience": 3.0, "train/timing/ppo_train": 2.0}, {"experience": 3.0}),
    ],
)
@pytest.mark.django_db
def test_runs_of_other_trainers_have_measured_phases(
    trainer: str, theirs: dict[str, float], seconds: dict[str, float]
) -> None:
    run = make_run(state="running", spec={"algorithm": "sft"})
    values = canonical(trainer, "ppo", theirs)
    told = [events.metric(values, attempt=1, step=number, t=T0 + number) for number in (1, 2)]
    store([delivery(run.pk, 1, told)], memory=Stored(), now=NOW)

    assert seconds.items() <= read_measured(run.pk).seconds.items()


def reading(role: str, rank: int = 0, second: int = 0, **values: float) -> Any:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return events.system(named, attempt=1, role=role, rank=rank, t=T0 + second * 1_000_000_000)


def step_of(number: int, /, **seconds: float) -> Any:
    values = {f"time/{phase}_seconds": value for phase, value in seconds.items()}
    return events.metric(values, attempt=1, step=number, t=T0 + number * 1_000_000_000)


@pytest.mark.django_db
def test_what_a_run_told_is_medians_and_peaks_over_ranks() -> None:
    run = make_run(state="running", spec={"algorithm": "sft"})
    took = {1: 90, 2: 2, 3: 4, 4: 3}
    steps = [step_of(number, update=seconds, step=seconds + 1) for number, seconds in took.items()]
    told = [
        reading("policy", memory_baseline_bytes=100.0, resident_peak__update_bytes=350.0, parameter_bytes=60.0),
        reading("policy", second=1, resident_peak__update_bytes=400.0, parameter_bytes=60.0),
        reading("policy", 1, memory_baseline_bytes=50.0, resident_peak__update_bytes=390.0, parameter_bytes=70.0),
        reading("reference", resident_peak__reference_bytes=200.0),
    ]
    store([delivery(run.pk, 1, [*steps, *told])], memory=Stored(), now=NOW)

    found = read_measured(run.pk)

    assert found.seconds == {"update": 3.0, "step": 4.0}  # the first step warms up
    assert found.num_steps == 3
    assert found.source == "process"
    assert found.peaks == {("policy", "update"): 340.0}  # without its baseline the reference's is not known
    assert found.states == {("policy", "weights"): 70.0}


@pytest.mark.django_db
def test_on_a_device_its_own_peaks_count() -> None:
    run = make_run(state="running")
    told = [
        reading("policy", memory_baseline_bytes=1.0, resident_peak__update_bytes=9.0),
        reading("policy", second=1, device_peak__update_bytes=500.0, device_reserved_peak__update_bytes=600.0),
    ]
    store([delivery(run.pk, 1, told)], memory=Stored(), now=NOW)

    found = read_measured(run.pk)

    assert (found.source, found.peaks) == ("device", {("policy", "update"): 600.0})


@pytest.mark.django_db
def test_a_run_that_told_nothing_has_nothing_measured() -> None:
    run = make_run(spec={"algorithm": "sft"})

    rows = planned_rows(SpecEstimate(estimate=ESTIMATE), read_measured(run.pk))

    assert rows
    assert all(r.measured is None and r.difference is None for r in rows)


@pytest.mark.django_db
def test_a_diverged_number_is_not_a_median() -> None:
    run = make_run(state="running")
    store(
        [delivery(run.pk, 1, [step_of(1, step=math.nan), step_of(2, step=5.0)])],
        memory=Stored(),
        now=NOW,
    )

    assert read_measured(run.pk).seconds == {"step": 5.0}


def test_a_run_on_cpu_has_a_plan_of_its_bytes_alone() -> None:
    spec = parse_spec({"hardware": {"layout": "split", "device": "cpu", "policy_ranks": 2}})

    job = read_job(spec, Models(policy=shape_of(spec.model.id)), host_fleet(spec.num_workers, 16 * GIB))
    plan = plan_of_cpu(estimate(job), shipped_constants())
    rows = planned_rows(
        plan, RunMeasurements(seconds={"update": 0.5}, peaks={("vllm", "rollout"): 1.0}, source="process")
    )

    assert row(rows, "seconds", "update").predicted is None
    assert row(rows, "bytes", "rollout", "vllm").predicted is None
    update = row(rows, "bytes", "update", "policy").predicted
    assert update is not None
    assert 50 << 20 < update.middle < 500 << 20  # mostly the libraries of the process
    assert row(rows, "bytes", "", "policy", "weights").predicted is not None


@pytest.mark.parametrize(
    ("measured", "typed", "phases"),
    [
        ({}, {}, []),
        ({}, {"speed.update_pace": 0.04}, []),  # somebody's guess is for GPUs as well
        ({"speed.update_pace": 0.04}, {}, ["update"]),
        (
            dict.fromkeys(PACES.values(), 0.5),
            {},
            ["rollout", "reference", "update", "weight_sync", "step"],
        ),
    ],
)
def test_seconds_on_cpu_are_planned_once_they_are_measured_there(
    measured: dict[str, float], typed: dict[str, float], phases: list[str]
) -> None:
    spec = parse_spec({"hardware": {"layout": "split", "device": "cpu"}})
    k = shipped_constants().with_values(typed).measured(measured, "runs of this machine")
    job = read_job(spec, Models(policy=shape_of(spec.model.id)), host_fleet(spec.num_workers, 16 * GIB))

    rows = planned_rows(plan_of_cpu(estimate(job, k), k), RunMeasurements())

    assert [r.phase for r in rows if r.quantity == "seconds"] == phases
