"""Every address × every caller: default deny. What is expected stands in access_rules.py; a new address fails here
until it has a line there.
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from console.live.consumers import websocket_urlpatterns
from console.sign_in.api_token import make_token
from jobs.accounts.sealing import seal
from jobs.models import (
    AlertChannel,
    AlertIncident,
    AlertMute,
    AlertRule,
    Answer,
    ApiToken,
    Artifact,
    Attempt,
    Capture,
    Dashboard,
    Merge,
    Run,
    Sample,
    SavedView,
    Study,
    TrashItem,
    Upload,
    Variable,
)
from jobs.retention.deletion import delete_runs
from jobs.runs.launch import ingest_token
from tests.console.access_rules import API, DEEDS, INGEST, PAGES, SOCKETS, Rule
from tests.console.api.document import document
from tests.rows import NOW, make_artifact, make_project, make_run, make_user
from tests.trace_rows import make_trace

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
RANK = {"viewer": 1, "editor": 2, "admin": 3}
MEMBERS = ("viewer", "editor", "admin")
# As whom a caller counts in the project whose things are asked for; None: it does not exist for them.
CALLERS: dict[str, str | None] = {
    "signed out": None,
    "admin of another project": None,
    "superuser of another project": None,
    "viewer": "viewer",
    "editor": "editor",
    "admin": "admin",
}
TOKENS: dict[str, str | None] = {
    "admin by a viewer's token": "viewer",
    "admin by an editor's token": "editor",
    "admin by a token of another project": None,
    "admin by an expired token": None,
    "admin by a revoked token": None,
}
LIMITED = tuple(TOKENS)
# Who may do all that the other may: not asked where the other may, as answers take most of the time.
ABOVE = {"editor": "viewer", "admin": "editor", "admin by an editor's token": "admin by a viewer's token"}
UNKNOWN = ("signed out", "admin by an expired token", "admin by a revoked token")
NAMES_IT = re.compile(r"{(run_id|project|study_id|trace_id|item_id|alert_id)}")  # addresses of what is theirs
NAMES_A_HOME = re.compile(r"{(run_id|project|study_id|token|trace_id|item_id)")  # needs no ?project=
SEEN = ("last_login", "used_at")  # kept of each visit, whoever comes
DERIVED = ("RunFact", "RunKey", "RunLine")  # from the runs, when somebody asks for a list of them


def plain(pattern: str) -> str:
    """Return a pattern of Django's as the table writes it: /runs/{run_id}."""
    return "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", pattern)


def addresses() -> Iterator[str]:
    """Yield every address of pages and of the ingest endpoints; the API's operations are asked of the API."""

    def walk(resolver: URLResolver, prefix: str) -> Iterator[str]:
        for entry in resolver.url_patterns:
            pattern = prefix + str(entry.pattern)
            if isinstance(entry, URLResolver):
                yield from walk(entry, pattern)
            elif isinstance(entry, URLPattern):
                yield plain(pattern)

    yield from walk(get_resolver(), "")


ENDPOINTS = sorted({a for a in addresses() if a.startswith("/ingest/")})
FOUND_API = sorted(
    {
        f"{method} {path}"
        for path, methods in document()["paths"].items()
        for method in METHODS
        if method.lower() in methods
    }
    | {"GET /api/openapi.json", "GET /metrics"}
)
API_PATHS = {entry.partition(" ")[2] for entry in FOUND_API} | {"/api/"}  # "/api/": says that there is nothing
FOUND_PAGES = sorted({a for a in addresses() if a not in API_PATHS and not a.startswith("/ingest/")})
RULES = {**PAGES, **API}
CASES = sorted(RULES)


def test_every_address_has_a_line_in_the_table_and_every_line_an_address() -> None:
    pages = {entry.partition(" ")[2] for entry in PAGES}

    missing = [f'"GET {address}": VIEWER,' for address in FOUND_PAGES if address not in pages]
    missing += [f'"{op}": {"VIEWER" if op.startswith("GET") else "EDITOR"},' for op in FOUND_API if op not in API]
    missing += [f'"{address}": ("GET",),' for address in ENDPOINTS if address not in INGEST]
    missing += [s for s in (plain(str(p.pattern)) for p in websocket_urlpatterns) if s not in SOCKETS]
    assert not missing, "Say in tests/console/access_rules.py who may, for instance:\n" + "\n".join(missing)
    assert pages <= set(FOUND_PAGES), pages - set(FOUND_PAGES)
    assert set(API) <= set(FOUND_API), set(API) - set(FOUND_API)
    assert set(INGEST) == set(ENDPOINTS)
    assert len(SOCKETS) == len(websocket_urlpatterns)


class Scene:
    """The project `theirs` with a run and what hangs on it; people of each role in it, and some of another project."""

    def __init__(self) -> None:
        self.theirs = make_project("theirs")
        self.elsewhere = make_project("elsewhere")
        self.people = {role: make_user(f"a-{role}", project=self.theirs, role=role) for role in MEMBERS}
        self.owner = make_user("owner", project=self.theirs, role="admin")  # so that no admin is the last one
        self.people["admin of another project"] = make_user("outsider", project=self.elsewhere, role="admin")
        self.people["superuser of another project"] = make_user("root", project=self.elsewhere, role="admin")
        User.objects.filter(username="root").update(is_superuser=True)
        self.run = make_run(self.theirs, state="finished", spec={"name": "secret-plan"}, user=self.owner)
        self.artifact = make_artifact(self.run)
        self.capture = Capture.objects.create(run=self.run, attempt=1, tool="torch", state="ready")
        trace = make_artifact(self.run, "trace.json", type="trace", capture=self.capture)
        for artifact in (self.artifact, trace):
            path = artifact.stored_path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"bin")
            Artifact.objects.filter(pk=artifact.pk).update(sha256=hashlib.sha256(b"bin").hexdigest())
        knob = {"id": "optimizer.learning_rate", "values": [1e-4]}
        self.study = Study.objects.create(
            project=self.theirs, name="secret-plan", spec=self.run.spec, knobs=[knob], method="grid", num_runs=1
        )
        self.answer = Answer.objects.create(
            run=self.run, artifact=self.artifact, prompt="secret-plan", submission_id="x", created_at=NOW
        )
        merge = Merge.objects.create(run=self.run, attempt=1, step=9, submission_id="y", created_at=NOW)
        make_trace(self.theirs, run=self.run, name="secret-plan", capture=self.capture)
        self.trace = make_trace(self.theirs, name="secret-plan")
        Upload.objects.create(project=self.theirs, sha256="0" * 64, file_name="secret-plan.jsonl", size=1)
        self.token = make_token(user=self.owner, name="hers")[0]
        trashed = make_run(self.theirs, state="finished", spec={"name": "trashed"}, user=self.owner)
        delete_runs(runs=[trashed], user=self.owner, stop=False, now=NOW)
        self.trash_item = TrashItem.objects.get()
        alerts = {"project": self.theirs, "kind": "waiting"}
        self.rule = AlertRule.objects.create(name="secret-plan", params={"minutes": 5}, **alerts)
        data = {"what": "waiting", "name": "secret-plan"}
        about = {"run": self.run, "rule": self.rule, "severity": "warning", "data": data, **alerts}
        self.alert = AlertIncident.objects.create(object_id=self.run.pk, opened_at=NOW, updated_at=NOW, **about)
        until = timezone.now() + timedelta(days=1)
        self.mute = AlertMute.objects.create(project=self.theirs, rule=self.rule, until=until)
        sealed = seal({"url": "https://127.0.0.1/secret-plan", "signing_secret": "secret-plan"})
        self.channel = AlertChannel.objects.create(
            project=self.theirs, kind="webhook", name="secret-plan", address="127.0.0.1", sealed=sealed
        )
        sample = Sample.objects.create(run=self.run, attempt=1, step=1, group=0, index=0, prompt="secret-plan")
        Variable.objects.create(project=self.theirs, name="KEPT", is_secret=True, sealed=sealed)
        self.values = {
            "variable": "KEPT",
            "run_id": self.run.pk,
            "sample_id": str(sample.pk),
            "run": self.run.pk,
            "number": "1",
            "artifact_id": str(self.artifact.pk),
            "answer_id": str(self.answer.pk),
            "merge_id": str(merge.pk),
            "token_id": str(self.token.pk),
            "alert_id": str(self.alert.pk),
            "mute_id": str(self.mute.pk),
            "view_id": str(SavedView.objects.create(project=self.theirs, name="secret-plan").pk),
            "dashboard_id": Dashboard.objects.create(project=self.theirs, name="secret-plan").pk,
            "rule_number": str(self.rule.pk),
            "channel_id": str(self.channel.pk),
            "project": "theirs",
            "username": "owner",
            "knob_id": "train.num_steps",
            "recipe_id": "native-grpo-demo",
            "symptom_id": "learning.truncated",
            "rule_id": "batch.updates_do_not_divide_samples",
            "tab": "charts",
            "capture_id": self.capture.pk,
            "study_id": self.study.pk,
            "trace_id": self.trace.pk,
            "layer_id": str(self.trace.layers.get().pk),
            "level": "20",
            "item_id": str(self.trash_item.pk),
            "series": "0",
            "key": "queue-1",
            "token": "x" * 43,
            "sha256": "0" * 64,
            "name": "model/final",
        }

    def fill(self, address: str) -> str:
        """Return the address with what is theirs in it."""
        address = address.replace("/perfetto/{name}", "/perfetto/index.html")
        return re.sub(r"{(\w+)}", lambda found: self.values.get(found[1], "1"), address)

    def session(self, caller: str) -> Client:
        client = Client(headers={"Host": "localhost"}, raise_request_exception=False)
        if caller != "signed out":
            client.force_login(self.people[caller], backend="django.contrib.auth.backends.ModelBackend")
        return client

    def bearer(self, caller: str) -> Client:
        """Return a client with an API token of the caller."""
        if caller == "signed out":
            return Client(headers={"Host": "localhost"}, raise_request_exception=False)
        admin = self.people["admin"]
        text = {
            "admin by a viewer's token": lambda: make_token(user=admin, name="t", role="viewer")[1],
            "admin by an editor's token": lambda: make_token(user=admin, name="t", role="editor")[1],
            "admin by a token of another project": lambda: self._elsewhere(admin),
            "admin by an expired token": lambda: make_token(user=admin, name="t", expires_at=NOW)[1],
            "admin by a revoked token": lambda: self._revoked(admin),
        }.get(caller, lambda: make_token(user=self.people[caller], name="t")[1])()
        headers = {"Host": "localhost", "Authorization": f"Bearer {text}"}
        return Client(headers=headers, raise_request_exception=False)

    def _elsewhere(self, admin: Any) -> str:
        self.elsewhere.membership_set.get_or_create(user=admin, defaults={"role": "admin"})
        return make_token(user=admin, name="t", project="elsewhere")[1]

    @staticmethod
    def _revoked(admin: Any) -> str:
        row, text = make_token(user=admin, name="t")
        ApiToken.objects.filter(pk=row.pk).update(revoked_at=NOW)
        return text


def snapshot() -> dict[str, list[Any]]:
    """Return every row of every table that is not derived from others, but for what is noted of each visit."""
    found = {}
    with connection.cursor() as cursor:
        for model in (*apps.get_app_config("jobs").get_models(), User):
            if model.__name__ in DERIVED:
                continue
            key = ", ".join(field.column for field in model._meta.pk_fields)
            cursor.execute(f"SELECT * FROM {model._meta.db_table} ORDER BY {key}")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            found[model.__name__] = [{k: v for k, v in row.items() if k not in SEEN} for row in rows]
    return found


def ask(client: Client, scene: Scene, entry: str, *, rule: Rule) -> HttpResponseBase:
    """Send the request; what belongs to no address (lists, launches) names the project `theirs`."""
    method, address = entry.split(" ")
    query = {name: scene.fill(value) for name, value in rule.query.items()}
    if not NAMES_A_HOME.search(address):
        query["project"] = "theirs"
    body = rule.body()
    if "artifact_id" in body:
        body = {**body, "artifact_id": scene.artifact.pk}
    options: dict[str, Any] = {"query_params": query}
    if method != "GET":
        options |= {"data": body} if rule.is_form else {"data": json.dumps(body), "content_type": "application/json"}
    answer: HttpResponseBase = getattr(client, method.lower())(scene.fill(address), **options)
    return answer


def content(answer: Any) -> bytes:
    if not getattr(answer, "streaming", False):
        return bytes(answer.content)
    if not answer.is_async:
        return b"".join(answer.streaming_content)

    async def collect() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return bytes(async_to_sync(collect)())


@pytest.fixture(autouse=True)
def _pages_without_line_breaks() -> None:
    """Leave pages as they are: no layout of theirs is looked at."""


@pytest.fixture(scope="module")
def shared_scene(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Scene]:
    """Make the scene once, in a transaction around those of the tests: it is most of what a test would wait for."""
    del django_db_setup
    with django_db_blocker.unblock(), transaction.atomic():
        yield Scene()
        transaction.set_rollback(True)


@pytest.fixture
def scene(shared_scene: Scene) -> Scene:
    """Return the scene with values that a test may add to."""
    alike = copy.copy(shared_scene)
    alike.values = dict(shared_scene.values)
    return alike


def expected(rule: Rule, caller: str, role: str | None, *, is_api: bool, names_it: bool) -> tuple[int, ...] | None:
    """Return the statuses that this caller must get; None for a caller who may."""
    refused = (401,) if is_api else (302,)
    if rule.needs == "anyone":
        return None
    if caller in UNKNOWN:
        return refused
    if rule.needs == "signed-in":
        return None
    if rule.needs == "account":
        return (403,) if caller in LIMITED else None
    if rule.needs == "superuser":
        return None if caller.startswith("superuser") else (403,)
    if rule.opens_to_superuser and caller.startswith("superuser"):
        return None
    if role is None:
        return (404,) if is_api or names_it else None  # other pages show one's own project, never the one asked for
    return None if RANK[role] >= RANK[rule.needs] else (403,)


@pytest.mark.django_db
@pytest.mark.parametrize("entry", CASES)
def test_an_address_answers_whom_it_may_and_nobody_else(entry: str, scene: Scene) -> None:
    rule, is_api = RULES[entry], entry in API
    names_it = bool(NAMES_IT.search(f"{entry} {rule.query}"))
    callers = {**CALLERS, **(TOKENS if is_api else {})}
    may = {
        caller: expected(rule, caller, role, is_api=is_api, names_it=names_it) is None
        for caller, role in callers.items()
    }
    callers = {caller: role for caller, role in callers.items() if not may.get(ABOVE.get(caller, ""))}
    clients = {caller: (scene.bearer if is_api else scene.session)(caller) for caller in callers}
    before = snapshot()
    for caller, role in callers.items():
        with transaction.atomic():
            client = clients[caller]
            written = connection.connection.total_changes  # SQLite's own count of rows: most callers write none

            answer = ask(client, scene, entry, rule=rule)

            told, where = content(answer), f"{entry} as {caller}: {answer.status_code}"
            after = copy.copy(before) if connection.connection.total_changes == written else snapshot()
            wanted = expected(rule, caller, role, is_api=is_api, names_it=names_it)
            assert answer.status_code < 500 or entry == "GET /readyz", where
            assert is_kept_by_nobody(answer) or entry == "GET /frame/texts.js", f"{where} {answer['Cache-Control']}"
            if wanted is not None:
                assert answer.status_code in wanted, where
                assert after == before, where
                if answer.status_code == 302:
                    assert answer["Location"].startswith("/signin"), where
            is_open = rule.opens_to_superuser and caller.startswith("superuser")
            if wanted is None and rule.needs in RANK and (role is not None or is_open):
                assert answer.status_code not in (401, 403, 404), f"{where} {told[:300]!r}"
            if role is None and "confirm" not in rule.query and not is_open:
                assert b"secret-plan" not in told, where
            if role is None and rule.needs in RANK and not is_open:
                assert theirs_of(after) == theirs_of(before), where
            if entry.startswith("GET ") and not rule.changes:
                if entry in DEEDS:  # what people take along is a row of the audit, and nothing else
                    after["AuditEvent"] = before["AuditEvent"]
                assert after == before, f"{where} GET changed something"
            transaction.set_rollback(True)


def is_kept_by_nobody(answer: HttpResponseBase) -> bool:
    """Return True unless a browser shows it after a sign-out, or a proxy to somebody else."""
    keeping = answer["Cache-Control"]
    return "no-store" in keeping or ("private" in keeping and "immutable" in keeping)


def theirs_of(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return of a snapshot what is the project's, or hangs on its run."""
    project = next(row["id"] for row in rows["Project"] if row["slug"] == "theirs")
    runs = {row["id"] for row in rows["Run"] if row["project_id"] == project}
    return {
        name: [row for row in found if row.get("project_id") == project or row.get("run_id") in runs]
        for name, found in rows.items()
        if name != "ApiToken"
    }


@pytest.mark.django_db
def test_a_method_that_is_not_in_the_table_is_not_there(scene: Scene) -> None:
    client = scene.session("admin")
    before = snapshot()
    for address in sorted({*FOUND_PAGES, *API_PATHS} - {"/api/"}):
        for method in METHODS:
            if f"{method} {address}" in RULES:
                continue

            answer = getattr(client, method.lower())(scene.fill(address))

            assert answer.status_code in (404, 405), f"{method} {address}: {answer.status_code}"
        assert snapshot() == before, address


@pytest.mark.django_db
@pytest.mark.parametrize("address", ENDPOINTS)
def test_the_ingest_endpoints_open_only_to_the_token_of_the_very_attempt(address: str, scene: Scene) -> None:
    live = make_run(scene.theirs, state="running")
    Attempt.objects.create(run=live, number=2, state="running", submission_id="s2")
    Run.objects.filter(pk=live.pk).update(latest_attempt=2)
    scene.values |= {"run": live.pk, "number": "2"}
    path = scene.fill(address)
    admin = make_token(user=scene.people["admin"], name="t")[1]
    wrong = {
        "none": "",
        "the token of attempt 1": ingest_token(live.pk, 1),
        "the token of another run": ingest_token(scene.run.pk, 2),
        "an admin's API token": admin,
        "the right one, cut": ingest_token(live.pk, 2)[:-1],
    }
    client = scene.session("admin")
    before = snapshot()
    for method in METHODS:
        for name, token in wrong.items():
            answer = getattr(client, method.lower())(path, headers={"Authorization": f"Bearer {token}"})

            assert answer.status_code == (401 if method in INGEST[address] else 405), f"{method} {path} with {name}"
            assert snapshot() == before
    for method in INGEST[address]:
        own = {"Authorization": f"Bearer {ingest_token(live.pk, 2)}"}
        answer = getattr(Client(), method.lower())(path, headers=own, content_type="application/json")
        assert answer.status_code != 401, f"{method} {path}"


@pytest.mark.django_db
def test_a_token_of_an_attempt_that_is_over_is_fenced_off(scene: Scene) -> None:
    live = make_run(scene.theirs, state="running")
    Attempt.objects.create(run=live, number=2, state="running", submission_id="s2")
    Run.objects.filter(pk=live.pk).update(latest_attempt=2)
    bodies = {"events": {"batch": 1, "events": [], "answered": []}}

    for run, number in ((live, 1), (scene.run, 1)):  # an older attempt; the attempt of an ended run
        headers = {"Authorization": f"Bearer {ingest_token(run.pk, number)}"}
        base = f"/ingest/{run.pk}/{number}"
        posted = Client().post(f"{base}/events", bodies["events"], content_type="application/json", headers=headers)
        launched = Client().get(f"{base}/launch", headers=headers)
        put = Client().put(f"{base}/files/model/x", b"x", headers=headers)

        assert [a.status_code for a in (posted, launched, put)] == [409, 409, 409]
        assert posted.json()["error"] == "fenced"
