"""What goes wrong in runs: how it shows in the log and the metrics, why, and what to change, in order.

`symptoms/*.toml` holds a table per symptom, its id is `<file>.<table>`:

    [device_memory]
    title = "Out of device memory"
    trainers = ["native"]               # all where missing
    algorithms = ["rl"]                # ids or families; all where missing
    when = "memory.zero_stage != '3'"  # an expression over the spec; always where missing
    signal = "In words, how it shows."
    causes = ["The micro batch is too large."]
    source = "who says so"
    ref = "U02"
    tone = "alarm"                      # or "good": a state to be glad of; or "hint": where time goes, no fault
    follows = ["learning.kl_runs_away"] # what it is a consequence of, where a run has both
    [[device_memory.logs]]             # a line of the log; `text` is what `file` of the package says, word for word
    pattern = "No available memory for the cache blocks"
    text = "No available memory for the cache blocks. "
    file = "vllm/v1/core/kv_cache_utils.py"
    source = "vLLM"
    [[device_memory.metrics]]          # each of these is enough; of its conditions, all have to hold
    all = [{ metric = "kl/reference", statistic = "mean", window = 10, above = 0.5 }]
    source = "whose threshold"
    [[device_memory.unless]]           # each of these is enough for the metrics to say nothing: they are as they should
    all = [{ metric = "eval/accuracy", statistic = "median", window = 2, above = 0.85 }]
    [[device_memory.remedies]]         # in the order in which to try them
    title = "Halve the micro batch"
    change = { "train.micro_batch_size" = "max(1, train.micro_batch_size // 2)" }
    when = "train.micro_batch_size > 1"
    source = "whose remedy"

A remedy without `change` is advice. A symptom without logs and metrics is for people only: nothing that a run reports
tells of it. Patterns are regular expressions, searched line by line in the log and in the exit cause, in what a
line says without its prefixes, colors and times (`jobs.catalog.log_line`); conditions read canonical metrics
(jobs.catalog.metric), see `jobs.catalog.rules.condition`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from jobs.catalog.algorithm import expand
from jobs.catalog.knob import KnobValueInvalid, applicable, is_live, knobs
from jobs.catalog.log_line import read_line, uncolored
from jobs.catalog.rules.condition import Condition, Numbers, Say, condition
from jobs.catalog.rules.expression import Expression, NotApplicable, parse_expression
from jobs.catalog.rules.reward_meaning import NEEDED, with_meanings
from jobs.catalog.rules.rule import Fix, changed, lookup_of, refused
from jobs.catalog.spec.contradictions import contradictions
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.tables import folder_entries
from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value

MAX_LINE = 4000  # characters of a line that are searched: who prints more does not say it there

_REQUIRED = ("title", "signal", "causes", "source", "remedies")
_KEYS = {*_REQUIRED, "trainers", "algorithms", "when", "ref", "tone", "follows", "logs", "metrics", "unless"}
Tone = Literal["alarm", "good", "hint"]
_TONES: tuple[Tone, ...] = ("alarm", "good", "hint")
_LOUDEST = {tone: place for place, tone in enumerate(("good", "alarm", "hint"))}
_LOG_KEYS = {"pattern", "text", "file", "source"}
_REMEDY_KEYS = {"title", "change", "trainers", "algorithms", "when", "source"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSignal:
    """A line by which a symptom is known, and whose: `text` stands so in `file` of the package, or both are ""."""

    pattern: re.Pattern[str]
    text: str
    file: str
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
    algorithms: tuple[str, ...]
    when: Expression | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that goes wrong; of tone "good" one that goes right, of tone "hint" one that only costs time.

    Where one of `unless` holds, the metrics are as they should be, and say nothing. `follows`: ids of those that cause
    it where a run has both.
    """

    id: str
    title: str
    trainers: tuple[str, ...]
    algorithms: tuple[str, ...]
    when: Expression | None
    signal: str
    causes: tuple[str, ...]
    source: str
    ref: str
    tone: Tone
    follows: tuple[str, ...]
    logs: tuple[LogSignal, ...]
    metrics: tuple[MetricSignal, ...]
    unless: tuple[tuple[Condition, ...], ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SymptomEvidence:
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
    evidence: tuple[SymptomEvidence, ...]
    remedies: tuple[Offer, ...]


@cache
def symptoms() -> Mapping[str, Symptom]:
    """Return every symptom by id, in the order of files and tables.

    Raises: ValueError, naming the symptom, for a key, pattern, metric, expression or cause that is not known.
    """
    by_id = {symptom_id: _symptom(symptom_id, table) for symptom_id, table in folder_entries("symptoms")}
    for symptom in by_id.values():
        if strange := sorted(set(symptom.follows) - set(by_id)):
            raise ValueError(f"{symptom.id}: it follows from {strange[0]!r}, which is no symptom.")
    return by_id


def matches(
    *, spec: RunSpec, log_lines: Sequence[str], metrics: Numbers, planned: int = 0, step: int = 0, say: Say = str
) -> list[Match]:
    """Return the symptoms that a run has: what is good first, then what its log tells of, its numbers, and hints.

    `log_lines` are lines of its log, its exit cause among them; `metrics` are values by canonical name, in the
    order of steps, from the first on where the run is not very long; `planned` are the steps that it is to have, 0
    where nobody knows, and `step` the one that it has reached, 0 where each value is one. A change that the run already
    has is not offered. `say` gives a text in the reader's language;
    it is used for evidence and for the titles of remedies, the symptom keeps its own.
    """
    matched = []
    lines = [(line, read_line(line[:MAX_LINE]).said) for line in reversed(log_lines)]
    of_numbers = in_metrics(spec=spec, metrics=metrics, planned=planned, step=step, say=say)
    for symptom in symptoms().values():
        if _concerns(symptom, spec):
            evidence = (*_in_log(symptom, lines), *of_numbers.get(symptom.id, ()))
            if evidence:
                matched.append(Match(symptom=symptom, evidence=evidence, remedies=offers(symptom, spec, say=say)))
    return sorted(matched, key=loudness)


def loudness(match: Match) -> tuple[int, bool]:
    """Return what matches are sorted by: what is good first, then what a log tells of, numbers, and hints."""
    return _LOUDEST[match.symptom.tone], match.evidence[0].kind != "log"


def causes_of(symptom: Symptom, present: Collection[str]) -> tuple[str, ...]:
    """Return which of the symptoms that a run has may have caused this one."""
    return tuple(cause for cause in symptom.follows if cause in present)


def causes_first(begins: Mapping[str, float]) -> list[str]:
    """Return what holds at once, by the step from which it does, in the order in which it is worth a look: what began
    first before others, and what follows from another after that."""
    by_id = symptoms()

    def place(name: str) -> tuple[float, bool]:
        causes = causes_of(by_id[name], begins) if name in by_id else ()
        return max([begins[name], *(begins[cause] for cause in causes)]), bool(causes)

    return sorted(begins, key=place)


def without_contradictions(matched: Sequence[Match], spec: RunSpec) -> list[Match]:
    """Return what matches, the first that is worth a look first, without remedies that move a knob against those of an
    earlier one: what a cause wants lower is not raised for what follows from it."""
    rises: dict[str, bool] = {}  # by knob: whether it is to become larger
    consistent = []
    for match in matched:
        offered = [
            offer
            for offer in match.remedies
            if all(rises.get(name, is_up) == is_up for name, is_up in _rises(offer, spec).items())
        ]
        for offer in offered:
            rises = _rises(offer, spec) | rises
        consistent.append(replace(match, remedies=tuple(offered)))
    return consistent


def _rises(offer: Offer, spec: RunSpec) -> dict[str, bool]:
    """Return of each number that a remedy changes whether it becomes larger."""
    changes = offer.fix.changes if offer.fix is not None else {}
    numbers = ((name, spec.knob(name), value) for name, value in changes.items())
    return {
        name: after > before
        for name, before, after in numbers
        if isinstance(before, int | float) and isinstance(after, int | float) and before != after
    }


def symptom_of_line(said: str, spec: RunSpec) -> Symptom | None:
    """Return the first symptom that a run can have and that is known by such a line, as `read_line` gives it."""
    return next(
        (
            symptom
            for symptom in symptoms().values()
            if any(signal.pattern.search(said) for signal in symptom.logs) and _concerns(symptom, spec)
        ),
        None,
    )


def in_metrics(
    *, spec: RunSpec, metrics: Numbers, planned: int = 0, step: int = 0, say: Say = str
) -> Mapping[str, tuple[SymptomEvidence, ...]]:
    """Return what the metrics alone tell of, by the id of the symptom; see `matches`."""
    numbers = with_meanings(spec, metrics, planned=planned, step=step)
    evidence = {
        symptom.id: _in_metrics(symptom, numbers, (planned, step), say)
        for symptom in symptoms().values()
        if symptom.metrics and _concerns(symptom, spec)
    }
    return {name: sentences for name, sentences in evidence.items() if sentences}


def asked_for(spec: RunSpec) -> set[str]:
    """Return the names of the metrics in conditions of symptoms that such a run can have."""
    wanted = [
        condition
        for symptom in symptoms().values()
        if spec.algorithm in symptom.algorithms and (not symptom.trainers or spec.trainer.name in symptom.trainers)
        for conditions in (*(signal.conditions for signal in symptom.metrics), *symptom.unless)
        for condition in conditions
    ]
    names = {name for condition in wanted for name in (condition.metric, condition.over) if name}
    return names | NEEDED


def _concerns(part: Symptom | Remedy, spec: RunSpec) -> bool:
    if (part.trainers and spec.trainer.name not in part.trainers) or spec.algorithm not in part.algorithms:
        return False
    try:
        return part.when is None or bool(part.when.value(lookup_of(spec)))
    except NotApplicable:
        return False


def _in_log(symptom: Symptom, lines: Sequence[tuple[str, str]]) -> tuple[SymptomEvidence, ...]:
    """Return the last line that each pattern finds, and no line twice.

    `lines` are the newest first, each with what it says.
    """
    by_line: dict[str, SymptomEvidence] = {}
    for signal in symptom.logs:
        line = next((line for line, said in lines if signal.pattern.search(said)), None)
        if line is not None:
            by_line.setdefault(line, SymptomEvidence(kind="log", text=evidence_of(line), source=signal.source))
    return tuple(by_line.values())


def evidence_of(line: str) -> str:
    """Return a line of the log as evidence shows it: whole, without colors."""
    return uncolored(line).strip()[:MAX_LINE]


def _in_metrics(symptom: Symptom, metrics: Numbers, way: tuple[int, int], say: Say) -> tuple[SymptomEvidence, ...]:
    """`way` are the steps that the run is to have, and the one that it has reached."""
    evidence = []
    planned, step = way
    for signal in symptom.metrics:
        sentences = [each.evidence(metrics, planned=planned, step=step, say=say) for each in signal.conditions]
        if all(sentences):
            evidence.append(
                SymptomEvidence(kind="metric", text="; ".join(dict.fromkeys(sentences)), source=signal.source)
            )
    is_fine = evidence and any(all(each.evidence(metrics) for each in fine) for fine in symptom.unless)
    return () if is_fine else tuple(evidence)


def offers(symptom: Symptom, spec: RunSpec, *, say: Say = str) -> tuple[Offer, ...]:
    """Return what a run with this symptom can try, in order.

    What it has already is left out, and a change that would make a run that cannot be launched, where this one can.
    """
    offered = []
    faults: set[str] | None = None
    for remedy in symptom.remedies:
        if not _concerns(remedy, spec):
            continue
        fix = _fix(remedy.change, spec)
        if fix is not None:
            faults = _faults(spec) if faults is None else faults
            fix = fix if _faults(changed(spec, fix.changes)) <= faults else None
        if fix is not None or not remedy.change:
            offered.append(Offer(title=say(remedy.title), fix=fix, source=remedy.source))
    return tuple(offered)


def _faults(spec: RunSpec) -> set[str]:
    """Return why a run cannot be launched: the fields of what contradicts and of errors that nobody has put aside."""
    return {name for name, _ in contradictions(spec)} | {problem.field for problem in refused(spec)}


def _fix(change: Mapping[str, Expression], spec: RunSpec) -> Fix | None:
    """Return what would change in this run; None if nothing would, or if a value cannot be estimated or is not taken.

    Knobs that the run does not have, or that would mean nothing beside the others, are left out.
    """
    here = applicable(spec.algorithm, spec.trainer.name, spec.trainer.version)
    changes: dict[str, Value] = {}
    lookup = lookup_of(spec)
    for knob_id, expression in change.items():
        if knob_id in here:
            try:
                value = here[knob_id].check(expression.value(lookup))
            except (NotApplicable, KnobValueInvalid):
                return None
            if value != spec.knob(knob_id):
                changes[knob_id] = value
    after = {knob_id: chosen.value for knob_id, chosen in changed(spec, changes).knobs.items()}
    changes = {knob_id: value for knob_id, value in changes.items() if is_live(knob_id, after)}
    return Fix(changes=changes) if changes else None


def _symptom(name: str, table: Mapping[str, Any]) -> Symptom:
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{name}: a symptom has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    if missing := [key for key in _REQUIRED if key not in table]:
        raise ValueError(f"{name}: the symptom says nothing under {missing[0]!r}.")
    _check_trainers(name, table)
    tone = table.get("tone", "alarm")
    if tone not in _TONES:
        raise ValueError(f"{name}: the tone {tone!r} is not known. Use {', '.join(_TONES)}.")
    return Symptom(
        id=name,
        title=table["title"],
        trainers=tuple(table.get("trainers", ())),
        algorithms=expand(table.get("algorithms", ("all",))),
        when=_optional(table),
        signal=table["signal"],
        causes=tuple(table["causes"]),
        source=table["source"],
        ref=table.get("ref", ""),
        tone=tone,
        follows=tuple(table.get("follows", ())),
        logs=tuple(_log(name, signal) for signal in table.get("logs", ())),
        metrics=tuple(
            MetricSignal(conditions=tuple(condition(name, each) for each in signal["all"]), source=signal["source"])
            for signal in table.get("metrics", ())
        ),
        unless=tuple(tuple(condition(name, each) for each in fine["all"]) for fine in table.get("unless", ())),
        remedies=tuple(_remedy(name, remedy) for remedy in table["remedies"]),
    )


def _log(name: str, signal: Mapping[str, Any]) -> LogSignal:
    if strange := sorted(set(signal) - _LOG_KEYS):
        raise ValueError(f"{name}: a line of the log has no key {strange[0]!r}. Known: {', '.join(sorted(_LOG_KEYS))}.")
    try:
        pattern = re.compile(signal["pattern"])
    except re.error as error:
        raise ValueError(f"{name}: {signal['pattern']!r} is no regular expression: {error}.") from error
    text, file = signal.get("text", ""), signal.get("file", "")
    return LogSignal(pattern=pattern, text=text, file=file, source=signal["source"])


def _remedy(name: str, table: Mapping[str, Any]) -> Remedy:
    if strange := sorted(set(table) - _REMEDY_KEYS):
        raise ValueError(f"{name}: a remedy has no key {strange[0]!r}. Known: {', '.join(sorted(_REMEDY_KEYS))}.")
    _check_trainers(name, table)
    if unknown := sorted(set(table.get("change", {})) - set(knobs())):
        raise ValueError(f"{name}: there is no knob {unknown[0]!r}.")
    return Remedy(
        title=table["title"],
        change={knob_id: parse_expression(str(e)) for knob_id, e in table.get("change", {}).items()},
        trainers=tuple(table.get("trainers", ())),
        algorithms=expand(table.get("algorithms", ("all",))),
        when=_optional(table),
        source=table["source"],
    )


def _optional(table: Mapping[str, Any]) -> Expression | None:
    return parse_expression(table["when"]) if "when" in table else None


def _check_trainers(name: str, table: Mapping[str, Any]) -> None:
    if strange := [each for each in table.get("trainers", ()) if each not in trainers()]:
        raise ValueError(f"{name}: there is no trainer {strange[0]!r}. Known: {', '.join(trainers())}.")
