"""What a sweep varies: up to three knobs, by a list of values or a range; how points are chosen; how many run at once.

`parse_plan` is the one validator that form, API and command line call. Fields of its problems are named like the form's
inputs: `sweep.knobs.0.values`, `sweep.num_runs`.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from django.utils.translation import gettext as _

from jobs.catalog.knob import Knob, KnobValueInvalid, applicable, knobs
from jobs.catalog.sentence import in_words, sentence_of
from jobs.catalog.spec.parse import Problem, SpecInvalid, strangers
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value, plain_number, value_text
from profiling.counted import counted

Method = Literal["grid", "random"]
Scale = Literal["linear", "log"]

MAX_KNOBS = 3
MAX_RUNS = 200
MAX_VALUES = 100
MAX_SEED = 2**63 - 1
_FIELDS = ("knobs", "method", "num_runs", "max_concurrent", "seed")
_KNOB_FIELDS = ("id", "values", "low", "high", "scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepKnob:
    """One knob of a sweep: its `values`, or, where those are empty, a range that random points are drawn from."""

    id: str
    values: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    scale: Scale = "linear"

    @property
    def is_range(self) -> bool:
        """True if it is drawn from a range."""
        return not self.values

    @property
    def is_log(self) -> bool:
        """True if its values are drawn evenly in their logarithm, or lie as if they were."""
        if self.is_range:
            return self.scale == "log"
        numbers = [v for v in self.values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        return len(numbers) == len(self.values) and min(numbers) > 0 and max(numbers) >= 10 * min(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """A checked sweep: `num_runs` points of `knobs`, of which `max_concurrent` run at once."""

    knobs: tuple[SweepKnob, ...]
    method: Method
    num_runs: int
    max_concurrent: int
    seed: int

    def knobs_json(self) -> list[dict[str, object]]:
        """Return the knobs as plain JSON values, as a Study keeps them."""
        return [
            {"id": k.id, "low": k.low, "high": k.high, "scale": k.scale}
            if k.is_range
            else {"id": k.id, "values": list(k.values)}
            for k in self.knobs
        ]


def grid_size(knobs: Sequence[SweepKnob]) -> int:
    """Return how many points the grid of these knobs has."""
    return math.prod(len(k.values) for k in knobs)


def parse_plan(raw: object, *, spec: RunSpec) -> SweepPlan:
    """Return the checked sweep of plain JSON values: knobs, method (grid), num_runs, max_concurrent (1), seed (0).

    `num_runs` may be left out of a grid, which then takes every point. Raises: SpecInvalid with every problem.
    """
    problems: list[Problem] = []
    if not isinstance(raw, Mapping):
        text = _("A sweep is a JSON object of knobs, method and num_runs, not %(given)s.")
        raise SpecInvalid([Problem(field="sweep", message=text % {"given": type(raw).__name__})])
    for name in strangers(raw, _FIELDS):
        problems.append(_unknown(f"sweep.{name}", str(name), _FIELDS))
    method = raw.get("method", "grid")
    if method not in get_args(Method):
        text = _("%(given)r is not a method of choosing points. Use grid or random.")
        problems.append(Problem(field="sweep.method", message=text % {"given": method}))
    knobs = _parse_knobs(raw.get("knobs"), method, spec, problems)
    seed = _parse_integer("seed", raw.get("seed", 0), 0, MAX_SEED, problems)
    if problems:
        raise SpecInvalid(problems)
    num_runs = _num_runs(raw.get("num_runs"), method, knobs, problems)
    at_once = raw.get("max_concurrent")
    max_concurrent = _parse_integer("max_concurrent", 1 if at_once is None else at_once, 1, MAX_RUNS, problems)
    if problems:
        raise SpecInvalid(problems)
    return SweepPlan(knobs=knobs, method=method, num_runs=num_runs, max_concurrent=max_concurrent, seed=seed)


def check_max_concurrent(value: object) -> int:
    """Return how many may run at once. Raises: SpecInvalid."""
    problems: list[Problem] = []
    number = _parse_integer("max_concurrent", value, 1, MAX_RUNS, problems)
    if problems:
        raise SpecInvalid(problems)
    return number


def _parse_knobs(raw: object, method: object, spec: RunSpec, problems: list[Problem]) -> tuple[SweepKnob, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not 1 <= len(raw) <= MAX_KNOBS:
        text = _("A sweep varies one to %(most)s knobs. Choose at least one.") % {"most": MAX_KNOBS}
        problems.append(Problem(field="sweep.knobs", message=text))
        return ()
    knobs: list[SweepKnob] = []
    for place, item in enumerate(raw):
        knob = _parse_knob(f"sweep.knobs.{place}", item, method, spec, problems)
        if knob is not None and any(knob.id == other.id for other in knobs):
            text = _("%(knob)s is varied twice. Remove one of them.") % {"knob": knob.id}
            problems.append(Problem(field=f"sweep.knobs.{place}.id", message=text))
        elif knob is not None:
            knobs.append(knob)
    return tuple(knobs)


def _parse_knob(field: str, raw: object, method: object, spec: RunSpec, problems: list[Problem]) -> SweepKnob | None:
    if not isinstance(raw, Mapping):
        text = _("A knob of a sweep is an object with id and values, or id, low, high and scale; not %(given)r.")
        problems.append(Problem(field=field, message=text % {"given": raw}))
        return None
    before = len(problems)
    for name in strangers(raw, _KNOB_FIELDS):
        problems.append(_unknown(f"{field}.{name}", str(name), _KNOB_FIELDS))
    knob = _known_knob(f"{field}.id", raw.get("id"), spec, problems)
    if knob is None or len(problems) > before:
        return None
    if raw.get("values") is not None:
        if "low" in raw or "high" in raw:
            text = _("%(knob)s has values and a range. Give one of them.") % {"knob": _(knob.label)}
            problems.append(Problem(field=f"{field}.values", message=text))
            return None
        return _parse_values(field, knob, raw["values"], problems)
    if "low" not in raw and "high" not in raw:
        text = _("Give the values of %(knob)s: %(allowed)s.") % {
            "knob": _(knob.label),
            "allowed": in_words(knob.allowed(), _),
        }
        problems.append(Problem(field=f"{field}.values", message=text))
        return None
    if method == "grid":
        text = _("A grid needs a list of values of %(knob)s. List them, or choose random.") % {"knob": _(knob.label)}
        problems.append(Problem(field=f"{field}.values", message=text))
        return None
    return _parse_range(field, knob, raw, problems)


def _known_knob(field: str, knob_id: object, spec: RunSpec, problems: list[Problem]) -> Knob | None:
    here = applicable(spec.algorithm, spec.trainer.name, spec.trainer.version)
    if isinstance(knob_id, str) and knob_id in here:
        return here[knob_id]
    if not knob_id:
        text = _("Choose the knob to vary.")
    elif isinstance(knob_id, str) and knob_id in knobs():
        text = _("%(knob)s does not apply to %(algorithm)s. Choose another knob.")
        text = text % {"knob": knobs()[knob_id].label, "algorithm": spec.algorithm.upper()}
    else:
        problems.append(_unknown(field, str(knob_id), tuple(here)))
        return None
    problems.append(Problem(field=field, message=text))
    return None


def _parse_values(field: str, knob: Knob, raw: object, problems: list[Problem]) -> SweepKnob | None:
    before = len(problems)
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not 1 <= len(raw) <= MAX_VALUES:
        text = _("List 1 to %(most)s values of %(knob)s: %(allowed)s.")
        text = text % {"most": MAX_VALUES, "knob": _(knob.label), "allowed": in_words(knob.allowed(), _)}
        problems.append(Problem(field=f"{field}.values", message=text))
        return None
    values: list[Value] = []
    for item in raw:
        try:
            value = knob.check(item)
        except KnobValueInvalid as error:
            problems.append(Problem(field=f"{field}.values", message=sentence_of(error)))
            continue
        if value in values:
            text = _("%(value)s occurs twice among the values of %(knob)s. Remove one.")
            text = text % {"value": value_text(value), "knob": _(knob.label)}
            problems.append(Problem(field=f"{field}.values", message=text))
        values.append(value)
    return SweepKnob(id=knob.id, values=tuple(values)) if len(problems) == before else None


def _parse_range(field: str, knob: Knob, raw: Mapping[str, Any], problems: list[Problem]) -> SweepKnob | None:
    if knob.type not in ("int", "float"):
        text = _("%(knob)s has no range. List its values: %(allowed)s.")
        text = text % {"knob": _(knob.label), "allowed": in_words(knob.allowed(), _)}
        problems.append(Problem(field=f"{field}.low", message=text))
        return None
    before = len(problems)
    ends: dict[str, float] = {}
    for name in ("low", "high"):
        try:
            ends[name] = float(knob.check_set(raw.get(name)))
        except KnobValueInvalid as error:
            problems.append(Problem(field=f"{field}.{name}", message=sentence_of(error)))
    scale = raw.get("scale", "linear")
    if scale not in get_args(Scale):
        text = _("%(given)r is not a scale. Use linear or log.") % {"given": scale}
        problems.append(Problem(field=f"{field}.scale", message=text))
    if len(problems) > before:
        return None
    low, high = ends["low"], ends["high"]
    if low >= high:
        text = _("The range of %(knob)s ends at %(high)s, which is not above its start, %(low)s.")
        text = text % {"knob": _(knob.label), "low": value_text(low), "high": value_text(high)}
        problems.append(Problem(field=f"{field}.high", message=text))
    elif scale == "log" and low <= 0:
        text = _("A log range begins above 0; %(low)s is not. Raise it, or use a linear scale.") % {
            "low": value_text(low)
        }
        problems.append(Problem(field=f"{field}.low", message=text))
    if len(problems) > before:
        return None
    return SweepKnob(id=knob.id, low=low, high=high, scale=cast(Scale, scale))


def _num_runs(raw: object, method: object, knobs: Sequence[SweepKnob], problems: list[Problem]) -> int:
    size = grid_size(knobs) if method == "grid" else MAX_RUNS
    if raw is None and method == "grid" and size <= MAX_RUNS:
        return size
    if raw is None:
        text = _(
            "The grid has %(size)s points, a sweep at most %(most)s runs. Say how many to draw, or list fewer values."
        )
        if method == "random":
            text = _("Set how many runs to draw: 1 to %(most)s.")
        values = {"size": f"{size:,}", "most": MAX_RUNS}
        problems.append(Problem(field="sweep.num_runs", message=text % values))
        return 0
    num = _parse_integer("num_runs", raw, 1, MAX_RUNS, problems)
    if num > size:
        text = _(
            "%(num)s runs are more than the %(size)s points of the grid. Use at most %(size)s, or list more values."
        )
        problems.append(Problem(field="sweep.num_runs", message=counted(text % {"num": num, "size": size})))
    return num


def _parse_integer(name: str, raw: object, low: int, high: int, problems: list[Problem]) -> int:
    number: float | None = None
    if isinstance(raw, str):
        plain = plain_number(raw)
        number = int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 20 else None
    elif isinstance(raw, (int, float)) and not isinstance(raw, bool):
        number = raw
    if number is None or not low <= number <= high or number != int(number):
        text = _("%(given)r is not allowed. Use a whole number from %(low)s to %(high)s.")
        values = {"given": raw, "low": f"{low:,}", "high": f"{high:,}"}
        problems.append(Problem(field=f"sweep.{name}", message=text % values))
        return low
    return int(number)


def _unknown(field: str, wrong: str, choices: Sequence[str]) -> Problem:
    lasts = {name.rpartition(".")[2]: name for name in choices}
    near = [lasts[wrong]] if wrong in lasts else difflib.get_close_matches(wrong[:200], choices, n=1, cutoff=0.5)
    hint = (
        _("Did you mean %(near)s?") % {"near": near[0]}
        if near
        else _("Known: %(names)s.") % {"names": ", ".join(sorted(choices)[:12]) + ", …" * (len(choices) > 12)}
    )
    text = _("There is no %(given)r here.") % {"given": wrong}
    return Problem(field=field, message=f"{text} {hint}")
