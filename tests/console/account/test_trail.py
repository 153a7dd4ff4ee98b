"""Sign-ins, failed ones, lock-outs, sign-outs and links in the audit; nothing that may be a password is kept."""

import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.embedded.first_admin import signin_url
from console.sign_in.link import make_link
from jobs.models import AuditEvent

pytestmark = pytest.mark.django_db
SECRET = "a long enough secret"


@pytest.fixture
def user() -> User:
    return User.objects.create_user("mara", password=SECRET)


@pytest.fixture
def client() -> Client:
    return Client(headers={"Host": "localhost"}, REMOTE_ADDR="192.0.2.7")


def rows(*names: str) -> list[tuple[Any, ...]]:
    """Return verb and these fields of each row, oldest first."""
    assert SECRET not in str(list(AuditEvent.objects.values()))
    return list(AuditEvent.objects.order_by("pk").values_list("verb", *names))


def post(client: Client, name: str, password: str) -> None:
    client.post(reverse("signin"), {"username": name, "password": password})


def test_a_password_signs_in_and_out(client: Client, user: User) -> None:
    post(client, "mara", SECRET)
    client.post(reverse("signout"))

    assert rows("actor_name", "way", "ip") == [
        ("signin.password", "mara", "password", "192.0.2.7"),
        ("signout", "mara", "session", "192.0.2.7"),
    ]


def test_a_failure_keeps_the_name_of_an_account_and_nothing_else_that_was_typed(client: Client, user: User) -> None:
    post(client, "mara", "nope")
    post(client, SECRET, "mara")  # the password in the field of the name

    assert rows("object_id", "after", "actor_name", "way") == [
        ("signin.failed", "mara", {"by": "password", "name": "of an account"}, "", "signed-out"),
        ("signin.failed", "", {"by": "password", "name": "of no account"}, "", "signed-out"),
    ]


def test_the_attempt_that_locks_is_told_and_those_on_a_locked_name_leave_no_rows(
    client: Client, user: User, settings: Any
) -> None:
    settings.AXES_ENABLED, settings.AXES_FAILURE_LIMIT = True, 3
    for _ in range(6):
        post(client, "mara", "nope")

    assert [verb for (verb,) in rows()] == ["signin.failed", "signin.failed", "signin.locked"]


def test_a_link_signs_in_once_and_its_second_use_is_a_failure(client: Client, user: User) -> None:
    link = make_link(user=user, base_url="http://localhost", now=timezone.now())
    client.post(link)
    client.post(link)  # a reload of who is signed in
    Client(headers={"Host": "localhost"}).post(link)
    Client(headers={"Host": "localhost"}).post(reverse("signin-link", args=["unknown"]))

    told = rows("object_id", "way")
    assert told == [("signin.link", "mara", "link"), ("signin.failed", "mara", "signed-out")]
    assert link.rpartition("/")[2] not in str(list(AuditEvent.objects.values()))


def test_links_made_on_the_machine_are_told_without_the_link(user: User) -> None:
    out = io.StringIO()
    call_command("signin-link", "mara", stdout=out, stderr=io.StringIO())
    url = signin_url("http://localhost", now=timezone.now())

    assert rows("object_id", "after") == [
        ("link.create", "mara", {"hours": 1.0}),
        ("account.create", "admin", {"is_superuser": True}),
        ("link.create", "admin", {"hours": 12.0}),
    ]
    kept = str(list(AuditEvent.objects.values()))
    assert not [text for text in (out.getvalue(), url) if text.strip().rpartition("/")[2] in kept]


def test_a_new_password_is_told_and_not_kept(client: Client) -> None:
    user = User.objects.create_user("ada")
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    client.post(reverse("change-password"), {"new_password1": SECRET, "new_password2": SECRET})

    ended = {"tokens": 0, "sessions": 0, "links": 0}
    assert rows("actor_name", "object_id", "after") == [("password.change", "ada", "ada", ended)]
