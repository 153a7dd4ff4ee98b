"""What two recordings allow to say, word by word."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.comparison.trace_verdict import verdict_of


def compared(before: list[int], after: list[int], *, per: str = "step", fit: float = 1.0, same: bool = False) -> Any:
    """Return what the verdict looks at: steps of each side, in ms."""
    means = [sum(side) / len(side) for side in (before, after)]
    return SimpleNamespace(
        difference=SimpleNamespace(before=means[0], after=means[1]),
        comparability=SimpleNamespace(is_enough=fit >= 0.5, is_same=same),
        per=per,
        walls=(tuple(before), tuple(after)),
    )


@pytest.mark.parametrize(
    ("before", "after", "more", "word"),
    [
        ([100], [101], {}, "none"),
        ([100], [104], {}, "too_small"),
        ([100], [105], {}, "slower"),
        ([100], [90], {}, "faster"),
        # the spread of several steps says more, either way
        ([100, 100, 101, 99], [104, 103, 104, 105], {}, "slower"),
        ([100, 130, 80, 120], [120, 150, 90, 130], {}, "too_small"),
        ([100, 130, 80], [120, 150, 90], {"per": "window"}, "slower"),
        ([100], [200], {"fit": 0.4}, "cannot"),
        ([100], [100], {"same": True}, "same_recording"),
        ([100], [200], {"per": "second"}, "shares"),
    ],
)
def test_a_verdict(before: list[int], after: list[int], more: dict[str, Any], word: str) -> None:
    assert verdict_of(compared(before, after, **more)).word == word
