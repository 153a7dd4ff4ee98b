"""Secrets of runs and projects: used by the one runner they are for, and found by nobody else, wherever they look."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.http import StreamingHttpResponse
from django.test import Client
from django.urls import reverse

from console.api.runs import runs as runs_api
from console.views.new_run import page as new_run_page
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import AuditEvent, Project, Run, Variable
from jobs.runs.environment import announced
from jobs.runs.launch import create_run, ingest_token
from jobs.runs.resume import ResumeRefused, begin
from tests.console.fake_runner import content
from tests.rows import NOW, make_project, make_user, signed_in

pytestmark = pytest.mark.django_db

OF_RUN, OF_PROJECT, TYPED = "value-of-the-one-run", "value-of-the-project", "value-that-was-typed"
KEY = "k" * 64
PAGES = (
    "/runs/{run}",
    "/runs/{run}/config",
    "/runs/{run}/spec.json",
    "/runs/{run}/log.txt",
    "/runs.csv",
    "/runs/new?from={run}",
    "/compare?runs={run}",
    "/settings",
    "/settings/maths/environment",
    "/audit",
    "/audit.jsonl",
    "/api/runs",
    "/api/runs/{run}",
    "/api/runs/{run}/spec",
    "/api/runs/{run}/events",
    "/api/runs/{run}/trainer-command",
    "/api/runs/export.csv",
    "/api/projects/maths/environment",
    "/ingest/{run}/1/launch",
)


@pytest.fixture
def project() -> Project:
    return make_project("maths")


@pytest.fixture
def admin(project: Project) -> Client:
    return signed_in(make_user("ada", project=project, role="admin"))


@pytest.fixture
def run(admin: Client, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with a secret of its own and one of its project, launched over the API."""
    monkeypatch.setattr(runs_api, "check_launchable", lambda *_, **__: [])
    admin.post(reverse("set-variable", args=["maths"]), {"name": "KEPT", "value": OF_PROJECT, "kind": "secret"})
    admin.post(reverse("set-variable", args=["maths"]), {"name": "SHOWN", "value": "seen", "kind": "variable"})
    spec = {"environment": {"variables": {"OWN": "1"}, "secrets": {"WANDB_API_KEY": OF_RUN, "KEPT": None}}}
    answer = admin.post("/api/runs?project=maths", json.dumps(spec), content_type="application/json")
    assert answer.status_code == 201, answer.content
    assert OF_RUN not in answer.content.decode()
    return Run.objects.get()


def rows() -> Iterator[str]:
    """Yield every row of the database as text."""
    for model in apps.get_models():
        yield from map(str, model._default_manager.values())


def ask(run: Run, *, key: str = KEY, token: str = "", attempt: int = 1) -> Any:
    headers = {"Authorization": f"Bearer {token or ingest_token(run.pk, attempt)}"}
    address = f"/ingest/{run.pk}/{attempt}/environment"
    return Client().post(address, json.dumps({"key": key}), content_type="application/json", headers=headers)


def test_the_runner_gets_them_and_nobody_who_reads_database_pages_exports_or_audit(run: Run, admin: Client) -> None:
    secrets = ask(run).json()["secrets"]
    pages = {page: read(admin, page.format(run=run.pk), run) for page in PAGES}
    stored = "".join(rows())

    assert secrets == {"WANDB_API_KEY": OF_RUN, "KEPT": OF_PROJECT}
    for value in (OF_RUN, OF_PROJECT):
        assert [page for page, content in pages.items() if value in content] == []
        assert value not in stored
    assert "WANDB_API_KEY" in pages["/runs/{run}/config"]
    verbs = AuditEvent.objects.filter(verb__startswith="environment").values_list("verb", "after__name")
    assert list(verbs.order_by("pk")) == [("environment.set", "KEPT"), ("environment.set", "SHOWN")]
    assert announced(run.attempts.get())["variables"] == {"OWN": "1", "SHOWN": "seen"}


def read(admin: Client, page: str, run: Run) -> str:
    client = Client(headers={"Authorization": f"Bearer {ingest_token(run.pk, 1)}"}) if "ingest" in page else admin
    answer = client.get(page)
    assert answer.status_code == 200, page
    if not isinstance(answer, StreamingHttpResponse):
        return answer.content.decode()
    return (content(answer) if answer.is_async else answer.getvalue()).decode()


def test_who_comes_second_with_the_runners_token_gets_nothing(run: Run) -> None:
    ask(run)

    again, other = ask(run), ask(run, key="o" * 64)

    assert again.json()["secrets"]["WANDB_API_KEY"] == OF_RUN
    assert other.status_code == 403
    assert "another runner" in other.json()["problems"][0]
    assert OF_RUN not in other.content.decode()


def test_no_other_token_key_or_time_gets_them(run: Run) -> None:
    other = create_run(project=run.project, spec={"name": "other"}, user=None, idempotency_key=None, now=NOW)[0]

    assert ask(run, token=ingest_token(other.pk, 1)).status_code == 401
    assert ask(run, key="short").status_code == 403
    assert ask(run, attempt=2).status_code == 404
    Run.objects.filter(pk=run.pk).update(state="finished")
    assert ask(run).status_code == 409


def test_a_secret_is_asked_for_by_name_and_of_ones_own_project_alone(run: Run) -> None:
    elsewhere, spec = make_project("elsewhere"), {"environment": {"secrets": ["KEPT"]}}
    with pytest.raises(SpecInvalid, match="KEPT has no value"):
        create_run(project=elsewhere, spec=spec, user=None, idempotency_key=None, now=NOW)

    Variable.objects.filter(name="KEPT").update(project=elsewhere)  # by who can write to the database
    theirs = create_run(project=elsewhere, spec=spec, user=None, idempotency_key=None, now=NOW)[0]

    assert ask(theirs).status_code == 403  # sealed for another project, it does not open


def test_a_clone_has_the_names_and_not_the_values(run: Run, admin: Client) -> None:
    page = admin.get(f"/runs/new?from={run.pk}").content.decode()

    assert "KEPT WANDB_API_KEY" in page
    with pytest.raises(SpecInvalid, match="WANDB_API_KEY has no value"):
        create_run(project=run.project, spec=run.spec, user=None, idempotency_key=None, now=NOW)


def test_the_form_launches_with_typed_secrets_and_never_shows_them_again(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_run_page, "check_launchable", lambda *_, **__: [])
    form = {"environment.secrets": "HF_TOKEN", "secret.HF_TOKEN": TYPED, "secret.LEFT_OVER": TYPED, "name": "x"}

    refused = admin.post("/runs/new", {**form, "knobs.train.num_steps": "none"})
    launched = admin.post("/runs/new", form, headers={"Accept": "application/json"})

    assert refused.status_code == 422
    assert TYPED not in refused.content.decode()
    assert launched.status_code == 201, launched.content
    assert ask(Run.objects.get()).json()["secrets"] == {"HF_TOKEN": TYPED}
    assert TYPED not in "".join(rows())


def test_variables_that_make_a_trainer_load_code_need_an_admin(project: Project) -> None:
    editor = make_user(project=project)
    spec = {"environment": {"variables": {"NCCL_NET_PLUGIN": "/evil.so"}}}

    with pytest.raises(SpecInvalid, match="only an admin"):
        create_run(project=project, spec=spec, user=editor, idempotency_key=None, now=NOW)
    ada = make_user(project=project, role="admin")
    run = create_run(project=project, spec=spec, user=ada, idempotency_key=None, now=NOW)[0]
    with pytest.raises(ResumeRefused, match="only an admin"):
        begin(run, run.attempts.get(), None, {}, parse_spec(run.spec), text="", user=editor, now=NOW)


@pytest.mark.parametrize(
    ("name", "value", "kind", "why"),
    [
        ("LD_PRELOAD", "/evil.so", "variable", "the loader"),
        ("HF_TOKEN", "hf_" + "aB3" * 11, "variable", "give it as a secret"),
        ("HF_TOKEN", "shorty", "secret", "recognized"),
        ("A B", "long enough", "secret", "up to 128 letters"),
    ],
)
def test_a_project_refuses_with_a_sentence_that_holds_no_value(
    admin: Client, name: str, value: str, kind: str, why: str
) -> None:
    page = admin.post(reverse("set-variable", args=["maths"]), {"name": name, "value": value, "kind": kind})

    assert page.status_code == 422
    assert why in page.content.decode()
    assert value not in page.content.decode()
    assert not Variable.objects.exists()
