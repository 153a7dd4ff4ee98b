"""What all conditions of one pass look at, read once: rules, live and queued attempts, the time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.models import LIVE, AlertRule, Attempt, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScope:
    """A rule with the live attempts that it looks at."""

    rule: AlertRule
    attempts: Sequence[Attempt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`began_at`: since when this process looks; what takes longer to see than that is not known yet."""

    now: datetime
    began_at: datetime
    rules: Sequence[AlertRule]
    live: Sequence[Attempt]
    queued: Sequence[Attempt]

    def rules_of(self, kind: str) -> list[AlertRule]:
        """Return the rules of a kind."""
        return [rule for rule in self.rules if rule.kind == kind]

    def scopes(self, kind: str) -> Iterator[RuleScope]:
        """Yield each rule of a kind with what it looks at."""
        for rule in self.rules_of(kind):
            yield RuleScope(rule=rule, attempts=[a for a in self.live if in_scope(rule, a.run)])


def read_scene(*, now: datetime, began_at: datetime) -> Scene:
    """Read it: three queries, however many rules there are."""
    attempts = Attempt.objects.select_related("run").defer("run__latest_values", "run__note").order_by("pk")
    return Scene(
        now=now,
        began_at=began_at,
        rules=list(AlertRule.objects.filter(is_enabled=True)),
        live=list(attempts.filter(state__in=LIVE)),
        queued=list(attempts.filter(state="queued")),
    )


def in_scope(rule: AlertRule, run: Run) -> bool:
    """Return whether the rule looks at the run: of its project, with its tags, of its algorithms."""
    if run.project_id != rule.project_id or not set(rule.tags) <= set(run.tags):
        return False
    return not rule.algorithms or run.spec.get("algorithm") in rule.algorithms
