"""Pairs as a person looks at them before launch: prompt and chosen response, prompt and rejected response."""

from collections.abc import Sequence

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.dataset import Row
from jobs.engine.data.examples import Example, render
from jobs.engine.data.text import TextModel


def render_pairs(spec: RunSpec, rows: Sequence[Row], text: TextModel) -> list[tuple[Example, Example]]:
    """Return the chosen and the rejected side of each row, uncut, as they are trained.

    Raises: RunProblem naming the column and row whose value is missing or of the wrong type.
    """
    return [(one, one.rejected) for one in render(spec, rows, text) if one.rejected is not None]
