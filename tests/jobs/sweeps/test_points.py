"""Points of a sweep: by hand, and as properties of any sweep."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.catalog.knob import knobs
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.sweeps.plan import MAX_RUNS, SweepKnob, SweepPlan, parse_plan
from jobs.sweeps.points import Point, point_name, point_specs, points

RATE = "optimizer.learning_rate"
GROUP = "rollout.samples_per_prompt"
SPEC = parse_spec({"name": "base"})


def plan(*chosen: dict[str, Any], **more: Any) -> SweepPlan:
    return parse_plan({"knobs": list(chosen), **more}, spec=SPEC)


def made(*chosen: dict[str, Any], **more: Any) -> list[Point]:
    return list(points(plan(*chosen, **more)))


def refused(raw: Any, *, algorithm: str = "grpo") -> dict[str, str]:
    """Return field -> sentence of what stands against a sweep, or against its points."""
    spec = parse_spec({"algorithm": algorithm})
    with pytest.raises(SpecInvalid) as caught:
        point_specs(spec, points(parse_plan(raw, spec=spec)), name="n")
    return {p.field: p.message for p in caught.value.problems}


def test_a_grid_takes_every_combination_the_last_knob_fastest() -> None:
    found = made({"id": RATE, "values": ["1e-4", 3e-4]}, {"id": GROUP, "values": [4, "8"]})

    assert found == [{RATE: r, GROUP: g} for r in (1e-4, 3e-4) for g in (4, 8)]


def test_of_a_larger_grid_the_seed_draws_some_in_order() -> None:
    some = {"id": "train.seed", "values": list(range(30))}

    first = made(some, num_runs=5, seed=1)

    assert first == made(some, num_runs=5, seed=1) != made(some, num_runs=5, seed=2)
    seeds = [point["train.seed"] for point in first]
    assert seeds == sorted(set(seeds), key=int)
    assert len(seeds) == 5


def test_a_log_range_draws_every_decade_alike() -> None:
    found = made({"id": RATE, "low": 1e-6, "high": 1e-2, "scale": "log"}, method="random", num_runs=200)

    decades = [math.floor(math.log10(float(point[RATE]))) for point in found]
    assert all(30 <= decades.count(decade) <= 70 for decade in (-6, -5, -4, -3))


def test_a_linear_range_draws_every_stretch_alike() -> None:
    found = made({"id": "algorithm.clip_ratio_high", "low": 0.0, "high": 4.0}, method="random", num_runs=200)

    quarters = [int(float(point["algorithm.clip_ratio_high"])) for point in found]
    assert all(30 <= quarters.count(quarter) <= 70 for quarter in range(4))


def test_whole_numbers_are_whole_and_both_ends_can_be_drawn() -> None:
    for scale in ("linear", "log"):
        found = made({"id": GROUP, "low": 2, "high": 6, "scale": scale}, method="random", num_runs=5)

        assert sorted(point[GROUP] for point in found) == [2, 3, 4, 5, 6]
        assert all(type(point[GROUP]) is int for point in found)


def test_random_lists_take_choices_and_switches() -> None:
    chosen = [
        {"id": "algorithm.kl_estimator", "values": ["k1", "k2", "k3"]},
        {"id": "algorithm.normalize_by_std", "values": [True, "off"]},
    ]

    found = made(*chosen, method="random", num_runs=6)

    assert {tuple(point.values()) for point in found} == {(k, b) for k in ("k1", "k2", "k3") for b in (True, False)}


numbers = st.floats(1e-6, 0.5, allow_nan=False)


@given(low=numbers, high=numbers, scale=st.sampled_from(["linear", "log"]), seed=st.integers(0, 2**63 - 1))
@settings(max_examples=40, deadline=None)
def test_drawn_points_lie_in_their_range_are_distinct_and_repeat(
    low: float, high: float, scale: Any, seed: int
) -> None:
    low, high = min(low, high), max(low, high) + 0.01
    chosen = (SweepKnob(id=RATE, low=low, high=high, scale=scale), SweepKnob(id=GROUP, low=2, high=1024, scale=scale))
    asked = SweepPlan(knobs=chosen, method="random", num_runs=12, max_concurrent=1, seed=seed)

    found = points(asked)

    assert found == points(asked)
    assert len({tuple(point.items()) for point in found}) == 12
    for point in found:
        assert low <= float(point[RATE]) <= high
        assert 2 <= int(point[GROUP]) <= 1024
        assert all(knobs()[name].check(value) == value for name, value in point.items())


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_grid_has_the_size_of_its_product_and_no_point_twice(sizes: list[int], data: st.DataObject) -> None:
    names = (RATE, GROUP, "train.seed")[: len(sizes)]
    chosen = [
        {"id": name, "values": [n / 100 if name == RATE else n + 2 for n in range(size)]}
        for name, size in zip(names, sizes, strict=True)
    ]
    size = math.prod(sizes)
    num_runs = data.draw(st.integers(1, size))

    found = made(*chosen, num_runs=num_runs)

    assert len({tuple(point.items()) for point in found}) == num_runs
    assert plan(*chosen).num_runs == size


def test_points_become_specs_that_say_who_chose_and_what_they_are() -> None:
    found = made({"id": RATE, "values": [1e-4]}, {"id": GROUP, "values": [4]})

    (spec,) = point_specs(SPEC, found, name="math")

    assert spec.name == "math · lr=1e-4, samples_per_prompt=4"
    assert (spec.knob(RATE), spec.knobs[RATE].origin) == (1e-4, "you")
    assert {k for k in spec.knobs if spec.knobs[k] != SPEC.knobs[k]} == {RATE, GROUP}


def test_a_long_name_keeps_its_values() -> None:
    name = point_name("x" * 120, {RATE: 3e-4, "checkpoint.every_steps": 5})

    assert len(name) == 120
    assert name.endswith("xxx · lr=3e-4, checkpoint.every_steps=5")


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        ([], "sweep", "A sweep is a JSON object"),
        ({}, "sweep.knobs", "varies one to 3 knobs"),
        ({"knobs": [{"id": RATE, "values": [1]}] * 4}, "sweep.knobs", "varies one to 3 knobs"),
        ({"knobs": [3]}, "sweep.knobs.0", "not 3"),
        ({"knobs": [{"id": "lr", "values": [1]}]}, "sweep.knobs.0.id", "There is no 'lr' here."),
        ({"knobs": [{"id": "learning_rate", "values": [1]}]}, "sweep.knobs.0.id", f"Did you mean {RATE}?"),
        ({"knobs": [{"id": "train.batch_size", "values": [1]}]}, "sweep.knobs.0.id", "does not apply to GRPO"),
        ({"knobs": [{"id": RATE, "values": [0.1]}, {"id": RATE, "values": [0.2]}]}, "sweep.knobs.1.id", "varied twice"),
        ({"knobs": [{"id": RATE}]}, "sweep.knobs.0.values", "Give the values of Learning rate: a number from 0 to 1"),
        ({"knobs": [{"id": RATE, "values": []}]}, "sweep.knobs.0.values", "List 1 to 100 values"),
        ({"knobs": [{"id": RATE, "values": ["hot"]}]}, "sweep.knobs.0.values", "'hot' is not allowed for Learning"),
        ({"knobs": [{"id": RATE, "values": ["3e-4", 0.0003]}]}, "sweep.knobs.0.values", "3e-4 occurs twice"),
        ({"knobs": [{"id": RATE, "low": 1e-5, "high": 1e-3}]}, "sweep.knobs.0.values", "A grid needs a list"),
        (
            {"knobs": [{"id": RATE, "values": [1e-3]}], "num_runs": 2},
            "sweep.num_runs",
            "more than the 1 point of the grid",
        ),
        ({"knobs": [{"id": RATE, "values": [1e-3]}], "num_runs": 1.5}, "sweep.num_runs", "1.5 is not allowed"),
        ({"knobs": [{"id": RATE, "values": [1e-3]}], "max_concurrent": 0}, "sweep.max_concurrent", "from 1 to 200"),
        ({"knobs": [{"id": RATE, "values": [1e-3]}], "seed": -1}, "sweep.seed", "-1 is not allowed"),
        ({"knobs": [{"id": RATE, "values": [1e-3]}], "seed": float("nan")}, "sweep.seed", "nan is not allowed"),
        ({"knobs": [{"id": RATE, "values": [1e-3]}], "method": "best"}, "sweep.method", "Use grid or random"),
        ({"knobs": [{"id": RATE, "values": [1e-3]}], "runs": 3}, "sweep.runs", "Did you mean num_runs?"),
    ],
)
def test_what_is_wrong_with_a_sweep_is_told_at_its_field(raw: Any, field: str, words: str) -> None:
    assert words in refused(raw)[field]


@pytest.mark.parametrize(
    ("knob", "field", "words"),
    [
        ({"id": RATE, "low": 0.1, "high": 0.01}, "sweep.knobs.0.high", "ends at 0.01, which is not above its start"),
        ({"id": RATE, "low": 0, "high": 0.01, "scale": "log"}, "sweep.knobs.0.low", "begins above 0; 0 is not"),
        ({"id": RATE, "low": 0, "high": 2}, "sweep.knobs.0.high", "a number from 0 to 1"),
        ({"id": RATE, "low": 0, "high": 1, "scale": "ln"}, "sweep.knobs.0.scale", "Use linear or log"),
        ({"id": RATE, "low": 0, "high": 1, "values": [1]}, "sweep.knobs.0.values", "values and a range"),
        ({"id": GROUP, "low": 2.5, "high": 8}, "sweep.knobs.0.low", "a whole number from 2"),
        ({"id": "algorithm.kl_estimator", "low": 1, "high": 2}, "sweep.knobs.0.low", "has no range. List its values"),
        ({"id": GROUP, "low": 2, "high": 4}, "sweep.num_runs", "give 3 different points, 9 runs are asked for"),
    ],
)
def test_what_is_wrong_with_a_range_is_told_at_its_field(knob: Any, field: str, words: str) -> None:
    assert words in refused({"knobs": [knob], "method": "random", "num_runs": 9})[field]


def test_random_has_to_say_how_many_and_a_huge_grid_too() -> None:
    many = [{"id": name, "values": list(range(2, 12))} for name in (GROUP, "train.seed", "checkpoint.keep")]

    assert refused({"knobs": many[:1], "method": "random"})["sweep.num_runs"] == "Set how many runs to draw: 1 to 200."
    assert "The grid has 1,000 points" in refused({"knobs": many})["sweep.num_runs"]
    assert len(made(*many, num_runs=MAX_RUNS)) == MAX_RUNS


def test_each_point_that_cannot_run_is_told_with_its_values() -> None:
    with pytest.raises(SpecInvalid) as caught:
        point_specs(
            SPEC,
            made({"id": "rollout.prompts_per_step", "values": [15, 16, 17]}, {"id": GROUP, "values": [3, 4]}),
            name="n",
        )

    told = [(p.field, p.message) for p in caught.value.problems]
    assert told == [
        (
            "sweep.knobs.0.values",
            f"With prompts_per_step={n}, samples_per_prompt=3: {n * 3} samples per update do not divide by 2 policy "
            "ranks. Use a multiple of 2.",
        )
        for n in (15, 17)
    ]


def test_a_million_unknown_fields_are_refused_by_the_first_few() -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_plan({f"x{number}": 1 for number in range(30_000)}, spec=parse_spec({}))

    assert len(refused.value.problems) < 30
