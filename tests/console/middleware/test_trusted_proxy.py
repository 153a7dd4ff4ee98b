"""X-Forwarded-For is believed from the proxies that the settings name, and from nobody else: as uvicorn is set up."""

import asyncio
import runpy
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from django.conf import settings
from django.core.management import call_command

from console.management.commands import web

SETTINGS = Path(web.__file__).parents[2] / "settings.py"
LEFT_OUT = ("harden", "Heartbeat", "make_in_background", "_say_how_trials_are_confined")  # what is for a whole process


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Say where a request is thought to come from."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["client"][0].encode()})


@pytest.mark.parametrize(
    ("environment", "seen"),
    [
        ({"PITWALL_TRUSTED_PROXIES": "10.77.0.0/24"}, "127.0.0.1"),
        ({"PITWALL_TRUSTED_PROXIES": "10.77.0.0/24,127.0.0.0/8"}, "203.0.113.9"),
        ({"PITWALL_TLS": "1"}, "203.0.113.9"),
        ({}, "127.0.0.1"),
    ],
)
def test_a_forwarded_address_is_believed_of_trusted_proxies_alone(
    environment: dict[str, str], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ("PITWALL_TRUSTED_PROXIES", "PITWALL_TLS"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        monkeypatch.setattr(settings, "TRUSTED_PROXIES", runpy.run_path(str(SETTINGS))["TRUSTED_PROXIES"])
    for name in LEFT_OUT:
        monkeypatch.setattr(web, name, Mock())
    run = Mock()
    monkeypatch.setattr(uvicorn, "run", run)
    call_command("web")
    config = uvicorn.Config(application, **run.call_args.kwargs)
    config.load()

    assert asyncio.run(address_seen(config.loaded_app)) == seen


async def address_seen(served: Any) -> str:
    """Return from where the request of a local proxy is thought to come."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"x-forwarded-for", b"203.0.113.9")]
    await served({"type": "http", "client": ("127.0.0.1", 40000), "scheme": "http", "headers": headers}, Mock(), send)
    return bytes(sent[-1]["body"]).decode()
