"""Random valid specs: what every trainer's conformance tests are run on.

A knob is drawn only where its needs are met, so that each value drawn means something. What a trainer's own checks ask
beyond that (batches that divide) its `repair` mends: it gets the values drawn and changes them in place.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from jobs.catalog.knob import Knob, KnobCondition, applicable, default_values, is_live
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value

Values = dict[str, Value]
Repair = Callable[[str, Values, random.Random], None]
Draw = Callable[[str, str, random.Random, Sequence[str]], RunSpec]
WANTED = 4  # knobs that each spec gets on purpose, so that all are covered
ROUNDS = 4  # of knobs whose needs other knobs meet


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How specs of one trainer are drawn.

    `sections(algorithm)` gives the parts that are no knobs; `texts` by knob what a text may be (a knob of text that is
    not there is never drawn); `bounds` by knob where the catalogue's range is wider than anything that runs; `skip`
    are knobs that are left alone.
    """

    trainer: str
    sections: Callable[[str], dict[str, Any]]
    texts: Mapping[str, Sequence[str]]
    repair: Repair
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    skip: frozenset[str] = frozenset()
    share: float = 0.25


def draw(drawing: Drawing, *, version: str, algorithm: str, rng: random.Random, wanted: Sequence[str] = ()) -> RunSpec:
    """Return a random spec of a version and an algorithm; what the `wanted` knobs need is switched on for them.

    Raises: SpecInvalid if the repair missed something.
    """
    here = applicable(algorithm, drawing.trainer, version)
    defaults = default_values(algorithm, drawing.trainer, version)
    values: Values = dict(defaults)
    asked = set(drawing.skip)
    for knob_id in wanted:
        if knob_id in here and knob_id not in asked:
            _switch_on(drawing, knob_id, here, values, asked, rng)
            asked.add(knob_id)
            values[knob_id] = any_value(drawing, here[knob_id], values[knob_id], rng)
    for _ in range(ROUNDS):
        for knob_id, knob in here.items():
            if knob_id not in asked and is_live(knob_id, values):
                asked.add(knob_id)
                if rng.random() < drawing.share:
                    values[knob_id] = any_value(drawing, knob, values[knob_id], rng)
    drawing.repair(algorithm, values, rng)
    for _ in range(ROUNDS):  # what another draw has switched off again says nothing
        for knob_id in [k for k in values if not is_live(k, values)]:
            values[knob_id] = defaults[knob_id]
    chosen = {k: v for k, v in values.items() if v != defaults[k]}
    raw = {"algorithm": algorithm, "trainer": {"name": drawing.trainer, "version": version}, "knobs": chosen}
    return parse_spec(raw | drawing.sections(algorithm))


def specs_in_turn(trainer: str, version: str, algorithms: Sequence[str], number: int, drawn: Draw) -> list[RunSpec]:
    """Return random specs of the algorithms; the knobs of each are wanted in turn, so that none is left out."""
    turns = {name: deque(applicable(name, trainer, version)) for name in algorithms}
    specs = []
    for place in range(number):
        algorithm = algorithms[place % len(algorithms)]
        wanted = list(islice(turns[algorithm], WANTED))
        turns[algorithm].rotate(-WANTED)
        specs.append(drawn(version, algorithm, random.Random(f"{version} {place}"), wanted))
    return specs


def num_reachable(knob: Knob, num_texts: int) -> int:
    """Return how many values that are not its default a knob has to be seen with: two, where it has two."""
    if knob.type == "bool":
        return 1
    if knob.type == "choice":
        return min(len(knob.choices) - (not knob.is_optional), 2)
    return min(num_texts, 2) if knob.type == "text" else 2


def _switch_on(
    drawing: Drawing,
    knob_id: str,
    here: Mapping[str, Knob],
    values: Values,
    asked: set[str],
    rng: random.Random,
) -> None:
    """Give the knobs that a knob needs such values, and those what they need; they are left alone from then on."""
    for need in here[knob_id].needs:
        if need.knob in here:
            _switch_on(drawing, need.knob, here, values, asked, rng)
            if not need.is_met(values[need.knob]):
                other = here[need.knob]
                allowed = [value for value in need.values if not other.choices or value in other.choices]
                values[need.knob] = rng.choice(allowed) if allowed else _above(other, need)
            asked.add(need.knob)


def _above(knob: Knob, need: KnobCondition) -> Value:
    assert need.above is not None
    return knob.check(math.floor(need.above) + 2)


def any_value(drawing: Drawing, knob: Knob, now: Value, rng: random.Random) -> Value:
    """Return a value that the knob takes, another one than `now` where it has another."""
    if knob.type == "bool":
        return not now if now is not None else rng.random() < 0.5
    if knob.type == "choice":
        others = [choice for choice in knob.choices if choice != now]
        return rng.choice(others or list(knob.choices))
    if knob.type == "text":
        return rng.choice(list(drawing.texts.get(knob.id, (now,)))) if knob.id in drawing.texts else now
    low, high = drawing.bounds.get(knob.id, (knob.low, knob.high))
    return knob.check(_any_number(low, high, rng, is_whole=knob.type == "int"))


def _any_number(low: float, high: float, rng: random.Random, *, is_whole: bool) -> float:
    """Return a number between the bounds: small ones as often as large ones, and now and then a bound itself."""
    high = min(high, max(low + 10, 1e4)) if is_whole else min(high, max(low + 1, 10.0))
    if rng.random() < 0.1:
        return low
    start = low if low > 0 else 0.0
    if is_whole:
        span = math.log1p(high - start)
        return min(max(round(start + math.expm1(rng.random() * span)), math.ceil(low)), math.floor(high))
    value = start + (high - start) * 10 ** (-3 * rng.random())
    return min(max(float(f"{value:.3g}"), low), high)


def coverage(specs: Sequence[RunSpec]) -> Mapping[str, int]:
    """Return for every knob of the specs how many different values it had that are not its default."""
    seen: dict[str, set[Value]] = {}
    for spec in specs:
        here = applicable(spec.algorithm, spec.trainer.name, spec.trainer.version)
        for knob_id, knob in here.items():
            found = seen.setdefault(knob_id, set())
            value = spec.knob(knob_id)
            if value != knob.default_for(spec.algorithm, spec.trainer.name, spec.trainer.version):
                found.add(value)
    return Counter({knob_id: len(values) for knob_id, values in seen.items()})
