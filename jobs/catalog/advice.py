"""What to change when a run is too slow, does not fit, does not learn, or cannot be seen into.

`advice/*.toml` holds a file per question and a table per piece of advice, its id is `<file>.<table>`:

    [memory_fraction]
    title = "Give the rollout engine more memory"
    trainers = ["native"]                    # all where missing
    algorithms = ["rl"]                     # ids or families; all where missing
    when = "The engine reports a full KV cache."
    changes = [{ knob = "rollout.gpu_memory_fraction", to = "0.5 to 0.7; 0.8 to 0.9 with offload" }]
    effect = { speed = "higher", memory = "more", stability = "none" }
    evidence = "measured"                   # one of EVIDENCE
    source = "docs/planner.md"
    ref = "R02"
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.catalog.algorithm import expand
from jobs.catalog.knob import knobs
from jobs.catalog.tables import folder_tables
from jobs.catalog.trainer import trainers

QUESTIONS: Mapping[str, str] = {
    "too_slow": "Too slow",
    "does_not_fit": "Does not fit",
    "does_not_learn": "Does not learn",
    "cannot_see_inside": "Cannot see inside",
}
EVIDENCE: Mapping[str, str] = {
    "measured": "the source states a number",
    "stated": "the source says so without a number",
    "code": "it was read in the trainer's code",
    "derived": "it follows from what the sources say",
}
_KEYS = {"title", "trainers", "algorithms", "when", "changes", "effect", "evidence", "source", "ref"}
_EFFECTS = {"speed", "memory", "stability"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A knob by id, and the value or the direction that is advised, in words."""

    knob: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One piece of advice; `effect` says what it does to speed, memory and stability, where it does anything."""

    id: str
    question: str
    title: str
    trainers: tuple[str, ...]
    algorithms: tuple[str, ...]
    when: str
    changes: tuple[Change, ...]
    effect: Mapping[str, str]
    evidence: str
    source: str
    ref: str


@cache
def advice() -> Mapping[str, Advice]:
    """Return every piece of advice by id: in the order of the questions, then of the files, which is that of trying.

    Raises: ValueError, naming the piece, for a key, knob, trainer or grade of evidence that is not known.
    """
    tables = folder_tables("advice")
    return {f"{q}.{name}": _advice(q, name, table) for q in QUESTIONS for name, table in tables[q].items()}


def by_question() -> Mapping[str, tuple[Advice, ...]]:
    """Return the advice by question, in the order of QUESTIONS."""
    return {q: tuple(each for each in advice().values() if each.question == q) for q in QUESTIONS}


def _advice(question: str, name: str, table: Mapping[str, Any]) -> Advice:
    where = f"{question}.{name}"
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{where}: advice has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    if strange := sorted(set(table["effect"]) - _EFFECTS):
        raise ValueError(f"{where}: {strange[0]!r} is no effect. Known: {', '.join(sorted(_EFFECTS))}.")
    if table["evidence"] not in EVIDENCE:
        raise ValueError(f"{where}: {table['evidence']!r} is no grade of evidence. Use {', '.join(EVIDENCE)}.")
    if strange := [each for each in table.get("trainers", ()) if each not in trainers()]:
        raise ValueError(f"{where}: there is no trainer {strange[0]!r}. Known: {', '.join(trainers())}.")
    changes = tuple(Change(knob=each["knob"], to=each["to"]) for each in table.get("changes", ()))
    if unknown := [each.knob for each in changes if each.knob not in knobs()]:
        raise ValueError(f"{where}: there is no knob {unknown[0]!r}.")
    return Advice(
        id=where,
        question=question,
        title=table["title"],
        trainers=tuple(table.get("trainers", ())),
        algorithms=expand(table.get("algorithms", ("all",))),
        when=table["when"],
        changes=changes,
        effect=table["effect"],
        evidence=table["evidence"],
        source=table["source"],
        ref=table.get("ref", ""),
    )
