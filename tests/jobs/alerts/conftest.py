"""Fixtures of the tests of alerts."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jobs.alerts.watchman import Receiver, Watchman


@pytest.fixture
def watchman(monkeypatch: pytest.MonkeyPatch) -> Watchman:
    # Ray and Redis are not there; what they say has tests of its own.
    monkeypatch.setattr("jobs.alerts.worker_beat.ask", lambda: None)
    return Watchman()


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.WEBHOOK_HOSTS = ["127.0.0.1"]
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
