"""The learning rate of each step."""

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.schedule import learning_rate


def spec(**knobs: object) -> RunSpec:
    named = {f"optimizer.{k}": v for k, v in knobs.items()} | {"train.num_steps": 10, "optimizer.learning_rate": 1.0}
    return parse_spec({"knobs": named})


def rates(made: RunSpec) -> list[float]:
    return [learning_rate(made, step) for step in range(1, 11)]


def test_constant_stays_at_the_peak() -> None:
    assert rates(spec(schedule="constant")) == [1.0] * 10


def test_warm_up_climbs_linearly_and_reaches_the_peak_at_its_last_step() -> None:
    assert rates(spec(schedule="constant", warmup_steps=4)) == pytest.approx([0.25, 0.5, 0.75] + [1.0] * 7)


def test_linear_falls_to_zero_behind_the_last_step() -> None:
    assert rates(spec(schedule="linear", warmup_steps=5)) == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1, 1, 0.8, 0.6, 0.4, 0.2]
    )


def test_cosine_falls_along_half_a_wave() -> None:
    found = rates(spec(schedule="cosine"))

    assert found[0] == 1.0
    assert found[5] == pytest.approx(0.5)
    assert found == sorted(found, reverse=True)
    assert 0 < found[-1] < 0.03


def test_the_rate_falls_over_the_decay_steps_only_and_stays_at_the_peak_before() -> None:
    found = rates(spec(schedule="linear", warmup_steps=2, decay_steps=4))

    assert found == pytest.approx([0.5] + [1.0] * 6 + [0.75, 0.5, 0.25])


def test_more_decay_steps_than_there_are_let_it_fall_from_the_end_of_warm_up_on() -> None:
    assert rates(spec(schedule="cosine", warmup_steps=3, decay_steps=50)) == rates(
        spec(schedule="cosine", warmup_steps=3)
    )


def test_a_warm_up_longer_than_the_run_never_reaches_the_peak() -> None:
    assert rates(spec(schedule="linear", warmup_steps=20))[-1] == pytest.approx(0.5)


def test_a_rate_of_zero_stays_zero() -> None:
    made = parse_spec({"knobs": {"optimizer.learning_rate": 0, "optimizer.warmup_steps": 3}})

    assert [learning_rate(made, s) for s in (1, 3, 60)] == [0, 0, 0]
