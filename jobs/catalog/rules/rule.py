"""The rules of the guide, as data: when one applies to a run, what it says, why, and what would mend it.

`rules/*.toml` holds a table per rule, its id is `<file>.<table>`:

    [clip_higher_is_looser]
    level = "note"             # error: cannot run or trains wrongly; warning: likely disappoints; note: good to know
    trainers = ["native"]      # all where missing; `since` and `before` are versions of them
    algorithms = ["rl"]        # ids or families; all where missing
    when = "algorithm.clip_ratio_high > algorithm.clip_ratio_low"
    says = "The upper clip {algorithm.clip_ratio_high} is looser than the lower one."
    why = "It keeps exploration alive; it is no remedy for instability."
    knobs = ["algorithm.clip_ratio_high"]
    fix = [{ "algorithm.clip_ratio_high" = "algorithm.clip_ratio_low" }]
    source = "DAPO, arXiv 2503.14476, section 3.1"
    kind = "guide"             # one of KINDS
    ref = "T04"

`when`, the texts in braces and the values of `fix` are expressions (expression.py). A rule that reads a knob
which the run does not have, or which means nothing beside its other knobs, does not apply. A finding is a rule that
applies; each dict of `fix` is one change on offer, and is offered only where it makes the finding go away.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from jobs.catalog.algorithm import expand
from jobs.catalog.knob import KnobValueInvalid, applicable, is_live, knobs
from jobs.catalog.rules.expression import Expression, Lookup, NotApplicable, parse_expression
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.parse import Problem
from jobs.catalog.spec.runspec import RANGES, SECTIONS, KnobValue, RunSpec
from jobs.catalog.tables import folder_entries
from jobs.catalog.trainer import as_version, trainers
from jobs.catalog.value import Value, value_text
from profiling.counted import counted

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
KINDS = {
    "assert": "the trainer refuses it",
    "silent": "the trainer changes or ignores it silently",
    "implicit": "the trainer takes it and fails later",
    "guide": "advice of a guide",
    "trap": "what is often stated wrongly",
}
Say = Callable[[str], str]
_BRACES = re.compile(r"\{([^{}]+)\}")
_KEYS = {
    "level",
    "trainers",
    "since",
    "before",
    "algorithms",
    "when",
    "says",
    "why",
    "knobs",
    "fix",
    "source",
    "kind",
    "ref",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRule:
    """One rule; texts are templates with expressions in braces."""

    id: str
    level: Level
    trainers: tuple[str, ...]
    since: str
    before: str
    algorithms: tuple[str, ...]
    when: Expression
    message: str
    why: str
    knobs: tuple[str, ...]
    fixes: tuple[Mapping[str, Expression], ...]
    source: str
    kind: str
    ref: str

    def concerns(self, spec: RunSpec) -> bool:
        """Return True if the rule is about this trainer, version and algorithm."""
        if self.trainers and spec.trainer.name not in self.trainers:
            return False
        if self.algorithms and spec.algorithm not in self.algorithms:
            return False
        return self.holds_at(spec.trainer.version)

    def holds_at(self, version: str) -> bool:
        """Return True if the version is one of those the rule is about."""
        now = as_version(version)
        return now >= as_version(self.since) and (not self.before or now < as_version(self.before))

    def applies(self, spec: RunSpec) -> bool:
        """Return True if the rule has something to say of this run."""
        return self.concerns(spec) and _applies(self, lookup_of(spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change on offer: knob id (or dotted field) -> the value it would take."""

    changes: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFinding:
    """What a rule found in a run. `is_overridden`: a person has put it aside."""

    rule: str
    level: Level
    message: str
    why: str
    knobs: tuple[str, ...]
    fixes: tuple[Fix, ...]
    source: str
    kind: str
    is_overridden: bool


@cache
def rules() -> Mapping[str, SpecRule]:
    """Return every rule by id, in the order of files and tables.

    Raises: ValueError, naming the rule, for a key, knob, level or expression that is not known.
    """
    return {rule_id: _rule(rule_id, table) for rule_id, table in folder_entries("rules")}


def findings(spec: RunSpec, *, say: Say = str) -> tuple[SpecFinding, ...]:
    """Return what the rules find in a run, the gravest first. `say` gives a text in the reader's language."""
    lookup = lookup_of(spec)
    unsorted = [
        SpecFinding(
            rule=rule.id,
            level=rule.level,
            message=_filled(say(rule.message), lookup),
            why=_filled(say(rule.why), lookup),
            knobs=tuple(k for k in rule.knobs if k in spec.knobs or k not in knobs()),
            fixes=_fixes(rule, spec, lookup),
            source=rule.source,
            kind=rule.kind,
            is_overridden=rule.id in spec.overridden,
        )
        for rule in rules().values()
        if rule.concerns(spec) and _applies(rule, lookup)
    ]
    return tuple(sorted(unsorted, key=lambda finding: LEVELS.index(finding.level)))


def refused(spec: RunSpec, *, say: Say = str) -> list[Problem]:
    """Return why the rules refuse a run: the errors they find that nobody has put aside, each at its first field."""
    return [
        Problem(field=_field(finding.knobs[0]), message=finding.message)
        for finding in findings(spec, say=say)
        if finding.level == "error" and not finding.is_overridden
    ]


def changed(spec: RunSpec, changes: Mapping[str, Value]) -> RunSpec:
    """Return the run with the changes of a fix: values by knob id or dotted field. Nothing is checked."""
    values = dict(spec.knobs)
    whole: dict[str, Value] = {}
    parts: dict[str, dict[str, Value]] = {}
    for name, value in changes.items():
        section, _, field = name.partition(".")
        if name in knobs():
            values[name] = KnobValue(value=value, origin="you")
        elif field:
            parts.setdefault(section, {})[field] = value
        else:
            whole[section] = value
    sections = {section: getattr(spec, section).model_copy(update=fields) for section, fields in parts.items()}
    return spec.model_copy(update={"knobs": values, **whole, **sections})


def _field(name: str) -> str:
    """Return a knob or field as the form names its input."""
    return f"knobs.{name}" if name in knobs() else name


def lookup_of(spec: RunSpec) -> Lookup:
    """Return what a name in an expression stands for in this run: a live knob, a derived quantity, a field of the spec.

    Asked for anything else, it raises NotApplicable.
    """
    values = {knob_id: chosen.value for knob_id, chosen in spec.knobs.items()}
    cached: dict[str, object] = {}

    def find(name: str) -> Any:
        if name not in cached:
            cached[name] = look(name)
        return cached[name]

    def look(name: str) -> Any:
        if name in values:
            if not is_live(name, values):
                raise NotApplicable(name)
            return values[name]
        if name in DERIVED:
            return DERIVED[name](spec)
        section, _, field = name.partition(".")
        if section not in RunSpec.model_fields:
            raise NotApplicable(name)
        part = getattr(spec, section)
        if not field:
            return part
        if section in SECTIONS and field in SECTIONS[section].model_fields:
            return getattr(part, field)
        raise NotApplicable(name)

    return find


def _applies(rule: SpecRule, lookup: Lookup) -> bool:
    try:
        return bool(rule.when.value(lookup))
    except NotApplicable:
        return False


@cache
def _parts(text: str) -> tuple[str | Expression, ...]:
    """Return a template as its texts and the expressions between them. Raises: ExpressionInvalid."""
    pieces = _BRACES.split(text)
    return tuple(parse_expression(piece) if place % 2 else piece for place, piece in enumerate(pieces))


def _filled(text: str, lookup: Lookup) -> str:
    return counted("".join(part if isinstance(part, str) else _shown(part, lookup) for part in _parts(text)))


def _shown(expression: Expression, lookup: Lookup) -> str:
    try:
        value = expression.value(lookup)
    except NotApplicable:
        return "—"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value_text(value) if isinstance(value, (float, str, bool)) or value is None else str(value)


def _fixes(rule: SpecRule, spec: RunSpec, lookup: Lookup) -> tuple[Fix, ...]:
    """Return the changes on offer; where a version lacks the knob in which two of them differ, they are one."""
    made = (_fix(rule, each, spec, lookup) for each in rule.fixes)
    fixes: list[Fix] = []
    for fix in made:
        if fix is not None and fix not in fixes:
            fixes.append(fix)
    return tuple(fixes)


def _fix(rule: SpecRule, made: Mapping[str, Expression], spec: RunSpec, lookup: Lookup) -> Fix | None:
    """Return the change with its values; None if it cannot be computed, is not taken, or the rule would still apply."""
    here = applicable(spec.algorithm, spec.trainer.name, spec.trainer.version)
    changes: dict[str, Value] = {}
    for name, expression in made.items():
        try:
            value = expression.value(lookup)
            if name in knobs():
                if name not in here:
                    continue  # another version's; the rest of the change may do
                value = here[name].check(value)
            elif name in RANGES and not RANGES[name][0] <= value <= RANGES[name][1]:
                return None
        except (NotApplicable, KnobValueInvalid):
            return None
        changes[name] = value
    if not changes or rule.applies(changed(spec, changes)):
        return None
    return Fix(changes=changes)


def _rule(rule_id: str, table: Mapping[str, Any]) -> SpecRule:
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{rule_id}: a rule has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    if table["level"] not in LEVELS:
        raise ValueError(f"{rule_id}: {table['level']!r} is no level. Use one of {', '.join(LEVELS)}.")
    if table["kind"] not in KINDS:
        raise ValueError(f"{rule_id}: {table['kind']!r} is no kind. Use one of {', '.join(KINDS)}.")
    for name in table.get("trainers", ()):
        if name not in trainers():
            raise ValueError(f"{rule_id}: there is no trainer {name!r}. Known: {', '.join(trainers())}.")
    return SpecRule(
        id=rule_id,
        level=table["level"],
        trainers=tuple(table.get("trainers", ())),
        since=table.get("since", ""),
        before=table.get("before", ""),
        algorithms=expand(table.get("algorithms", ())),
        when=parse_expression(table["when"]),
        message=table["says"],
        why=table["why"],
        knobs=tuple(table["knobs"]),
        fixes=tuple({name: parse_expression(str(e)) for name, e in made.items()} for made in table.get("fix", ())),
        source=table["source"],
        kind=table["kind"],
        ref=table["ref"],
    )
