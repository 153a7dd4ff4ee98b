"""What load balancers and the supervisor ask."""

from pathlib import Path

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def test_a_living_process_says_so_without_sign_in(client: Client) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.content == b"ok\n"


def test_not_ready_without_redis(client: Client, settings: object, tmp_path: Path) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"  # type: ignore[attr-defined]
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"database": True, "redis": False}
