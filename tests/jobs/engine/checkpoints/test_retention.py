"""Which checkpoints go: hand-made cases."""

import pytest

from jobs.engine.checkpoints.retention import expendable

SCORES = {10: 0.2, 20: 0.9, 30: None, 40: 0.5, 50: 0.7, 60: None}


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "pinned", "best_step", "gone"),
    [
        (1, 0, (), -1, [10, 20, 30, 40, 50]),
        (2, 0, (), -1, [10, 20, 30, 40]),
        (1, 1, (), -1, [10, 30, 40, 50]),
        (1, 3, (), -1, [10, 30]),
        (2, 2, (30,), -1, [10, 40]),  # a pinned one takes nobody's place
        (1, 1, (10, 30), -1, [40, 50]),
        (1, 1, (), 40, [10, 20, 30, 50]),  # the run's best, known from before
        (1, 1, (), 7, [10, 30, 40, 50]),  # which is not here
        (1, 0, (), 20, [10, 20, 30, 40, 50]),
        (9, 0, (), -1, []),
        (0, 0, (), -1, [10, 20, 30, 40, 50]),  # one to go on from is always left
    ],
)
def test_the_newest_the_best_and_the_pinned_stay(
    keep_last: int, keep_best: int, pinned: tuple[int, ...], best_step: int, gone: list[int]
) -> None:
    assert expendable(SCORES, keep_last=keep_last, keep_best=keep_best, pinned=pinned, best_step=best_step) == gone


def test_the_only_one_stays_and_of_two_alike_the_earlier_is_the_best() -> None:
    assert expendable({5: None}, keep_last=1, keep_best=0, pinned=()) == []
    assert expendable({5: 0.5, 6: 0.5, 7: None}, keep_last=1, keep_best=1, pinned=()) == [6]
