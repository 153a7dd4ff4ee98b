"""Expensive questions of one person: two at once, a few wait, the rest get 429; others never notice."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from django.contrib.auth.models import AbstractUser
from django.http import HttpRequest, StreamingHttpResponse
from django.test import Client, RequestFactory
from django.urls import get_resolver

from console import budget as budgets
from console.api.api import api
from console.budget import QuestionPlaces, TooManyQuestions, budget, expensive
from console.sign_in.api_token import make_token
from jobs.models import Project
from tests.rows import make_project, make_user, signed_in
from tests.waiting import wait_until

OPERATIONS = {
    "/audit",
    "/audit/export",
    "/compare",
    "/compare/columns",
    "/compare/point",
    "/compare/series",
    "/projects/{slug:project}/calibration",
    "/projects/{slug:project}/plan",
    "/projects/{slug:project}/plan/advice",
    "/projects/{slug:project}/plan/can-it-run",
    "/projects/{slug:project}/plan/diffusion",
    "/projects/{slug:project}/plan/layouts",
    "/runs/change",
    "/runs/export.csv",
    "/runs/{run_id}/diagnosis",
    "/runs/{run_id}/log-findings",
    "/runs/{run_id}/logs",
    "/runs/{run_id}/plan",
    "/runs/{run_id}/post-mortem",
    "/runs/{run_id}/samples/distribution",
    "/runs/{run_id}/samples/reviews.jsonl",
    "/specs/check",
    "/specs/preview",
    "/specs/reward-trial",
    "/traces/{trace_id}/analysis",
    "/traces/{trace_id}/critical-path",
    "/traces/{trace_id}/diagnosis",
    "/traces/{trace_id}/difference",
    "/traces/{trace_id}/events",
    "/traces/{trace_id}/events.csv",
    "/traces/{trace_id}/hits",
    "/traces/{trace_id}/layers/{int:layer_id}/events/{int:event}/arrows",
    "/traces/{trace_id}/layers/{int:layer_id}/flame",
    "/traces/{trace_id}/layers/{int:layer_id}/tracks/{key}",
    "/traces/{trace_id}/search",
    "/traces/{trace_id}/summary",
}
PAGES = {
    "audit",
    "audit-jsonl",
    "calibration",
    "compare",
    "compare-report",
    "compare-series-csv",
    "compare-table-csv",
    "guide-devices",
    "new-run-advice",
    "new-run-check",
    "new-run-layouts",
    "new-run-preview",
    "new-run-reward",
    "new-run-sweep",
    "run-diagnosis",
    "run-log-findings",
    "run-ids",
    "run-plan",
    "run-post-mortem",
    "runs-csv",
    "trace-diagnosis",
    "trace-difference",
    "trace-summary",
}


def test_two_at_once_and_the_next_gets_the_first_place_that_is_free() -> None:
    places = QuestionPlaces(patience=60)
    first, _second = places.enter("ann"), places.enter("ann")
    entered = threading.Event()

    def enter() -> None:
        places.enter("ann")
        entered.set()

    third = threading.Thread(target=enter, daemon=True)
    third.start()

    assert not entered.wait(0.05)
    first()
    first()  # giving back twice frees one place
    third.join(60)
    assert (entered.is_set(), places.under_way("ann")) == (True, 2)


def test_who_waits_too_long_is_refused_and_a_flood_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    places = QuestionPlaces(patience=0.01)
    leave = [places.enter("ann"), places.enter("ann")]
    with pytest.raises(TooManyQuestions, match="2 expensive questions"):
        places.enter("ann")
    patient = QuestionPlaces(patience=60)
    leave += [patient.enter("ann"), patient.enter("ann")]
    monkeypatch.setattr(budgets, "MOST_WAITING", 0)
    with pytest.raises(TooManyQuestions):
        patient.enter("ann")

    patient.enter("ben")  # whose place is free all the while

    for each in leave:
        each()
    assert (places.under_way("ann"), patient.under_way("ann"), patient.under_way("ben")) == (0, 0, 1)


def _request(pk: object) -> HttpRequest:
    request = RequestFactory().get("/")
    request.user = type("Person", (), {"pk": pk})()
    return request


def test_a_view_that_fails_gives_its_place_back() -> None:
    @expensive
    def view(_request: HttpRequest) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        view(_request("failing"))
    assert budget().under_way("failing") == 0


@pytest.mark.django_db  # closing an answer closes connections
@pytest.mark.parametrize("end", [lambda answer: answer.close(), lambda _answer: None], ids=["closed", "forgotten"])
def test_a_stream_counts_until_it_is_closed_or_forgotten(end: Callable[[Any], None]) -> None:
    @expensive
    def view(_request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(["a", "b"])

    answer = view(_request("reading"))
    assert budget().under_way("reading") == 1
    end(answer)
    del answer
    wait_until(lambda: budget().under_way("reading") == 0, 10, what="the place was not given back")


# -- over HTTP --


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def busy(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[AbstractUser]:
    """Somebody with two questions under way, in a console where nobody waits for a place."""
    monkeypatch.setattr(budget(), "_patience", 0.0)
    user = make_user(project=project)
    leave = [budget().enter(user.pk), budget().enter(user.pk)]
    yield user
    for each in leave:
        each()


def _bearer(user: AbstractUser) -> Client:
    return Client(headers={"Authorization": f"Bearer {make_token(user=user, name='t')[1]}"})


@pytest.mark.django_db
def test_a_third_question_is_refused_by_page_session_and_token(busy: AbstractUser, project: Project) -> None:
    address = f"/api/projects/{project.slug}/calibration"
    by_session, by_token = signed_in(busy).get(address), _bearer(busy).get(address)
    page = signed_in(busy).get("/compare")
    part = signed_in(busy).get(f"/settings/{project.slug}/calibration", headers={"HX-Request": "true"})
    asked = signed_in(busy).post("/runs/new/check", {}, headers={"Accept": "application/json"})

    answers = (by_session, by_token, page, part, asked)
    assert [(a.status_code, a["Retry-After"]) for a in answers] == [(429, "5")] * len(answers)
    sentence = by_session.json()["problems"][0]["message"]
    assert "2 expensive questions under way" in sentence
    assert asked.json()["problems"] == [{"field": "", "message": sentence}]
    assert unquote(part["X-Problem"]) == sentence
    assert sentence in page.content.decode()


@pytest.mark.django_db
def test_another_person_and_cheap_pages_are_answered_meanwhile(busy: AbstractUser, project: Project) -> None:
    other = make_user(project=project, role="viewer")

    assert _bearer(other).get(f"/api/projects/{project.slug}/calibration").status_code == 200
    assert signed_in(busy).get("/api/account").status_code == 200


def test_what_is_expensive_counts_and_says_so() -> None:
    counted, told = set(), set()
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                address = f"{prefix}{path}"
                is_counted = _is_counted(operation.view_func)
                counted |= {address} if is_counted else set()
                told |= {address} if 429 in operation.response_models else set()
    assert counted == told == OPERATIONS


def test_pages_that_are_expensive_count() -> None:
    counted = {
        page.name
        for part in get_resolver().url_patterns
        for page in getattr(part, "url_patterns", [])
        if _is_counted(getattr(page, "callback", None))
    }
    assert counted == PAGES


def _is_counted(view: Any) -> bool:
    """Return True if one of the decorators around a view is `expensive`."""
    while view is not None:
        if getattr(view, "__code__", None) is _LIMITED.__code__:
            return True
        view = getattr(view, "__wrapped__", None)
    return False


def _answer(_request: HttpRequest) -> None: ...


_LIMITED: Any = expensive(_answer)
