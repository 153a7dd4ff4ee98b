"""What each algorithm's loss promises the loop: parts add up to the whole, and its knobs do what they say."""

from typing import Any

import pytest
import torch
from torch import Tensor

from jobs.catalog.parse_spec import parse_spec
from jobs.catalog.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Counts, load_algorithm
from jobs.engine.batch import Batch, make_batch
from jobs.engine.losses import token_logprobs

VOCABULARY = 11


def spec_of(algorithm: str, **knobs: Any) -> RunSpec:
    names = {name.replace("__", "."): value for name, value in knobs.items()}
    return parse_spec({"algorithm": algorithm, "hardware": {"policy_ranks": 1}, "knobs": names})


def four() -> tuple[Batch, Tensor]:
    """Return two groups of two sequences, and the logits of a policy that has moved since they were drawn."""
    random = torch.Generator().manual_seed(3)
    sequences = [([1, 2, 3, 4, 5][: 3 + i % 3], [False] + [True] * (2 + i % 3)) for i in range(4)]
    batch = make_batch([(t, m[: len(t)]) for t, m in sequences], pad_id=0)
    logits_BLV = torch.randn((*batch.tokens_BL.shape, VOCABULARY), generator=random)
    now_BL = token_logprobs(logits_BLV, batch.tokens_BL)
    noise_BL = torch.randn(now_BL.shape, generator=random) / 4
    return (
        Batch(
            tokens_BL=batch.tokens_BL,
            mask_BL=batch.mask_BL,
            lengths_B=batch.lengths_B,
            advantages_B=torch.tensor([1.0, -1.0, 0.5, -0.5]),
            old_logprobs_BL=now_BL + noise_BL,
            reference_logprobs_BL=now_BL - noise_BL,
        ),
        logits_BLV,
    )


def counts_of(batch: Batch) -> Counts:
    return Counts(num_tokens=batch.num_trained_tokens, num_sequences=batch.num_sequences)


@pytest.mark.parametrize(
    ("algorithm", "knobs"),
    [
        ("grpo", {}),
        ("grpo", {"algorithm__loss_aggregation": "sequence_mean"}),
        ("sft", {}),
    ],
)
def test_the_shares_of_micro_batches_add_up_to_the_whole(algorithm: str, knobs: dict[str, Any]) -> None:
    plugin: Algorithm = load_algorithm(algorithm)
    spec = spec_of(algorithm, **knobs)
    batch, logits_BLV = four()
    counts = counts_of(batch)

    whole, metrics = plugin.loss(batch, logits_BLV, spec, counts)
    parts = [
        plugin.loss(micro, logits_BLV[i : i + 1, : micro.tokens_BL.shape[1]], spec, counts)
        for i, micro in enumerate(batch.micro_batches(1))
    ]

    assert float(sum(loss for loss, _ in parts)) == pytest.approx(float(whole), abs=1e-6)
    for name, value in metrics.items():
        assert float(sum(m[name] for _, m in parts)) == pytest.approx(float(value), abs=1e-6), name


def test_the_kl_coefficient_weighs_the_distance_to_the_reference() -> None:
    plugin = load_algorithm("grpo")
    batch, logits_BLV = four()
    counts = counts_of(batch)

    free, metrics = plugin.loss(batch, logits_BLV, spec_of("grpo", algorithm__kl_coefficient=0.0), counts)
    held, _ = plugin.loss(batch, logits_BLV, spec_of("grpo", algorithm__kl_coefficient=0.5), counts)

    assert float(metrics["kl/reference"]) > 0
    assert float(held - free) == pytest.approx(0.5 * float(metrics["kl/reference"]), abs=1e-6)


def test_a_token_outside_the_clip_range_has_no_gradient() -> None:
    plugin = load_algorithm("grpo")
    spec = spec_of("grpo", algorithm__kl_coefficient=0.0, algorithm__clip_ratio_low=0.0, algorithm__clip_ratio_high=0.0)
    batch, logits_BLV = four()
    logits_BLV.requires_grad_()
    now_BL = token_logprobs(logits_BLV, batch.tokens_BL).detach()
    far = Batch(
        tokens_BL=batch.tokens_BL,
        mask_BL=batch.mask_BL,
        lengths_B=batch.lengths_B,
        advantages_B=torch.ones(4),
        old_logprobs_BL=now_BL - 1.0,  # a ratio of e with a positive advantage: beyond the upper bound everywhere
    )

    loss, metrics = plugin.loss(far, logits_BLV, spec, counts_of(far))
    loss.backward()

    assert float(metrics["policy/clip_fraction"]) == pytest.approx(1.0)
    assert logits_BLV.grad is not None
    assert float(logits_BLV.grad.abs().max()) == 0.0


def test_supervised_loss_is_the_mean_cross_entropy_of_the_answer_tokens() -> None:
    batch, logits_BLV = four()
    predicted = logits_BLV[:, :-1][batch.mask_BL[:, 1:]]
    expected = torch.nn.functional.cross_entropy(predicted, batch.tokens_BL[:, 1:][batch.mask_BL[:, 1:]])

    loss, _ = load_algorithm("sft").loss(batch, logits_BLV, spec_of("sft"), counts_of(batch))

    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
