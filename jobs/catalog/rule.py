"""The rules of the guide, as data: when one applies to a run, what it says, why, and what would mend it.

`rules/*.toml` holds a table per rule, its id is `<file>.<table>`:

    [clip_higher_is_looser]
    level = "note"             # error: cannot run or trains wrongly; warning: likely disappoints; note: good to know
    trainers = ["openrlhf"]    # all where missing; `since` and `before` are versions of them
    algorithms = ["rl"]        # ids or families; all where missing
    when = "algorithm.clip_ratio_high > algorithm.clip_ratio_low"
    says = "The upper clip {algorithm.clip_ratio_high} is looser than the lower one."
    why = "It keeps exploration alive; it is no remedy for instability."
    knobs = ["algorithm.clip_ratio_high"]
    fix = [{ "algorithm.clip_ratio_high" = "algorithm.clip_ratio_low" }]
    source = "DAPO, arXiv 2503.14476, section 3.1"
    kind = "guide"             # assert (the trainer refuses), silent (it changes it by itself), implicit, guide, trap
    ref = "T04"

`when`, the texts in braces and the values of `fix` are expressions (jobs.catalog.expression). A rule that reads a knob
which the run does not have does not apply. A finding is a rule that applies; each dict of `fix` is one change on offer.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from jobs.catalog.algorithm import expand
from jobs.catalog.derived import DERIVED
from jobs.catalog.expression import Expression, Lookup, NotApplicable, parse_expression
from jobs.catalog.knob import KnobValueInvalid, knobs
from jobs.catalog.runspec import RunSpec
from jobs.catalog.spelling import spell
from jobs.catalog.trainer import as_version
from jobs.catalog.value import Value

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
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
class Rule:
    """One rule; texts are templates with expressions in braces."""

    id: str
    level: Level
    trainers: tuple[str, ...]
    since: str
    before: str
    algorithms: tuple[str, ...]
    when: Expression
    says: str
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
        version = as_version(spec.trainer.version)
        return version >= as_version(self.since) and (not self.before or version < as_version(self.before))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change on offer: knob id (or dotted field) -> the value it would take."""

    changes: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found in a run. `is_overridden`: a person has put it aside."""

    rule: str
    level: Level
    says: str
    why: str
    knobs: tuple[str, ...]
    fixes: tuple[Fix, ...]
    source: str
    kind: str
    is_overridden: bool


@cache
def rules() -> Mapping[str, Rule]:
    """Return every rule by id, in the order of files and tables.

    Raises: ValueError, naming the rule, for a key, knob, level or expression that is not known.
    """
    found: dict[str, Rule] = {}
    folder = files("jobs.catalog") / "rules"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            group = file.name.removesuffix(".toml")
            for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
                found[f"{group}.{name}"] = _rule(f"{group}.{name}", table)
    return found


def findings(spec: RunSpec) -> tuple[Finding, ...]:
    """Return what the rules find in a run, the gravest first."""
    lookup = lookup_of(spec)
    found = []
    for rule in rules().values():
        if rule.concerns(spec) and _applies(rule, lookup):
            found.append(
                Finding(
                    rule=rule.id,
                    level=rule.level,
                    says=_filled(rule.says, lookup),
                    why=_filled(rule.why, lookup),
                    knobs=tuple(k for k in rule.knobs if k in spec.knobs or k not in knobs()),
                    fixes=tuple(fix for made in rule.fixes if (fix := fix_of(made, lookup)) is not None),
                    source=rule.source,
                    kind=rule.kind,
                    is_overridden=rule.id in spec.overridden,
                )
            )
    return tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level)))


def lookup_of(spec: RunSpec) -> Lookup:
    """Return what a name in an expression stands for in this run: a knob, a derived quantity, a field of the spec."""

    def find(name: str) -> Any:
        if name in spec.knobs:
            return spec.knobs[name].value
        if name in DERIVED:
            return DERIVED[name](spec)
        section, _, field = name.partition(".")
        part = getattr(spec, section, None) if section in _SECTIONS else None
        if part is not None and not field:
            return part
        if is_dataclass(part) and field in {f.name for f in fields(part)}:
            return getattr(part, field)
        raise NotApplicable(name)

    return find


_SECTIONS = {f.name for f in fields(RunSpec)}


def _applies(rule: Rule, lookup: Lookup) -> bool:
    try:
        return bool(rule.when.value(lookup))
    except NotApplicable:
        return False


def _filled(text: str, lookup: Lookup) -> str:
    def value(match: re.Match[str]) -> str:
        try:
            found = parse_expression(match.group(1)).value(lookup)
        except NotApplicable:
            return "—"
        return spell(found) if isinstance(found, (int, float, str)) else str(found)

    return _BRACES.sub(value, text)


def fix_of(made: Mapping[str, Expression], lookup: Lookup) -> Fix | None:
    """Return the change with its values; None if it cannot be reckoned or a knob would not take it."""
    changes: dict[str, Value] = {}
    for name, expression in made.items():
        try:
            value = expression.value(lookup)
            changes[name] = knobs()[name].check(value) if name in knobs() else value
        except (NotApplicable, KnobValueInvalid):
            return None
    return Fix(changes=changes)


def _rule(rule_id: str, table: Mapping[str, Any]) -> Rule:
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{rule_id}: a rule has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    if table["level"] not in LEVELS:
        raise ValueError(f"{rule_id}: {table['level']!r} is no level. Use one of {', '.join(LEVELS)}.")
    return Rule(
        id=rule_id,
        level=table["level"],
        trainers=tuple(table.get("trainers", ())),
        since=table.get("since", ""),
        before=table.get("before", ""),
        algorithms=expand(table.get("algorithms", ())),
        when=parse_expression(table["when"]),
        says=table["says"],
        why=table["why"],
        knobs=tuple(table["knobs"]),
        fixes=tuple({name: parse_expression(str(e)) for name, e in made.items()} for made in table.get("fix", ())),
        source=table["source"],
        kind=table.get("kind", "guide"),
        ref=table.get("ref", ""),
    )
