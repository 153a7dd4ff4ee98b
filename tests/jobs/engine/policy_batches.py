"""Small batches for tests of algorithms, and what a policy says of them."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import over_tokens
from jobs.engine.algorithm import Counts, PolicyOutputs
from jobs.engine.batch import Batch, make_batch
from jobs.engine.distillation import TopTokens, listed_scores
from jobs.engine.losses import token_scores

VOCABULARY = 11
LISTED = 4
"""Tokens of which a teacher tells."""


def spec_of(algorithm: str, **knobs: Any) -> RunSpec:
    """Return a spec for one rank; `rollout__samples_per_prompt` is the knob rollout.samples_per_prompt."""
    names = {name.replace("__", "."): value for name, value in knobs.items()}
    return parse_spec({"algorithm": algorithm, "hardware": {"layout": "split", "policy_ranks": 1}, "knobs": names})


def four() -> tuple[Batch, Tensor]:
    """Return two groups of two sequences, and the logits of a policy that has changed since they were sampled."""
    random = torch.Generator().manual_seed(3)
    sequences = [([1, 2, 3, 4, 5][: 3 + i % 3], [False] + [True] * (2 + i % 3)) for i in range(4)]
    batch = make_batch([(t, m[: len(t)]) for t, m in sequences], pad_id=0)
    logits_BLV = torch.randn((*batch.tokens_BL.shape, VOCABULARY), generator=random)
    now_BL, _ = token_scores(logits_BLV, batch.tokens_BL)
    noise_BL = torch.randn(now_BL.shape, generator=random) / 4
    teacher_BLV = logits_BLV.roll(1, dims=1) + torch.randn(logits_BLV.shape, generator=random)
    ids_BK, logprobs_BK = listed_scores(teacher_BLV.flatten(0, 1), TopTokens(count=LISTED, below=VOCABULARY))
    scored = replace(
        batch,
        rewards_B=torch.tensor([1.0, 0.0, 0.5, 0.25]),
        advantages_BL=over_tokens(torch.tensor([1.0, -1.0, 0.5, -0.5]), batch.mask_BL),
        old_logprobs_BL=now_BL + noise_BL,
        reference_logprobs_BL=now_BL - noise_BL,
        teacher_ids_BLK=ids_BK.view(*batch.tokens_BL.shape, LISTED),
        teacher_logprobs_BLK=logprobs_BK.view(*batch.tokens_BL.shape, LISTED + 1),
        values_BL=noise_BL,
        returns_BL=noise_BL + now_BL / 4,
        is_desirable_B=torch.tensor([True, False, False, True]),
        reference_points_B=torch.full((4,), 0.25),
    )
    return scored, logits_BLV


def outputs_of(logits_BLV: Tensor, batch: Batch) -> PolicyOutputs:
    """Return what the policy's forward pass hands an algorithm, at temperature 1."""
    logprobs_BL, entropies_BL = token_scores(logits_BLV, batch.tokens_BL)
    outputs = PolicyOutputs(logprobs_BL=logprobs_BL, entropies_BL=entropies_BL)
    if batch.teacher_ids_BLK is None:
        return outputs
    before_BLV = logits_BLV.roll(1, dims=1)  # position l predicts token l + 1
    listed_BK, overlaps_B = listed_scores(before_BLV.flatten(0, 1), batch.teacher_ids_BLK.flatten(0, 1))
    shape = batch.tokens_BL.shape
    return replace(outputs, listed_logprobs_BLK=listed_BK.view(*shape, -1), overlaps_BL=overlaps_B.view(shape))


def counts_of(batch: Batch) -> Counts:
    """Return the counts of a batch that is the whole optimizer step."""
    return Counts.of(batch)
