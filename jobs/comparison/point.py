"""What a click on a chart of several runs asks for: which step of each run stands there, and its value."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.comparison.axis import ChartAxis, axes_of
from jobs.comparison.read import read_summaries_of
from jobs.comparison.summary import Spot
from jobs.models import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPoint:
    """A run at a place of the x axis: its step there, None where it has not come that far, or is not on this axis.

    `value` is the metric's newest at or before that step, which it names; None where there is none.
    """

    run_id: str
    step: int | None
    value: Spot | None


def points_at(*, runs: Sequence[Run], name: str, axis: ChartAxis, place: float) -> tuple[RunPoint, ...]:
    """Return each run at a place of the axis, with as many statements for many runs as for one."""
    ids = [run.pk for run in runs]
    if axis == "step":
        there = {run.pk: round(place) for run in runs if round(place) <= run.step}
    else:
        places = axes_of(run_ids=ids, axis=axis)
        there = {run_id: step for run_id in ids if (step := places[run_id].step_at(place)) is not None}
    read = read_summaries_of(run_ids=list(there), names=[name], at=there)
    values = {run_id: own[name].at for run_id, own in read.items() if name in own}
    return tuple(RunPoint(run_id=one, step=there.get(one), value=values.get(one)) for one in ids)
