"""The caller's own API tokens."""

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema, Status

from console.api.problem import REFUSALS, Refused
from console.api.visible import caller
from console.api_token import make_token, revoke_token
from jobs.models import ApiToken

router = Router(tags=["account"])


class TokenIn(Schema):
    """What the token is for."""

    model_config = {"extra": "forbid"}

    name: str = Field(min_length=1, max_length=120)


class TokenOut(Schema):
    """A token without its text, which is shown once."""

    id: int
    name: str
    prefix: str
    created_at: datetime
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
    rows = ApiToken.objects.filter(user_id=caller(request).pk).order_by("-pk")
    return TokensOut(tokens=[TokenOut(**_token(row)) for row in rows])


@router.post("", response={201: NewTokenOut, **REFUSALS}, summary="Make a token")
def create_token(request: HttpRequest, asked: TokenIn) -> Status[NewTokenOut]:
    """Make a token with all of your rights and return its text, once."""
    name = asked.name.strip()
    if not name or any(ord(c) < 32 for c in name):
        raise Refused(422, "A token's name says what it is for, on one line. Name it.", field="name")
    row, text = make_token(user=caller(request), name=name)
    return Status(201, NewTokenOut(token=text, **_token(row)))


@router.delete("/{int:token_id}", response={204: None, **REFUSALS}, summary="Revoke a token")
def remove_token(request: HttpRequest, token_id: int) -> Any:
    """Revoke one of your tokens at once and for good."""
    is_known = token_id < 2**62 and revoke_token(user=caller(request), token_id=token_id, now=timezone.now())
    if not is_known:
        raise Http404
    return Status(204, None)


def _token(row: ApiToken) -> dict[str, Any]:
    fields = ("name", "prefix", "created_at", "used_at", "revoked_at")
    return {"id": row.pk, **{name: getattr(row, name) for name in fields}}
