"""Several rewards in one: weights, names, and what becomes of a completion that a part cannot score."""

from collections.abc import Sequence

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.rollouts.mixed_reward import MixedReward, Policy, open_mixed
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, limits_of

FAILS_ON_X = "def reward(p, c, a):\n    return 1 / (c != 'x')\n"


class Fixed:
    """Gives what it was made with."""

    def __init__(self, *outcomes: float | str) -> None:
        self.outcomes, self.is_closed = outcomes, False

    def score(self, completions: Sequence[Completion]) -> list[Score | RewardFailed]:
        return [
            RewardFailed(each, kind="raised")
            if isinstance(each, str)
            else Score(total=each, parts={"inner": each}, is_right=each > 0)
            for each in self.outcomes
        ]

    def close(self) -> None:
        self.is_closed = True


def texts(*completions: str) -> list[Completion]:
    return [Completion(prompt="p", completion=text, answer="1") for text in completions]


def scored(*parts: tuple[str, float, Fixed], policy: Policy = "stop", value: float = 0.0) -> list[Score]:
    mixed = MixedReward(parts, on_failure=policy, failure_score=value)
    return mixed.score(texts(*"ab"))


def test_one_part_is_itself_times_its_weight() -> None:
    once, twice = scored(("math", 1.0, Fixed(0.5, 0.0))), scored(("math", 2.0, Fixed(0.5, 0.0)))

    assert [score.total for score in once] == [0.5, 0.0]
    assert [score.total for score in twice] == [1.0, 0.0]
    assert [score.parts for score in twice] == [{"inner": 0.5}, {"inner": 0.0}]


def test_parts_are_added_by_weight_and_kept_by_name_without_it() -> None:
    first, second = scored(("math", 1.0, Fixed(1.0, 0.0)), ("length", -0.5, Fixed(0.4, 1.0)))

    assert first.total == pytest.approx(0.8)
    assert second.total == pytest.approx(-0.5)
    assert dict(first.parts) == {"math": 1.0, "length": 0.4}
    assert (first.is_right, second.is_right) == (True, False)  # the first part that knows


def test_stop_raises_the_first_failure() -> None:
    with pytest.raises(RewardFailed, match="second"):
        scored(("math", 1.0, Fixed(1.0, 1.0)), ("judge", 1.0, Fixed(1.0, "second")))


def test_score_counts_a_value_for_the_part_that_failed_alone() -> None:
    first, second = scored(("math", 1.0, Fixed(1.0, 1.0)), ("judge", 2.0, Fixed("down", 1.0)), policy="score", value=-1)

    assert (first.total, second.total) == (-1.0, 3.0)
    assert (first.failure, second.failure) == ("down", "")
    assert dict(first.parts) == {"math": 1.0}
    assert not first.is_skipped


def test_skip_marks_the_completion_and_goes_on_while_something_is_scored() -> None:
    first, second = scored(("math", 1.0, Fixed(1.0, 1.0)), ("judge", 1.0, Fixed("down", 1.0)), policy="skip")

    assert (first.is_skipped, second.is_skipped) == (True, False)
    assert second.total == 2.0


def test_skip_ends_the_run_where_nothing_could_be_scored() -> None:
    with pytest.raises(RewardFailed, match="down"):
        scored(("judge", 1.0, Fixed("down", "down")), policy="skip")


def test_a_file_that_raises_on_one_completion_loses_that_one_alone() -> None:
    knobs = {"reward.on_failure": "score", "reward.failure_score": -2.0, "reward.num_workers": 1}
    spec = parse_spec({"reward": {"kind": "custom", "source": FAILS_ON_X}, "knobs": knobs})
    mixed = open_mixed(spec, limits_of(spec))
    try:
        scores = mixed.score(texts("a", "x", "b"))
        again = mixed.score(texts("a"))
    finally:
        mixed.close()

    assert [score.total for score in scores] == [1.0, -2.0, 1.0]
    assert "ZeroDivisionError" in scores[1].failure
    assert again[0].total == 1.0


def test_what_was_opened_is_closed_when_a_later_part_cannot_be() -> None:
    more = [{"kind": "custom", "source": "import not_there"}]
    spec = parse_spec({"reward": {"kind": "format", "more": more}})

    with pytest.raises(RewardFailed, match="not_there"):
        open_mixed(spec, limits_of(spec))
