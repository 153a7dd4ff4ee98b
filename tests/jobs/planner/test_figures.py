"""Estimates in words."""

import pytest

from jobs.planner.figures import size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0.84 * GIB, "0.8 GiB"), (12.4 * GIB, "12 GiB"), (1023 * GIB, "1,023 GiB"), (1039 * GIB, "1.0 TiB")],
)
def test_bytes_are_said_as_the_tables_of_the_pages_say_them(num_bytes: float, text: str) -> None:
    assert size(num_bytes) == text
