"""What tests of marks share."""

from collections.abc import Iterator

import pytest

from profiling import profile


@pytest.fixture
def no_marks() -> Iterator[None]:
    """Begin and end without backends, and with nothing recorded."""
    profile.drain()
    profile._set((), records_details=True)
    yield
    profile._set((), records_details=True)
    profile.drain()
