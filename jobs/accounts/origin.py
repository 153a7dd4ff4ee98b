"""Where deeds come from while code runs: whoever takes a request, a command or a task in says so once, here."""

import os
import pwd
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

Way = Literal["session", "token", "password", "link", "oidc", "command", "console", "signed-out"]
"""How somebody came: with a browser's session, an API token, just now by password, link or identity provider, by a
command on the machine itself, without being signed in; or nobody came, and the console acts by itself."""

MAX_USER_AGENT_CHARS = 200
SERVICES = frozenset({"up", "web", "worker", "ingest", "reconcile"})
"""Commands of manage.py that run the console: what they do, it does by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a deed comes from. `person`: a name that is no account's, of the machine's user behind a command."""

    way: Way = "console"
    ip: str | None = None
    user_agent: str = ""
    token_id: int | None = None
    token: str = ""
    person: str = ""


origin: ContextVar[Origin] = ContextVar("origin", default=Origin())  # noqa: B039 - it is frozen
"""Of what is being done now. Requests set it (console.middleware.caller_address, console.api.account.auth)."""


def command_origin() -> Origin:
    """Return the origin of a command: the user of the machine, by the name they signed in with where sudo tells."""
    name = os.environ.get("SUDO_USER", "")
    if not name:
        with suppress(KeyError):
            name = pwd.getpwuid(os.getuid()).pw_name
    return Origin(way="command", person=name or f"uid {os.getuid()}")
