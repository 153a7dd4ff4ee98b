"""Default deny: every address of the console refuses who is signed out, and who is not a member."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from console.api.api import api
from console.api_token import make_token
from jobs.models import Answer, Command, Membership, Run, Upload
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

# What people without an account must reach; everything else is refused. The runners' door checks its own tokens.
OPEN = {"signin", "signin-link", "js-catalog", "healthz", "readyz"}
DOOR = "ingest/"
METHODS = ("get", "post", "put", "patch", "delete")


def addresses() -> Iterator[tuple[str, str]]:
    """Yield the pattern and name of every address of the console."""

    def walk(resolver: URLResolver, prefix: str) -> Iterator[tuple[str, str]]:
        for entry in resolver.url_patterns:
            pattern = prefix + str(entry.pattern)
            if isinstance(entry, URLResolver):
                yield from walk(entry, pattern)
            elif isinstance(entry, URLPattern):
                yield pattern, entry.name or ""

    yield from walk(get_resolver(), "")


PAGES = sorted({(p, n) for p, n in addresses() if n not in OPEN and not p.startswith((DOOR, "api/"))})
OPERATIONS = sorted(
    (path, method)
    for path, methods in api.get_openapi_schema(path_prefix="/api/")["paths"].items()
    for method in METHODS
    if method in methods
)


class Scene:
    """Two projects: `theirs` has a run with a model; `outsider` belongs to the other one."""

    def __init__(self) -> None:
        self.theirs = make_project("theirs")
        self.run = make_run(self.theirs, state="finished", spec={"name": "secret-plan"})
        self.artifact = make_artifact(self.run)
        self.outsider: AbstractUser = make_user("outsider", project=make_project("elsewhere"), role="admin")
        self.owner: AbstractUser = make_user("owner", project=self.theirs, role="admin")

    def fill(self, pattern: str) -> str:
        """Return the address with everything in it that is the others'."""
        values = {
            "run_id": self.run.pk,
            "run": self.run.pk,
            "artifact_id": str(self.artifact.pk),
            "answer_id": "1",
            "token_id": "1",
            "project": "theirs",
            "username": "owner",
            "tab": "charts",
            "token": "x" * 43,
        }
        found = re.sub(r"[<{](?:\w+:)?(\w+)[>}]", lambda m: values.get(m.group(1), "1"), pattern)
        return "/" + found.lstrip("/")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def body(path: str) -> dict[str, Any]:
    """Return a body that would be accepted of a member."""
    if path.endswith("/answers"):
        return {"artifact_id": 1, "prompt": "hi"}
    if "/members/" in path:
        return {"role": "viewer"}
    if path.endswith("/tokens"):
        return {"name": "x"}
    return {}


def call(client: Client, path: str, method: str, **more: Any) -> Any:
    return getattr(client, method)(path, json.dumps(body(path)), content_type="application/json", **more)


def get_or(client: Client, path: str, method: str) -> Any:
    return client.get(path) if method == "get" else call(client, path, method)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_an_operation_refuses_who_is_signed_out(path: str, method: str, scene: Scene) -> None:
    answer = get_or(Client(headers={"Host": "localhost"}), scene.fill(path), method)

    assert answer.status_code == 401
    assert "problems" in answer.json()


OWN = re.compile(
    r"^/api/(account|tokens|catalog|cluster|projects$|specs/schema)"
)  # what is the caller's own, or nobody's


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_an_operation_gives_a_non_member_nothing_and_changes_nothing(path: str, method: str, scene: Scene) -> None:
    _row, token = make_token(user=scene.outsider, name="theirs")
    client = Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})
    before = snapshot()
    address = scene.fill(path)
    if "{" not in path and not OWN.match(path):
        address += "?project=theirs"

    answer = get_or(client, address, method)

    if OWN.match(path):
        assert b"secret-plan" not in answer.content
    else:
        assert answer.status_code in (404, 422), answer.content  # 422: the request was judged before its project
        assert b"secret-plan" not in answer.content
        assert snapshot() == before


def snapshot() -> list[Any]:
    """Return all that is the others'; what the outsider does at home is free."""
    theirs = {"project__slug": "theirs"}
    return [
        list(Run.objects.filter(**theirs).values("pk", "name", "state", "note", "archived_at")),
        list(Membership.objects.filter(**theirs).order_by("pk").values_list("user__username", "role")),
        list(Command.objects.values("pk")),
        list(Answer.objects.values("pk")),
        list(Upload.objects.filter(**theirs).values("pk")),
    ]


@pytest.mark.parametrize(("pattern", "name"), PAGES)
def test_a_page_sends_who_is_signed_out_to_the_sign_in(pattern: str, name: str, scene: Scene) -> None:
    path = scene.fill(pattern)
    client = Client(headers={"Host": "localhost"})

    for answer in (client.get(path), client.post(path)):
        assert answer.status_code in (302, 401, 403, 405), f"{path}: {answer.status_code}"
        if answer.status_code == 302:
            assert answer["Location"].startswith("/signin")
        assert b"secret-plan" not in answer.content


@pytest.mark.parametrize(("pattern", "name"), PAGES)
def test_a_page_gives_a_non_member_nothing(pattern: str, name: str, scene: Scene) -> None:
    path = scene.fill(pattern)
    client = Client(headers={"Host": "localhost"})
    client.force_login(scene.outsider, backend="django.contrib.auth.backends.ModelBackend")
    before = snapshot()

    for answer in (client.get(path), client.get(path + "?project=theirs&q=secret-plan"), client.post(path)):
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        assert answer.status_code != 500, path
        assert scene.run.pk.encode() not in content.replace(path.encode(), b""), path
        if "run_id" in pattern:
            assert answer.status_code in (403, 404, 405), f"{path}: {answer.status_code}"
    assert snapshot() == before


def test_a_member_does_see_the_run(scene: Scene) -> None:
    client = Client(headers={"Host": "localhost"})
    client.force_login(scene.owner, backend="django.contrib.auth.backends.ModelBackend")

    assert "secret-plan" in client.get(f"/runs/{scene.run.pk}").content.decode()


def test_there_is_something_to_check() -> None:
    assert len(PAGES) > 8
    assert len(OPERATIONS) > 25
