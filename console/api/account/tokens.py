"""The caller's own API tokens."""

from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller
from console.sign_in.api_token import MAX_DAYS, TokenRefused, make_token, revoke_token
from jobs.accounts.access import require_whole_account
from jobs.models import ApiToken

router = Router(tags=["account"])


class TokenIn(Schema):
    """What the token is for, and how far it reaches.

    It never may more than you: `role` lowers it further, `project` (a slug) keeps it there, `days` ends it.
    """

    model_config = {"extra": "forbid"}

    name: str = Field(min_length=1, max_length=120)
    role: str = "admin"
    project: str | None = None
    days: int | None = Field(None, ge=1, le=MAX_DAYS)


class TokenOut(Schema):
    """A token without its text, which is shown once."""

    id: int
    name: str
    prefix: str
    role: str
    project: str | None
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


class NewTokenOut(TokenOut):
    """A new token; `token` is never to be seen again."""

    token: str


class TokensOut(Schema):
    """The caller's tokens, newest first."""

    tokens: list[TokenOut]


@router.get("", response={200: TokensOut, **REFUSALS}, summary="Your tokens")
def list_tokens(request: HttpRequest) -> TokensOut:
    """Return your tokens, revoked ones too."""
    require_whole_account(request.user)
    rows = ApiToken.objects.filter(user_id=caller(request).pk).select_related("project").order_by("-pk")
    return TokensOut(tokens=[_token(row) for row in rows])


@router.post("", response={201: NewTokenOut, **REFUSALS}, summary="Create token")
def create_token(request: HttpRequest, body: TokenIn) -> Status[NewTokenOut]:
    """Make a token and return its text, once. A token that is itself limited makes none: 403."""
    require_whole_account(request.user)
    name = body.name.strip()
    if not name or any(ord(c) < 32 for c in name):
        raise RequestProblem(422, "A token's name says what it is for, on one line. Name it.", field="name")
    expires_at = None if body.days is None else timezone.now() + timedelta(days=body.days)
    try:
        row, text = make_token(
            user=caller(request), name=name, role=body.role, project=body.project or "", expires_at=expires_at
        )
    except TokenRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return Status(201, NewTokenOut(token=text, **_token(row).model_dump()))


@router.delete("/{int:token_id}", response={204: None, **REFUSALS}, summary="Revoke a token")
def remove_token(request: HttpRequest, token_id: int) -> Any:
    """Revoke one of your tokens at once and for good."""
    require_whole_account(request.user)
    is_known = token_id < 2**62 and revoke_token(user=caller(request), token_id=token_id, now=timezone.now())
    if not is_known:
        raise Http404
    return Status(204, None)


def _token(row: ApiToken) -> TokenOut:
    return TokenOut(
        id=row.pk,
        name=row.name,
        prefix=row.prefix,
        role=row.role,
        project=row.project.slug if row.project else None,
        created_at=row.created_at,
        expires_at=row.expires_at,
        used_at=row.used_at,
        revoked_at=row.revoked_at,
    )
