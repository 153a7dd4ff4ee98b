"""The checkpoints that a run can start again from, of its history and of its dead branches."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from jobs.models import Artifact, Attempt, Run
from jobs.runs.filter import main_metric
from jobs.telemetry.history import is_visible, limits, origins
from jobs.telemetry.series import MAX_POINTS, SeriesWindow, read_series

EVAL_SCORES = ("eval/accuracy", "eval/pairs_accuracy", "eval/reward", "eval/loss")
"""What scores the model at a step, the first that the run has; else the main metric of its algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the trainer saved after `step` of `attempt`; it lies on the cluster and takes `size` bytes there.

    `score` is the value of the metric `score_name` at that step, None where there is none. `is_visible` is False in a
    dead branch. `problem` says why it is believed lost, in the words of the attempt that could not start from it; ""
    where nothing is known against it. `is_pinned`: a person keeps it from being deleted.
    `is_after_divergence`: a guard ended the attempt, and this was saved after the first sign of it.
    """

    attempt: int
    step: int
    size: int
    is_visible: bool
    score_name: str
    score: float | None
    problem: str
    is_pinned: bool
    is_after_divergence: bool
    created_at: datetime


def list_checkpoints(run: Run, *, with_scores: bool = True) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that were not deleted or put into the trash, lost ones too: newest first, at a step the
    history's before dead ones.
    """
    rows = Artifact.objects.filter(run=run, type="checkpoint", step__gte=0).order_by("pk")
    present = [row for row in rows if not (row.meta.get("removed") or row.meta.get("trashed"))]
    attempts = list(Attempt.objects.filter(run=run).order_by("number"))
    through, problems = limits(origins(attempts)), lost_checkpoints(attempts)
    last_sound = {a.number: a.cause["checkpoint"] for a in attempts if isinstance(a.cause.get("checkpoint"), int)}
    name, scores = _scores(run, [row.step for row in present]) if with_scores and present else ("", {})
    checkpoints = [
        Checkpoint(
            attempt=row.attempt,
            step=row.step,
            size=row.size,
            is_visible=is_visible(row.step, through.get(row.attempt, -1)),
            score_name=name,
            score=scores.get((row.attempt, row.step)),
            problem=problems.get((row.attempt, row.step), ""),
            is_pinned=bool(row.meta.get("pinned")),
            is_after_divergence=row.step > last_sound.get(row.attempt, row.step),
            created_at=row.created_at,
        )
        for row in present
    ]
    return tuple(sorted(checkpoints, key=lambda c: (c.step, c.is_visible, c.attempt), reverse=True))


def newest_visible(run: Run) -> Checkpoint | None:
    """Return the checkpoint with which least is lost: the last one of the run's history that is believed there, and not
    saved after training had diverged.
    """
    there = (c for c in list_checkpoints(run, with_scores=False) if c.is_visible and not c.problem)
    return next((c for c in there if not c.is_after_divergence), None)


def lost_checkpoints(attempts: Iterable[Attempt]) -> Mapping[tuple[int, int], str]:
    """Return (attempt, step) of each checkpoint believed lost -> why, from all attempts of a run by number.

    The newest attempt that was to start from it decides; one whose job Ray never had, has none.
    """
    lost_reasons: dict[tuple[int, int], str] = {}
    for attempt in attempts:
        if lost := attempt.lost_checkpoint:
            lost_reasons[lost] = str(attempt.cause.get("text", "")) or _("It could not be read.")
        elif attempt.resume_attempt and attempt.submitted_at:
            lost_reasons.pop((attempt.resume_attempt, attempt.resume_step), None)
    return lost_reasons


def _scores(run: Run, steps: Sequence[int]) -> tuple[str, Mapping[tuple[int, int], float]]:
    """Return the name of the score, and (attempt, step) -> its value."""
    names = [*EVAL_SCORES, main_metric(run.spec.get("algorithm", ""))]
    wanted = frozenset(steps)
    window = SeriesWindow(low=min(wanted), high=max(wanted))
    answer = read_series(run_id=run.pk, names=[n for n in names if n], num_points=MAX_POINTS, window=window)
    for name in names:
        own_series = [s for s in answer.series if s.name == name and s.kind == "metric" and s.role == "driver"]
        points = ((s.attempt, int(x), float(y)) for s in own_series for x, y in zip(s.x, s.y, strict=True))
        scores = {(attempt, x): y for attempt, x, y in points if x in wanted and math.isfinite(y)}
        if scores:
            return name, scores
    return "", {}
