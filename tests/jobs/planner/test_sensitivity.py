"""Which constants move an answer, and how far: the same as using them, in a fraction of the time."""

import pytest

from jobs.planner.constant import ConstantInvalid, shipped_constants
from jobs.planner.estimate import Estimator, estimate
from jobs.planner.sensitivity import sensitivities
from jobs.planner.time.steps import PACES
from tests.jobs.planner.test_estimate import JOBS


@pytest.mark.parametrize("name", ["supervised", "mixture", "colocated", "critic"])
def test_each_end_is_what_the_job_costs_with_that_value(name: str) -> None:
    job = JOBS[name]
    now = estimate(job)

    found = sensitivities(job)

    assert found
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    for each in found:
        ends = [
            estimate(job, shipped_constants().with_values({each.constant.name: value}))
            for value in (each.constant.low, each.constant.high)
        ]
        seconds = [now.time.step.middle, *(end.time.step.middle for end in ends)]
        assert (each.seconds.low, each.seconds.high) == (min(seconds), max(seconds))
        assert each.verdicts == tuple(end.verdict for end in ends)
        assert each.seconds.middle == now.time.step.middle


def test_no_constant_that_moves_the_answer_is_left_out() -> None:
    job = JOBS["colocated"]
    now = estimate(job)
    found = {each.constant.name for each in sensitivities(job)}

    for constant in shipped_constants().all():
        if constant.name in PACES.values():
            continue  # nobody has measured a pace yet: an answer does not rest on it
        for value in (constant.low, constant.high):
            other = estimate(job, shipped_constants().with_values({constant.name: value}))
            moves = other.time.step.middle != now.time.step.middle
            moves |= other.pools[0].binding.memory.total != now.pools[0].binding.memory.total
            assert not moves or constant.name in found, constant.name


def test_a_varied_estimator_leaves_the_first_as_it_was() -> None:
    job = JOBS["colocated"]
    first = Estimator()
    before = first.estimate(job)

    varied = first.varied("speed.ridge", 50.0).estimate(job)

    assert varied.time.step.middle != before.time.step.middle
    assert varied == estimate(job, shipped_constants().with_values({"speed.ridge": 50.0}))
    assert first.estimate(job) == before
    with pytest.raises(ConstantInvalid, match="Use a number from"):
        first.varied("speed.ridge", 0.0)
