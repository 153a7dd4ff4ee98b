"""What a condition saw in one pass: of which rule and object, and whether it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.models import AlertRule, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One rule and object. `is_on` None: not known by now, so that nothing of an open incident changes.

    `is_once`: an object that can fire only once (an end of an attempt). `is_moment`: nothing that lasts, so its
    incident is resolved as soon as it is told.
    """

    rule: AlertRule
    object_id: str
    is_on: bool | None
    data: Mapping[str, Any] = field(default_factory=dict)
    run: Run | None = None
    value: float | None = None
    is_once: bool = False
    is_moment: bool = False
