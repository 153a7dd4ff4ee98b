"""What every answer says to browsers: keep nothing, embed nothing, and with TLS never come without it again."""

from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def test_without_tls_nothing_speaks_of_it() -> None:
    answer = Client().get("/signin")

    assert "Strict-Transport-Security" not in answer
    assert answer["Cross-Origin-Opener-Policy"] == answer["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in answer["Permissions-Policy"]
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_with_tls_a_browser_keeps_to_it_and_others_are_sent_there(settings: Any) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = 3600
    settings.SECURE_SSL_REDIRECT = True
    client = Client()

    safe = client.get("/signin", headers={"X-Forwarded-Proto": "https"})
    plain = client.get("/signin")

    assert (safe.status_code, safe["Strict-Transport-Security"]) == (200, "max-age=3600")
    assert (plain.status_code, plain["Location"]) == (301, "https://testserver/signin")
    assert "Strict-Transport-Security" not in plain  # a promise by an open line is worth nothing
    assert client.get("/healthz").status_code == 200
    assert client.post("/ingest/r-none/1/events").status_code == 401


def test_what_is_nobodys_may_be_kept() -> None:
    assert Client().get("/frame/texts.js")["Cache-Control"] == "max-age=300, public"
