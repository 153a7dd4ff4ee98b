"""How a rank's sequences are cut into micro-batches, and dealt to ranks. Shapes: B sequences, P ranks.

Neither changes a result: losses are divided by counts of the whole batch. Both are functions of the lengths alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Micro-batches of so many sequences, or of as many as fit into a budget of tokens.

    Sequences of like length come together, so that little is padded. With `max_tokens` a micro-batch takes at most that
    many: without padding (`is_packed`) the sum of its lengths, else its sequences times the longest. A sequence that is
    longer has one of its own. Where `unit` sequences belong together, as those of a pair, they stay so, in order: a
    micro-batch takes `size` units, and a unit counts by its longest sequence or by the sum of its lengths.
    """

    size: int
    max_tokens: int | None = None
    is_packed: bool = False
    unit: int = 1

    @classmethod
    def of(cls, spec: RunSpec) -> "Cut":
        """Return what the knobs of a run say."""
        by_tokens = bool(spec.knob("train.dynamic_batch"))
        return cls(
            size=spec.int_knob("train.micro_batch_size"),
            max_tokens=spec.int_knob("train.max_tokens_per_gpu") if by_tokens else None,
            is_packed=bool(spec.knob("train.packing")),
            unit=sequences_per_sample(spec),
        )

    def rows(self, lengths_B: Tensor, *, at_least: int = 1) -> list[Tensor]:
        """Return which sequences each micro-batch takes, the longest first: index tensors, every sequence in one.

        At least so many, or one for each sequence where these are fewer: where passes are collective a rank takes as
        many as the one that needs most. What it has fewer is made by halving those with the most tokens.
        """
        if self.unit > 1:
            return [of_units(rows, self.unit) for rows in self._of_whole(lengths_B, at_least=at_least)]
        order_B = torch.argsort(lengths_B, descending=True, stable=True)
        if self.max_tokens is None:
            return list(order_B.split(self.size))
        lengths = lengths_B[order_B].tolist()
        runs = self._runs(lengths)
        while len(runs) < min(at_least, len(lengths)):
            largest = max((run for run in runs if len(run) > 1), key=lambda run: self._tokens(lengths, run))
            middle = self._middle(lengths, largest)
            at = runs.index(largest)
            runs[at : at + 1] = [range(largest.start, middle), range(middle, largest.stop)]
        return [order_B[run.start : run.stop] for run in runs]

    def _of_whole(self, lengths_B: Tensor, *, at_least: int) -> list[Tensor]:
        """Return which units each micro-batch takes."""
        lengths_UN = lengths_B.view(-1, self.unit)
        tokens_U = lengths_UN.sum(1) if self.is_packed else lengths_UN.amax(1) * self.unit
        return replace(self, unit=1).rows(tokens_U, at_least=at_least)

    def split(self, batch: Batch, *, at_least: int = 1) -> list[Batch]:
        """Return the micro-batches of a batch, each cut to its longest sequence."""
        return [batch.rows(rows) for rows in self.rows(batch.lengths_B, at_least=at_least)]

    def _runs(self, lengths: Sequence[int]) -> list[range]:
        """Return the positions of each micro-batch, of sequences sorted by falling length."""
        assert self.max_tokens is not None
        runs, begin, held = [], 0, 0
        for i, length in enumerate(lengths):
            held = held + length if self.is_packed else lengths[begin] * (i - begin + 1)
            if i > begin and held > self.max_tokens:
                runs.append(range(begin, i))
                begin, held = i, length
        return [*runs, range(begin, len(lengths))]

    def _tokens(self, lengths: Sequence[int], run: range) -> int:
        return sum(lengths[i] for i in run) if self.is_packed else lengths[run.start] * len(run)

    def _middle(self, lengths: Sequence[int], run: range) -> int:
        """Return where a micro-batch of several sequences falls into two of about as many tokens."""
        half, held = sum(lengths[i] for i in run) / 2, 0
        for i in run:
            held += lengths[i]
            if held >= half:
                return min(i + 1, run.stop - 1)
        return run.stop - 1


def sequences_per_sample(spec: RunSpec) -> int:
    """Return how many sequences of a batch belong together: the two responses of a pair, else each alone."""
    return 2 if is_in(spec.algorithm, "pairs") else 1


def of_units(units_U: Tensor, unit: int) -> Tensor:
    """Return the sequences of these units, in order: unit u has those from u * unit on."""
    return (units_U.unsqueeze(1) * unit + torch.arange(unit)).flatten()


def even_out(shares: list[list[Tensor]], lengths_B: Tensor) -> list[list[Tensor]]:
    """Return the shares (for each rank, for each update) with each update's sequences dealt anew, so that every rank
    has as many as before and about as many tokens: no rank waits for the one that got the long ones.

    The longest come first, each to the rank that has the fewest tokens of those that still lack sequences.
    """
    by_update = [_dealt(ranks, lengths_B) for ranks in zip(*shares, strict=True)]
    return [list(updates) for updates in zip(*by_update, strict=True)]


def _dealt(ranks: Sequence[Tensor], lengths_B: Tensor) -> list[Tensor]:
    if len(ranks) == 1:
        return list(ranks)
    ids_N = torch.cat(list(ranks))
    order_N = ids_N[torch.argsort(lengths_B[ids_N], descending=True, stable=True)]
    dealt: list[list[int]] = [[] for _ in ranks]
    held = [0] * len(ranks)
    for number, length in zip(order_N.tolist(), lengths_B[order_N].tolist(), strict=True):
        to = min((p for p in range(len(ranks)) if len(dealt[p]) < len(ranks[p])), key=lambda p: held[p])
        dealt[to].append(number)
        held[to] += length
    return [torch.tensor(numbers, dtype=torch.long) for numbers in dealt]
