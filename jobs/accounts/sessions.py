"""Browser sessions of people: counted and ended. Whose a session is stands inside it, so each is looked into."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
from django.utils.crypto import constant_time_compare


def end_sessions(user_id: int, *, keep: str | None = None) -> int:
    """End the sessions of a person, all but the one with the key `keep`, and return how many ended."""
    keys = [key for key, owner in _owners() if owner == str(user_id) and key != keep]
    ended, _by_model = Session.objects.filter(pk__in=keys).delete()
    return ended


def count_sessions() -> Counter[str]:
    """Return how many sessions each person has open, by the text of the account's id."""
    return Counter(owner for _key, owner in _owners())


def signed_in(keys: Collection[str]) -> dict[str, int]:
    """Return whose each of these sessions is, by the account's id, with two queries however many they are.

    By the rules of `django.contrib.auth.get_user`: left out are those that have ended, those of accounts that are not
    active, and those from before another password.
    """
    rows = Session.objects.filter(pk__in=keys, expire_date__gt=timezone.now())
    said = {row.session_key: row.get_decoded() for row in rows}
    ids = {str(about[SESSION_KEY]) for about in said.values() if SESSION_KEY in about}
    people = {str(user.pk): user for user in User.objects.filter(pk__in=ids, is_active=True)}
    owners = {key: people.get(str(about.get(SESSION_KEY))) for key, about in said.items()}
    return {key: user.pk for key, user in owners.items() if user is not None and _is_of(user, said[key])}


def _is_of(user: User, about: Mapping[str, Any]) -> bool:
    own_hash = about.get(HASH_SESSION_KEY)
    if not own_hash or about.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return False
    hashes = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(own_hash, valid) for valid in hashes)


def _owners() -> Iterator[tuple[str, str]]:
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator(chunk_size=500):
        owner = session.get_decoded().get(SESSION_KEY)
        if owner is not None:
            yield session.session_key, str(owner)
