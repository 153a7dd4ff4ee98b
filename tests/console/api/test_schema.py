"""Every operation of the API keeps its own documentation, whatever is sent to it."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, assume, given, settings
from ninja import Schema
from pytest_django.plugin import DjangoDbBlocker
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from console.sign_in.api_token import make_token
from tests.console.api.document import document
from tests.jobs.sweeps.test_sweeps import make_study
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = [
    pytest.mark.django_db,
    # Exports stream as they do under ASGI; here a WSGI server has to read them.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),
]

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "1"))
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@cache
def schema() -> Any:
    """Return the document as schemathesis reads it, served by our own WSGI application in this process."""
    loaded = schemathesis.openapi.from_dict(document())
    loaded.app = get_wsgi_application()
    return loaded


def test_every_part_of_the_document_has_a_name_of_its_own() -> None:
    """Two classes of one name would share one entry: one of the two would be described wrongly."""
    by_name: dict[str, set[str]] = {}
    waiting: list[type] = [Schema]
    while waiting:
        found = waiting.pop().__subclasses__()
        waiting += found
        for one in found:
            if one.__module__.startswith("console.api."):
                by_name.setdefault(one.__name__, set()).add(one.__module__)

    assert len(by_name) > 100
    assert {name: modules for name, modules in by_name.items() if len(modules) > 1} == {}


OPERATIONS = [
    pytest.param(path, method, id=f"{method} {path}")
    for path, methods in document()["paths"].items()
    for method in METHODS
    if method.lower() in methods
]


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """Keep the test's transaction open over requests, as Django's own test client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture(scope="module")
def made_token(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Return the token of an admin of a project with a run and a sweep; a transaction around those of the tests."""
    del django_db_setup
    with django_db_blocker.unblock(), transaction.atomic():
        project = make_project("pit")
        make_artifact(make_run(project, state="finished"))
        make_study(project)
        yield make_token(user=make_user("ada", project=project, role="admin"), name="fuzz")[1]
        transaction.set_rollback(True)


@pytest.fixture
def token(made_token: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the token; trials of data and models have tests of their own."""
    checks = ("api.runs.runs.check_launchable", "api.runs.specs.run_checks", "sweep_launch.check_sweep")
    for name in (f"console.{check}" for check in checks):
        monkeypatch.setattr(name, lambda *_args, **_kwargs: [])
    for name in ("console.api.runs.specs.preview_data", "console.api.runs.specs.try_reward"):
        monkeypatch.setattr(name, _refuse_trial)
    return made_token


def _refuse_trial(*_args: Any, **_kwargs: Any) -> Any:
    from jobs.preflight.client import TrialFailed

    raise TrialFailed("data.id", "Not tried in this test.")


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(GenerationMode.POSITIVE, id="valid"),
        pytest.param(GenerationMode.NEGATIVE, id="invalid", marks=pytest.mark.proof),
    ],
)
def test_an_operation_answers_as_documented(path: str, method: str, mode: GenerationMode, token: str) -> None:
    operation = schema()[path][method]
    headers = {"Authorization": f"Bearer {token}", "Host": "localhost"}

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    def holds(case: Any) -> None:
        assume(case.path_parameters.get("capture_id") != "choices")  # a path of its own
        answer = case.call(base_url="http://localhost", headers=headers)
        case.validate_response(answer, checks=CHECKS)

    holds()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_operation_documents_its_refusals(path: str, method: str) -> None:
    operation = document()["paths"][path][method.lower()]

    assert {"401", "403", "404", "409", "422"} <= {str(status) for status in operation["responses"]}
    assert operation["summary"]
    assert operation["description"]
