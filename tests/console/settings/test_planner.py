"""Settings: what a project's planner uses: prices with their day, constants with their evidence; by admins."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import AuditEvent, Project
from jobs.planner.constant import shipped_constants
from jobs.planning.settings import constants_of, prices_of
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db

FIRST = shipped_constants().all()[0]


@pytest.fixture
def project() -> Project:
    return make_project("team")


def signed_in(project: Project, role: str) -> Client:
    client = Client()
    client.force_login(make_user(project=project, role=role), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def admin(project: Project) -> Client:
    return signed_in(project, "admin")


def post(client: Client, verb: str, status: int = 200, **fields: Any) -> str:
    answer = client.post(reverse(verb, args=["team"]), fields, follow=True)
    assert answer.status_code == status, answer.content
    return unescape(answer.content.decode())


def test_a_price_is_kept_with_its_day_and_forgotten(project: Project, admin: Client) -> None:
    before = timezone.localdate()
    page = post(admin, "change-price", accelerator="h200-sxm", price="3,25")
    project.refresh_from_db()

    assert prices_of(project) == {"h200-sxm": 3.25}
    assert project.prices["h200-sxm"]["on"] in {day.isoformat() for day in (before, timezone.localdate())}
    assert 'data-price="h200-sxm"' in page
    assert "3.25" in page
    post(admin, "change-currency", currency="cny")
    assert "CNY an hour" in post(admin, "change-price", accelerator="l4", price="0.5")
    post(admin, "change-price", accelerator="h200-sxm", remove="1")
    project.refresh_from_db()
    assert prices_of(project) == {"l4": 0.5}
    kept = AuditEvent.objects.filter(verb="planner.set").order_by("pk")
    assert [list(each.after) for each in kept] == [["prices"], ["currency"], ["prices"], ["prices"]]
    assert kept[3].before["prices"]["h200-sxm"]["price"] == 3.25
    assert kept[3].after["prices"]["h200-sxm"] is None


@pytest.mark.parametrize(
    ("verb", "fields", "sentence"),
    [
        ("change-price", {"accelerator": "h200-sxm", "price": "-1"}, "'-1' is not allowed for the price"),
        ("change-price", {"accelerator": "h200-sxm", "price": "nan"}, "Use a number from 0 to 10,000."),
        ("change-price", {"accelerator": "abacus", "price": "1"}, "'abacus' is not a known accelerator"),
        ("change-currency", {"currency": "euro"}, "'euro' is not a currency. Use three letters"),
        ("change-constants", {FIRST.name: "many"}, f"'many' is not allowed for {FIRST.label}. Use a number."),
        ("change-constants", {FIRST.name: str(FIRST.high + 1)}, f"Use a number from {FIRST.low:g} to {FIRST.high:g}."),
    ],
)
def test_what_cannot_be_is_refused_beside_its_field(
    project: Project, admin: Client, verb: str, fields: dict[str, str], sentence: str
) -> None:
    page = post(admin, verb, 422, **fields)
    project.refresh_from_db()

    assert sentence in page
    assert 'aria-invalid="true"' in page
    assert (project.prices, project.plan_constants, project.currency) == ({}, {}, "USD")
    if verb == "change-constants":
        assert re.search(rf'id="constants-{FIRST.name.split(".")[0]}" open', page)
        assert f'value="{fields[FIRST.name]}"' in page


def test_a_constant_is_set_marked_and_taken_back(project: Project, admin: Client) -> None:
    shown = {each.name: f"{each.value:.6g}" for each in shipped_constants().all() if each.name.startswith("memory.")}
    name = next(iter(shown))
    constant = shipped_constants().get(name)
    page = post(admin, "change-constants", **{**shown, name: f"{constant.high:.6g}"})
    project.refresh_from_db()

    assert list(project.plan_constants) == [name]  # what was sent as it stood is not the project's own
    assert constants_of(project).value(name) == pytest.approx(constant.high, rel=1e-5)
    assert constants_of(project).get(name).is_changed
    assert f'data-constant="{name}" data-own' in page
    assert f"shipped: {constant.value:.6g}" in page
    post(admin, "change-constants", **{name: f"{constant.value!r}"})
    project.refresh_from_db()
    assert project.plan_constants == {}
    post(admin, "change-constants", **{name: f"{constant.high:.6g}", FIRST.name: f"{FIRST.low:.6g}"})
    post(admin, "change-constants", reset=name)
    project.refresh_from_db()
    assert list(project.plan_constants) == [FIRST.name]
    post(admin, "change-constants", reset="all")
    project.refresh_from_db()
    assert project.plan_constants == {}


def test_every_constant_is_shown_with_evidence_source_and_reason(admin: Client) -> None:
    page = unescape(admin.get(reverse("settings")).content.decode())

    for constant in shipped_constants().all():
        row = re.search(rf'data-constant="{re.escape(constant.name)}"(.*?)</tr>', page, re.DOTALL)
        assert row is not None, constant.name
        for word in (constant.label[1:], constant.reason, constant.source, constant.evidence, f"{constant.value:.6g}"):
            assert word in row[1], (constant.name, word)


def test_a_value_that_no_longer_holds_is_said_and_can_be_forgotten(project: Project, admin: Client) -> None:
    Project.objects.filter(pk=project.pk).update(
        plan_constants={"speed.gone": 2.0}, prices={"abacus": {"price": 1.0, "on": "2020-01-01"}}
    )
    page = unescape(admin.get(reverse("settings")).content.decode())

    assert "speed.gone is back to its default; the project's own value is removed." in page
    assert 'data-price="abacus"' in page
    post(admin, "change-constants", reset="speed.gone")
    post(admin, "change-price", accelerator="abacus", remove="1")
    project.refresh_from_db()
    assert (project.plan_constants, project.prices) == ({}, {})


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_others_read_what_admins_set(project: Project, role: str) -> None:
    page = signed_in(project, role).get(reverse("settings")).content.decode()

    assert FIRST.name in page
    assert "Admins of the project set prices and constants." in page
    assert f'name="{FIRST.name}"' not in page
    assert "Keep the price" not in page
