"""Addresses with and without a trailing slash."""

import pytest
from django.test import Client


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "led_to"),
    [
        ("/runs/?q=a", "/runs?q=a"),
        ("/runs/r-1/charts/", "/runs/r-1/charts"),
        ("/api/runs/", "/api/runs"),
        ("/api/runs/r-1//", "/api/runs/r-1"),
        ("/traces", "/traces/"),
    ],
)
def test_a_get_is_led_to_the_address_that_is_there(client: Client, asked: str, led_to: str) -> None:
    answer = client.get(asked)

    assert (answer.status_code, answer["Location"]) == (301, led_to)


@pytest.mark.django_db
def test_nothing_else_is_led_anywhere(client: Client) -> None:
    assert client.post("/api/runs/").status_code == 404
    assert client.get("/api/nonsense/").status_code == 404
    assert client.get("/nowhere/at/all/at/all/").status_code in (302, 404)
