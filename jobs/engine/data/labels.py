"""Labels of single responses: that of a row, pairs as two labeled responses, and how many there are of each.

Imports no torch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobs.catalog.label import as_label
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.dataset import Row
from jobs.engine.data.messages import kind_of
from jobs.engine.problem import RunProblem

if TYPE_CHECKING:
    from jobs.engine.data.examples import Example

_BALANCED = (1.0, 4 / 3)
"""Weight times number of the desirable responses by the same of the undesirable ones: KTO, arXiv 2402.01306, eq. 8."""


def label_of(value: object, *, column: str, number: int) -> bool:
    """Return the label of row `number` (from 0). Raises: RunProblem naming `data.label_column`."""
    label = as_label(value)
    if label is None:
        raise RunProblem(
            "data.label_column",
            f"Row {number + 1} holds {kind_of(value)} in column {column!r}. It must be true or false, 1 or 0, or "
            "'desirable' or 'undesirable'.",
        )
    return label


def holds_labels(column: str, rows: Sequence[Row]) -> bool:
    """Return True if each of these rows has a label in the column."""
    return bool(rows) and all(as_label(row.get(column)) is not None for row in rows)


def split_pair(pair: "Example") -> "Iterable[Example]":
    """Yield the chosen response of a pair as a desirable one, and the rejected one as undesirable."""
    assert pair.rejected is not None
    yield replace(pair, rejected=None, is_desirable=True)
    yield replace(pair.rejected, is_desirable=False)


def balance_note(spec: RunSpec, examples: "Sequence[Example]") -> str:
    """Return a note where the labels' weights times their numbers are out of balance; "" where they are in it.

    Raises: RunProblem where all labels are equal: there is nothing to tell apart.
    """
    num_desirable = sum(bool(example.is_desirable) for example in examples)
    num_undesirable = len(examples) - num_desirable
    if not (num_desirable and num_undesirable):
        which = "undesirable" if num_desirable else "desirable"
        raise RunProblem(
            "data.label_column" if spec.data.label_column else "data.chosen_column",
            f"None of the {len(examples)} responses is {which}. Learning from labels needs some of both.",
        )
    weights: Any = (spec.float_knob("pairs.desirable_weight"), spec.float_knob("pairs.undesirable_weight"))
    low, high = (bound * num_undesirable / num_desirable for bound in _BALANCED)
    if not spec.data.label_column or low <= weights[0] / max(weights[1], 1e-9) <= high:
        return ""  # of pairs there are as many of each, so that a rule has looked at the weights
    wanted = (
        f"a weight of desirable responses from {weights[1] * low:.3g} to {weights[1] * high:.3g}"
        if low > 1
        else f"a weight of undesirable responses from {weights[0] / high:.3g} to {weights[0] / low:.3g}"
    )
    return (
        f"{num_desirable} of {len(examples)} responses are desirable. With these weights that is out of balance; "
        f"KTO's authors advise {wanted} (pairs.desirable_weight, pairs.undesirable_weight)."
    )
