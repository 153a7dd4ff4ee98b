"""API tokens: made once, shown once, kept as a hash, revoked for good."""

import hashlib
import secrets
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from jobs.audit import record
from jobs.models import ApiToken

PREFIX = "pw_"


def token_hash(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_token(*, user: AbstractBaseUser, name: str) -> tuple[ApiToken, str]:
    """Return the row of a new token and its text, which is never to be seen again."""
    text = PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(user_id=user.pk, name=name, sha256=token_hash(text), prefix=text[:9])
    record(actor=user, verb="token.create", object_type="token", object_id=str(row.pk), after={"name": name})
    return row, text


def revoke_token(*, user: AbstractBaseUser, token_id: int, now: datetime) -> bool:
    """Revoke one of the person's own tokens; False if there is no such token or it was revoked before."""
    if ApiToken.objects.filter(pk=token_id, user_id=user.pk, revoked_at=None).update(revoked_at=now) != 1:
        return False
    record(actor=user, verb="token.revoke", object_type="token", object_id=str(token_id))
    return True
