"""The tensors that travel between driver and ranks, and how a step's samples are shared out.

Shapes: B sequences, L positions (prompt and answer, padded on the right), P policy ranks.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """B sequences: token ids, which of them count, and what was found out about them so far.

    Log-probabilities are in nats; at position l stands that of token l given the tokens before it.
    """

    tokens_BL: Tensor  # int64
    mask_BL: Tensor  # bool: trained on; never position 0
    lengths_B: Tensor  # int64, without padding
    rewards_B: Tensor | None = None  # float32, of the whole completion
    is_desirable_B: Tensor | None = None  # bool, the label of a given response
    reference_points_B: Tensor | None = None  # float32, nats of a response: what KTO compares its log-ratio with
    kl_coefficients_B: Tensor | None = None  # float32, the weight of the KL where a controller moves it
    rollout_logprobs_BL: Tensor | None = None  # float32, of the engine that sampled the counted tokens, 0 elsewhere
    old_logprobs_BL: Tensor | None = None  # float32, of the policy before the update; None: as the update finds them
    reference_logprobs_BL: Tensor | None = None  # float32, of the frozen reference
    teacher_ids_BLK: Tensor | None = None  # int32, the teacher's likeliest tokens (jobs/engine/distillation.py)
    teacher_logprobs_BLK: Tensor | None = None  # float32, the teacher's of these, and behind them of all others
    values_BL: Tensor | None = None  # float32, of the critic before the update
    advantages_BL: Tensor | None = None  # float32
    returns_BL: Tensor | None = None  # float32, what the critic learns
    margins_B: Tensor | None = None  # float32, by how much the chosen response of the pair is to score higher

    @property
    def num_sequences(self) -> int:
        """B."""
        return len(self.tokens_BL)

    @property
    def num_trained_tokens(self) -> int:
        """How many tokens count. The first of a sequence cannot: nothing predicts it."""
        return int(self.mask_BL[:, 1:].sum())

    @property
    def num_tokens(self) -> int:
        """All tokens without padding."""
        return int(self.lengths_B.sum())

    def learned(self, *, seconds: float) -> dict[str, float]:
        """Return what is charted of a step that learned from these sequences, with an update of so many seconds."""
        return {
            "train/samples": float(self.num_sequences),
            "train/tokens": float(self.num_tokens),
            "throughput/update_tokens_per_second": self.num_tokens / seconds,
        }

    def rows(self, index: Tensor | slice) -> "Batch":
        """Return the sequences of `index`, cut to the longest of them."""
        longest = int(self.lengths_B[index].max())
        return self._each(lambda value: value[index][:, :longest].contiguous() if value.ndim > 1 else value[index])

    def to(self, device: str) -> "Batch":
        """Return the batch on `device`."""
        return self._each(lambda value: value.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        there = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(value) for name, value in there.items() if value is not None})


def make_batch(sequences: Sequence[tuple[Sequence[int], Sequence[bool]]], *, pad_id: int) -> Batch:
    """Return the batch of (token ids, whether each counts), padded on the right to the longest."""
    longest = max(len(tokens) for tokens, _ in sequences)
    tokens_BL = torch.full((len(sequences), longest), pad_id, dtype=torch.long)
    mask_BL = torch.zeros((len(sequences), longest), dtype=torch.bool)
    for i, (tokens, counts) in enumerate(sequences):
        tokens_BL[i, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
        mask_BL[i, : len(tokens)] = torch.tensor(counts, dtype=torch.bool)
    mask_BL[:, 0] = False
    lengths_B = torch.tensor([len(tokens) for tokens, _ in sequences], dtype=torch.long)
    return Batch(tokens_BL=tokens_BL, mask_BL=mask_BL, lengths_B=lengths_B)


def join_padded(parts: Sequence[Tensor], width: int) -> Tensor:
    """Return the rows of all parts below each other, each part padded with zeros to `width` positions."""
    return torch.cat([_widened(part, width) for part in parts])


def _widened(part: Tensor, width: int) -> Tensor:
    room = part.new_zeros((part.shape[0], width - part.shape[1], *part.shape[2:]))
    return torch.cat([part, room], dim=1)


def share_out(num_sequences: int, *, num_updates: int, num_ranks: int, seed: str) -> list[list[Tensor]]:
    """Return for each rank, for each update, which sequences are its own: index tensors of equal length.

    Shuffled first (by `seed`, a text), so that a rank's share is not one prompt's group; every sequence is in exactly
    one share.
    Raises: ValueError if the sequences cannot be shared out evenly.
    """
    if num_sequences % (num_updates * num_ranks):
        raise ValueError(
            f"{num_sequences} sequences cannot be shared out evenly over {num_updates} updates and {num_ranks} ranks."
        )
    order_B = torch.randperm(num_sequences, generator=torch.Generator().manual_seed(stable_seed(seed)))
    shares_UPB = order_B.view(num_updates, num_ranks, -1)
    return [[shares_UPB[u, p] for u in range(num_updates)] for p in range(num_ranks)]


def stable_seed(*parts: object) -> int:
    """Return a seed of 63 bits made of `parts`, the same on every machine and Python."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
