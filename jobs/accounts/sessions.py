"""Browser sessions of people: counted and ended. Whose a session is stands inside it, so each is looked into."""

from collections import Counter
from collections.abc import Iterator

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone


def end_sessions(user_id: int, *, keep: str | None = None) -> int:
    """End the sessions of a person, all but the one with the key `keep`, and return how many ended."""
    keys = [key for key, owner in _owners() if owner == str(user_id) and key != keep]
    ended, _by_model = Session.objects.filter(pk__in=keys).delete()
    return ended


def count_sessions() -> Counter[str]:
    """Return how many sessions each person has open, by the text of the account's id."""
    return Counter(owner for _key, owner in _owners())


def _owners() -> Iterator[tuple[str, str]]:
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator(chunk_size=500):
        owner = session.get_decoded().get(SESSION_KEY)
        if owner is not None:
            yield session.session_key, str(owner)
