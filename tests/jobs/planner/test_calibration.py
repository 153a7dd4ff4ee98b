"""Calibration: a planted pace comes back, strange runs move nothing, only what foretells other runs is proposed."""

import math
from dataclasses import replace

import pytest

from jobs.planner.calibration import CALIBRATED, OTHER, Calibration, FinishedRun, Proposal, calibrate
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.job import Job
from tests.jobs.planner.test_estimate import colocated, split, supervised

PLANTED = {
    "decode.pace": 1.3,
    "speed.update_pace": 0.8,
    "speed.scoring_pace": 2.0,
    "network.sync_pace": 1.1,
    OTHER: 0.15,
}
SFT = [supervised(policy={"sequence": length}) for length in (1024, 2048, 4096, 8192, 16384)]


def seconds_of(job: Job, k: Constants) -> dict[str, float]:
    time = estimate(job, k).time
    return {**{phase: each.middle for phase, each in time.phases.items()}, "step": time.step.middle}


def rl_jobs() -> list[Job]:
    """Return jobs that differ in how much they generate and train on."""
    made = []
    for prompts in (32, 64, 128):
        job = colocated()
        assert job.rollouts is not None
        made.append(replace(job, rollouts=replace(job.rollouts, prompts=prompts)))
    return made


def finished(job: Job, number: int, seconds: dict[str, float], setting: str = "") -> FinishedRun:
    return FinishedRun(run=f"r{number}", setting=setting or f"s{number}", job=job, seconds=seconds)


def updates(*factors: float, settings: str = "") -> list[FinishedRun]:
    """Return supervised runs whose updates took so many times the plan; `settings` names them, a letter each."""
    made = []
    for number, factor in enumerate(factors):
        job = SFT[number % len(SFT)]
        took = estimate(job).time.phases["update"].middle * factor
        made.append(finished(job, number, {"update": took, "step": took}, settings[number : number + 1]))
    return made


def of(found: Calibration, name: str) -> Proposal:
    return next(each for each in found.proposals if each.constant == name)


def calibrated(runs: list[FinishedRun], **present: float) -> Calibration:
    return calibrate(runs, shipped_constants(), shipped_constants().with_values(present))


def test_planted_efficiencies_are_recovered_exactly() -> None:
    planted = shipped_constants().with_values(PLANTED)
    runs = [finished(job, n, seconds_of(job, planted)) for n, job in enumerate(rl_jobs())]

    found = calibrated(runs)

    assert found.values == pytest.approx(PLANTED, rel=1e-9)
    for each in found.proposals:
        assert each.before is not None
        assert each.before > 0.04
        assert each.after == pytest.approx(0, abs=1e-9)
    assert found.before is not None
    assert found.before > 0.1
    assert found.after == pytest.approx(0, abs=1e-9)


def test_a_pace_is_the_median_of_logarithms_and_its_error_that_of_runs_left_out() -> None:
    """By hand: ln 2, ln 4, ln 8 -> 4. Left out: 2 of (4, 8) = sqrt(32); 4 of (2, 8) = 4; 8 of (2, 4) = sqrt(8).
    Misses sqrt(8), 1 and sqrt(8): the median is 1.828 too much. Now: 2, 4, 8 -> 4, which is 3 too much."""
    found = of(calibrated(updates(2, 4, 8)), "speed.update_pace")

    assert found.proposed == pytest.approx(4)
    assert found.before == pytest.approx(3)
    assert found.after == pytest.approx(math.sqrt(8) - 1)
    assert (found.present, found.num_settings, found.runs) == (1, 3, ("r0", "r1", "r2"))


def test_a_strange_run_moves_nothing_and_is_named() -> None:
    found = of(calibrated(updates(1.5, 1.5, 1.5, 1.5, 60)), "speed.update_pace")

    assert found.proposed == pytest.approx(1.5)
    assert found.after == pytest.approx(0, abs=1e-9)
    assert found.far == ("r4",)


def test_the_held_out_error_falls_where_a_pace_explains_the_runs() -> None:
    found = calibrated(updates(1.9, 2.0, 2.1, 2.2, 1.8))

    pace = of(found, "speed.update_pace")
    assert pace.proposed == pytest.approx(2.0)
    assert pace.before == pytest.approx(1.0)
    assert pace.after is not None
    assert pace.after < 0.12
    assert found.after is not None
    assert found.before == pytest.approx(1.0)
    assert found.after < 0.12


def test_runs_of_one_setting_count_once() -> None:
    """Ten runs of one setting do not outvote two others: 3, 1.1, 1.2 -> 1.2, not 3."""
    found = of(calibrated(updates(*[3.0] * 10, 1.1, 1.2, settings="aaaaaaaaaabc")), "speed.update_pace")

    assert (found.num_settings, len(found.runs)) == (3, 12)
    assert found.fitted == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("runs", "present", "says"),
    [
        ([], {}, "No finished run reports how many seconds it takes."),
        (updates(2, 2), {}, "Runs of 3 different settings are needed, and there are 2."),
        (updates(2, 2, 2, 2, settings="aabb"), {}, "Runs of 3 different settings are needed, and there are 2."),
        (updates(2, 2, 2), {"speed.update_pace": 2.0}, "No improvement: on runs that it was not fitted on"),
        (updates(1, 1, 4, 0.25), {}, "the error would be a factor of 2; it is a factor of 2 now."),
        (updates(500, 500, 500), {}, "Runs give 500, outside 0.01 to 100"),
    ],
    ids=["no run", "two runs", "two settings", "as it is", "no pattern", "out of range"],
)
def test_what_is_not_proposed_is_refused_with_a_sentence(
    runs: list[FinishedRun], present: dict[str, float], says: str
) -> None:
    found = calibrated(runs, **present)

    pace = of(found, "speed.update_pace")
    assert says in pace.refusal
    assert pace.proposed is None
    assert found.values == {}
    assert (found.before, found.after) == (None, None)


def test_what_a_trainer_tells_as_one_is_scoring_and_rewards() -> None:
    jobs = rl_jobs()
    runs = []
    for number, job in enumerate(jobs):
        planned = estimate(job).time.phases
        scored = sum(planned[phase].middle for phase in ("old_logprobs", "reference") if phase in planned)
        runs.append(finished(job, number, {"experience": 1.7 * scored}))

    found = calibrated(runs)

    assert found.values == pytest.approx({"speed.scoring_pace": 1.7})


def test_a_step_that_is_one_phase_tells_its_seconds() -> None:
    runs = [replace(run, seconds={"step": run.seconds["step"]}) for run in updates(2, 2, 2)]

    assert calibrated(runs).values == pytest.approx({"speed.update_pace": 2})


def test_phases_that_overlap_say_nothing_of_what_is_beside_them() -> None:
    beside = split(schedule="async", staleness=1)
    runs = [finished(beside, number, seconds_of(beside, shipped_constants())) for number in range(3)]

    assert of(calibrated(runs), OTHER).runs == ()
    assert of(calibrated(runs), "decode.pace").runs == ("r0", "r1", "r2")


def test_every_fitted_constant_is_one_that_a_project_may_set() -> None:
    for name in CALIBRATED:
        assert shipped_constants().get(name).value == (0.05 if name == OTHER else 1.0)
