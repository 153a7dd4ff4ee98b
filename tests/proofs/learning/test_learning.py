"""The proof of learning: when seeds have shown it, what each algorithm runs, and what is said of it."""

from typing import Any

import pytest

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import parse_spec
from tests.proofs.answers import is_right
from tests.proofs.learning import report, runs
from tests.proofs.learning.budgets import RATE, SEEDS, Trial, budget_of, learned_algorithms, spec_of, trials
from tests.proofs.learning.criterion import Target, judge

RISE = Target(measure="accuracy", is_rise=True, mean=0.25, each=0.2)


def test_the_interval_of_the_mean_and_every_seed_have_to_lie_above_the_target() -> None:
    """By hand: the mean of 0.40, 0.42, 0.44, 0.46, 0.48 is 0.44, s 0.031623, and 2.776 s / sqrt(5) 0.03926."""
    found = judge([0.40, 0.42, 0.44, 0.46, 0.48], RISE)

    assert [found.mean, found.least] == pytest.approx([0.44, 0.40])
    assert [found.low, found.high] == pytest.approx([0.40074, 0.47926], abs=1e-5)
    assert found.holds


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 5,  # a learning rate of 0
        [0.26, 0.24, 0.26, 0.24, 0.27],  # the mean may be below
        [0.9, 0.21, 0.9, 0.21, 0.21],  # so may it here, by the spread
        [0.45, 0.45, 0.45, 0.45, 0.19],  # one seed
        [0.9],  # nobody knows the spread of one
    ],
)
def test_less_is_not_enough(values: list[float]) -> None:
    assert not judge(values, RISE).holds


@pytest.mark.parametrize("name", learned_algorithms())
def test_every_algorithm_has_a_budget_that_parses_with_and_without_a_learning_rate(name: str) -> None:
    for learns in (True, False):
        spec = parse_spec(spec_of(Trial(algorithm=name, seed=3, learns=learns), runs.TEACHER_MODEL))

        assert (spec.float_knob(RATE) > 0) is learns
        assert spec.int_knob("train.seed") == 3
    assert budget_of(name).targets


def test_all_algorithms_have_a_seed_before_one_has_the_next() -> None:
    names = learned_algorithms()
    made = trials(names)

    assert [trial.seed for trial in made] == [seed for seed in (*SEEDS, *SEEDS) for _ in names]
    assert [trial.learns for trial in made] == [learns for learns in (True, False) for _ in SEEDS for _ in names]
    assert {name for name in names if is_in(name, "rl")} >= {"grpo", "ppo", "distill_on_policy"}


@pytest.mark.parametrize(
    ("response", "right"), [("7+7=14. #### 54", True), ("#### 544", False), ("The answer is 54.", False), ("", False)]
)
def test_a_right_answer_stands_alone_behind_the_mark(response: str, *, right: bool) -> None:
    assert is_right(response, "54") is right


def measured(rise: float, name: str) -> dict[str, Any]:
    pair = [0.5, 0.5 + rise]
    curve = {"0": pair[0], "12": pair[1]}
    return {
        "measures": {target.measure: pair for target in budget_of(name).targets},
        "curves": {budget_of(name).curve: curve},
        "revision": "abc",
        "seconds": 6.0,
    }


def test_the_page_says_what_is_shown_and_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """GRPO learned with five seeds, RLOO reached its target without learning, CISPO has four seeds, SFT missed it."""

    def result_of(trial: Trial) -> dict[str, Any] | None:
        rises = {"grpo": (0.45, 0.0), "rloo": (0.45, 0.4), "cispo": (0.45, 0.0), "sft": (0.2, 0.0)}
        if trial.algorithm not in rises or (trial.algorithm, trial.seed) == ("cispo", 5):
            return None
        return measured(rises[trial.algorithm][not trial.learns], trial.algorithm)

    monkeypatch.setattr(report, "result_of", result_of)
    monkeypatch.setattr(report, "REPORT", tmp_path / "page.md")
    monkeypatch.setattr(report, "PICTURE", tmp_path / "page.svg")
    monkeypatch.setattr(report, "learned_algorithms", lambda: ("cispo", "grpo", "rloo", "sft", "dpo"))

    page = report.write_report()

    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    assert {name: row.rstrip(" |").endswith("| shown") for name, row in rows.items() if name != "algorithm"} == {
        "CISPO": False,
        "GRPO": True,
        "RLOO": False,
        "SFT": False,
    }
    assert "0.450 (0.450 to 0.450)" in rows["GRPO"]
    assert report.shortcomings() == [
        "cispo has 4 of 5 seeds, 4 with a learning rate of 0.",
        "rloo reaches accuracy with a learning rate of 0.",
        "sft misses accuracy: value of the mean surely above 0.9, of each seed above 0.85.",
        "dpo has 0 of 5 seeds, 0 with a learning rate of 0.",
    ]
    assert (tmp_path / "page.svg").read_text().count("<polyline") == 8
