"""A slice of `make proof-security` on a live console: lines of the matrix, and what counts as a miss."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from jobs.models import Attempt, Project
from tests.console.live_console import LiveConsole
from tests.proofs.security import matrix, scene
from tests.proofs.security.__main__ import Wanted, wanted
from tests.proofs.security.matrix import Answers
from tests.proofs.security.report import misses
from tests.proofs.security.site import Site

# Of the access rules; those of members come last, as they take people out of the project.
LINES = ("/api/runs/{run_id}/captures/", "/api/studies", "/api/tokens", "/tune", "/settings/")


@pytest.fixture
def site(live_console: LiveConsole) -> Site:
    """The console of the tests, as the proof sees one."""

    def manage(*_arguments: str) -> str:
        pytest.fail("no line of this slice needs a command of the console")

    return Site(name="live", urls=(live_console.url,), manage=manage)


@pytest.fixture
def made(django_db_blocker: Any, live_console: LiveConsole) -> Iterator[dict[str, Any]]:
    """People and projects in the console's database, gone afterwards."""
    del live_console
    with django_db_blocker.unblock():
        people = set(User.objects.values_list("pk", flat=True))
        projects = set(Project.objects.values_list("pk", flat=True))
        try:
            yield json.loads(json.dumps(scene.made()))
        finally:
            Attempt.objects.exclude(run__project__in=projects).delete()
            Project.objects.exclude(pk__in=projects).delete()
            User.objects.exclude(pk__in=people).delete()


@pytest.mark.browser  # in the part of the tests that have a live console
def test_some_lines_of_the_matrix_hold_on_a_running_console(site: Site, made: dict[str, Any]) -> None:
    answers = Answers()
    for line in LINES:
        part = matrix.check(site, made, only=line)
        answers.by_status += part.by_status
        answers.wrong += part.wrong

    assert answers.wrong == []
    assert answers.num_requests > 200
    assert {200, 302, 401, 403, 404} <= set(answers.by_status)


def test_an_answer_that_is_wrong_is_a_miss_and_a_name_that_is_none_is_said() -> None:
    attacks = [
        {"finding": "H1", "name": "a", "is_stopped": True, "got": ""},
        {"finding": "L8", "name": "b", "is_stopped": False, "got": "60 open"},
    ]
    results = {
        "embedded": {
            "matrix": {"by_status": Counter({200: 1}), "wrong": ["GET /x as viewer: 500"]},
            "generated": {"viewer": {"by_status": {500: 1}, "errors": ["GET /y: 500"], "operations": 1}},
            "attacks": attacks,
        }
    }

    assert misses(results) == [
        "embedded: GET /x as viewer: 500",
        "embedded as viewer: GET /y: 500",
        "embedded: L8 b: 60 open",
    ]
    assert misses({"embedded": {"attacks": attacks[:1]}}) == []
    assert wanted("H1,embedded", ["H1"]) == Wanted(parts=["attacks"], topologies=["embedded"], findings=["H1"])
    with pytest.raises(ValueError, match="There is no H9"):
        wanted("H9", ["H1"])
