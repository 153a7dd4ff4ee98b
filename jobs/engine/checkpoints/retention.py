"""Which checkpoints of an attempt may go once a new one is whole. A pure function of what there is."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

PINNED = "pinned"
"""The file in a checkpoint's folder that says that a person pinned it."""


def expendable(
    scores: Mapping[int, float | None], *, keep_last: int, keep_best: int, pinned: Collection[int], best_step: int = -1
) -> list[int]:
    """Return the steps whose checkpoints may be deleted, oldest first.

    `scores` is step -> held-out score (the higher the better; None where its step was not evaluated) of all that are
    whole. The newest `keep_last` stay, one at least, so that there is always one to go on from; of all the `keep_best`
    with the highest score, the earlier one of two alike; `best_step`, the best of the whole run, counts as one of these
    while it is there; and those that are `pinned`, which take nobody's place.
    """
    steps = sorted(scores)
    scored = sorted(
        (step for step in steps if scores[step] is not None or step == best_step),
        key=lambda step: (step != best_step, -(scores[step] or 0.0), step),
    )
    remaining = {*steps[-max(keep_last, 1) :], *scored[:keep_best], *pinned}
    return [step for step in steps if step not in remaining]


def score_of(folder: Path) -> float | None:
    """Return the held-out score in a checkpoint's index; None where there is none, or it cannot be read."""
    try:
        score = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8")).get("scores", {}).get("score")
    except (OSError, ValueError, AttributeError):
        return None
    return float(score) if isinstance(score, (int, float)) else None
