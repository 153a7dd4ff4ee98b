"""The layouts that a search looks at, as changes to the knobs of a run; each trainer has its own (`planning.py`).

A layout is a placement (who gets how many devices), a way to train and a way to generate. Ways to train and to
generate do not touch each other's knobs, so that a search may estimate each of them once per placement. Nothing here
changes what is learned (jobs.planner.search.tunable_knobs).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Fleet
from jobs.planner.search.axes import Changes
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.trainer import planning_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One placement: its own changes, and every way to train and to generate in it."""

    placement: Changes
    ways_to_train: tuple[Changes, ...]
    ways_to_generate: tuple[Changes, ...]

    @property
    def size(self) -> int:
        """The layouts of this placement."""
        return len(self.ways_to_train) * len(self.ways_to_generate)


def spaces_of(spec: RunSpec, shape: ModelShape, fleet: Fleet, *, sizes: tuple[int, ...]) -> tuple[Space, ...]:
    """Return the placements of a run on each of `sizes` devices of the fleet. A knob that the run lacks is left out."""
    here = spec.knobs
    spaces = []
    for size in sizes:
        for space in planning_of(spec).spaces(spec, shape, fleet, size):
            spaces.append(
                Space(
                    placement=_applicable(space.placement, here),
                    ways_to_train=_distinct(_applicable(c, here) for c in space.ways_to_train),
                    ways_to_generate=_distinct(_applicable(c, here) for c in space.ways_to_generate),
                )
            )
    return tuple(spaces)


def _applicable(changes: Changes, here: Mapping[str, object]) -> Changes:
    return {name: value for name, value in changes.items() if name in here or name.startswith("hardware.")}


def _distinct(many: Iterator[Changes]) -> tuple[Changes, ...]:
    distinct = {tuple(sorted(each.items(), key=lambda item: item[0])): each for each in many}
    return tuple(distinct.values())
