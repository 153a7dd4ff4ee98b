"""The API's schema and its page: rendered by us, so that it needs no script, no style and no asset of anybody else."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET
from ninja import NinjaAPI

from console.api.account.auth import TokenAuth
from console.api.openapi import kept_document, make_document
from console.api.problem import RequestProblem

log = logging.getLogger(__name__)

_METHODS = ("get", "post", "put", "patch", "delete")


def urlpatterns(api: NinjaAPI) -> list[URLPattern]:
    """Return the addresses of the schema and the page."""
    return [
        path("openapi.json", partial(_schema, api=api), name="openapi-json"),
        path("docs", partial(_page, api=api), name="docs"),
    ]


_making = threading.Lock()
_documents: dict[NinjaAPI, Any] = {}


def document(api: NinjaAPI) -> Any:
    """Return the OpenAPI document; made once a process, because it takes a second or several."""
    with _making:  # who asks while it is made waits for it, and makes no second one
        if api not in _documents:
            _documents[api] = kept_document() or make_document(api)
        return _documents[api]


@cache
def _as_json(api: NinjaAPI) -> bytes:
    return json.dumps(document(api)).encode()


@cache
def _as_groups(api: NinjaAPI) -> dict[str, list["Operation"]]:
    return groups(document(api))


def make_in_background(api: NinjaAPI, made_apart: Callable[[], Any] | None = None) -> threading.Thread:
    """Have the document read, or made by another process: neither the start nor the first who asks waits for it."""

    def make() -> None:
        with _making:
            if api not in _documents and (schema := kept_document()):
                _documents[api] = schema
            if api not in _documents:
                try:
                    _documents[api] = (made_apart or _made_apart)()
                except (OSError, ValueError, subprocess.CalledProcessError) as error:
                    log.warning("The API's schema was not made ahead (%s); who asks for it waits a little.", error)
                    return
        _as_json(api)

    thread = threading.Thread(target=make, name="openapi", daemon=True)
    thread.start()
    return thread


def _made_apart() -> Any:
    command = [sys.executable, "manage.py", "openapi", "--keep", "--parent", str(os.getpid())]
    return json.loads(subprocess.run(command, cwd=settings.BASE_DIR, stdout=subprocess.PIPE, check=True).stdout)


@require_GET
def _schema(request: HttpRequest, *, api: NinjaAPI) -> HttpResponse:
    """Give the OpenAPI document to whoever is signed in, by session or token."""
    try:
        is_known = request.user.is_authenticated or bool(TokenAuth()(request))
    except RequestProblem as error:
        return JsonResponse({"problems": error.problems}, status=error.status)
    if not is_known:
        message = "Sign in, or send a valid API token as Authorization: Bearer <token>."
        return JsonResponse({"problems": [{"field": "", "message": message}]}, status=401)
    return HttpResponse(_as_json(api), content_type="application/json")


@require_GET
def _page(request: HttpRequest, *, api: NinjaAPI) -> HttpResponse:
    """Show every operation with its parameters, body and answers, by resource."""
    return render(request, "api/docs.html", {"info": document(api)["info"], "groups": _as_groups(api)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of an operation; `place` is path, query or header."""

    name: str
    place: str
    is_required: bool
    type: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationBody:
    """What an operation takes, by its media type; `shape` is a sketch of the JSON."""

    type: str
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationAnswer:
    """What an operation answers with a status."""

    status: int | str
    name: str
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as the page shows it; `refusals` are statuses."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Parameter]
    bodies: list[OperationBody]
    answers: list[OperationAnswer]
    refusals: list[int | str]


def groups(schema: Mapping[str, Any]) -> dict[str, list[Operation]]:
    """Return the operations of a schema by tag, ready for a template."""
    by_tag: dict[str, list[Operation]] = {}
    for address, methods in schema["paths"].items():
        for method in _METHODS:
            if method in methods:
                operation = methods[method]
                by_tag.setdefault((operation.get("tags") or ["other"])[0], []).append(
                    _entry(address, method, operation, schema)
                )
    return by_tag


def _entry(address: str, method: str, operation: Mapping[str, Any], schema: Mapping[str, Any]) -> Operation:
    body = operation.get("requestBody", {}).get("content", {})
    return Operation(
        id=operation["operationId"],
        method=method.upper(),
        path=address,
        summary=operation.get("summary", ""),
        description=operation.get("description", "").replace("`", ""),
        parameters=[
            Parameter(
                name=p["name"],
                place=p["in"],
                is_required=p.get("required", False),
                type=_type(p.get("schema", {})),
                description=p.get("description") or p.get("schema", {}).get("description", ""),
            )
            for p in operation.get("parameters", [])
        ],
        bodies=[
            OperationBody(type=kind, shape=_shape(content.get("schema", {}), schema)) for kind, content in body.items()
        ],
        answers=[
            OperationAnswer(status=status, name=answer.get("description", ""), shape=_answer_shape(answer, schema))
            for status, answer in operation.get("responses", {}).items()
            if int(status) < 400
        ],
        refusals=[status for status in operation.get("responses", {}) if int(status) >= 400],
    )


def _answer_shape(answer: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        return _shape(content.get("schema", {}), schema)
    return ""


def _shape(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    return json.dumps(_sketch(node, schema, 0), indent=2, ensure_ascii=False)


def _sketch(node: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> Any:
    """Return what a value looks like: field -> type, to a depth that people can read."""
    if "$ref" in node:
        node = schema["components"]["schemas"][node["$ref"].rpartition("/")[2]]
    if node.get("type") == "object" and node.get("properties") and depth < 4:
        return {name: _sketch(child, schema, depth + 1) for name, child in node["properties"].items()}
    if node.get("type") == "array" and depth < 4:
        return [_sketch(node.get("items", {}), schema, depth + 1)]
    choices = node.get("anyOf") or node.get("allOf")
    if choices and depth < 4:
        sketches = [_sketch(child, schema, depth) for child in choices]
        telling = [s for s in sketches if not isinstance(s, str)]
        return (
            telling[0] if telling and all(isinstance(s, dict) and "origin" not in s for s in telling) else _type(node)
        )
    return _type(node)


def _type(node: Mapping[str, Any]) -> str:
    if "enum" in node:
        return " | ".join(str(value) for value in node["enum"])
    if "const" in node:
        return str(node["const"])
    if "anyOf" in node:
        kinds = (_type(child) for child in node["anyOf"] if child.get("type") not in ("object", "null"))
        return " | ".join(dict.fromkeys(kinds)) or "object"
    if "$ref" in node:
        return str(node["$ref"]).rpartition("/")[2]
    if node.get("type") == "array":
        return f"{_type(node.get('items', {}))}[]"
    kind = str(node.get("format") or node.get("type") or "any")
    bounds = [f"{sign} {node[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in node]
    return " ".join([kind, *bounds])
