"""Every address that writes × the audit: each deed leaves its rows, with who, from where, and by which token.

What is expected stands in access_rules.py; a new address that writes fails here until it has a line there.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from console.forms.new_run.form import default_spec, spec_to_form
from console.labels.deeds import DEED_WORDS
from console.sign_in.api_token import make_token
from console.sign_in.link import make_link
from console.sign_in.oidc_settings import OidcSettings
from jobs.accounts.audit import OBJECT_TYPES
from jobs.models import (
    AlertChannel,
    Answer,
    Artifact,
    Attempt,
    AuditEvent,
    Capture,
    Identity,
    Layer,
    Merge,
    Project,
    Run,
    RunEvent,
    Study,
)
from jobs.runs import lifecycle
from jobs.runs.notes import write_note
from jobs.traces.bookmarks import add_bookmark
from tests.console.access_rules import API, DEEDS, UNRECORDED, Rule
from tests.console.test_access_matrix import RULES, Scene, ask, content
from tests.measured_runs import four_runs
from tests.rows import NOW, make_artifact, signed_in

ADDRESS = "192.0.2.7"
PASSWORD = "correct horse 1"
CHANNEL_SECRET = "example.com/x"  # where a webhook of the table goes: its path lets in whoever knows it
PROVIDER = OidcSettings(issuer="https://id.example", client_id="x")
HOMELESS = ("access", "account", "token")  # of no project
NAMELESS = ("access", "audit")
ROOT = Path(__file__).resolve().parents[2]
FORM = spec_to_form(default_spec()) | {"name": "mine", "idempotency_key": "k"}
SWEEP = {"sweep.method": "grid", "sweep.knobs.0.id": "optimizer.learning_rate", "sweep.knobs.0.values": "1e-4 2e-4"}
STORED = {"on": "2026-11-20", "num_runs": 4, "constants": {}, "previous": None}


def _running(scene: Scene) -> None:
    """Make the run one that trains, on workers that can record."""
    Attempt.objects.filter(run=scene.run).update(state="running", ended_at=None)
    Run.objects.filter(pk=scene.run.pk).update(state="running", ended_at=None, step=3)
    ready = {"profilers": {"policy-0": {"torch": ""}}, "places": {"policy-0": "node"}}
    RunEvent.objects.create(run=scene.run, at=NOW, verb="note", text="ready", data=ready)


def _stopping(scene: Scene) -> None:
    _running(scene)
    lifecycle.request_stop(run_id=scene.run.pk, user=None, now=timezone.now(), grace=lifecycle.STOP_GRACE)


def _recording(scene: Scene) -> None:
    _running(scene)
    Capture.objects.filter(pk=scene.capture.pk).update(state="recording", seconds=60)


def _own_token(scene: Scene) -> None:
    scene.values["token_id"] = str(make_token(user=scene.people["admin"], name="own")[0].pk)


def _checkpoint(scene: Scene) -> None:
    Artifact.objects.create(run=scene.run, attempt=1, name="checkpoint-3", type="checkpoint", path="c", step=3)
    scene.values |= {"attempt": "1", "step": "3"}


def _of_study(scene: Scene) -> None:
    _running(scene)
    Run.objects.filter(pk=scene.run.pk).update(study=scene.study)
    Study.objects.filter(pk=scene.study.pk).update(max_concurrent=3)


def _calibrated(scene: Scene) -> None:
    Project.objects.filter(pk=scene.theirs.pk).update(calibrations={"h200-sxm": STORED})


def _measured(scene: Scene) -> None:
    four_runs(scene.theirs, scene.people["admin"], update=2.0)


def _answered(scene: Scene) -> None:
    Answer.objects.filter(run=scene.run).update(state="finished")


def _layer(scene: Scene) -> None:
    layer = Layer.objects.get(trace=scene.trace)
    scene.values["layer_id"] = str(layer.pk)


def _finished_layer(scene: Scene) -> None:
    _layer(scene)
    Layer.objects.filter(pk=scene.values["layer_id"]).update(state="failed")


def _bookmarked(scene: Scene) -> None:
    user = scene.people["admin"]
    *_, made = add_bookmark(trace=scene.trace, text="here", begin=1, end=2, user=user, now=timezone.now())
    scene.values["number"] = str(made.number)


def _noted(scene: Scene) -> None:
    note = write_note(run=scene.run, step=2, text="here", user=scene.people["admin"], now=timezone.now())
    scene.values["note_id"] = str(note.pk)


def _password(scene: Scene) -> None:
    scene.people["admin"].set_password(PASSWORD)
    scene.people["admin"].save()


def _link(scene: Scene) -> None:
    scene.values["token"] = make_link(user=scene.people["admin"], base_url="", now=timezone.now()).rpartition("/")[2]


def _connected(scene: Scene) -> None:
    Identity.objects.create(user=scene.people["admin"], issuer=PROVIDER.issuer, subject="sub-1")


def _own_channel(scene: Scene) -> None:
    AlertChannel.objects.filter(pk=scene.channel.pk).update(project=None, owner=scene.people["admin"])


def _signed_in(scene: Scene) -> None:
    signed_in(scene.owner)


def _closed(scene: Scene) -> None:
    User.objects.filter(pk=scene.owner.pk).update(is_active=False)


def _constants(scene: Scene) -> None:
    Project.objects.filter(pk=scene.theirs.pk).update(plan_constants={"speed.products": 0.5})


def _model_made(scene: Scene) -> None:
    made = make_artifact(scene.run, "model-step-9.zip", step=9)
    Merge.objects.filter(pk=scene.values["merge_id"]).update(state="finished", artifact=made)


def _as_it_is(_: Scene) -> None:
    pass


# How the scene has to be for the deed to be one.
SCENES: dict[str, Callable[[Scene], None]] = {
    "POST /account/tokens/{token_id}/revoke": _own_token,
    "DELETE /api/tokens/{token_id}": _own_token,
    "POST /settings/{project}/constants": _constants,
    "POST /settings/{project}/calibration/change": _calibrated,
    "POST /api/projects/{project}/calibration": _measured,
    "DELETE /api/projects/{project}/calibration": _calibrated,
    "POST /api/runs/{run_id}/answers": _answered,
    "POST /api/runs/{run_id}/checkpoints/{attempt}/{step}/merge": _checkpoint,
    "POST /signin": _password,
    "POST /signin/{token}": _link,
    "POST /account/oidc/disconnect": _connected,
    "DELETE /api/account/alert-channels/{channel_id}": _own_channel,
    "POST /api/account/alert-channels/{channel_id}/test": _own_channel,
    "DELETE /api/accounts/{username}/sessions": _signed_in,
    "POST /api/runs/{run_id}/captures": _running,
    "POST /api/runs/{run_id}/captures/{capture_id}/end": _recording,
    "POST /api/runs/{run_id}/checkpoint": _running,
    "PUT /api/runs/{run_id}/checkpoints/{attempt}/{step}/pin": _checkpoint,
    "POST /api/runs/{run_id}/knobs": _running,
    "PATCH /api/runs/{run_id}/notes/{note_id}": _noted,
    "DELETE /api/runs/{run_id}/notes/{note_id}": _noted,
    "POST /api/runs/{run_id}/stop": _running,
    "DELETE /api/runs/{run_id}/stop": _stopping,
    "PATCH /api/studies/{study_id}": _of_study,
    "POST /api/studies/{study_id}/stop": _of_study,
    "POST /api/traces/{trace_id}/layers/{layer_id}/import": _finished_layer,
    "DELETE /api/traces/{trace_id}/bookmarks/{number}": _bookmarked,
    "GET /traces/{trace_id}/files/{layer_id}": _layer,
}
# What is sent where the access matrix sends less than a deed takes.
BODIES: dict[str, Callable[[Scene], dict[str, Any]]] = {
    "POST /api/runs/delete": lambda scene: {"ids": [scene.run.pk]},
    "POST /runs/change": lambda scene: {"verb": "archive", "ids": scene.run.pk},
    "POST /api/runs/change": lambda scene: {"verb": "archive", "ids": [scene.run.pk]},
    "POST /runs/new": lambda _: FORM,
    "POST /runs/new/sweep/launch": lambda _: FORM | SWEEP,
    "POST /settings/{project}/calibration/change": lambda _: {"accelerator": "h200-sxm", "undo": ""},
    "POST /signin": lambda _: {"username": "a-admin", "password": PASSWORD},
}
# Addresses that do one of several things, by a word in what is sent: the other words.
MORE: list[tuple[str, dict[str, Any], tuple[str, ...], Callable[[Scene], None]]] = [
    ("POST /people/{username}/change", {"verb": "activate"}, ("account.activate",), _closed),
    ("POST /people/{username}/change", {"verb": "superuser"}, ("account.set_superuser",), _as_it_is),
    ("POST /people/{username}/change", {"verb": "revoke-tokens"}, ("token.revoke",), _as_it_is),
    ("POST /people/{username}/change", {"verb": "sign-out"}, ("session.end",), _signed_in),
    ("POST /people/{username}/change", {"verb": "leave"}, ("member.remove",), _as_it_is),
    ("POST /alerts/in/{project}/rules/{rule_number}", {"verb": "delete"}, ("alert_rule.delete",), _as_it_is),
    ("POST /alerts/in/{project}/channels/{channel_id}", {"verb": "test"}, ("alert_channel.test",), _as_it_is),
    ("POST /alerts/{alert_id}/mute", {"minutes": "60", "of": "run"}, ("alert.mute",), _as_it_is),
    ("POST /alerts/{alert_id}/mute", {"minutes": "60", "of": "alert"}, ("alert.mute",), _as_it_is),
    ("POST /alerts/{alert_id}/mute", {"minutes": "60", "of": "project"}, ("alert.mute",), _as_it_is),
    ("POST /alerts/{alert_id}/mute", {"minutes": "0", "of": "rule"}, ("alert.unmute",), _as_it_is),
    ("DELETE /api/runs/{run_id}/merges/{merge_id}", {}, ("run.delete_model",), _model_made),
    ("POST /trash/{item_id}", {"verb": "purge"}, ("trash.purge",), _as_it_is),
]


@pytest.fixture
def scene(settings: Any) -> Scene:
    settings.OIDC = PROVIDER
    return Scene()


def test_every_address_that_writes_has_its_deeds_or_a_reason_for_none() -> None:
    writing = {entry for entry in RULES if not entry.startswith("GET ")}

    missing = [f'"{entry}": ("…",),' for entry in sorted(writing - DEEDS.keys() - UNRECORDED.keys())]
    assert not missing, "Say in DEEDS of tests/console/access_rules.py what it leaves:\n" + "\n".join(missing)
    assert not DEEDS.keys() & UNRECORDED.keys()
    assert DEEDS.keys() | UNRECORDED.keys() <= RULES.keys()


@pytest.mark.django_db
def test_each_deed_leaves_its_rows_with_actor_address_and_token(scene: Scene) -> None:
    failures = []
    for entry, verbs in DEEDS.items():
        with transaction.atomic():
            try:
                SCENES.get(entry, _as_it_is)(scene)
                body = BODIES.get(entry)
                failures += _failures(scene, entry, verbs, body(scene) if body else None)
            finally:
                transaction.set_rollback(True)
    for entry, sent, verbs, prepare in MORE:
        with transaction.atomic():
            try:
                prepare(scene)
                failures += _failures(scene, entry, verbs, sent)
            finally:
                transaction.set_rollback(True)
    assert not failures, "\n".join(failures)


def test_each_verb_in_the_code_and_the_table_has_its_words() -> None:
    source = (path.read_text() for base in ("jobs", "console") for path in (ROOT / base).rglob("*.py"))
    written = {verb for text in source for verb in re.findall(r'(?:verb=|_record\([^"\n]*)"([a-z_]+\.[a-z_]+)"', text)}
    listed = {verb for verbs in DEEDS.values() for verb in verbs} | {verb for _, _, verbs, _ in MORE for verb in verbs}

    assert len(written) > 40
    assert written | listed <= DEED_WORDS.keys(), "Say it in console/labels/deeds.py"
    told = (ROOT / "docs/operate/audit.md").read_text()
    assert not [verb for verb in DEED_WORDS if f"`{verb}`" not in told], "docs/operate/audit.md lists them all"


def _failures(scene: Scene, entry: str, verbs: tuple[str, ...], sent: dict[str, Any] | None) -> list[str]:
    """Return what is wrong with the rows that the deed of an address leaves."""
    rule, kept_values = RULES[entry], dict(scene.values)
    person = scene.people["superuser of another project" if rule.needs == "superuser" else "admin"]
    person.refresh_from_db()  # what an earlier deed changed of it was taken back
    token, text = make_token(user=person, name="ci")
    headers = {"Host": "localhost", "User-Agent": "matrix"}
    if entry in API:
        client = Client(headers={**headers, "Authorization": f"Bearer {text}"}, REMOTE_ADDR=ADDRESS)
    else:
        client = Client(headers=headers, REMOTE_ADDR=ADDRESS)
        if "/signin" not in entry:
            client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    if sent is not None:
        rule = Rule(needs=rule.needs, body=lambda: sent or {}, query=rule.query, is_form=rule.is_form)
    newest = AuditEvent.objects.latest("pk").pk
    answer = ask(client, scene, entry, rule=rule)
    told = content(answer)
    rows = list(AuditEvent.objects.filter(pk__gt=newest).order_by("pk"))
    scene.values = kept_values
    where = f"{entry}: {answer.status_code} {told[:200]!r}"
    if sorted(row.verb for row in rows) != sorted(verbs):
        return [f"{where} left {[row.verb for row in rows]}, not {list(verbs)}"]
    by = (token.pk, f"ci ({token.prefix}…)") if entry in API else (None, "")
    wrong = [
        row
        for row in rows
        if (row.actor_id, row.actor_name) != (person.pk, person.get_username())
        or (row.ip, row.user_agent) != (ADDRESS, "matrix")
        or (row.token_id, row.token) != by
        or row.object_type not in OBJECT_TYPES
        or not (row.object_label or row.object_type in NAMELESS)
        or not (row.project_id or row.object_type in HOMELESS or "/api/account/" in entry)  # one's own channels
    ]
    links = re.findall(r"/signin/([\w-]{20,})", told.decode(errors="replace"))
    hiding = (text, PASSWORD, CHANNEL_SECRET, *links)
    secret = [row for row in rows for hidden in hiding if hidden in f"{row.object_label} {row.before} {row.after}"]
    return [f"{where} left {vars(row)}" for row in (*wrong, *secret)]
