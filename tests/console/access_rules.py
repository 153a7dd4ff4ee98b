"""Who may do what at every address of the console: the table that tests/console/test_access_matrix.py holds it to.

A new address needs a line here. `needs` is one of
    viewer, editor, admin   the role in the project of what is asked for; others get 403, non-members 404
    signed-in               anybody with an account or token: the answer is about the caller alone, or public knowledge
    account                 anybody signed in, but not a limited API token: it speaks for the whole account
    superuser               whoever runs the console
    anyone                  also who is signed out
`body` makes a request that is right but for who asks, so that it is the role that refuses it, and not the form.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from django.core.files.uploadedfile import SimpleUploadedFile

Needs = Literal["viewer", "editor", "admin", "signed-in", "account", "superuser", "anyone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What an address needs. `changes`: a GET that does change something, and why; `query` is added to the address.

    `opens_to_superuser`: whoever runs the console may, whosever project it is.
    """

    needs: Needs
    body: Callable[[], Any] = dict
    query: Mapping[str, str] = field(default_factory=dict)
    is_form: bool = False
    changes: str = ""
    opens_to_superuser: bool = False


VIEWER, EDITOR, ADMIN = Rule(needs="viewer"), Rule(needs="editor"), Rule(needs="admin")
AUDITOR = Rule(needs="admin", opens_to_superuser=True)
SIGNED_IN, ACCOUNT, ANYONE = Rule(needs="signed-in"), Rule(needs="account"), Rule(needs="anyone")
SUPERUSER = Rule(needs="superuser")


def _file() -> dict[str, Any]:
    return {"file": SimpleUploadedFile("rows.jsonl", b'{"prompt": "1+1=", "answer": "2"}\n')}


def _form(needs: Needs, **values: str) -> Rule:
    return Rule(needs=needs, body=lambda: dict(values), is_form=True)


def _of_run(**query: str) -> Rule:
    """Return the rule of an address that names runs in its query."""
    return Rule(needs="viewer", query={"runs": "{run_id}", **query})


def _plan() -> Rule:
    return Rule(needs="viewer", body=lambda: {"spec": {}, "what_if": {"accelerator": "h200", "devices_per_node": 2}})


_CHANNEL = {"kind": "webhook", "name": "x", "address": "https://example.com/x"}
_SWEEP = {"method": "grid", "knobs": [{"id": "optimizer.learning_rate", "values": [1e-4, 2e-4]}]}

PAGES: dict[str, Rule] = {
    "GET /": SIGNED_IN,  # who is in no project is told so
    "POST /demo": _form("editor"),
    "GET /account": ACCOUNT,
    "POST /account/look": _form("signed-in", language="en", theme="dark", density="compact"),
    "POST /account/password": _form("account", new_password1="long enough 1", new_password2="long enough 1"),
    "POST /account/tokens": _form("account", name="x"),
    "POST /account/tokens/{token_id}/revoke": _form("account"),
    "POST /account/oidc/connect": _form("account"),
    "POST /account/oidc/disconnect": _form("account"),
    "GET /audit": AUDITOR,
    "GET /audit.jsonl": AUDITOR,
    "GET /alerts": VIEWER,
    "GET /alerts/rules": VIEWER,
    "GET /alerts/{alert_id}": VIEWER,
    "POST /alerts/{alert_id}/acknowledge": _form("editor"),
    "POST /alerts/{alert_id}/resolve": _form("editor"),
    "POST /alerts/{alert_id}/mute": _form("editor", minutes="60", of="rule"),
    "POST /alerts/{alert_id}/note": _form("editor", text="seen"),
    "POST /alerts/mutes/{mute_id}/end": _form("editor"),
    "POST /alerts/in/{project}/rules": _form("admin", kind="waiting", name="x", severity="info", p_minutes="5"),
    "POST /alerts/in/{project}/rules/{rule_number}": _form("admin", verb="off"),
    "POST /alerts/in/{project}/channels": _form("admin", kind="webhook", name="x", address="https://example.com/x"),
    "POST /alerts/in/{project}/channels/{channel_id}": _form("admin", verb="delete"),
    "POST /alerts/in/{project}/subscription": _form("viewer", runs="all", severity="info"),
    "GET /cluster": SIGNED_IN,
    "GET /compare": _of_run(),
    "GET /compare/table.csv": _of_run(),
    "GET /compare/series.csv": _of_run(),
    "GET /frame/search": SIGNED_IN,
    "GET /frame/texts.js": ANYONE,
    "GET /frame/usage": SIGNED_IN,
    "GET /guide": SIGNED_IN,
    "GET /guide/knobs": SIGNED_IN,
    "GET /guide/knobs/{item}": SIGNED_IN,
    "GET /guide/recipes": SIGNED_IN,
    "GET /guide/recipes/{item}": SIGNED_IN,
    "GET /guide/devices": SIGNED_IN,
    "POST /guide/devices/config": _form("signed-in", config="{}"),
    "GET /guide/tuning": SIGNED_IN,
    "GET /guide/symptoms": SIGNED_IN,
    "GET /guide/symptoms/{item}": SIGNED_IN,
    "GET /guide/metrics": SIGNED_IN,
    "GET /guide/rules": SIGNED_IN,
    "GET /guide/rules/{item}": SIGNED_IN,
    "GET /guide/diagnosis": SIGNED_IN,
    "GET /healthz": ANYONE,
    "GET /readyz": ANYONE,
    "GET /runs": VIEWER,
    "GET /runs.csv": VIEWER,
    "GET /runs/rows": VIEWER,
    "POST /runs/change": _form("editor", verb="archive", ids="r-none"),
    "GET /runs/deletion": EDITOR,
    "GET /trash": VIEWER,
    "POST /trash/{item_id}": _form("admin", verb="restore"),
    "POST /runs/{run_id}/edit": _form("editor", note="seen"),
    "GET /runs/new": EDITOR,
    "POST /runs/new": _form("editor"),
    "POST /runs/new/check": _form("editor"),
    "POST /runs/new/knobs": _form("editor"),
    "GET /runs/new/index": EDITOR,
    "GET /runs/new/recipe": Rule(needs="editor", query={"id": "native-grpo-demo"}),
    "POST /runs/new/import": _form("editor", text="{}"),
    "POST /runs/new/preview": _form("editor"),
    "POST /runs/new/reward": _form("editor"),
    "POST /runs/new/plan/advice": _form("editor"),
    "POST /runs/new/plan/layouts": _form("editor"),
    "POST /runs/new/plan/config": _form("editor"),
    "POST /runs/new/sweep": _form("editor"),
    "POST /runs/new/sweep/launch": _form("editor"),
    "GET /runs/{run_id}": VIEWER,
    "GET /runs/{run_id}/alerts": VIEWER,
    "POST /runs/{run_id}/watch": _form("viewer", is_on="1"),
    "GET /runs/{run_id}/{tab}": VIEWER,
    "GET /runs/{run_id}/spec.json": VIEWER,
    "GET /runs/{run_id}/symptoms": VIEWER,
    "GET /runs/{run_id}/diagnosis": VIEWER,
    "GET /runs/{run_id}/plan": VIEWER,
    "GET /runs/{run_id}/log.txt": VIEWER,
    "GET /runs/{run_id}/files/{artifact_id}": VIEWER,
    "GET /runs/{run_id}/captures/{capture_id}.zip": VIEWER,
    "GET /runs/{run_id}/captures/{capture_id}/perfetto": VIEWER,
    "GET /runs/{run_id}/captures/{capture_id}/stacks": VIEWER,
    "GET /people": SUPERUSER,
    "GET /people/{username}": SUPERUSER,
    "POST /people/{username}/change": _form("superuser", verb="deactivate"),
    "POST /people/{username}/link": _form("superuser"),
    "POST /people/{username}/hand-over": _form("superuser", project="theirs", to="a-editor"),
    "GET /perfetto/{name}": SIGNED_IN,
    "GET /settings": VIEWER,
    "POST /settings/accounts": _form("superuser", username="newcomer"),
    "POST /settings/projects": _form("superuser", name="Another one"),
    "POST /settings/quotas": _form("superuser", quota_of="project:theirs", live_runs="4"),
    "POST /settings/{project}/uploads/delete": _form("editor", sha256="0" * 64),
    "POST /settings/{project}/members": _form("admin", username="owner", role="admin"),
    "POST /settings/{project}/prices": _form("admin", accelerator="h200", price="3"),
    "POST /settings/{project}/currency": _form("admin", currency="EUR"),
    "POST /settings/{project}/constants": _form("admin", reset="all"),
    "GET /settings/access": SUPERUSER,
    "GET /settings/{project}/access": ADMIN,
    "POST /settings/{project}/hand-over": _form("admin", username="owner", to="a-editor"),
    "GET /settings/{project}/calibration": VIEWER,
    "GET /settings/{project}/retention": VIEWER,
    "POST /settings/{project}/retention/change": _form("admin", **{"logs.days": "30"}),
    "POST /settings/{project}/calibration/change": _form("admin", accelerator="h200-sxm"),
    "POST /settings/{project}/members/remove": _form("admin", username="a-viewer"),
    "GET /signin": ANYONE,
    "POST /signin": _form("anyone", username="nobody", password="nothing"),
    "GET /signin/{token}": ANYONE,
    "POST /signin/{token}": _form("anyone"),
    "GET /signin/oidc": ANYONE,  # 404 without a provider
    "GET /signin/oidc/callback": ANYONE,
    "POST /signout": _form("signed-in"),
    "GET /traces/": VIEWER,
    "GET /traces/{trace_id}": VIEWER,
    "GET /traces/{trace_id}/summary": VIEWER,
    "GET /traces/{trace_id}/difference": VIEWER,
    "GET /traces/{trace_id}/files": VIEWER,
    "GET /traces/{trace_id}/diagnosis": VIEWER,
    "GET /traces/{trace_id}/files/{layer_id}": VIEWER,
    "GET /runs/{run_id}/captures/{capture_id}/timeline": VIEWER,
    "GET /tune": VIEWER,
    "GET /tune/{study_id}": VIEWER,
    "GET /api/docs": SIGNED_IN,
}

API: dict[str, Rule] = {
    "GET /api/access": SUPERUSER,
    "GET /api/access/export.csv": SUPERUSER,
    "GET /api/account": SIGNED_IN,
    "GET /api/accounts": SUPERUSER,
    "POST /api/accounts": Rule(needs="superuser", body=lambda: {"username": "newcomer"}),
    "GET /api/accounts/{username}": SUPERUSER,
    "PATCH /api/accounts/{username}": Rule(needs="superuser", body=lambda: {"is_active": False}),
    "POST /api/accounts/{username}/link": SUPERUSER,
    "DELETE /api/accounts/{username}/projects": SUPERUSER,
    "DELETE /api/accounts/{username}/sessions": SUPERUSER,
    "DELETE /api/accounts/{username}/tokens": SUPERUSER,
    "POST /api/accounts/{username}/hand-over": Rule(
        needs="superuser", body=lambda: {"to": "a-editor", "project": "theirs"}
    ),
    "GET /api/openapi.json": SIGNED_IN,
    "GET /metrics": SIGNED_IN,  # by API tokens, as the API; it tells of the projects of who asks
    "GET /api/accelerators": SIGNED_IN,
    "GET /api/account/alert-channels": ACCOUNT,
    "POST /api/account/alert-channels": Rule(needs="account", body=lambda: _CHANNEL),
    "DELETE /api/account/alert-channels/{channel_id}": ACCOUNT,
    "POST /api/account/alert-channels/{channel_id}/test": ACCOUNT,
    "GET /api/alerts": VIEWER,
    "GET /api/alerts/{alert_id}": VIEWER,
    "POST /api/alerts/{alert_id}/acknowledge": EDITOR,
    "POST /api/alerts/{alert_id}/resolve": EDITOR,
    "POST /api/alerts/{alert_id}/mute": Rule(needs="editor", body=lambda: {"minutes": 5, "of": "rule"}),
    "POST /api/alerts/{alert_id}/notes": Rule(needs="editor", body=lambda: {"text": "seen"}),
    "GET /api/projects/{project}/alert-rules": VIEWER,
    "POST /api/projects/{project}/alert-rules": Rule(needs="admin", body=lambda: {"kind": "waiting"}),
    "PATCH /api/projects/{project}/alert-rules/{rule_number}": Rule(needs="admin", body=lambda: {"is_enabled": False}),
    "DELETE /api/projects/{project}/alert-rules/{rule_number}": ADMIN,
    "GET /api/projects/{project}/alert-channels": VIEWER,
    "POST /api/projects/{project}/alert-channels": Rule(needs="admin", body=lambda: _CHANNEL),
    "DELETE /api/projects/{project}/alert-channels/{channel_id}": ADMIN,
    "POST /api/projects/{project}/alert-channels/{channel_id}/test": ADMIN,
    "GET /api/projects/{project}/alert-subscription": VIEWER,
    "PUT /api/projects/{project}/alert-subscription": Rule(needs="viewer", body=lambda: {"runs": "all"}),
    "GET /api/models": SIGNED_IN,
    "GET /api/catalog/advice": SIGNED_IN,
    "GET /api/catalog/devices": SIGNED_IN,
    "GET /api/catalog/knobs": SIGNED_IN,
    "GET /api/catalog/metrics": SIGNED_IN,
    "GET /api/catalog/recipes": SIGNED_IN,
    "GET /api/catalog/rules": SIGNED_IN,
    "GET /api/catalog/symptoms": SIGNED_IN,
    "GET /api/audit": AUDITOR,
    "GET /api/audit/export": AUDITOR,
    "GET /api/cluster": SIGNED_IN,
    "GET /api/cluster/storage": SIGNED_IN,
    "GET /api/compare": _of_run(),
    "GET /api/compare/series": _of_run(metrics="reward/mean"),
    "GET /api/projects": SIGNED_IN,
    "POST /api/projects": Rule(needs="superuser", body=lambda: {"name": "Another one"}),
    "GET /api/projects/{project}/members": VIEWER,
    "POST /api/projects/{project}/plan": _plan(),
    "POST /api/projects/{project}/plan/advice": _plan(),
    "POST /api/projects/{project}/plan/layouts": _plan(),
    "POST /api/projects/{project}/plan/can-it-run": Rule(
        needs="viewer", body=lambda: {"model": "qwen2.5-0.5b", "method": "sft", "on": ["h200"]}
    ),
    "POST /api/projects/{project}/plan/diffusion": Rule(
        needs="viewer", body=lambda: {"model": "flux.1-dev", "on": ["h200"]}
    ),
    "GET /api/projects/{project}/plan-settings": VIEWER,
    "GET /api/projects/{project}/calibration": VIEWER,
    "GET /api/projects/{project}/retention": VIEWER,
    "PUT /api/projects/{project}/retention": Rule(needs="admin", body=lambda: {"rules": {"logs": {"days": 30}}}),
    "POST /api/projects/{project}/retention/preview": ADMIN,
    "POST /api/projects/{project}/calibration": Rule(needs="admin", body=lambda: {"accelerator": "h200-sxm"}),
    "DELETE /api/projects/{project}/calibration": Rule(needs="admin", query={"accelerator": "h200-sxm"}),
    "PATCH /api/projects/{project}/plan-settings": Rule(needs="admin", body=lambda: {"currency": "EUR"}),
    "GET /api/projects/{project}/access": ADMIN,
    "GET /api/projects/{project}/access.csv": ADMIN,
    "POST /api/projects/{project}/hand-over": Rule(needs="admin", body=lambda: {"username": "owner", "to": "a-editor"}),
    "PUT /api/projects/{project}/members/{username}": Rule(needs="admin", body=lambda: {"role": "admin"}),
    "DELETE /api/projects/{project}/members/{username}": ADMIN,
    "GET /api/runs": VIEWER,
    "POST /api/runs": Rule(needs="editor", body=lambda: {"name": "mine"}),
    "GET /api/runs/export.csv": VIEWER,
    "GET /api/runs/{run_id}": VIEWER,
    "GET /api/runs/{run_id}/watch": VIEWER,
    "PUT /api/runs/{run_id}/watch": VIEWER,
    "DELETE /api/runs/{run_id}/watch": VIEWER,
    "PATCH /api/runs/{run_id}": Rule(needs="editor", body=lambda: {"note": "seen"}),
    "DELETE /api/runs/{run_id}": ADMIN,
    "POST /api/runs/delete": Rule(needs="signed-in", body=lambda: {"ids": ["r-none"]}),
    "GET /api/runs/{run_id}/answers": VIEWER,
    "POST /api/runs/{run_id}/answers": Rule(needs="editor", body=lambda: {"artifact_id": 1, "prompt": "1+1="}),
    "GET /api/runs/{run_id}/answers/{answer_id}": VIEWER,
    "GET /api/runs/{run_id}/artifacts": VIEWER,
    "GET /api/runs/{run_id}/trainer-command": VIEWER,
    "GET /api/runs/{run_id}/captures": VIEWER,
    "GET /api/runs/{run_id}/captures/choices": VIEWER,
    "POST /api/runs/{run_id}/captures": Rule(needs="editor", body=lambda: {"tool": "torch"}),
    "POST /api/runs/{run_id}/captures/{capture_id}/end": EDITOR,
    "GET /api/runs/{run_id}/captures/{capture_id}": VIEWER,
    "DELETE /api/runs/{run_id}/captures/{capture_id}": EDITOR,
    "GET /api/runs/{run_id}/captures/{capture_id}/zip": VIEWER,
    "POST /api/runs/{run_id}/checkpoint": EDITOR,
    "GET /api/runs/{run_id}/events": VIEWER,
    "GET /api/runs/{run_id}/logs": VIEWER,
    "GET /api/runs/{run_id}/metrics": VIEWER,
    "GET /api/runs/{run_id}/samples": VIEWER,
    "GET /api/runs/{run_id}/checkpoints": VIEWER,
    "GET /api/runs/{run_id}/knobs": VIEWER,
    "PUT /api/runs/{run_id}/checkpoints/{attempt}/{step}/pin": Rule(needs="editor", body=lambda: {"is_pinned": True}),
    "POST /api/runs/{run_id}/knobs": Rule(needs="editor", body=lambda: {"knobs": {"rollout.temperature": 0.9}}),
    "POST /api/runs/{run_id}/resume": Rule(needs="editor", body=lambda: {"step": None}),
    "GET /api/runs/{run_id}/series": Rule(needs="viewer", query={"metrics": "reward/mean"}),
    "GET /api/runs/{run_id}/spans": Rule(needs="viewer", query={"start_ns": "0", "end_ns": "1"}),
    "GET /api/runs/{run_id}/spec": VIEWER,
    "GET /api/runs/{run_id}/symptoms": VIEWER,
    "GET /api/runs/{run_id}/diagnosis": VIEWER,
    "GET /api/runs/{run_id}/plan": Rule(needs="viewer", query={"accelerator": "h200"}),
    "POST /api/runs/{run_id}/stop": EDITOR,
    "POST /api/specs/check": EDITOR,
    "POST /api/specs/preview": EDITOR,
    "POST /api/specs/reward-trial": EDITOR,
    "GET /api/specs/schema": SIGNED_IN,
    "GET /api/studies": VIEWER,
    "POST /api/studies": Rule(needs="editor", body=lambda: {"spec": {"name": "mine"}, "sweep": _SWEEP}),
    "GET /api/studies/{study_id}": VIEWER,
    "PATCH /api/studies/{study_id}": Rule(needs="editor", body=lambda: {"max_concurrent": 1}),
    "POST /api/studies/{study_id}/stop": EDITOR,
    "GET /api/tokens": ACCOUNT,
    "POST /api/tokens": Rule(needs="account", body=lambda: {"name": "x"}),
    "DELETE /api/tokens/{token_id}": ACCOUNT,
    "GET /api/trash": VIEWER,
    "POST /api/trash/{item_id}/restore": ADMIN,
    "DELETE /api/trash/{item_id}": Rule(needs="admin", query={"confirm": "trashed"}),
    "GET /api/traces": VIEWER,
    "POST /api/traces": Rule(needs="editor", body=lambda: {"files": [{"name": "a.json", "size": 3}]}),
    "GET /api/traces/{trace_id}": VIEWER,
    "DELETE /api/traces/{trace_id}": EDITOR,
    "GET /api/traces/{trace_id}/phases": VIEWER,
    "GET /api/traces/{trace_id}/diagnosis": VIEWER,
    "GET /api/traces/{trace_id}/search": Rule(needs="viewer", query={"q": "gemm"}),
    "GET /api/traces/{trace_id}/hits": Rule(needs="viewer", query={"q": "gemm", "at": "0"}),
    "GET /api/traces/{trace_id}/summary": Rule(needs="viewer", query={"from": "0", "to": "9"}),
    "GET /api/traces/{trace_id}/analysis": VIEWER,
    "GET /api/traces/{trace_id}/difference": Rule(needs="viewer", query={"other": "{trace_id}"}),
    "GET /api/traces/{trace_id}/layers/{layer_id}": VIEWER,
    "PUT /api/traces/{trace_id}/layers/{layer_id}/content": Rule(needs="editor", query={"offset": "0"}),
    "POST /api/traces/{trace_id}/layers/{layer_id}/import": EDITOR,
    "GET /api/traces/{trace_id}/layers/{layer_id}/tiles/{level}/{index}": VIEWER,
    "GET /api/traces/{trace_id}/layers/{layer_id}/events/{event}": VIEWER,
    "GET /api/traces/{trace_id}/layers/{layer_id}/series/{series}": Rule(
        needs="viewer", query={"from": "0", "to": "9"}
    ),
    "GET /api/uploads": VIEWER,
    "POST /api/uploads": Rule(needs="editor", body=_file, is_form=True),
    "DELETE /api/uploads/{sha256}": EDITOR,
    "GET /api/quotas": Rule(needs="superuser"),
    "GET /api/quotas/mine": SIGNED_IN,
    "GET /api/quotas/projects/{project}": VIEWER,
    "PUT /api/quotas/projects/{project}": Rule(needs="superuser", body=lambda: {"live_runs": 4}),
    "PUT /api/quotas/people/{username}": Rule(needs="superuser", body=lambda: {"live_runs": 4}),
}

# The runners' ingest endpoint: what each address takes of the token of its own attempt. Nothing else opens it.
INGEST: dict[str, tuple[str, ...]] = {
    "/ingest/{run}/{number}/launch": ("GET",),
    "/ingest/{run}/{number}/events": ("POST",),
    "/ingest/{run}/{number}/answers/{answer_id}": ("POST",),
    "/ingest/{run}/{number}/inputs/{sha256}": ("GET",),
    "/ingest/{run}/{number}/files/{name}/content": ("GET",),
    "/ingest/{run}/{number}/files/{name}": ("GET", "PUT"),
}

# Websockets, and the role they need; who lacks it is closed with 4401 (signed out) or 4404 (not there).
SOCKETS: dict[str, str] = {"/ws/runs/{run_id}": "", "/ws/traces/{trace_id}": "", "/ws/updates": "project=theirs"}

# What each address that changes something leaves in the audit when it does so: a row of each verb, with who, from
# where and by which token. tests/console/test_audit_matrix.py asks each and counts. An address that writes needs a line
# here, or in UNRECORDED with the reason.
DEEDS: dict[str, tuple[str, ...]] = {
    "POST /demo": ("run.create",),
    "POST /account/password": ("password.change",),
    "POST /account/tokens": ("token.create",),
    "POST /account/tokens/{token_id}/revoke": ("token.revoke",),
    "POST /runs/change": ("run.change",),
    "POST /runs/{run_id}/edit": ("run.change",),
    "POST /runs/new": ("run.create",),
    "POST /runs/new/sweep/launch": ("run.create", "run.create", "study.create"),  # the history of each run has its own
    "POST /settings/accounts": ("account.create",),
    "POST /settings/projects": ("project.create",),
    "POST /settings/{project}/members": ("member.set",),
    "POST /settings/{project}/prices": ("planner.set",),
    "POST /settings/{project}/currency": ("planner.set",),
    "POST /settings/{project}/constants": ("planner.set",),
    "POST /settings/{project}/calibration/change": ("planner.uncalibrate",),
    "POST /settings/{project}/members/remove": ("member.remove",),
    "POST /signin": ("signin.password",),
    "GET /signin/{token}": ("signin.link",),
    "POST /signout": ("signout",),
    "POST /api/projects": ("project.create",),
    "POST /api/projects/{project}/calibration": ("planner.calibrate",),
    "DELETE /api/projects/{project}/calibration": ("planner.uncalibrate",),
    "PATCH /api/projects/{project}/plan-settings": ("planner.set",),
    "PUT /api/projects/{project}/members/{username}": ("member.set",),
    "DELETE /api/projects/{project}/members/{username}": ("member.remove",),
    "POST /api/runs": ("run.create",),
    "PATCH /api/runs/{run_id}": ("run.change",),
    "DELETE /api/runs/{run_id}": ("run.delete",),
    "POST /api/runs/{run_id}/answers": ("run.try",),
    "POST /api/runs/{run_id}/captures": ("capture.request",),
    "POST /api/runs/{run_id}/captures/{capture_id}/end": ("capture.end",),
    "DELETE /api/runs/{run_id}/captures/{capture_id}": ("capture.delete",),
    "POST /api/runs/{run_id}/checkpoint": ("run.checkpoint",),
    "PUT /api/runs/{run_id}/checkpoints/{attempt}/{step}/pin": ("run.pin",),
    "POST /api/runs/{run_id}/knobs": ("run.set",),
    "POST /api/runs/{run_id}/resume": ("run.resume",),
    "POST /api/runs/{run_id}/stop": ("run.stop",),
    "POST /api/studies": ("run.create", "run.create", "study.create"),
    "PATCH /api/studies/{study_id}": ("study.max_concurrent",),
    "POST /api/studies/{study_id}/stop": ("run.stop", "study.stop"),
    "POST /api/tokens": ("token.create",),
    "DELETE /api/tokens/{token_id}": ("token.revoke",),
    "POST /api/traces": ("trace.create",),
    "DELETE /api/traces/{trace_id}": ("trace.delete",),
    "POST /api/traces/{trace_id}/layers/{layer_id}/import": ("trace.import",),
    "POST /api/uploads": ("upload.create",),
    # What people take along; reading leaves nothing else.
    "GET /compare/table.csv": ("file.download",),
    "GET /compare/series.csv": ("file.download",),
    "GET /runs.csv": ("file.download",),
    "GET /runs/{run_id}/spec.json": ("file.download",),
    "GET /runs/{run_id}/log.txt": ("file.download",),
    "GET /runs/{run_id}/files/{artifact_id}": ("file.download",),
    "GET /runs/{run_id}/captures/{capture_id}.zip": ("file.download",),
    "GET /traces/{trace_id}/files/{layer_id}": ("file.download",),
    "GET /audit.jsonl": ("audit.export",),
    "GET /api/audit/export": ("audit.export",),
    "GET /api/runs/export.csv": ("file.download",),
    "GET /api/runs/{run_id}/captures/{capture_id}/zip": ("file.download",),
}

_QUESTION = "it answers a question and keeps nothing"
UNRECORDED: dict[str, str] = {
    "POST /account/look": "language, theme and density are cookies of this browser",
    "POST /guide/devices/config": "a config.json is kept in the person's session alone",
    "POST /runs/new/check": _QUESTION,
    "POST /runs/new/knobs": _QUESTION,
    "POST /runs/new/import": _QUESTION,
    "POST /runs/new/preview": _QUESTION,
    "POST /runs/new/reward": _QUESTION,
    "POST /runs/new/plan/advice": _QUESTION,
    "POST /runs/new/plan/layouts": _QUESTION,
    "POST /runs/new/plan/config": _QUESTION,
    "POST /runs/new/sweep": _QUESTION,
    "POST /api/projects/{project}/plan": _QUESTION,
    "POST /api/projects/{project}/plan/advice": _QUESTION,
    "POST /api/projects/{project}/plan/layouts": _QUESTION,
    "POST /api/projects/{project}/plan/can-it-run": _QUESTION,
    "POST /api/projects/{project}/plan/diffusion": _QUESTION,
    "POST /api/specs/check": _QUESTION,
    "POST /api/specs/preview": _QUESTION,
    "POST /api/specs/reward-trial": _QUESTION,
    "PUT /api/traces/{trace_id}/layers/{layer_id}/content": "each piece of a file that trace.create has announced",
}
