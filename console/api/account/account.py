"""Who the caller is."""

from django.http import HttpRequest
from ninja import Router, Schema

from console.api.problem import REFUSALS
from console.api.visible import caller

router = Router(tags=["account"])


class AccountOut(Schema):
    """The account behind the token or session."""

    username: str
    is_token: bool


@router.get("", response={200: AccountOut, **REFUSALS}, summary="Your account")
def read_account(request: HttpRequest) -> AccountOut:
    """Return whose token or session this is."""
    is_token = request.headers.get("Authorization", "").lower().startswith("bearer ")
    return AccountOut(username=caller(request).get_username(), is_token=is_token)
