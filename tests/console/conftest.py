"""Fixtures of the console's tests: a live console and a window on it for those that drive a browser."""

from collections.abc import Iterator

import pytest

from jobs.cluster import forget_state
from tests.console.commands import served_here  # noqa: F401 (fixture)
from tests.console.live_console import console_cluster, live_console, made_database  # noqa: F401 (fixtures)
from tests.console.window import page  # noqa: F401 (fixture)


@pytest.fixture(autouse=True)
def _cluster_is_asked_anew() -> Iterator[None]:
    """Forget what an earlier test's Ray has answered."""
    forget_state()
    yield
    forget_state()
