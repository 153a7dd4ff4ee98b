"""A rule of diagnosis and what it found: it *fires*, is *clear*, or has *not enough data* and says what to record.

A rule is data and one function: its words stand here as templates, so that they can be translated and tested, and the
function returns a number, or what is missing. Missing input never reads as healthy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from profiling import plugins
from profiling.counted import counted
from profiling.evidence import Evidence

FOLDER = "profiling.diagnosis.rules"

State = Literal["fires", "clear", "not_enough_data"]
Level = Literal["", "watch", "bad"]
Question = Literal["where", "why", "helped"]
Unit = Literal["share", "ratio", "seconds", "count", "bytes"]
How = Literal["raise", "lower", "on", "off", "choose"]
Input = Literal["phases", "readings", "trace", "device_trace", "memory", "counters", "collectives", "capture"]

QUESTIONS: Mapping[Question, str] = {
    "where": "Where is the bottleneck?",
    "why": "Why is it there?",
    "helped": "Did the change help, and can the numbers be trusted?",
}

RECORD: Mapping[Input, str] = {
    "phases": "Let the run train for four whole steps: its phases are always recorded.",
    "readings": "These readings were not reported. The built-in trainer reports them, with vLLM's metrics.",
    "trace": "Record two steps with the torch profiler or nsys.",
    "device_trace": "Record two steps on a GPU with nsys or the torch profiler: this capture holds no device work.",
    "memory": "Record a memory snapshot, or let the run report its device memory.",
    "counters": "Collect the counters of DCGM's exporter on the nodes, with SM_ACTIVE switched on.",
    "collectives": "Record two steps on all ranks, with communication.",
    "capture": "Record some steps first.",
}
"""What to do where an input is missing."""


_OF_FILES: frozenset[Input] = frozenset(("trace", "device_trace", "memory", "counters", "collectives"))


class KnobChange(NamedTuple):
    """A knob by id, and how to change it: `choose` where only a person can say."""

    knob: str
    how: How


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a rule measured: `value` in the rule's unit, over [begin, end] (Unix ns), with the `words` of its sentence.

    `is_bad` overrules the comparison with the threshold where a rule looks at more than one number.
    """

    value: float
    begin: int = 0
    end: int = 0
    words: Mapping[str, Any] = field(default_factory=dict)
    is_firing: bool | None = None
    role: str = ""
    rank: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InsufficientData:
    """What a rule lacked; `text` where there is more to say than RECORD says."""

    what: Input
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One symptom. It fires above `watch` (below, where `is_low_bad`), and is bad beyond `bad`.

    `fires` and `clear` are sentences with places for {value}, {threshold} and the words of what was observed; `advice`
    says what to change and what is gained; `changes` are knobs of the catalogue and which way to change them.
    `definition` says what the number is, `source` where the threshold is from.

    `evaluate` is a function of the evidence alone: it writes to nothing, says the same to the same, and raises for no
    evidence, however odd (one step, empty series, values that are no numbers). What it lacks is one of `needs`.
    """

    title: str
    question: Question
    definition: str
    unit: Unit
    watch: float
    bad: float
    source: str
    needs: tuple[Input, ...]
    fires: str
    clear: str
    advice: str
    changes: tuple[KnobChange, ...] = ()
    is_low_bad: bool = False
    is_live: bool = False
    evaluate: Callable[[Evidence], Observation | InsufficientData]

    @property
    def reads_files(self) -> bool:
        """True if it looks into the files of a capture, which takes time, and at nothing else but its facts."""
        return bool(set(self.needs) & _OF_FILES) or self.needs == ("capture",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of a rule. `observation` is None with not enough data, `missing` then says what to record."""

    key: str
    rule: Rule
    state: State
    level: Level = ""
    observation: Observation | None = None
    missing: InsufficientData | None = None

    @property
    def record(self) -> str:
        """What to record next; "" where nothing is missing."""
        return "" if self.missing is None else self.missing.text or RECORD[self.missing.what]

    def sentence(self, say: Callable[[str], str] = str) -> str:
        """Return what was found, or what to record; `say` gives a template in the reader's language."""
        if self.observation is None:
            return say(self.record)
        words = {"value": self.value, "threshold": amount(self.rule.watch, self.rule.unit), **self.observation.words}
        text = counted(say(self.rule.fires if self.state == "fires" else self.rule.clear).format(**words))
        return text[:1].upper() + text[1:]

    @property
    def value(self) -> str:
        """The number with its unit, "—" where there is none."""
        return "—" if self.observation is None else amount(self.observation.value, self.rule.unit)


def amount(value: float, unit: Unit) -> str:
    """Return a number of a rule for people: 0.123 as "12.3 %", or as the unit asks."""
    if unit == "share":
        return f"{100 * value:.3g} %" if abs(value) < 1 else f"{100 * value:.0f} %"
    if unit == "seconds":
        if value >= 0.1 or not value:
            return f"{value:.3g} s"
        return f"{1e3 * value:.3g} ms" if value >= 1e-4 else f"{1e6 * value:.3g} µs"
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.1f} MiB"
    return f"{value:.0f}" if unit == "count" else f"{value:.3g}"


def rules(*, live: bool = False) -> dict[str, Rule]:
    """Return every rule by its key, the name of its file; with `live` those that need no capture."""
    by_key = {name: cast(Rule, plugins.load(FOLDER, name)) for name in plugins.names(FOLDER)}
    return {key: rule for key, rule in by_key.items() if rule.is_live or not live}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What a rule observed, or what it lacks: one of the two."""

    observation: Observation | None = None
    missing: InsufficientData | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfFiles:
    """What the rules that look into files say of them, by key: of the first `looked` ns of all `whole` ns."""

    evaluations: Mapping[str, RuleResult]
    looked: int = 0
    whole: int = 0


def evaluate_files(evidence: Evidence) -> OfFiles:
    """Return what the rules that look into files say of those of a capture."""
    evaluations = {key: _evaluation(rule.evaluate(evidence), rule) for key, rule in rules().items() if rule.reads_files}
    begin = min((one.begin for one in evidence.recorded), default=0)
    looked = max((one.end for one in evidence.recorded), default=0) - begin
    whole = max((one.store.end for one in evidence.recorded), default=0) - begin
    return OfFiles(evaluations=evaluations, looked=looked, whole=whole)


def finding_of(key: str, rule: Rule, evidence: Evidence) -> Finding:
    """Return what a rule says of the evidence."""
    return _finding(key, rule, _evaluation(rule.evaluate(evidence), rule))


def _evaluation(observation: Observation | InsufficientData, rule: Rule) -> RuleResult:
    if isinstance(observation, Observation) and not math.isfinite(observation.value):
        observation = InsufficientData(what=rule.needs[0])  # NaN is above no threshold, and reads as healthy
    return (
        RuleResult(missing=observation)
        if isinstance(observation, InsufficientData)
        else RuleResult(observation=observation)
    )


def _finding(key: str, rule: Rule, result: RuleResult) -> Finding:
    observation = result.observation
    if observation is None:
        return Finding(key=key, rule=rule, state="not_enough_data", missing=result.missing)
    beyond_watch, beyond_bad = (
        (observation.value < rule.watch, observation.value < rule.bad)
        if rule.is_low_bad
        else (observation.value > rule.watch, observation.value > rule.bad)
    )
    is_firing = beyond_watch if observation.is_firing is None else observation.is_firing
    level: Level = "" if not is_firing else "bad" if beyond_bad else "watch"
    return Finding(key=key, rule=rule, state="fires" if is_firing else "clear", level=level, observation=observation)


def _tells_more(of_run: Finding, of_file: Finding) -> bool:
    """Return True if what the run tells is to be shown in place of what its files tell: it fires, or they lack data."""
    order = ("not_enough_data", "clear", "fires")
    return order.index(of_run.state) > order.index(of_file.state)


def diagnose(evidence: Evidence, *, live: bool = False, of_files: OfFiles | None = None) -> list[Finding]:
    """Return what every rule says: what fires first, the bad before what is to be watched, then clear, then unknown.

    `of_files` is what those that look into files have said already; what they lacked may stand in the evidence.
    """
    evaluations = of_files.evaluations if of_files else {}
    findings = []
    for key, rule in rules(live=live).items():
        evaluation = evaluations.get(key)
        of_file = _finding(key, rule, evaluation) if evaluation else None
        of_run = finding_of(key, rule, evidence) if of_file is None or rule.is_live else of_file
        findings.append(of_run if of_file is None or _tells_more(of_run, of_file) else of_file)
    order = ("fires", "clear", "not_enough_data")
    return sorted(findings, key=lambda one: (order.index(one.state), one.level != "bad", one.key))
