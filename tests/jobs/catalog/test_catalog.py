"""Every knob and metric of the catalogue says what it is."""

import pytest

from jobs.catalog.knob import Knob, KnobValueInvalid, knobs
from jobs.catalog.metric import metric, metrics

ALL_KNOBS = list(knobs().values())


@pytest.mark.parametrize("knob", ALL_KNOBS, ids=lambda knob: knob.id)
def test_a_knob_is_complete(knob: Knob) -> None:
    assert knob.label
    assert knob.help.endswith(".")
    assert knob.source
    assert set(knob.effects) == {"memory", "speed", "stability"}
    assert knob.flags["native"]
    assert set(knob.algorithms) <= {"grpo", "sft"}
    assert knob.algorithms
    for algorithm in knob.algorithms:
        assert knob.check(knob.default_for(algorithm)) == knob.default_for(algorithm)
    if knob.type in ("int", "float"):
        assert knob.low > float("-inf")
    if knob.type == "choice":
        assert len(knob.choices) > 1


@pytest.mark.parametrize(
    ("knob_id", "typed", "value"),
    [
        ("optimizer.learning_rate", "3e-4", 3e-4),
        ("train.num_steps", "1,200", 1200),
        ("train.num_steps", 7.0, 7),
        ("memory.gradient_checkpointing", "on", True),
        ("memory.gradient_checkpointing", "", False),
        ("memory.zero_stage", "3", "3"),
    ],
)
def test_knobs_read_what_people_type(knob_id: str, typed: object, value: object) -> None:
    read = knobs()[knob_id].check(typed)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("typed", [None, True, "abc", float("inf"), "nan", 1.5, -1, [], {}, 10**400])
def test_a_whole_number_knob_refuses_everything_else(typed: object) -> None:
    with pytest.raises(KnobValueInvalid, match="a whole number from 1 to 1,000,000"):
        knobs()["train.num_steps"].check(typed)


def test_every_metric_has_a_definition_and_phases_have_one_too() -> None:
    assert all(
        m.label and m.definition.endswith(".") and m.better in ("higher", "lower", "") for m in metrics().values()
    )
    assert metric("time/weight_sync_seconds").unit == "s"
    assert metric("my/own").definition == "Reported by the trainer."
