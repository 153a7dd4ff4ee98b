"""What a project lets go by itself: the rules, how they are checked, and which checkpoints one spares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.models import Project, Retention
from jobs.runs.checkpoints import Checkpoint

Kind = Literal["logs", "samples", "captures", "checkpoints"]
KINDS: tuple[Kind, ...] = ("logs", "samples", "captures", "checkpoints")
MOST_DAYS, MOST_KEPT, MOST_TRASH_DAYS = 3650, 100_000, 3650
_FIELDS = ("days", "keep_last", "keep_best")
_LOWER_IS_BETTER = ("eval/loss",)


class RetentionRefused(ValueError):
    """A rule makes no sense; `field` names it, like "checkpoints.days"."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """What goes is older than `days` (None: of any age), and not among what stays however old it is: the newest
    `keep_last` (of runs for logs and samples, of the same run else), of checkpoints also the best `keep_best`.
    """

    days: int | None = None
    keep_last: int = 0
    keep_best: int = 0


Rules = Mapping[Kind, RetentionRule]


def rules_of(project: Project) -> Rules:
    """Return the project's rules; what has none is kept for good."""
    stored = Retention.objects.filter(project=project).values_list("rules", flat=True).first() or {}
    return parse_rules(stored)


def parse_rules(raw: Mapping[str, Any]) -> dict[Kind, RetentionRule]:
    """Return rules as they are stored or sent. Raises: RetentionRefused naming field, value and what is allowed."""
    unknown = set(raw) - set(KINDS)
    if unknown:
        text = _("There is no retention of %(given)r. Use %(kinds)s.")
        raise RetentionRefused(min(unknown), text % {"given": min(unknown), "kinds": ", ".join(KINDS)})
    return {kind: _rule(kind, raw[kind]) for kind in KINDS if raw.get(kind)}


def _rule(kind: Kind, raw: Any) -> RetentionRule:
    if not isinstance(raw, Mapping) or set(raw) - set(_FIELDS):
        raise RetentionRefused(kind, _("A rule holds %(fields)s.") % {"fields": ", ".join(_FIELDS)})
    days = _number(f"{kind}.days", raw.get("days"), 1, MOST_DAYS)
    keep_last = _number(f"{kind}.keep_last", raw.get("keep_last"), 0, MOST_KEPT)
    keep_best = _number(f"{kind}.keep_best", raw.get("keep_best"), 0, MOST_KEPT)
    if keep_best and kind != "checkpoints":
        raise RetentionRefused(f"{kind}.keep_best", _("Only checkpoints have a best one. Leave it out."))
    if days is None and not keep_last:
        text = _("Say after how many days they go, or how many of the newest stay; else all would go at once.")
        raise RetentionRefused(f"{kind}.days", text)
    return RetentionRule(days=days, keep_last=keep_last or 0, keep_best=keep_best or 0)


def _number(field: str, value: Any, low: int, high: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        text = _("%(field)s is %(given)s. Use a whole number from %(low)s to %(high)s, or leave it out.")
        raise RetentionRefused(field, text % {"field": field, "given": repr(value)[:40], "low": low, "high": high})
    return value


def to_json(rules: Rules) -> dict[str, dict[str, int | None]]:
    """Return the rules as they are stored."""
    return {
        kind: {"days": rule.days, "keep_last": rule.keep_last, "keep_best": rule.keep_best}
        for kind, rule in rules.items()
    }


def set_retention(
    *, project: Project, raw: Mapping[str, Any], trash_days: int | None, user: AbstractBaseUser, now: datetime
) -> Retention:
    """Keep the project's rules, and for how many days its trash can be undone (None: as the console says).

    The caller has checked that the person may. Raises: RetentionRefused.
    """
    rules = to_json(parse_rules(raw))
    _number("trash_days", trash_days, 1, MOST_TRASH_DAYS)
    with transaction.atomic():
        row, _is_new = Retention.objects.select_for_update().get_or_create(project=project)
        before = {"rules": row.rules, "trash_days": row.trash_days}
        row.rules, row.trash_days, row.changed_at, row.changed_by_id = rules, trash_days, now, user.pk
        row.save(update_fields=["rules", "trash_days", "changed_at", "changed_by"])
        after = {"rules": rules, "trash_days": trash_days}
        record(
            actor=user,
            verb="retention.set",
            object_type="project",
            object_id=project.slug,
            before=before,
            after=after,
        )
    return row


def expendable(checkpoints: Sequence[Checkpoint], rule: RetentionRule, *, now: datetime) -> list[Checkpoint]:
    """Return the checkpoints of an ended run that a rule lets go.

    `checkpoints` are all there are, the newest first. Never goes a pinned one, nor the newest good one (of the run's
    history, not believed lost, not after a divergence), and where none is good, the newest of all.
    """
    good = [c for c in checkpoints if c.is_visible and not c.problem and not c.is_after_divergence]
    ranked = good or list(checkpoints)
    staying = set(map(_key, ranked[: max(1, rule.keep_last)]))
    scored = [c for c in good if c.score is not None]
    is_lower = bool(scored) and scored[0].score_name in _LOWER_IS_BETTER
    scored.sort(key=lambda c: ((c.score or 0.0) * (1 if is_lower else -1), c.step))
    staying |= set(map(_key, scored[: rule.keep_best]))
    staying |= {_key(c) for c in checkpoints if c.is_pinned}
    oldest = None if rule.days is None else now - timedelta(days=rule.days)
    return [c for c in checkpoints if _key(c) not in staying and (oldest is None or c.created_at < oldest)]


def _key(checkpoint: Checkpoint) -> tuple[int, int]:
    return checkpoint.attempt, checkpoint.step
