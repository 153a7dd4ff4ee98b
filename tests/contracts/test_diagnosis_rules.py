"""What every rule of diagnosis promises: one suite for each file of profiling/diagnosis/rules, on evidence of any kind.

That a rule fires where it should, with numbers computed by hand, is in tests/profiling/diagnosis.
"""

import ast
import itertools
import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import profiling.diagnosis.rules
from jobs.catalog.knob import knobs
from jobs.catalog.metric import metrics
from profiling import plugins
from profiling.diagnosis.finding import (
    QUESTIONS,
    RECORD,
    Finding,
    Rule,
    amount,
    finding_of,
    rules,
)
from profiling.evidence import CaptureFacts, Evidence, PhaseSpans, Readings, RecordedTrace, phase_spans
from profiling.phases import BY_KEY, ROLES
from profiling.trace.category import DEVICE, Category
from profiling.trace.importing import import_trace
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter
from tests.contracts.trace_files import FILES as TRACES

FILES = Path(profiling.diagnosis.rules.__path__[0])
NAMES = plugins.names("profiling.diagnosis.rules")
SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND
WORKERS = (("driver", 0), ("policy", 0), ("policy", 1), ("vllm", 0), ("runner", 0))
Values = Callable[[random.Random], float]
VALUES: Mapping[str, Values] = {
    "any numbers": lambda rng: rng.uniform(0, 200),
    "zeros": lambda _: 0.0,
    "no numbers": lambda _: float("nan"),
    "numbers and none": lambda rng: rng.choice((float("nan"), rng.uniform(0, 1))),
    "endless numbers": lambda rng: rng.choice((float("inf"), 1e300)),
    "numbers below zero": lambda rng: rng.uniform(-5, 5),
}


def _words(name: str) -> Iterator[str]:
    """Yield the texts in a rule's file: names of readings and counters are among them."""
    for node in ast.walk(ast.parse((FILES / f"{name}.py").read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 3 < len(node.value) < 60:
            yield node.value


WORDS = sorted({word for name in NAMES for word in _words(name)})
READINGS = sorted({*WORDS, *metrics(), *(f"gpu{i}_memory_{what}_bytes" for i in (0, 1) for what in ("used", "total"))})


# -- evidence of any kind --


def spans(rng: random.Random, *, steps: int, longest: float = 2.0) -> PhaseSpans:
    """Return phases with details of so many steps, on workers of several roles; some are missing."""
    rows: list[tuple[str, int, int, str, str, int, int, int]] = []
    details = ("forward", "backward", "optimizer", "load", *rng.sample(WORDS, 3))
    at = BEGIN
    for step in range(1, steps + 1):
        for phase in BY_KEY:
            lasts = int(rng.uniform(0, longest) * SECOND)
            for role, rank in WORKERS:
                if role == "driver" or rng.random() < 0.8:
                    rows.append((role, rank, step, phase, "", 0, at, lasts))
                    rows += [(role, rank, step, phase, name, 1, at, lasts // 7) for name in details]
            at += lasts
    return phase_spans(rows)


def readings(values: Values, rng: random.Random, *, steps: int) -> tuple[Readings, ...]:
    """Return a series of each name that a rule may ask for."""
    return tuple(
        Readings(
            name=name,
            role=role,
            rank=rank,
            step=np.arange(1, steps + 1),
            time=BEGIN + SECOND * np.arange(steps),
            value=np.array([values(rng) for _ in range(steps)]),
        )
        for name, (role, rank) in itertools.product(READINGS, (WORKERS[0], *rng.sample(WORKERS[1:], 2)))
    )


def written(path: Path, rng: random.Random, *, events: int, values: Values, rank: int = 0, clock: str = "") -> Store:
    """Return a store with events of every category and samples of every counter that a rule may ask for."""
    collective = "ncclDevKernel_AllReduce_Sum_bf16"
    names = [*WORDS, collective, "cudaLaunchKernel"]
    with StoreWriter(path, source="test") as writer:
        whose = {"process": "python", "pid": 100 + rank}
        streams = [writer.lane("stream", **whose, device=rank, stream=stream) for stream in (7, 20)]  # type: ignore[arg-type]
        others = [writer.lane("thread", **whose, thread="main", tid=1), writer.lane("range", **whose, title="ranges")]  # type: ignore[arg-type]
        for number, category in itertools.islice(enumerate(itertools.cycle(Category)), events):
            lane = streams[number % 2] if category in DEVICE else others[category == Category.RANGE]
            start, length, size = BEGIN + number * 10_000, rng.randrange(30_000), rng.randrange(1 << 20)
            link = 1 + number // len(Category)
            usual = {Category.COMMUNICATION: collective, Category.STEP: f"ProfilerStep#{link}"}  # on all ranks alike
            chosen = rng.choice(names)
            if category == Category.KERNEL:
                chosen = rng.choice((chosen, "ampere_sgemm_128x64_tn"))
            name = usual.get(category, chosen)
            writer.add(lane, start, length, writer.name(name), category, link=link, bytes=size)
        for name in WORDS if events else ():
            series = writer.counter(name, "", device=rank, process="python")
            for i in range(4):
                writer.count(series, BEGIN + i * 1000, values(rng))
        if clock:
            writer.meta("clock", clock)
        writer.note("warning", "The file is cut off.")
        writer.finish()
    return Store(path)


def stores(folder: Path) -> Mapping[str, Sequence[Store]]:
    """Return files of captures: made up, and a small one of each format."""
    rng = random.Random(3)
    many, none = VALUES["any numbers"], VALUES["no numbers"]
    first = written(folder / "0", rng, events=300, values=many)
    found: dict[str, Sequence[Store]] = {
        "a file": (first,),
        "files of two ranks": (first, written(folder / "1", rng, events=300, values=many, rank=1)),
        "a file of one event": (written(folder / "2", rng, events=1, values=none),),
        "a file without events": (written(folder / "3", rng, events=0, values=none),),
        "a file without a clock": (written(folder / "4", rng, events=300, values=many, clock="none"),),
    }
    for name, made in TRACES.items():
        if name == "nsys_rep":  # only nsys opens it, and then it is a database as of `nsys`
            continue
        ranks = []
        for rank in (0, 1):
            source = made[0](folder)
            source = source.rename(source.with_name(f"rank{rank}{''.join(source.suffixes)}"))
            import_trace(source, folder / f"{name}-{rank}")
            ranks.append(Store(folder / f"{name}-{rank}"))
        found[f"files of {name}"] = ranks
    return found


class Kind:
    """Evidence of a kind, whose arrays refuse to be written to."""

    def __init__(self, name: str, **parts: Any) -> None:
        self.name, self._parts = name, parts
        for one in (parts.get("spans"), *parts.get("readings", ())):
            for field in one.__slots__ if one else ():
                if isinstance(value := getattr(one, field), np.ndarray):
                    value.flags.writeable = False

    def evidence(self) -> Evidence:
        """Return it anew, with nothing computed yet."""
        return Evidence(**self._parts)


def kinds(folder: Path) -> Sequence[Kind]:
    """Return evidence of each kind."""
    files = stores(folder)
    facts = CaptureFacts(steps=(4, 5), asked=("policy-0", "policy-1"), here=("policy-0",), problems=("It was cut.",))
    rng = random.Random(7)
    odd: Mapping[str, object] = {name: rng.choice((None, 0, 4, -1.5, "", True)) for name in knobs()}
    of_run: dict[str, Any] = {"capture": facts, "knobs": odd, "profiled": ((4, 5),)}
    many = VALUES["any numbers"]

    def recorded(name: str, until: int | None = None) -> tuple[RecordedTrace, ...]:
        return tuple(
            RecordedTrace(store=one, role="policy", rank=rank, until=until) for rank, one in enumerate(files[name])
        )

    return (
        Kind("nothing"),
        Kind("an empty capture", capture=CaptureFacts()),
        *(Kind(f"{n} steps", spans=spans(rng, steps=n), **of_run) for n in (1, 2, 3, 12)),
        Kind("steps of no length", spans=spans(rng, steps=8, longest=0.0), **of_run),
        *(
            Kind(f"{n} steps, {what}", spans=spans(rng, steps=n), readings=readings(values, rng, steps=n), **of_run)
            for n, (what, values) in itertools.product((1, 12), VALUES.items())
        ),
        Kind("empty series", readings=readings(many, rng, steps=0)),
        Kind("series alone", readings=readings(many, rng, steps=30)),
        *(Kind(name, recorded=recorded(name)) for name in files),
        Kind("the beginning of a file", recorded=recorded("a file", until=BEGIN + 50_000)),
        Kind("nothing of a file", recorded=recorded("a file", until=BEGIN)),
        Kind(
            "all there is",
            spans=spans(rng, steps=12),
            readings=readings(many, rng, steps=12),
            recorded=recorded("files of two ranks"),
            **of_run | {"knobs": {**odd, "rollout.samples_per_prompt": 4}},
        ),
    )


@pytest.fixture(scope="module")
def of_all_kinds(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Kind]:
    return kinds(tmp_path_factory.mktemp("stores"))


# -- the rules --


@pytest.fixture(params=NAMES)
def key(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def rule(key: str) -> Rule:
    return rules()[key]


def test_it_says_what_it_is_about_in_sentences(rule: Rule) -> None:
    assert rule.question in QUESTIONS
    assert rule.source
    assert rule.title
    assert not rule.title.endswith(".")
    for text in (rule.definition, rule.fires, rule.clear, rule.advice):
        assert text.endswith("."), text
    for template in (rule.fires, rule.clear):
        assert all(place is None or place.isidentifier() for _, place, _, _ in string.Formatter().parse(template))


def test_what_is_bad_is_beyond_what_is_to_be_watched(rule: Rule) -> None:
    assert rule.bad <= rule.watch if rule.is_low_bad else rule.bad >= rule.watch
    assert amount(rule.watch, rule.unit)


def test_it_names_knobs_that_exist_and_ways_to_change_them(rule: Rule) -> None:
    known = knobs()
    for change in rule.changes:
        assert change.knob in known
        kind = known[change.knob].type
        assert change.how not in ("on", "off") or kind == "bool", change
        assert change.how not in ("raise", "lower") or kind in ("int", "float"), change


def test_it_says_what_it_needs(rule: Rule) -> None:
    assert rule.needs
    assert set(rule.needs) <= set(RECORD)
    assert not rule.is_live or not rule.reads_files or {"phases", "readings"} & set(rule.needs)


def test_without_its_input_it_names_what_is_missing(key: str, rule: Rule) -> None:
    found = finding_of(key, rule, Evidence())

    assert found.state == "not_enough_data"
    assert found.missing is not None
    assert found.missing.what in rule.needs
    assert found.record.endswith(".")


def test_on_evidence_of_any_kind_it_fires_is_clear_or_says_what_is_missing(
    key: str, rule: Rule, of_all_kinds: Sequence[Kind]
) -> None:
    seen = set()
    for number, kind in enumerate(of_all_kinds):
        finding = finding_of(key, rule, kind.evidence())

        check(finding, kind.name)
        if number % 4 == 0:
            assert finding_of(key, rule, kind.evidence()) == finding, f"another answer to the same: {kind.name}"
        seen.add(finding.state)
    assert "not_enough_data" in seen
    assert seen & {"fires", "clear"}, "none of the kinds has what it needs: add one"


def check(finding: Finding, kind: str) -> None:
    """Hold a finding to what pages and the API take for granted."""
    assert finding.sentence().endswith((".", "%")), kind
    assert "{" not in finding.sentence(), kind
    if finding.state == "not_enough_data":
        assert finding.missing is not None
        assert finding.missing.what in finding.rule.needs, kind
        assert finding.level == ""
        return
    observation = finding.observation
    assert observation is not None
    assert isinstance(observation.value, float), kind
    assert 0 <= observation.begin <= observation.end, kind
    assert observation.role in ("", *ROLES), kind
    assert observation.rank >= -1, kind
    assert all(isinstance(word, str | int | float) for word in observation.words.values()), kind
    assert (finding.level != "") == (finding.state == "fires"), kind
