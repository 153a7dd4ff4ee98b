"""The held-out sets of a run: what each is made of, when it is evaluated, and which number ranks checkpoints.

The first set is the run's own held-out data, by the name ""; those of `data.eval_sets` have names, which stand in their
metrics: `eval/accuracy`, `eval/hard/accuracy`. Imports no torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.metric import metric
from jobs.catalog.spec.data_parts import COLUMNS
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.columns import with_recognized
from jobs.engine.data.dataset import load_table
from jobs.engine.data.examples import Example, mapping_problem, render, usable
from jobs.engine.data.text import TextModel
from jobs.engine.problem import RunProblem

BEST_METRIC, BEST_DIRECTION = "checkpoint.best_metric", "checkpoint.best_direction"
_NO_BEST = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutSet:
    """Examples to evaluate on, and how: at which steps (None: those of the run's own set), with how many responses.

    At 0 steps it is evaluated before the first step and after the last alone, as all sets are besides.
    """

    name: str
    examples: Sequence[Example]
    every_steps: int | None
    samples_per_prompt: int
    temperature: float

    @property
    def prefix(self) -> str:
        """What the names of its metrics begin with."""
        return f"eval/{self.name}/" if self.name else "eval/"

    def is_due(self, step: int, *, usual: int) -> bool:
        """Return True at the steps of its schedule, where it has none at every `usual` steps."""
        every = usual if self.every_steps is None else self.every_steps
        return every > 0 and step % every == 0

    def named(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return metrics `eval/<what>` by the names that they have of this set."""
        return {self.prefix + name.removeprefix("eval/"): value for name, value in metrics.items()}


def own_set(spec: RunSpec, examples: Sequence[Example]) -> HeldOutSet:
    """Return the run's own held-out data as a set."""
    return HeldOutSet(name="", examples=examples, every_steps=None, **_drawing(spec, {}))


def read_sets(spec: RunSpec, text: TextModel) -> list[HeldOutSet]:
    """Return the sets that the spec names besides, read from where they are.

    Raises: RunProblem naming `data.eval_sets`, the set, and what is wrong with it.
    """
    sizes = {
        name: part.get("num_prompts") or spec.int_knob("eval.num_prompts") for name, part in spec.data.eval_sets.items()
    }
    return [_read(spec, name, int(size), text) for name, size in sizes.items() if size]


def _read(spec: RunSpec, name: str, size: int, text: TextModel) -> HeldOutSet:
    part = spec.data.eval_sets[name]
    columns = {key: part[key] for key in COLUMNS if key in part}
    source = {"kind": part.get("kind", "path"), "id": part["id"], "split": part.get("split", spec.data.split)}
    own = spec.data.model_copy(update={**source, **columns, "eval_split": "", "eval_share": 0.0})
    here = spec.model_copy(update={"data": own})
    try:
        table = load_table(own, inputs_dir=Path())
        here = with_recognized(here, table)
        problem = mapping_problem(here, table.columns)
        if problem is not None:
            raise problem
        examples = usable(here, render(here, table.train[:size], text))
    except RunProblem as problem:
        raise RunProblem("data.eval_sets", f"The held-out set {name}: {problem.message}") from problem
    if not examples:
        raise RunProblem("data.eval_sets", f"The held-out set {name} has no row that is short enough for this run.")
    every = part.get("every_steps")
    return HeldOutSet(
        name=name,
        examples=examples,
        every_steps=None if every is None else int(every),
        **_drawing(spec, part),
    )


def _drawing(spec: RunSpec, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the responses to a set are drawn: one alone is the likeliest."""
    if not is_in(spec.algorithm, "rl"):
        return {"samples_per_prompt": 1, "temperature": 0.0}
    samples = int(part.get("samples_per_prompt") or spec.int_knob("eval.samples_per_prompt"))
    temperature = part.get("temperature", spec.float_knob("eval.temperature") if samples > 1 else 0.0)
    return {"samples_per_prompt": samples, "temperature": float(temperature)}


def ranking_score(spec: RunSpec, metrics: Mapping[str, float], *, usual: float | None) -> float | None:
    """Return the number that checkpoints are ranked by, higher is better: the metric that the run names, turned around
    where lower is better; `usual` where it names none. None if this evaluation has no such number, or no best is kept.
    """
    name = _best_metric(spec)
    if not name:
        return usual
    if name not in metrics:
        return None
    return metrics[name] if _is_higher_better(spec, name) else -metrics[name]


def _best_metric(spec: RunSpec) -> str:
    chosen = spec.knobs.get(BEST_METRIC)  # of algorithms that are evaluated otherwise, there is none
    return str(chosen.value or "") if chosen is not None else ""


def _is_higher_better(spec: RunSpec, name: str) -> bool:
    direction = str(spec.knob(BEST_DIRECTION))
    return metric(name).better != "lower" if direction == "auto" else direction == "higher"


def require_best_metric(spec: RunSpec, metrics: Iterable[str]) -> None:
    """Refuse a metric to rank checkpoints by that an evaluation of all sets did not have.

    Raises: RunProblem naming the knob, and what there is.
    """
    name = _best_metric(spec)
    there = sorted(metrics)
    if name not in ("", _NO_BEST, *there):
        raise RunProblem(
            f"knobs.{BEST_METRIC}", f"No evaluation of this run has {name!r}. There is: {', '.join(there)}."
        )
