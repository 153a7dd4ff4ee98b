"""Input made to break things: each is refused with a sentence or taken harmlessly, never answered by a fault (500)."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone

from console.sign_in.api_token import make_token
from jobs.ingest.batches import BatchInvalid, parse_batch
from jobs.ingest.store import AttemptCache, Delivery, store
from jobs.models import Attempt, Run
from jobs.runs.launch import ingest_token
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

DEEP = "[" * 100_000
LONG = "9" * 5000
HUGE = "1" + "0" * 400
NUL, HALF = "a\0", "\ud800"


class Attacker:
    """An admin of a project who means harm: as browser, as API client, and with the token of a run's runner."""

    def __init__(self) -> None:
        project = make_project("p")
        user = make_user("u", project=project, role="admin")
        self.run = make_run(project, state="finished")
        self.live = make_run(project, state="running")
        self.artifact = make_artifact(self.run)
        self.artifact.stored_path.parent.mkdir(parents=True, exist_ok=True)
        self.artifact.stored_path.write_bytes(b"abc")
        self.web = self._client()
        self.web.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        self.api = self._client(make_token(user=user, name="t")[1])
        self.runner = self._client(ingest_token(self.live.pk, 1))

    def _client(self, token: str = "") -> Client:
        signed = {"Authorization": f"Bearer {token}"} if token else {}
        return Client(headers={"Host": "localhost", **signed}, raise_request_exception=False)

    def filled(self, path: str) -> str:
        return path.format(run=self.run.pk, live=self.live.pk, artifact=self.artifact.pk)

    def send(self, client: Client, method: str, path: str, body: Any) -> Any:
        raw = body if isinstance(body, str) else json.dumps(body)
        return getattr(client, method)(self.filled(path), raw, content_type="application/json")


@pytest.fixture
def attacker(settings: Any, tmp_path: Path) -> Attacker:
    settings.FILES_DIR = tmp_path
    return Attacker()


@pytest.mark.parametrize(
    "path",
    [
        *("/runs?q=%00", "/runs?q=by:%00", "/runs?sort=a/%00", "/runs?project=%00", "/runs/new?from=%00"),
        *("/runs/rows?ids=%00", "/runs.csv?ids=%00", "/frame/search?q=%00", "/signin/%00", "/api/runs/%00"),
        *("/api/runs?q=%00", "/api/runs?algorithm=%00", "/api/runs?project=%00", "/api/projects/%00/members"),
        *("/runs/{run}/log.txt?role=%00", "/api/runs/{run}/logs?q=%00", "/ingest/{live}/1/files/a%00/content"),
    ],
)
def test_a_nul_in_an_address_is_refused(attacker: Attacker, path: str) -> None:
    client = attacker.api if path.startswith("/api") else attacker.runner if path.startswith("/ing") else attacker.web

    answer = client.get(attacker.filled(path))

    assert answer.status_code == 400
    assert b"NUL" in answer.content


@pytest.mark.parametrize("path", ["/runs?sort=a/%22b", "/runs?sort=a/%5B0", "/runs?sort=a/'", "/runs?q=a/b%5C>1"])
def test_odd_metric_names_sort_and_filter_without_a_fault(attacker: Attacker, path: str) -> None:
    assert attacker.web.get(path).status_code == 200


def test_numbers_of_thousands_of_digits_in_addresses_and_headers_are_no_fault(attacker: Attacker) -> None:
    file = attacker.filled("/runs/{run}/files/{artifact}")

    assert attacker.web.get(attacker.filled("/runs/{run}/log.txt"), {"rank": LONG}).status_code == 200
    assert attacker.web.get(file, headers={"Range": f"bytes=0-{LONG}"}).status_code == 200
    assert attacker.web.get(file, headers={"Range": f"bytes=-{LONG}"}).status_code == 200
    assert attacker.web.get(f"{file}{'9' * 30}").status_code == 404


def test_a_header_cannot_be_broken_by_a_log_s_role(attacker: Attacker) -> None:
    answer = attacker.web.get(attacker.filled("/runs/{run}/log.txt"), {"role": "a\r\nSet-Cookie: x=y"})

    assert answer.status_code == 200
    assert not answer.cookies
    assert "\n" not in answer["Content-Disposition"]


@pytest.mark.parametrize("text", [NUL, HALF])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("patch", "/api/runs/{run}", {"note": "?"}),
        ("patch", "/api/runs/{run}", {"name": "?"}),
        ("patch", "/api/runs/{run}", {"tags": ["?"]}),
        ("post", "/api/tokens", {"name": "?"}),
        ("post", "/api/tokens", {"name": "t", "project": "?"}),
        ("post", "/api/runs/{run}/answers", {"artifact_id": 0, "prompt": "?"}),
        ("post", "/api/runs", {"data": {"system_prompt": "?"}}),
        ("post", "/api/runs", {"name": "?"}),
        ("post", "/api/runs", {"reward": {"kind": "custom", "source": "?"}}),
    ],
)
def test_text_that_no_database_takes_is_refused(
    attacker: Attacker, method: str, path: str, body: dict[str, Any], text: str
) -> None:
    raw = json.dumps(body).replace('"?"', json.dumps(text)).replace(": 0", f": {attacker.artifact.pk}")

    answer = attacker.send(attacker.api, method, path, raw)

    assert answer.status_code == 422, answer.content
    assert answer.json()["problems"][0]["field"]


@pytest.mark.parametrize(
    "field", ['{"hardware":{"policy_ranks":%s}}', '{"data":{"eval_share":%s}}', '{"knobs":{"train.num_steps":%s}}']
)
@pytest.mark.parametrize("number", [HUGE, LONG, "NaN", "1e999"])
def test_a_number_that_fits_no_float_is_refused(attacker: Attacker, field: str, number: str) -> None:
    assert attacker.send(attacker.api, "post", "/api/runs", field % number).status_code in (400, 422)
    assert attacker.web.post("/runs/new/import", {"text": field % number}).status_code == 422


def test_the_form_survives_deep_bases_huge_numbers_and_nul(attacker: Attacker) -> None:
    checked = attacker.web.post("/runs/new/check", {"base": DEEP, "hardware.policy_ranks": "9" * 400})
    launched = attacker.web.post("/runs/new", {"data.system_prompt": NUL, "idempotency_key": NUL})
    changed = attacker.web.post("/runs/change", {"verb": "tag", "ids": NUL, "tags": "x"})

    assert [p["field"] for p in checked.json()["problems"]] == ["hardware.policy_ranks"]
    assert (launched.status_code, changed.status_code) == (422, 200)
    assert Run.objects.count() == 2


@pytest.mark.parametrize("path", ["/api/runs", "/api/specs/check", "/api/tokens"])
def test_json_without_end_is_refused(attacker: Attacker, path: str) -> None:
    assert attacker.send(attacker.api, "post", path, DEEP).status_code == 400


@pytest.mark.parametrize("body", [DEEP, "[]", "null", "1", '{"text":1}', '{"token_ids":["a"]}'])
def test_an_answer_that_is_none_is_refused(attacker: Attacker, body: str) -> None:
    assert attacker.send(attacker.runner, "post", "/ingest/{live}/1/answers/1", body).status_code == 400


def test_half_a_surrogate_pair_in_an_answer_is_replaced(attacker: Attacker) -> None:
    assert attacker.send(attacker.runner, "post", "/ingest/{live}/1/answers/1", '{"text":"\\ud800"}').status_code == 200


@pytest.mark.parametrize("meta", ["[" * 30_000, '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud800"}', '{"a":"\\u0000"}', "[]"])
def test_a_file_s_meta_that_no_database_takes_is_refused(attacker: Attacker, meta: str) -> None:
    query = f"offset=0&size=3&sha256={'0' * 64}&type=model&path=x&meta={quote(meta)}"

    answer = attacker.runner.put(attacker.filled("/ingest/{live}/1/files/m?") + query, b"abc")

    assert answer.status_code == 400
    assert not attacker.live.artifacts.exists()


def test_a_terminal_event_of_odd_shapes_is_stored_and_breaks_no_page(attacker: Attacker) -> None:
    cause = {"side": ["x"], "text": {"a": 1}, "step": "1", "rank": [], "role": 3}
    meta = {"processes_left": "many", "device_bytes_left": -5, "nodes_unchecked": 7}
    said = {"kind": "state", "state": "failed", "attempt": 1, "step": -1, "role": "runner", "rank": 0, "t": 1}
    event = {**said, "cause": cause, "meta": meta}
    batch = parse_batch(json.dumps({"batch": 1, "events": [event]}).encode(), attempt=1)
    delivery = Delivery(id=b"1", run_id=attacker.live.pk, attempt=1, batch=1, events=batch.events)

    store([delivery], memory=AttemptCache(), now=timezone.now())

    assert Attempt.objects.get(run=attacker.live).state == "failed"
    for page in ("/", "/runs", "/cluster", "/runs/{live}", "/api/runs/{live}"):
        assert attacker.web.get(attacker.filled(page)).status_code == 200, page


def test_an_event_nested_too_deep_is_named_so_that_the_runner_can_go_on_without_it() -> None:
    note = {"kind": "note", "text": "x", "attempt": 1, "step": -1, "role": "driver", "rank": 0, "t": 1}
    deep = json.dumps({**note, "meta": {"a": 0}}).replace("0}", "[" * 300 + "]" * 300 + "}")

    with pytest.raises(BatchInvalid, match=r"events\[1\]: is nested more than") as refused:
        parse_batch(f'{{"batch":1,"events":[{json.dumps(note)},{deep}]}}'.encode(), attempt=1)

    assert refused.value.events == (1,)
