"""Requests that schemathesis makes of the console's own OpenAPI document, with ids that exist, as every role.

Without real ids nearly all of them end at 404 and prove nothing. What would end the proof itself is left out: revoking
tokens, and whatever ends the account that asks.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis.generation import GenerationMode

from tests.proofs.security.site import Site

LEFT_OUT = ("DELETE /api/tokens/",)  # a made-up id could be the caller's
DELETES = ("DELETE",)  # asked last, so that what the others ask for is there
ROLES = {  # who asks, and as which caller of the scene
    "nobody": "signed out",
    "admin of another project": "admin of another project",
    "viewer": "viewer",
    "editor": "editor",
    "admin": "admin",
    "superuser": "superuser",
}
DELETING = ("editor", "admin", "superuser")  # the scene is used up after them
OURS = ("authorization", "host")  # headers that say who asks whom
REAL = 0.8  # of the requests name what is there
OF_QUERY = {"project": "project", "run": "run_id", "runs": "run_id", "layer": "layer_id", "other": "trace_id"}


@dataclass(slots=True, kw_only=True)
class Generated:
    """Of one role: how many requests got which status, and the first of those that ended in a server error."""

    by_status: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    num_operations: int = 0


def check(site: Site, scene: Mapping[str, Any], *, role: str, examples: int, only: str = "") -> Generated:
    """Send `examples` valid and as many invalid requests to each operation."""
    token = scene["tokens"][ROLES[role]]
    result = Generated()
    with site.client(headers={"Authorization": scene["tokens"]["admin"]}) as client:
        document = client.get("/api/openapi.json").raise_for_status().json()
    loaded = schemathesis.openapi.from_dict(document)
    operations = [
        (path, method)
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("get", "post", "put", "patch", "delete")
        and only in path
        and not f"{method.upper()} {path}".startswith(LEFT_OUT)
    ]
    with site.client(headers={"Authorization": token} if token else {}) as client:
        for path, method in sorted(operations, key=lambda each: each[1].upper() in DELETES):
            result.num_operations += 1
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _send(client, loaded[path][method.upper()], scene, result, mode=mode, examples=examples)
    return result


def _send(
    client: httpx.Client, operation: Any, scene: Mapping[str, Any], result: Generated, *, mode: Any, examples: int
) -> None:
    chance = random.Random(f"{operation.method} {operation.path}")

    @seed(7)
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def holds(case: Any) -> None:
        if chance.random() < REAL:
            known = scene["values"]
            case.path_parameters = {k: known.get(k, v) for k, v in (case.path_parameters or {}).items()}
            if isinstance(case.query, dict):
                case.query |= {name: known[of] for name, of in OF_QUERY.items() if name in case.query}
            if isinstance(case.body, dict) and "artifact_id" in case.body:
                case.body["artifact_id"] = int(known["artifact_id"])
        request = case.as_transport_kwargs(base_url=str(client.base_url))
        request.pop("cookies", None)
        made_up = dict(request.pop("headers") or {})
        headers = {name: value for name, value in made_up.items() if name.lower() not in OURS}
        headers |= {name: client.headers[name] for name in OURS if name in client.headers}
        answer = _answer(client, request, headers)
        if answer is None:  # a request that HTTP itself does not take
            return
        result.by_status[answer.status_code] += 1
        if answer.status_code >= 500 and len(result.errors) < 20:
            result.errors.append(f"{operation.method.upper()} {request['url']}: {answer.status_code}")

    holds()


def _answer(client: httpx.Client, request: dict[str, Any], headers: Mapping[str, str]) -> httpx.Response | None:
    body = {"json": request["json"]} if "json" in request else {}
    for name in ("data", "files", "content"):
        if request.get(name):
            body["content" if name == "data" and isinstance(request[name], bytes | str) else name] = request[name]
    if "files" in body:
        named = body["files"].items() if isinstance(body["files"], dict) else body["files"]
        body["files"] = [(name, _part(value)) for name, value in named]
    try:
        return client.request(
            request["method"], request["url"], params=request.get("params"), headers=dict(headers), **body
        )
    except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError, ValueError, TypeError):
        return None


def _part(value: object) -> object:
    """Return a part of a form as httpx sends it: what is no file, as an invalid request has it, becomes text."""
    if isinstance(value, tuple):
        return (value[0], _part(value[1]), *value[2:])
    return value if isinstance(value, bytes | str) or hasattr(value, "read") else json.dumps(value, default=str)
