"""Fixtures of the console's tests: a live console and a window on it for those that drive a browser."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from console.api.diagnosis import diagnosis
from console.api.traces import trace_difference, trace_summary
from jobs.cluster.ray_api import forget_state
from jobs.traces import results as trace_answers
from tests.console.commands import served_here  # noqa: F401 (fixture)
from tests.console.live_console import console_cluster, consoles, live_console, made_database  # noqa: F401 (fixtures)
from tests.console.window import page, profile  # noqa: F401 (fixtures)
from tests.trials import trials_here  # noqa: F401 (fixture)


@pytest.fixture(autouse=True)
def _cluster_is_asked_anew() -> Iterator[None]:
    """Forget what an earlier test's Ray has answered."""
    forget_state()
    yield
    forget_state()


@pytest.fixture(autouse=True)
def _trials_are_answered_here(trials_here: None) -> None:  # noqa: F811 (fixture)
    """Start no process for each check of a launch."""


@pytest.fixture(autouse=True)
def _pages_of_traces_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page wait for what is computed of a trace, however busy the machine is."""
    monkeypatch.setattr(trace_answers, "PATIENCE", 120.0)
    monkeypatch.setattr(diagnosis, "API_PATIENCE", 120.0)
    monkeypatch.setattr(trace_summary, "API_PATIENCE", 120.0)
    monkeypatch.setattr(trace_difference, "API_PATIENCE", 120.0)


TAG = re.compile(rb"<[a-zA-Z][^<>]*>")


@pytest.fixture(autouse=True)
def _pages_without_line_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give tests the HTML of pages without the line breaks that its templates have where no space shows."""
    request = Client.request

    def without_breaks(self: Client, **arguments: Any) -> Any:
        response = request(self, **arguments)
        if not response.streaming and response.get("Content-Type", "").startswith("text/html"):
            html = TAG.sub(lambda tag: re.sub(rb"\s+(?=>)", b"", re.sub(rb"\s+", b" ", tag[0])), response.content)
            html = re.sub(rb"(<[a-zA-Z][^<>]*>)\s*\n\s*", rb"\1", html)
            html = re.sub(rb"\s*\n\s*(?=</)", b"", html)
            html = re.sub(rb"(</[a-z]+>)\s*\n\s*(?=<)", rb"\1", html)
            response.content = re.sub(rb"\s*\n\s*", b" ", html)
        return response

    monkeypatch.setattr(Client, "request", without_breaks)
