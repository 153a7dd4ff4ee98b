"""What happened to the compared runs as marks of their charts, placed on the x axis that the address names."""

from collections.abc import Mapping
from typing import get_args

import numpy as np

from console.labels.health import finding_title
from console.views.compare.address import ComparisonQuery
from console.views.compare.sides import Sides
from jobs.alerts.words import title
from jobs.comparison.axis import AxisName, StepAxis, axes_of
from jobs.comparison.marks import RunMarks, marks_of
from jobs.diagnosis.health import BAND

MARKED_RUNS = 10
"""As many as there are colors: of more runs the marks would not be told apart, and only the base has some."""


def page_marks(query: ComparisonQuery, sides: Sides) -> dict[str, dict[str, object]]:
    """Return run id -> what happened to it, JSON-able, with as many statements for many runs as for one.

    `places` maps each step of a mark to where it stands on an axis other than steps; None over steps.
    """
    shown = sides.shown if len(sides.shown) <= MARKED_RUNS else [side for side in sides.shown if side.is_base]
    ids = [side.run.pk for side in shown]
    newest = {side.run.pk: side.run.step for side in shown}
    axis = next((name for name in get_args(AxisName) if name == query.chart.get("x")), None)
    axes: Mapping[str, StepAxis] = axes_of(run_ids=ids, axis=axis) if axis else {}
    return {
        run_id: _json(marks, newest[run_id]) | {"places": _places(marks, newest[run_id], axes.get(run_id))}
        for run_id, marks in marks_of(ids).items()
    }


def _json(marks: RunMarks, newest: int) -> dict[str, object]:
    return {
        "checkpoints": marks.checkpoints,
        "captures": [{"steps": one.recorded_steps, "tool": one.tool} for one in marks.captures],
        "symptoms": [
            {
                "title": finding_title(one.finding, band_prefix=BAND),
                "tone": one.tone,
                "begin_step": one.begin_step,
                "end_step": one.end_step,
                "newest": max(newest, one.begin_step),
            }
            for one in marks.symptoms
        ],
        "restarts": [{"step": step, "attempt": attempt} for step, attempt in marks.restarts],
        "changes": [
            {"label": c.label, "old": c.old, "new": c.new, "step": c.step, "by": c.by, "is_visible": True}
            for c in marks.changes
        ],
        "alerts": [{"step": incident.step, "title": title(incident)} for incident in marks.alerts],
        "notes": [
            {"step": note.step, "text": note.text, "by": note.actor.get_username() if note.actor else ""}
            for note in marks.notes
        ],
    }


def _places(marks: RunMarks, newest: int, axis: StepAxis | None) -> dict[int, float] | None:
    if axis is None:
        return None
    if not axis.is_known:
        return {}
    steps = {*marks.checkpoints, *(step for step, _attempt in marks.restarts)}
    steps |= {one.step for one in marks.changes}
    steps |= {step for one in marks.alerts if (step := one.step) is not None}
    steps |= {step for one in marks.notes if (step := one.step) is not None}
    steps |= {step for one in marks.captures for step in one.recorded_steps or ()}
    steps |= {step for one in marks.symptoms for step in (one.begin_step, one.end_step or max(newest, one.begin_step))}
    ordered = sorted(steps)
    return dict(zip(ordered, axis(np.array(ordered, np.int64)).tolist(), strict=True))
