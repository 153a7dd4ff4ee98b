"""Lines of logs that a project knows by rules of its own, beside those that symptoms of the catalog name."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.log_level import LEVELS, Level
from jobs.models import Project
from jobs.telemetry.line_pattern import LinePattern, PatternInvalid

MOST_RULES = 100
MOST_CHARS = {"pattern": 200, "label": 80, "remedy": 500}


class LogRuleRefused(ValueError):
    """A rule makes no sense; `field` says which part of it."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """Lines that match `pattern` (RE2, without regard to case) are called `label`; `remedy` says what to do."""

    pattern: str
    label: str
    remedy: str
    level: Level


def log_rules_of(project: Project) -> tuple[LogRule, ...]:
    """Return a project's own rules; of several that match a line the first counts."""
    return tuple(LogRule(**rule) for rule in project.log_rules)


def set_log_rules(*, project: Project, raw: Sequence[Mapping[str, object]], user: AbstractBaseUser | None) -> None:
    """Have these rules in place of those that there are. Raises: LogRuleRefused."""
    if len(raw) > MOST_RULES:
        text = _("A project has at most %(most)s rules of its own, these would be %(count)s.")
        raise LogRuleRefused("rules", text % {"most": MOST_RULES, "count": len(raw)})
    after = [asdict(_checked(rule)) for rule in raw]
    patterns = [rule["pattern"] for rule in after]
    if twice := next((pattern for pattern in patterns if patterns.count(pattern) > 1), None):
        raise LogRuleRefused("pattern", _("There is a rule for “%(pattern)s” already.") % {"pattern": twice})
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        before = held.log_rules
        if after != before:
            held.log_rules = after
            held.save(update_fields=["log_rules"])
            record(
                actor=user,
                verb="log_rules.set",
                object_type="project",
                object_id=project.slug,
                before={"rules": [rule for rule in before if rule not in after]},
                after={"rules": [rule for rule in after if rule not in before]},
            )
    project.log_rules = after


def _checked(raw: Mapping[str, object]) -> LogRule:
    texts = {name: str(raw.get(name) or "").strip() for name in MOST_CHARS}
    for name, most in MOST_CHARS.items():
        if len(texts[name]) > most:
            text = _("%(field)s has %(count)s characters. Use at most %(most)s.")
            raise LogRuleRefused(name, text % {"field": name, "count": len(texts[name]), "most": most})
    for name in ("pattern", "label"):
        if not texts[name]:
            raise LogRuleRefused(name, _("%(field)s is missing.") % {"field": name})
    level = next((each for each in LEVELS if each == raw.get("level")), None)
    if level is None:
        text = _("%(given)r is no level. Use %(levels)s.")
        raise LogRuleRefused("level", text % {"given": str(raw.get("level"))[:40], "levels": ", ".join(LEVELS)})
    try:
        matches_all = LinePattern(texts["pattern"]).in_text("")
    except PatternInvalid as error:
        raise LogRuleRefused("pattern", str(error)) from error
    if matches_all:
        text = _("“%(pattern)s” matches every line. Name a part of the lines that are meant.")
        raise LogRuleRefused("pattern", text % {"pattern": texts["pattern"]})
    return LogRule(**texts, level=level)
