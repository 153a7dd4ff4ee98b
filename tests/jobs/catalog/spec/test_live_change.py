"""What may change of a run while it trains."""

import pytest

from jobs.catalog.role import roles_of
from jobs.catalog.spec.live_change import changed_spec, differing_values, live_knobs
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import KnobValue, RunSpec

RATE, KL, TEMPERATURE = "optimizer.learning_rate", "algorithm.kl_coefficient", "rollout.temperature"


def change(spec: RunSpec, **by_short_name: object) -> RunSpec:
    ids = {"rate": RATE, "kl": KL, "temperature": TEMPERATURE, "steps": "train.num_steps"}
    wanted = {ids.get(name, name): value for name, value in by_short_name.items()}
    return changed_spec(spec, wanted, roles={role.id for role in roles_of(spec)})


def refusal(spec: RunSpec, **wanted: object) -> tuple[str, str]:
    with pytest.raises(SpecInvalid) as refused:
        change(spec, **wanted)
    (problem,) = refused.value.problems
    return problem.field, problem.message


def test_the_knobs_that_can_change_are_those_whose_flag_says_so() -> None:
    assert set(live_knobs(parse_spec({}))) == {RATE, KL, TEMPERATURE, "checkpoint.every_steps", "eval.every_steps"}
    assert "optimizer.critic_learning_rate" in live_knobs(parse_spec({"algorithm": "ppo"}))
    assert set(live_knobs(parse_spec({"algorithm": "sft"}))) == {RATE, "checkpoint.every_steps", "eval.every_steps"}


def test_a_change_is_read_as_people_type_it_and_is_theirs() -> None:
    spec = parse_spec({})

    changed = change(spec, rate="1e-3", temperature=0.7)

    assert changed.knobs[RATE] == KnobValue(value=1e-3, origin="you")
    assert set(differing_values(spec, changed)) == {RATE, TEMPERATURE}
    assert change(spec, rate=spec.knob(RATE)).knob(RATE) == spec.knob(RATE)


def test_values_out_of_range_and_knobs_that_cannot_change_are_refused_by_name() -> None:
    spec = parse_spec({})

    assert refusal(spec, rate=7)[1] == "7 is not allowed for Learning rate. Use a number from 0 to 1."
    field, message = refusal(spec, steps=5)
    assert field == "knobs.train.num_steps"
    assert message.startswith("Steps cannot change while the run trains. These can: ")
    assert refusal(spec, leaning_rate=5)[0] == "knobs.leaning_rate"


def test_a_change_that_needs_a_role_the_run_was_started_without_is_refused() -> None:
    without = parse_spec({"knobs": {KL: 0.0}})

    field, message = refusal(without, kl=0.01)

    assert field == f"knobs.{KL}"
    assert message.startswith("KL coefficient cannot become 0.01 while the run trains: that needs the role reference")


def test_a_coefficient_that_was_set_to_zero_can_be_set_back() -> None:
    spec = parse_spec({"knobs": {KL: 0.01}})
    roles = {role.id for role in roles_of(spec)}

    off = changed_spec(spec, {KL: 0.0}, roles=roles)

    assert changed_spec(off, {KL: 0.01}, roles=roles).knob(KL) == 0.01


def test_another_trainer_takes_no_changes() -> None:
    spec = parse_spec({"trainer": {"name": "verl"}})

    assert not live_knobs(spec)
    assert "takes no changes while it trains. Clone the run to change Learning rate." in refusal(spec, rate=1e-4)[1]
