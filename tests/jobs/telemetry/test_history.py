"""Which steps of which attempt a run's history shows; every limit here is computed by hand."""

import pytest

from jobs.models import Attempt
from jobs.telemetry.history import is_visible, limits, visible_through
from tests.rows import make_run


@pytest.mark.parametrize(
    ("began", "expected"),
    [
        ({1: None}, {1: None}),
        # Failed at 57, resumed from 40: 41 to 57 are dead.
        ({1: None, 2: (1, 40)}, {1: 40, 2: None}),
        # Resumed once more from the second attempt's own 60.
        ({1: None, 2: (1, 40), 3: (2, 60)}, {1: 40, 2: 60, 3: None}),
        # Back to 20: all of the second attempt is dead, and the first one after 20.
        ({1: None, 2: (1, 40), 3: (1, 20)}, {1: 20, 2: -1, 3: None}),
        # Started again from nothing: only the newest counts.
        ({1: None, 2: (1, 40), 3: None}, {1: -1, 2: -1, 3: None}),
        # Resumed from a dead branch: the first attempt's 80 lies past what the second one took over at 40.
        ({1: None, 2: (1, 40), 3: (1, 80)}, {1: 80, 2: -1, 3: None}),
        # The same with one more on top, and a dead one that was itself resumed.
        ({1: None, 2: (1, 40), 3: (2, 50), 4: (1, 30), 5: (4, 35)}, {1: 30, 2: -1, 3: -1, 4: 35, 5: None}),
        # The second died before it did a step; the third starts from the same checkpoint.
        ({1: None, 2: (1, 40), 3: (1, 40)}, {1: 40, 2: -1, 3: None}),
        # Restored from step 0, before the first step: what it measured of the starting model stays.
        ({1: None, 2: (1, 0)}, {1: 0, 2: None}),
        ({}, {}),
    ],
)
def test_limits(began: dict[int, tuple[int, int] | None], expected: dict[int, int | None]) -> None:
    assert limits(began) == expected


def test_a_limit_is_the_last_step_that_counts() -> None:
    assert [is_visible(step, 40) for step in (39, 40, 41)] == [True, True, False]
    assert is_visible(10**9, None)
    assert not is_visible(0, -1)


@pytest.mark.django_db
def test_limits_come_from_the_rows() -> None:
    run = make_run(state="failed")
    Attempt.objects.create(run=run, number=2, submission_id="two", resume_attempt=1, resume_step=40)
    Attempt.objects.create(run=run, number=3, submission_id="three")

    assert visible_through(run.pk) == {1: -1, 2: -1, 3: None}
