"""X-Forwarded-For is believed from the proxies that the settings name, and from nobody else: the server as it runs."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.loopback import HTTP
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import sys
from unittest import mock
import uvicorn

async def application(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["client"][0].encode()})

run = uvicorn.run
with mock.patch("uvicorn.run", lambda _app, **options: run(application, **options)):
    from django.core.management import execute_from_command_line
    execute_from_command_line(["manage.py", "web", "--port", sys.argv[1]])
"""


@contextmanager
def web(tmp_path: Path, **settings: str) -> Iterator[str]:
    """Start `manage.py web` with an application that says where it thinks a request came from."""
    from console.embedded.ports import free_block

    (port,) = free_block(1, seed=str(tmp_path))
    env = {"PATH": "/usr/bin:/bin", "DJANGO_SETTINGS_MODULE": "console.settings", "PITWALL_DATA_DIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(port)], cwd=ROOT, env=env | settings)
    try:
        wait_until(lambda: _answers(port), seconds=120, what="web did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _answers(port: int) -> bool:
    try:
        return HTTP.get(f"http://127.0.0.1:{port}").is_success
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({"PITWALL_TRUSTED_PROXIES": "10.77.0.0/24"}, "127.0.0.1"),
        ({"PITWALL_TRUSTED_PROXIES": "10.77.0.0/24,127.0.0.0/8"}, "203.0.113.9"),
        ({"PITWALL_TLS": "1"}, "203.0.113.9"),
    ],
)
def test_a_forwarded_address_is_believed_of_trusted_proxies_alone(
    tmp_path: Path, settings: dict[str, str], seen: str
) -> None:
    with web(tmp_path, **settings) as url:
        assert HTTP.get(url, headers={"X-Forwarded-For": "203.0.113.9"}, timeout=60).text == seen
