"""Roles × routes × projects on a running console: every line of tests/console/access_rules.py as every caller,
websockets and the ingest endpoints too.

Who may not is asked first, so that what they ask for is still there; then readers, then writers. What a writer may is
held to no more than not being refused: earlier ones may have deleted what it writes to.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed

from tests.console.access_rules import API, INGEST, SOCKETS, Rule
from tests.console.test_access_matrix import (
    CALLERS,
    NAMES_A_HOME,
    NAMES_IT,
    RANK,
    RULES,
    TOKENS,
    expected,
)
from tests.proofs.security.attacks.bodies import socket_of
from tests.proofs.security.site import Site

SECRET = b"secret-plan"  # stands in what only members may see
_UNDONE = ("DELETE", "POST /signout", "POST /account/password")  # asked last: what comes after would find nothing
_NOT_AS_OWNER = ("POST /account/password", "POST /signout")  # would end the sessions of the callers that follow


@dataclass(slots=True, kw_only=True)
class Answers:
    """How many requests were answered with which status, and which answers were wrong."""

    by_status: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def num_requests(self) -> int:
        """How many were sent."""
        return self.by_status.total()


def check(site: Site, scene: Mapping[str, Any], *, only: str = "") -> Answers:
    """Ask every address as every caller; `only`: addresses that hold this."""
    answers = Answers()
    cases = [case for case in _cases() if only in case[0]]
    refused = [case for case in cases if case[3] is not None]
    allowed = sorted((case for case in cases if case[3] is None), key=_is_late)
    if not only:
        _sockets(site, scene, answers)
    with site.client() as client:
        for entry, rule, caller, wanted in [*refused, *allowed]:
            if wanted is None and entry in _NOT_AS_OWNER:
                continue
            answer = _ask(client, site, scene, entry, rule, caller)
            answers.by_status[answer.status_code] += 1
            if fault := _fault(answer, entry, rule, caller, wanted):
                answers.wrong.append(f"{entry} as {caller}: {fault}")
        if not only:
            _runners(client, scene, answers)
    return answers


def _cases() -> Iterator[tuple[str, Rule, str, tuple[int, ...] | None]]:
    for entry, rule in RULES.items():
        is_api = entry in API
        names_it = bool(NAMES_IT.search(f"{entry} {rule.query}"))
        for caller, role in {**CALLERS, **(TOKENS if is_api else {})}.items():
            yield entry, rule, caller, expected(rule, caller, role, is_api=is_api, names_it=names_it)


def _is_late(case: tuple[str, Rule, str, Any]) -> tuple[bool, bool]:
    return case[0].startswith(_UNDONE), not case[0].startswith("GET")


def _fault(answer: httpx.Response, entry: str, rule: Rule, caller: str, wanted: tuple[int, ...] | None) -> str:
    role = {**CALLERS, **TOKENS}[caller]
    status = answer.status_code
    if status >= 500 and entry != "GET /readyz":
        return f"{status}"
    if wanted is not None and status not in wanted:
        return f"{status} in place of {wanted}"
    if status == 302 and wanted is not None and not answer.headers["location"].startswith("/signin"):
        return f"leads to {answer.headers['location']}"
    is_open = rule.opens_to_superuser and caller.startswith("superuser")
    if role is None and SECRET in answer.content and "confirm" not in rule.query and not is_open:
        return "tells what is in the project"
    refusals = (401, 403, 404) if entry.startswith("GET ") else (401, 403)
    if wanted is None and role is not None and rule.needs in RANK and status in refusals:
        return f"{status}, though the role may"
    return ""


def fill(address: str, scene: Mapping[str, Any]) -> str:
    """Return an address with what is theirs in it."""
    address = address.replace("/perfetto/{name}", "/perfetto/index.html")
    return re.sub(r"{(\w+)}", lambda found: str(scene["values"].get(found[1], "1")), address)


def _ask(
    client: httpx.Client, site: Site, scene: Mapping[str, Any], entry: str, rule: Rule, caller: str
) -> httpx.Response:
    client.cookies.clear()  # what an earlier answer has set is another caller's
    method, address = entry.split(" ")
    query = {name: fill(value, scene) for name, value in rule.query.items()}
    if not NAMES_A_HOME.search(address):
        query["project"] = "theirs"
    headers = dict(site.headers)
    if entry in API:
        headers["Authorization"] = scene["tokens"][caller]
    else:
        cookie = scene["cookies"].get(caller, "")
        headers["Cookie"] = f"csrftoken={CSRF}" + (f"; pitwall_session={cookie}" if cookie else "")
        headers["X-CSRFToken"] = CSRF
    if not headers.get("Authorization", "x"):
        del headers["Authorization"]
    body = rule.body()
    if "artifact_id" in body:
        body = {**body, "artifact_id": int(scene["values"]["artifact_id"])}
    content: dict[str, Any] = {}
    if method != "GET" and "file" in body:
        content = {"files": {"file": ("rows.jsonl", body["file"].read())}}
    elif method != "GET" and rule.is_form:
        content = {"data": body}
    elif method != "GET":
        content = {"content": json.dumps(body)}
        headers["Content-Type"] = "application/json"
    return client.request(
        method, fill(address, scene), params=query, headers=headers, follow_redirects=False, **content
    )


CSRF = "x" * 32  # cookie and header alike, as a page has them: it is the role that is asked about


def _runners(client: httpx.Client, scene: Mapping[str, Any], answers: Answers) -> None:
    """Nobody's token but its own opens an attempt's ingest endpoint."""
    scene_of_run = {"values": {**scene["values"], "run": scene["values"]["live_run"]}}
    for address, methods in INGEST.items():
        for method in methods:
            for caller, token in scene["tokens"].items():
                headers = {"Authorization": token} if token else {}
                answer = client.request(method, fill(address, scene_of_run), headers=headers)
                answers.by_status[answer.status_code] += 1
                if (answer.status_code == 401) is (caller == "a runner") or answer.status_code >= 500:
                    answers.wrong.append(f"{method} {address} as {caller}: {answer.status_code}")


def _sockets(site: Site, scene: Mapping[str, Any], answers: Answers) -> None:
    """A websocket says something to members, and closes to everybody else without a word."""
    for path, query in SOCKETS.items():
        address = fill(path, scene) + (f"?{query}" if query else "")
        for caller, role in CALLERS.items():
            wanted = None if role else (4401 if caller == "signed out" else 4404)
            with socket_of(site, scene["cookies"].get(caller, ""), address) as socket:
                try:
                    code, told = None, str(socket.recv(timeout=20))
                except ConnectionClosed as error:
                    code, told = error.rcvd.code if error.rcvd else 1006, ""
            answers.by_status[code or 101] += 1
            if code != wanted or (role is None and told):
                answers.wrong.append(
                    f"{address} as {caller}: {code or 'it speaks'} in place of {wanted or 'a message'}"
                )
