"""A fake Ray that the console talks to, and the reconciler by the clock."""

from collections.abc import Iterator
from typing import Any

import pytest

from jobs.cluster.ray_api import forget_state
from tests.jobs.clock import Clock
from tests.jobs.fake_ray import TOKEN, FakeRay, serve


@pytest.fixture
def ray(settings: Any) -> Iterator[FakeRay]:
    with serve() as server:
        settings.RAY_ADDRESS, settings.RAY_AUTH_TOKEN = server.address, TOKEN
        forget_state()  # of another test's
        yield server
        forget_state()


@pytest.fixture
def clock() -> Clock:
    return Clock()
