"""The contract of an algorithm, and the lookup of one in the folder `algorithms/`."""

from dataclasses import dataclass
from typing import Protocol, cast

from torch import Tensor

from jobs.catalog.runspec import RunSpec
from jobs.engine.batch import Batch
from profiling import plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the whole batch of one optimizer step holds, over all micro-batches and ranks."""

    num_tokens: int
    num_sequences: int


class Algorithm(Protocol):
    """An algorithm: what it learns from, and the two formulas that make it.

    `samples` is true where each step rolls out completions and scores them; false where answers are given.
    """

    samples: bool

    def advantages(self, rewards_B: Tensor, spec: RunSpec) -> Tensor:
        """Return the advantage of each completion: float32 [B]. Not called where `samples` is false."""

    def loss(self, batch: Batch, logits_BLV: Tensor, spec: RunSpec, counts: Counts) -> tuple[Tensor, dict[str, Tensor]]:
        """Return this micro-batch's share of the loss (a scalar), and its share of each metric's mean by canonical
        name.
        """


def load_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name. Raises: UnknownPlugin, naming those there are."""
    return cast(Algorithm, plugins.load("jobs.engine.algorithms", name))
