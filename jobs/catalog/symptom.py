"""What goes wrong in runs: how it shows in the log and the metrics, why, and what to change, in order.

`symptoms/*.toml` holds a table per symptom, its id is `<file>.<table>`:

    [device_memory]
    title = "Out of device memory"
    trainers = ["verl"]                # all where missing
    algorithms = ["rl"]                # ids or families; all where missing
    when = "memory.zero_stage != 3"    # an expression over the spec; always where missing
    causes = ["The micro batch is too large."]
    source = "who says so"
    ref = "U02"
    logs = [{ pattern = "CUDA out of memory", source = "torch, CUDACachingAllocator" }]
    [[device_memory.metrics]]          # each of these is enough; of its conditions, all have to hold
    all = [{ metric = "kl/reference", statistic = "mean", window = 10, above = 0.5 }]
    source = "whose threshold"
    [[device_memory.remedies]]         # in the order in which to try them
    title = "Halve the micro batch"
    change = { "train.micro_batch_size" = "max(1, train.micro_batch_size // 2)" }
    when = "train.micro_batch_size > 1"
    source = "whose remedy"

A remedy without `change` is advice. Patterns are regular expressions, searched line by line in the log and in the cause
of death; conditions read canonical metrics (jobs.catalog.metric), see `jobs.catalog.condition`.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from jobs.catalog.algorithm import expand
from jobs.catalog.condition import Condition, Numbers, condition
from jobs.catalog.expression import Expression, NotApplicable, parse_expression
from jobs.catalog.rule import Fix, fix_of, lookup_of
from jobs.catalog.runspec import RunSpec
from jobs.catalog.trainer import trainers

MAX_LINE = 4000  # characters of a line that are searched: who prints more does not say it there

_KEYS = {"title", "trainers", "algorithms", "when", "causes", "source", "ref", "logs", "metrics", "remedies"}
_REMEDY_KEYS = {"title", "change", "trainers", "when", "source"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSignal:
    """A line by which a symptom is known, and whose text it is."""

    pattern: re.Pattern[str]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSignal:
    """Conditions of metrics that together make a symptom."""

    conditions: tuple[Condition, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to try: changes of knobs as expressions, or advice where there are none."""

    title: str
    change: Mapping[str, Expression]
    trainers: tuple[str, ...]
    when: Expression | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that goes wrong."""

    id: str
    title: str
    trainers: tuple[str, ...]
    algorithms: tuple[str, ...]
    when: Expression | None
    causes: tuple[str, ...]
    source: str
    ref: str
    logs: tuple[LogSignal, ...]
    metrics: tuple[MetricSignal, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """By what a symptom was recognized: the line of the log as it stands there, or what the numbers are."""

    kind: Literal["log", "metric"]
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A remedy for this run: the values that knobs would take, or no change where it is advice."""

    title: str
    fix: Fix | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A symptom that a run has, with the evidence, and what to try in order."""

    symptom: Symptom
    evidence: tuple[Evidence, ...]
    remedies: tuple[Offer, ...]


@cache
def symptoms() -> Mapping[str, Symptom]:
    """Return every symptom by id, in the order of files and tables.

    Raises: ValueError, naming the symptom, for a key, pattern, metric or expression that is not known.
    """
    found: dict[str, Symptom] = {}
    folder = files("jobs.catalog") / "symptoms"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            group = file.name.removesuffix(".toml")
            for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
                found[f"{group}.{name}"] = _symptom(f"{group}.{name}", table)
    return found


def matches(*, spec: RunSpec, log_lines: Sequence[str], metrics: Numbers) -> list[Match]:
    """Return the symptoms that a run has: those that its log tells of first, then those of its numbers.

    `log_lines` are lines of its log, the cause of its death among them; `metrics` are values by canonical name, in the
    order of steps. A change that the run already has is not offered.
    """
    found = []
    for symptom in symptoms().values():
        if _concerns(symptom.trainers, symptom.when, spec) and spec.algorithm in symptom.algorithms:
            evidence = (*_in_log(symptom, log_lines), *_in_metrics(symptom, metrics))
            if evidence:
                found.append(Match(symptom=symptom, evidence=evidence, remedies=_offers(symptom, spec)))
    return sorted(found, key=lambda match: match.evidence[0].kind != "log")


def _concerns(names: tuple[str, ...], when: Expression | None, spec: RunSpec) -> bool:
    if names and spec.trainer.name not in names:
        return False
    try:
        return when is None or bool(when.value(lookup_of(spec)))
    except NotApplicable:
        return False


def _in_log(symptom: Symptom, lines: Sequence[str]) -> tuple[Evidence, ...]:
    """Return the last line that each pattern finds, and no line twice."""
    found: dict[str, Evidence] = {}
    for signal in symptom.logs:
        line = next((line for line in reversed(lines) if signal.pattern.search(line[:MAX_LINE])), None)
        if line is not None:
            found.setdefault(line, Evidence(kind="log", text=line.strip()[:MAX_LINE], source=signal.source))
    return tuple(found.values())


def _in_metrics(symptom: Symptom, metrics: Numbers) -> tuple[Evidence, ...]:
    found = []
    for signal in symptom.metrics:
        said = [each.evidence(metrics) for each in signal.conditions]
        if all(said):
            found.append(Evidence(kind="metric", text="; ".join(said), source=signal.source))
    return tuple(found)


def _offers(symptom: Symptom, spec: RunSpec) -> tuple[Offer, ...]:
    offers = []
    for remedy in symptom.remedies:
        if not _concerns(remedy.trainers, remedy.when, spec):
            continue
        if not remedy.change:
            offers.append(Offer(title=remedy.title, fix=None, source=remedy.source))
            continue
        fix = fix_of({k: e for k, e in remedy.change.items() if k in spec.knobs}, lookup_of(spec))
        changed = {k: v for k, v in fix.changes.items() if v != spec.knob(k)} if fix else {}
        if changed:
            offers.append(Offer(title=remedy.title, fix=Fix(changes=changed), source=remedy.source))
    return tuple(offers)


def _symptom(name: str, table: Mapping[str, Any]) -> Symptom:
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{name}: a symptom has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    _check_trainers(name, table)
    return Symptom(
        id=name,
        title=table["title"],
        trainers=tuple(table.get("trainers", ())),
        algorithms=expand(table.get("algorithms", ("all",))),
        when=_optional(table),
        causes=tuple(table["causes"]),
        source=table["source"],
        ref=table.get("ref", ""),
        logs=tuple(_log(name, signal) for signal in table.get("logs", ())),
        metrics=tuple(
            MetricSignal(conditions=tuple(condition(name, each) for each in signal["all"]), source=signal["source"])
            for signal in table.get("metrics", ())
        ),
        remedies=tuple(_remedy(name, remedy) for remedy in table["remedies"]),
    )


def _log(name: str, signal: Mapping[str, Any]) -> LogSignal:
    try:
        return LogSignal(pattern=re.compile(signal["pattern"]), source=signal["source"])
    except re.error as error:
        raise ValueError(f"{name}: {signal['pattern']!r} is no regular expression: {error}.") from error


def _remedy(name: str, table: Mapping[str, Any]) -> Remedy:
    if strange := sorted(set(table) - _REMEDY_KEYS):
        raise ValueError(f"{name}: a remedy has no key {strange[0]!r}. Known: {', '.join(sorted(_REMEDY_KEYS))}.")
    _check_trainers(name, table)
    return Remedy(
        title=table["title"],
        change={knob_id: parse_expression(str(e)) for knob_id, e in table.get("change", {}).items()},
        trainers=tuple(table.get("trainers", ())),
        when=_optional(table),
        source=table["source"],
    )


def _optional(table: Mapping[str, Any]) -> Expression | None:
    return parse_expression(table["when"]) if "when" in table else None


def _check_trainers(name: str, table: Mapping[str, Any]) -> None:
    if strange := [each for each in table.get("trainers", ()) if each not in trainers()]:
        raise ValueError(f"{name}: there is no trainer {strange[0]!r}. Known: {', '.join(trainers())}.")
