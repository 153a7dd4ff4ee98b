"""The points of a sweep, and the spec of each: a grid in order, or draws that the seed repeats exactly."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence

from django.utils.translation import gettext as _

from jobs.catalog.knob import knobs
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.parse import Problem, SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.value import Value, value_text
from jobs.sweeps.plan import SweepKnob, SweepPlan, grid_size
from profiling.counted import counted

Point = Mapping[str, Value]

DIGITS = 4  # significant digits of a drawn number, so that the name of a run tells its exact value
_TRIES_PER_POINT = 200
_MAX_PROBLEMS = 20
_SHORT = {  # the one that is meant where several knobs end in the same word, too
    "optimizer.learning_rate": "lr",
    "rollout.samples_per_prompt": "samples_per_prompt",
    "rollout.temperature": "temperature",
    "rollout.top_k": "top_k",
    "rollout.top_p": "top_p",
    "train.seed": "seed",
}


def points(plan: SweepPlan) -> tuple[Point, ...]:
    """Return the plan's points, no two alike.

    A grid is walked with its last knob fastest; of one with more points than runs the seed draws some, kept in order.
    Random numbers are drawn evenly over the range, or over its logarithm. Raises: SpecInvalid if there are not so many
    different points.
    """
    if plan.method == "grid":
        return _grid(plan)
    return _random(plan)


def point_specs(base: RunSpec, run_points: Sequence[Point], *, name: str) -> list[RunSpec]:
    """Return the checked spec of each point, named after it. Values of the sweep are the person's own: origin "you".

    Raises: SpecInvalid with what stands against which point; nothing then may be launched.
    """
    raw = to_json(base)
    specs: list[RunSpec] = []
    problems: list[Problem] = []
    for point in run_points:
        chosen = {knob_id: {"value": value, "origin": "you"} for knob_id, value in point.items()}
        raw_spec: dict[str, object] = {**raw, "name": point_name(name, point), "knobs": {**raw["knobs"], **chosen}}
        try:
            specs.append(parse_spec(raw_spec))
        except SpecInvalid as error:
            problems += [at_point(problem, point) for problem in error.problems]
    if problems:
        raise SpecInvalid(_shortened(problems))
    return specs


def at_point(problem: Problem, point: Point) -> Problem:
    """Return the problem with the values that cause it, beside the knob of the sweep where it is about one."""
    place = [f"knobs.{knob_id}" for knob_id in point]
    field = f"sweep.knobs.{place.index(problem.field)}.values" if problem.field in place else problem.field
    text = _("With %(point)s: %(problem)s") % {"point": point_label(point), "problem": in_words(problem.message, _)}
    return Problem(field=field, message=text)


def point_label(point: Point) -> str:
    """Return "lr=3e-4, samples_per_prompt=8"."""
    return ", ".join(f"{short_name(knob_id)}={value_text(value)}" for knob_id, value in point.items())


def point_name(name: str, point: Point) -> str:
    """Return the name of a point's run, within the 120 characters that a name may have."""
    tail = f" · {point_label(point)}"[:100]
    return name[: 120 - len(tail)].rstrip() + tail


def short_name(knob_id: str) -> str:
    """Return the last part of a knob's id, the whole id where another knob ends in the same word."""
    last = knob_id.rpartition(".")[2]
    is_alone = sum(other.rpartition(".")[2] == last for other in knobs()) <= 1
    return _SHORT.get(knob_id) or (last if is_alone else knob_id)


def _grid(plan: SweepPlan) -> tuple[Point, ...]:
    names = [k.id for k in plan.knobs]
    every = itertools.product(*(k.values for k in plan.knobs))
    size = grid_size(plan.knobs)
    places = set(random.Random(plan.seed).sample(range(size), plan.num_runs)) if plan.num_runs < size else range(size)
    return tuple(dict(zip(names, values, strict=True)) for place, values in enumerate(every) if place in places)


def _random(plan: SweepPlan) -> tuple[Point, ...]:
    rng = random.Random(plan.seed)
    distinct: dict[tuple[Value, ...], Point] = {}
    for _try in range(_TRIES_PER_POINT * plan.num_runs):
        if len(distinct) == plan.num_runs:
            break
        values = tuple(_draw(knob, rng) for knob in plan.knobs)
        distinct.setdefault(values, {k.id: v for k, v in zip(plan.knobs, values, strict=True)})
    if len(distinct) < plan.num_runs:
        text = _(
            "These knobs give %(size)s different points, %(num)s runs are asked for. Ask for fewer, widen a range,"
        )
        text += " " + _("or repeat points with several values of train.seed.")
        values_told = {"size": len(distinct), "num": plan.num_runs}
        raise SpecInvalid([Problem(field="sweep.num_runs", message=counted(text % values_told))])
    return tuple(distinct.values())


def _draw(knob: SweepKnob, rng: random.Random) -> Value:
    if not knob.is_range:
        return rng.choice(knob.values)
    is_whole = knobs()[knob.id].type == "int"
    if knob.scale == "log":
        number = math.exp(rng.uniform(math.log(knob.low), math.log(knob.high)))
    elif is_whole:
        return rng.randint(int(knob.low), int(knob.high))
    else:
        number = rng.uniform(knob.low, knob.high)
    number = round(number) if is_whole else float(f"{number:.{DIGITS}g}")
    return min(max(number, int(knob.low) if is_whole else knob.low), int(knob.high) if is_whole else knob.high)


def _shortened(problems: list[Problem]) -> list[Problem]:
    rest = len(problems) - _MAX_PROBLEMS
    if rest <= 0:
        return problems
    more = Problem(field="sweep.knobs", message=counted(_("And %(n)s more problems of this kind.") % {"n": rest}))
    return [*problems[:_MAX_PROBLEMS], more]
