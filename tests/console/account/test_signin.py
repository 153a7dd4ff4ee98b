"""Signing in: by password, by one-time link, what is refused and how it is said."""

import io
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.embedded.data_dir import DataDirLock
from console.middleware.caller_address import CallerAddressMiddleware
from console.middleware.log_redaction import HideLinks
from console.sign_in.address_lock import caller
from console.sign_in.api_token import make_token
from console.sign_in.link import LinkUnusable, make_link, use_link
from jobs.models import AuditEvent, SigninLink
from tests.links import press
from tests.rows import make_user

pytestmark = pytest.mark.django_db


def token_of(link: str) -> str:
    return link.rpartition("/")[2]


@pytest.fixture
def user() -> User:
    person = make_user("mara")
    assert isinstance(person, User)
    person.set_password("a long enough secret")
    person.save()
    return person


def test_a_password_signs_in_and_leads_where_one_wanted_to_go(client: Client, user: User) -> None:
    fields = {"username": "mara", "password": "a long enough secret", "next": "/runs?q=x"}

    answer = client.post(reverse("signin"), fields)

    assert answer.status_code == 302
    assert answer["Location"] == "/runs?q=x"


def test_another_site_is_no_place_to_go_next(client: Client, user: User) -> None:
    fields = {"username": "mara", "password": "a long enough secret", "next": "https://example.org/"}

    assert client.post(reverse("signin"), fields)["Location"] == "/"


def test_a_wrong_password_gets_one_sentence_that_does_not_tell_which_part_was_wrong(client: Client, user: User) -> None:
    wrong = client.post(reverse("signin"), {"username": "mara", "password": "nope"}).content.decode()
    unknown = client.post(reverse("signin"), {"username": "nobody", "password": "nope"}).content.decode()

    sentence = "User name and password do not match"
    assert sentence in wrong
    assert sentence in unknown


def test_too_many_failures_lock_sign_in_for_a_while(client: Client, user: User, settings: Any) -> None:
    settings.AXES_ENABLED = True
    settings.AXES_FAILURE_LIMIT = 3
    for _ in range(3):
        client.post(reverse("signin"), {"username": "mara", "password": "nope"})

    answer = client.post(reverse("signin"), {"username": "mara", "password": "a long enough secret"})

    assert answer.status_code == 429
    assert "Too many failed attempts" in answer.content.decode()


def test_a_link_signs_in_once(client: Client, user: User) -> None:
    link = make_link(user=user, base_url="http://testserver", now=timezone.now())

    first = client.post(link)
    second = Client().post(link)

    assert first.status_code == 302
    assert client.get(reverse("home")).status_code == 200
    assert second.status_code == 410
    assert "was used before" in second.content.decode()
    assert "manage.py signin-link" in second.content.decode()


@pytest.mark.parametrize("method", ["get", "head"])
def test_who_only_looks_at_a_link_changes_nothing(user: User, method: str) -> None:
    """As a scanner of mail does, or the preview of a message."""
    link = make_link(user=user, base_url="http://testserver", now=timezone.now())
    scanner = Client()

    page = getattr(scanner, method)(link)

    assert page.status_code == 200
    assert page.content == b"" or b"Sign in as mara" in page.content
    assert scanner.get(reverse("home")).status_code == 302
    assert SigninLink.objects.get().used_at is None
    assert Client().post(link).status_code == 302


def test_a_link_needs_the_button_of_its_page(user: User) -> None:
    link = make_link(user=user, base_url="http://testserver", now=timezone.now())
    strict = Client(enforce_csrf_checks=True)

    refused = strict.post(link)
    page = strict.get(link).content.decode()
    accepted = strict.post(link, press(page))

    assert refused.status_code == 403
    assert accepted.status_code == 302


def test_a_link_of_somebody_else_says_who_would_be_signed_out(client: Client, user: User) -> None:
    client.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")
    link = make_link(user=user, base_url="http://testserver", now=timezone.now())

    page = client.get(link).content.decode()

    assert "In this browser ada is signed in" in page
    assert client.get("/account").wsgi_request.user.username == "ada"


def test_another_password_ends_links_and_other_sessions_and_tokens_if_asked(client: Client, user: User) -> None:
    for each in (client, other := Client()):
        each.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    link = make_link(user=user, base_url="http://testserver", now=timezone.now())
    token, _text = make_token(user=user, name="ci")
    fields = {
        "old_password": "a long enough secret",
        "new_password1": "quite another 1",
        "new_password2": "quite another 1",
    }

    client.post(reverse("change-password"), fields)

    assert client.get("/account").status_code == 200
    assert other.get("/account").status_code == 302
    assert Client().get(link).status_code == 410
    token.refresh_from_db()
    assert token.revoked_at is None

    fields |= {
        "old_password": "quite another 1",
        "new_password1": "and a third one",
        "new_password2": "and a third one",
    }
    client.post(reverse("change-password"), {**fields, "revoke_tokens": "on"})
    token.refresh_from_db()
    assert token.revoked_at is not None


@pytest.fixture
def locks(settings: Any) -> Any:
    settings.AXES_ENABLED = True
    settings.ADDRESS_FAILURE_LIMIT = 12
    return settings


def test_passwords_tried_on_many_names_lock_the_address_and_are_told(
    user: User, locks: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(name: str, password: str, address: str = "192.0.2.7") -> int:
        fields = {"username": name, "password": password}
        forged = {"X-Forwarded-For": "198.51.100.1"}  # from nobody who may say so
        return Client().post(reverse("signin"), fields, REMOTE_ADDR=address, headers=forged).status_code

    caplog.set_level(logging.WARNING, logger="console.sign_in.address_lock")
    answers = [attempt(f"name-{number}", "nope") for number in range(12)]
    monkeypatch.setattr(ModelBackend, "authenticate", lambda *_a, **_k: pytest.fail("a locked address derived a key"))

    assert answers == [200] * 12
    assert attempt("mara", "a long enough secret") == 429
    assert "12 wrong passwords for 12 names from 192.0.2.7" in caplog.text
    told = AuditEvent.objects.get(verb="signin.locked")
    assert (told.object_id, told.after["names"]) == ("192.0.2.7", 12)
    monkeypatch.undo()
    assert attempt("mara", "a long enough secret", "192.0.2.8") == 302


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", None),
    ],
)
def test_addresses_of_one_household_are_counted_together(rf: Any, address: str, counted: str | None) -> None:
    found = []
    CallerAddressMiddleware(lambda request: found.append(caller(request)))(rf.get("/", REMOTE_ADDR=address))

    assert found == [counted]


def test_an_address_is_open_again_after_a_while(user: User, locks: Any) -> None:
    for number in range(12):
        Client().post(reverse("signin"), {"username": f"name-{number}", "password": "nope"})
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=16))

    assert Client().post(reverse("signin"), {"username": "mara", "password": "a long enough secret"}).status_code == 302


def test_reloading_the_link_while_signed_in_just_goes_home(client: Client, user: User) -> None:
    link = make_link(user=user, base_url="http://testserver", now=timezone.now())
    client.post(link)

    answer = client.get(link)

    assert answer.status_code == 302
    assert answer["Location"] == "/"


def test_a_link_expires(client: Client, user: User) -> None:
    link = make_link(user=user, base_url="", now=timezone.now() - timedelta(hours=2))

    answer = client.get(link)

    assert answer.status_code == 410
    assert "has expired" in answer.content.decode()


def test_an_unknown_link_and_one_of_an_inactive_account_sign_nobody_in(user: User) -> None:
    link = make_link(user=user, base_url="", now=timezone.now())
    User.objects.filter(pk=user.pk).update(is_active=False)

    with pytest.raises(LinkUnusable, match="not known"):
        use_link(token="x", now=timezone.now())
    with pytest.raises(LinkUnusable, match="no longer active"):
        use_link(token=token_of(link), now=timezone.now())


def test_only_the_hash_of_a_link_is_kept(user: User) -> None:
    link = make_link(user=user, base_url="", now=timezone.now())

    row = SigninLink.objects.get()

    assert token_of(link) not in str(row.__dict__)


def test_a_refused_request_for_a_link_does_not_write_it_to_the_log(
    client: Client, user: User, caplog: pytest.LogCaptureFixture
) -> None:
    """A PUT is refused and logged, and the link stays unused."""
    link = make_link(user=user, base_url="http://localhost", now=timezone.now())
    lines = io.StringIO()
    caplog.set_level(logging.WARNING, logger="django.request")  # pytest-django silences it
    (handler,) = [h for h in logging.getLogger().handlers if any(isinstance(f, HideLinks) for f in h.filters)]
    assert isinstance(handler, logging.StreamHandler)
    before = handler.setStream(lines)
    try:
        assert client.put(link.removeprefix("http://localhost")).status_code == 405
    finally:
        handler.setStream(before)

    assert "/signin/…" in lines.getvalue()
    assert token_of(link) not in lines.getvalue()
    assert use_link(token=token_of(link), now=timezone.now()) == user


def test_the_command_prints_a_link_that_works(client: Client, user: User) -> None:
    out = io.StringIO()

    call_command("signin-link", "mara", stdout=out, stderr=io.StringIO())

    link = out.getvalue().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/signin/[\w-]{40,}", link)
    assert client.post(link[link.index("/signin") :]).status_code == 302


def test_the_command_names_the_port_of_the_console_that_runs(user: User, tmp_path: Path, settings: Any) -> None:
    settings.DATA_DIR = tmp_path
    lock, links = DataDirLock(tmp_path), []
    for _ in ("while it runs", "after it ended"):
        lock.tell("http://127.0.0.1:8123")
        out = io.StringIO()
        call_command("signin-link", "mara", stdout=out, stderr=io.StringIO())
        links.append(out.getvalue())
        if len(links) == 1:
            lock.release()

    assert links[0].startswith("http://127.0.0.1:8123/signin/")
    assert links[1].startswith(f"{settings.PUBLIC_URL}/signin/")


def test_the_command_names_an_unknown_user_and_the_known_ones(user: User) -> None:
    with pytest.raises(CommandError, match=r"no active user 'nobody'. Known: mara"):
        call_command("signin-link", "nobody")


def test_signing_out_ends_the_session(client: Client, user: User) -> None:
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    client.post(reverse("signout"))

    assert client.get(reverse("home")).status_code == 302
