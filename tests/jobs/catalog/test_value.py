"""Numbers as people type them."""

import pytest

from jobs.catalog.knob import KnobValueInvalid, knobs
from jobs.catalog.value import plain_number


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (" 60 ", "60"),
        ("1,000", "1000"),
        ("-12,345,678.5", "-12345678.5"),
        ("0,001", "0,001"),
        ("1,5", "1,5"),
        ("1,00", "1,00"),
        ("1000,000", "1000,000"),
        ("1,000,", "1,000,"),
        ("", ""),
    ],
)
def test_only_commas_between_thousands_are_taken_away(text: str, plain: str) -> None:
    assert plain_number(text) == plain


def test_a_decimal_comma_is_refused_and_does_not_become_another_number() -> None:
    """A learning rate of 0,001 was launched as 1, and 1,5 steps as 15."""
    assert knobs()["train.num_steps"].check("1,000") == 1000
    for name, text in (("optimizer.learning_rate", "0,001"), ("train.num_steps", "1,5"), ("train.num_steps", "1,00")):
        with pytest.raises(KnobValueInvalid, match=f"'{text}' is not allowed for"):
            knobs()[name].check(text)
