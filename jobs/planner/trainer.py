"""What the planner asks of a trainer: `planning.py` of the trainer's folder, found by its name.

The planner is arithmetic about jobs and layouts, and knows none of the knobs that make them. The protocol stands here,
below the trainers that implement it (decision 0019).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import part

if TYPE_CHECKING:  # these modules ask for a trainer's planning
    from jobs.planner.job import Fleet, Job, Layout
    from jobs.planner.read.context import RunContext
    from jobs.planner.search.axes import Changes
    from jobs.planner.search.layout_space import Space
    from jobs.planner.search.plan_changes import Situation
    from jobs.planner.shapes.model_shape import ModelShape


class TrainerPlanning(Protocol):
    """How the planner sees one trainer's runs."""

    def job(self, source: "RunContext") -> "Job":
        """Return what a run's knobs do to memory and time; its devices, steps and notes are filled in afterwards."""
        ...

    def spaces(self, spec: RunSpec, shape: "ModelShape", fleet: "Fleet", size: int) -> Iterator["Space"]:
        """Yield the placements of a run on `size` devices of the fleet, with every way to train and to generate."""
        ...

    def budget_devices(self, layout: "Layout") -> int:
        """Return how many devices share a micro-batch: a budget of tokens counts on each of them."""
        ...

    def engine_changes(self, *, tensor: int, engines: int) -> "Changes":
        """Return what spreads each of so many rollout engines over `tensor` devices."""
        ...

    def more_devices(self, here: "Situation") -> "Changes | None":
        """Return what gives the policy twice the devices; None where the fleet has too few, or nothing does."""
        ...


def planning_of(spec: RunSpec) -> TrainerPlanning:
    """Return the planning of the spec's trainer."""
    loaded: TrainerPlanning = part(spec.trainer.name, "planning")
    return loaded
