"""The planner cannot see into a command of somebody's own, and says so."""

from collections.abc import Iterator

from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Fleet, Job, Layout
from jobs.planner.read.context import RunContext
from jobs.planner.result import JobInvalid
from jobs.planner.search.axes import Changes
from jobs.planner.search.layout_space import Space
from jobs.planner.search.plan_changes import Situation
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.trainer import TrainerPlanning


class OwnCommandPlanning:
    """Nothing of it is planned."""

    def job(self, source: RunContext) -> Job:  # noqa: ARG002
        """Refuse. Raises: JobInvalid."""
        text = "What a command of your own holds in memory, and how long its steps take, is not known beforehand."
        raise JobInvalid("trainer.name", Sentence(text))

    def spaces(self, spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:  # noqa: ARG002
        """See TrainerPlanning: none."""
        yield from ()

    def budget_devices(self, layout: Layout) -> int:  # noqa: ARG002
        """See TrainerPlanning."""
        return 1

    def engine_changes(self, *, tensor: int, engines: int) -> Changes:  # noqa: ARG002
        """See TrainerPlanning: none."""
        return {}

    def more_devices(self, here: Situation) -> Changes | None:  # noqa: ARG002
        """See TrainerPlanning: none."""
        return None


PLUGIN: TrainerPlanning = OwnCommandPlanning()
