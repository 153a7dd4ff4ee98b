"""Commands that go through the API, run in this process against the console's own WSGI application."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections

from console.command_line import api_client, api_command


@pytest.fixture
def served_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve the console to commands over the test's own connection."""
    transport = httpx.WSGITransport(app=get_wsgi_application())
    real = api_client.ApiClient
    monkeypatch.setattr(api_command, "ApiClient", lambda _url, t: real("http://localhost", t, transport=transport))
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def run_command(*arguments: Any) -> tuple[int, str, str]:
    """Return exit code, output and errors of a command."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err)
    except SystemExit as left:
        return int(left.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()
