"""The account page: tokens shown once, password, language and look."""

import re

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from jobs.models import ApiToken, AuditEvent
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def user(client: Client) -> User:
    person = make_user("mara", project=make_project())
    assert isinstance(person, User)
    person.set_unusable_password()
    person.save()
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    return person


def test_a_token_is_shown_once_and_signs_in_to_the_api(client: Client, user: User) -> None:
    made = client.post(reverse("create-token"), {"name": "laptop"})
    look = client.get(made["Location"])
    shown = re.search(r'id="new-token">([^<]+)<', look.content.decode())
    assert shown

    again = client.get(reverse("account")).content.decode()
    answer = Client().get("/api/runs", headers={"Authorization": f"Bearer {shown[1]}"})

    assert (made.status_code, made["Location"]) == (302, reverse("account"))  # a reload sends no form again
    assert shown[1] not in made.content.decode() + again
    assert "no-store" in look["Cache-Control"]
    assert "laptop" in again
    assert answer.status_code == 200
    assert shown[1] not in str(ApiToken.objects.values())
    assert shown[1] not in str([row.get_decoded() for row in Session.objects.all()])


def test_a_revoked_token_is_refused_and_the_deed_is_kept(client: Client, user: User) -> None:
    page = client.post(reverse("create-token"), {"name": "laptop"}, follow=True).content.decode()
    shown = re.search(r'id="new-token">([^<]+)<', page)
    assert shown

    client.post(reverse("revoke-token", args=[ApiToken.objects.get().pk]))

    assert Client().get("/api/runs", headers={"Authorization": f"Bearer {shown[1]}"}).status_code == 401
    assert AuditEvent.objects.filter(verb="token.revoke", actor=user).exists()


def test_nobody_revokes_the_token_of_another(client: Client, user: User) -> None:
    other = ApiToken.objects.create(user=make_user(), name="x", sha256="0" * 64, prefix="pw_")

    page = client.post(reverse("revoke-token", args=[other.pk]), follow=True).content.decode()

    other.refresh_from_db()
    assert other.revoked_at is None
    assert "no longer exists" in page


@pytest.mark.parametrize(("name", "sentence"), [("", "Give the token a name"), ("x" * 121, "Use at most 120")])
def test_a_token_needs_a_name_of_fair_length(client: Client, user: User, name: str, sentence: str) -> None:
    answer = client.post(reverse("create-token"), {"name": name})

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert not ApiToken.objects.exists()


def test_who_came_by_a_link_sets_a_password_and_stays_signed_in(client: Client, user: User) -> None:
    fields = {"new_password1": "a long enough secret", "new_password2": "a long enough secret"}

    answer = client.post(reverse("change-password"), fields, follow=True)

    assert "Password changed" in answer.content.decode()
    user.refresh_from_db()
    assert user.check_password("a long enough secret")


def test_who_has_a_password_must_give_it_to_change_it(client: Client, user: User) -> None:
    user.set_password("the old one, long")
    user.save()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    fields = {"old_password": "wrong", "new_password1": "a long enough secret", "new_password2": "a long enough secret"}

    answer = client.post(reverse("change-password"), fields)

    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.content.decode()
    user.refresh_from_db()
    assert user.check_password("the old one, long")


def test_a_short_password_is_refused_with_what_is_allowed(client: Client, user: User) -> None:
    answer = client.post(reverse("change-password"), {"new_password1": "short", "new_password2": "short"})

    assert answer.status_code == 422
    assert "at least 10 characters" in answer.content.decode()


def test_language_and_look_are_kept_in_the_browser(client: Client, user: User) -> None:
    fields = {"language": "zh-hans", "theme": "dark", "density": "comfortable"}

    page = client.post(reverse("change-look"), fields, follow=True).content.decode()

    assert '<html lang="zh-hans" data-bs-theme="dark" data-theme-choice="dark" data-density="comfortable"' in page
    assert "账户" in page


def test_an_unknown_look_changes_nothing(client: Client, user: User) -> None:
    page = client.post(reverse("change-look"), {"language": "xx", "theme": "pink", "density": "0"}, follow=True)

    assert "That choice is not known" in page.content.decode()
    assert "pitwall_theme" not in client.cookies
