"""API tokens: made once, shown once, kept as a hash, limited as asked, revoked for good."""

import hashlib
import secrets
from datetime import datetime
from typing import cast

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from jobs.accounts.access import Role, TokenLimits, projects_of, require_whole_account
from jobs.accounts.audit import record
from jobs.catalog.value import is_storable
from jobs.models import ApiToken, Membership

PREFIX = "pw_"
MAX_DAYS = 3650  # of a token that ends by itself


class TokenRefused(ValueError):
    """The token asked for is not made; `field` names what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


def token_hash(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_token(
    *, user: AbstractBaseUser, name: str, role: str = "admin", project: str = "", expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """Return the row of a new token and its text, which is never to be seen again.

    It may do what its person may, but never more than `role`, only in `project` (a slug; "" for all of the person's),
    and only until `expires_at` (None: until it is revoked). Raises: TokenRefused; NotAllowed to a limited token.
    """
    require_whole_account(user)
    if role not in Membership.Role.values:
        text = _("There is no role %(role)r. Use viewer, editor or admin.")
        raise TokenRefused("role", text % {"role": role})
    home = projects_of(user).filter(slug=project).first() if project and is_storable(project) else None
    if project and home is None:
        text = _("There is no project %(slug)r, or you have no access to it. Leave it out for all of your projects.")
        raise TokenRefused("project", text % {"slug": project})
    text = PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(
        user_id=user.pk,
        name=name,
        sha256=token_hash(text),
        prefix=text[:9],
        role=role,
        project=home,
        expires_at=expires_at,
    )
    after = {"name": name, "role": role, "project": project, "expires_at": expires_at and expires_at.isoformat()}
    record(
        actor=user, verb="token.create", object_type="token", object_id=str(row.pk), after=after, label=token_label(row)
    )
    return row, text


def revoke_token(*, user: AbstractBaseUser, token_id: int, now: datetime) -> bool:
    """Revoke one of the person's own tokens; False if there is no such token or it was revoked before.

    Raises: NotAllowed to a limited token.
    """
    require_whole_account(user)
    rows = ApiToken.objects.filter(pk=token_id, user_id=user.pk, revoked_at=None)
    row = rows.first()
    if row is None or rows.update(revoked_at=now) != 1:
        return False
    record(actor=user, verb="token.revoke", object_type="token", object_id=str(token_id), label=token_label(row))
    return True


def token_label(row: ApiToken) -> str:
    """Return how the audit names a token: by its name and its first characters."""
    return f"{row.name} ({row.prefix}…)"


def limits_of_token(row: ApiToken) -> TokenLimits:
    """Return what the token takes from its person's rights."""
    # A role that nobody knows, written by hand into the database, gives the least.
    role = cast(Role, row.role) if row.role in Membership.Role.values else "viewer"
    return TokenLimits(role=role, project_id=row.project_id, has_end=row.expires_at is not None)
