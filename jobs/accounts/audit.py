"""Who did what, for good: rows that are only ever added."""

from contextvars import ContextVar
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from jobs.models import AuditEvent

caller_ip: ContextVar[str | None] = ContextVar("caller_ip", default=None)
"""The address that the request being answered came from; None outside one. The web process sets it."""


def record(
    *,
    actor: AbstractBaseUser | None,
    verb: str,
    object_type: str,
    object_id: str,
    before: Any = None,
    after: Any = None,
) -> None:
    """Keep one deed; `before` and `after` hold what it changed, never a secret."""
    AuditEvent.objects.create(
        actor_id=actor.pk if actor else None,
        verb=verb,
        object_type=object_type,
        object_id=object_id,
        before=before,
        after=after,
        ip=caller_ip.get(),
    )
