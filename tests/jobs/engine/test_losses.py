"""Losses against hand-computed cases, a second implementation in plain Python, numbers kept from it, and invariants.

The kept numbers come from `inputs()`: torch.Generator seed 20261120, B = 8, L = 7, computed by `slow_loss` in float64.
"""

import math

import pytest
import torch
from torch import Tensor

from jobs.engine.losses import (
    aggregate,
    clipped_policy_loss,
    kl_estimate,
    kl_loss,
    token_scores,
)

TOKEN_MEAN, SEQUENCE_MEAN, CLIPPED_SHARE = -0.2367260630, -0.1261390583, 0.1250000000
K1, K2, K3 = 0.0095427268, 0.1062904200, 0.1063877226


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(20261120)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    logprobs = -normal(8, 7).abs() - 0.5
    return {
        "logprobs": logprobs,
        "old": logprobs + 0.3 * normal(8, 7),
        "reference": logprobs + 0.1 * normal(8, 7),
        "advantages": normal(8).unsqueeze(1),
        "mask": torch.rand(8, 7, generator=generator) < 0.7,
    }


def slow_loss(low: float, high: float, how: str) -> tuple[float, float]:
    """The formula once more, token by token, without tensors: the loss and the share of tokens cut."""
    x = {k: v.tolist() for k, v in inputs().items()}
    sequences, cut, count = [], 0, 0
    for b in range(8):
        losses = []
        for t in range(7):
            if not x["mask"][b][t]:
                continue
            ratio = math.exp(x["logprobs"][b][t] - x["old"][b][t])
            (a,) = x["advantages"][b]
            free, held = ratio * a, min(max(ratio, 1 - low), 1 + high) * a
            losses.append(-min(free, held))
            cut += held < free
            count += 1
        sequences.append(losses)
    if how == "token_mean":
        return sum(map(sum, sequences)) / count, cut / count
    return sum(sum(s) / len(s) for s in sequences if s) / 8, cut / count


def loss_of(x: dict[str, Tensor], how: str, *, low: float = 0.2, high: float = 0.28) -> Tensor:
    loss = clipped_policy_loss(x["logprobs"], x["old"], x["advantages"], clip_low=low, clip_high=high).loss_BL
    return aggregate(loss, x["mask"], how=how, num_tokens=int(x["mask"].sum()), num_sequences=8)  # type: ignore[arg-type]


def test_the_clipped_loss_is_the_formula() -> None:
    x = inputs()

    cut = clipped_policy_loss(x["logprobs"], x["old"], x["advantages"], clip_low=0.2, clip_high=0.28).is_cut_BL

    assert float(loss_of(x, "token_mean")) == pytest.approx(slow_loss(0.2, 0.28, "token_mean")[0], abs=1e-12)
    assert float(loss_of(x, "sequence_mean")) == pytest.approx(slow_loss(0.2, 0.28, "sequence_mean")[0], abs=1e-12)
    assert float(cut[x["mask"]].double().mean()) == pytest.approx(slow_loss(0.2, 0.28, "token_mean")[1])


def test_the_kept_numbers() -> None:
    x = inputs()
    cut = clipped_policy_loss(x["logprobs"], x["old"], x["advantages"], clip_low=0.2, clip_high=0.28).is_cut_BL
    kls = {
        k: float(kl_estimate(x["logprobs"], x["reference"], estimator=k)[x["mask"]].sum())  # type: ignore[arg-type]
        for k in ("k1", "k2", "k3")
    }

    assert float(loss_of(x, "token_mean")) == pytest.approx(TOKEN_MEAN, abs=1e-7)
    assert float(loss_of(x, "sequence_mean")) == pytest.approx(SEQUENCE_MEAN, abs=1e-7)
    assert float(cut[x["mask"]].double().mean()) == pytest.approx(CLIPPED_SHARE, abs=1e-7)
    assert kls == pytest.approx({"k1": K1, "k2": K2, "k3": K3}, abs=1e-7)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "is_cut"),
    [
        (1.5, 1.0, -1.28, True),  # a good token may not grow past 1.28
        (1.5, -1.0, 1.5, False),  # a bad one that grew is pulled back with full force
        (0.5, 1.0, -0.5, False),
        (0.5, -1.0, 0.8, True),  # a bad token may not shrink past 0.8
        (1.1, 1.0, -1.1, False),
    ],
)
def test_which_side_the_clip_cuts(ratio: float, advantage: float, loss: float, is_cut: bool) -> None:
    logprobs = torch.tensor([[math.log(ratio)]], dtype=torch.float64)

    found = clipped_policy_loss(logprobs, torch.zeros(1, 1), torch.tensor([[advantage]]), clip_low=0.2, clip_high=0.28)

    assert float(found.loss_BL) == pytest.approx(loss)
    assert bool(found.is_cut_BL) is is_cut
    assert float(found.ratio_BL) == pytest.approx(ratio)
    assert not bool(found.is_bounded_BL)


def test_a_cut_token_has_no_gradient() -> None:
    logprobs = torch.tensor([[math.log(1.5), 0.0]], requires_grad=True)

    found = clipped_policy_loss(logprobs, torch.zeros(1, 2), torch.ones(1, 2), clip_low=0.2, clip_high=0.2)
    found.loss_BL.sum().backward()

    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0, -1.0]]


def test_kl_estimates_by_hand() -> None:
    policy, reference = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])  # r = 0.5

    assert float(kl_estimate(policy, reference, estimator="k1")) == pytest.approx(0.5)
    assert float(kl_estimate(policy, reference, estimator="k2")) == pytest.approx(0.125)
    assert float(kl_estimate(policy, reference, estimator="k3")) == pytest.approx(math.exp(-0.5) - 0.5)
    with pytest.raises(ValueError, match="k1, k2 or k3"):
        kl_estimate(policy, reference, estimator="k4")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "is_bounded"),
    [
        (5.0, -2.0, 6.0, True),  # without the bound 10
        (2.0, -2.0, 4.0, False),
        (5.0, 2.0, -2.56, False),  # a good token has the clip
    ],
)
def test_the_dual_clip_bounds_what_a_bad_token_costs(
    ratio: float, advantage: float, loss: float, is_bounded: bool
) -> None:
    logprobs = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)

    found = clipped_policy_loss(
        logprobs, torch.zeros(1, 1), torch.tensor([[advantage]]), clip_low=0.2, clip_high=0.28, dual_clip=3.0
    )
    found.loss_BL.sum().backward()

    assert found.loss_BL.item() == pytest.approx(loss)
    assert bool(found.is_bounded_BL) is is_bounded
    assert logprobs.grad is not None
    assert not (is_bounded and float(logprobs.grad))


@pytest.mark.parametrize("difference", [-200.0, -60.0, -20.0, 0.0, 20.0, 60.0, 200.0])
def test_nothing_is_infinite_however_far_apart_two_log_probabilities_are(difference: float) -> None:
    logprobs, other = torch.tensor([[difference]], requires_grad=True), torch.zeros(1, 1)
    losses = [
        clipped_policy_loss(
            logprobs, other, torch.full((1, 1), advantage), clip_low=0.2, clip_high=0.2, dual_clip=dual_clip
        ).loss_BL
        for advantage in (-1.0, 1.0)
        for dual_clip in (None, 3.0)
    ]
    ratio = torch.full((1, 1), 2.0)
    losses += [kl_loss(logprobs, other, estimator=e) for e in ("k1", "k2", "k3")]  # type: ignore[arg-type]
    losses += [kl_loss(logprobs, other, estimator=e, ratio_BL=ratio) for e in ("k1", "k2", "k3")]  # type: ignore[arg-type]

    for loss in losses:
        (gradient,) = torch.autograd.grad(loss.sum(), logprobs, retain_graph=True)
        assert torch.isfinite(loss).all()
        assert torch.isfinite(gradient).all()


def divergences(*, is_reversed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The logits of a policy over seven tokens, the log-probabilities of a reference, and the gradient, exactly, of
    KL(policy || reference) or of KL(reference || policy).
    """
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(7, generator=generator, dtype=torch.float64).requires_grad_()
    reference = torch.log_softmax(torch.randn(7, generator=generator, dtype=torch.float64), dim=-1)
    policy = torch.log_softmax(logits, dim=-1)
    terms = reference.exp() * (reference - policy) if is_reversed else policy.exp() * (policy - reference)
    (gradient,) = torch.autograd.grad(terms.sum(), logits)
    return logits, reference, gradient


def mean_gradient(logits: Tensor, reference: Tensor, *, estimator: str, old: Tensor | None = None) -> Tensor:
    """The gradient of a KL term of the loss, its mean over all tokens as `old` (or the policy itself) samples them."""
    policy = torch.log_softmax(logits, dim=-1)
    sampled = policy.detach() if old is None else old
    ratio = None if old is None else (policy - old).exp().view(1, -1)
    values = kl_loss(policy.view(1, -1), reference.view(1, -1), estimator=estimator, ratio_BL=ratio)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad((sampled.exp() * values.view(-1)).sum(), logits)
    return gradient


def test_only_k2_has_the_gradient_of_the_divergence() -> None:
    logits, reference, exact = divergences(is_reversed=False)
    _, _, of_the_reversed = divergences(is_reversed=True)

    assert mean_gradient(logits, reference, estimator="k1").abs().max() < 1e-12
    assert torch.allclose(mean_gradient(logits, reference, estimator="k2"), exact, atol=1e-12)
    assert torch.allclose(mean_gradient(logits, reference, estimator="k3"), of_the_reversed, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("has_moved", [False, True])
def test_the_true_kl_gradient_is_the_divergences_own_also_after_the_policy_has_moved(
    estimator: str, has_moved: bool
) -> None:
    logits, reference, exact = divergences(is_reversed=False)
    old = torch.log_softmax(logits.detach() + (torch.linspace(-0.5, 0.5, 7) if has_moved else 0.0), dim=-1)

    assert torch.allclose(mean_gradient(logits, reference, estimator=estimator, old=old), exact, atol=1e-12)


def test_k1_and_k3_estimate_the_true_divergence_without_bias() -> None:
    logits = torch.randn(2, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 0.3
    policy, reference = torch.log_softmax(logits, dim=-1)
    true = float((policy.exp() * (policy - reference)).sum())

    for estimator in ("k1", "k3"):  # the exact expectation, over all 12 tokens
        values = kl_estimate(policy.view(1, -1), reference.view(1, -1), estimator=estimator)  # type: ignore[arg-type]
        assert float((policy.exp() * values).sum()) == pytest.approx(true, abs=1e-12)
    assert float(kl_estimate(policy.view(1, -1), reference.view(1, -1), estimator="k3").min()) >= 0


def test_parts_of_a_batch_add_up_to_the_whole() -> None:
    x = inputs()
    loss = clipped_policy_loss(x["logprobs"], x["old"], x["advantages"], clip_low=0.2, clip_high=0.2).loss_BL
    counts = {"num_tokens": int(x["mask"].sum()), "num_sequences": 8}

    for how in ("token_mean", "sequence_mean"):
        whole = aggregate(loss, x["mask"], how=how, **counts)  # type: ignore[arg-type]
        parts = [aggregate(loss[i : i + 3], x["mask"][i : i + 3], how=how, **counts) for i in (0, 3, 6)]  # type: ignore[arg-type]
        assert float(sum(parts)) == pytest.approx(float(whole), abs=1e-12)


def test_the_two_averages_differ_by_length() -> None:
    loss = torch.tensor([[4.0, 0.0], [1.0, 1.0]])
    mask = torch.tensor([[True, False], [True, True]])

    assert float(aggregate(loss, mask, how="token_mean", num_tokens=3, num_sequences=2)) == pytest.approx(2.0)
    assert float(aggregate(loss, mask, how="sequence_mean", num_tokens=3, num_sequences=2)) == pytest.approx(2.5)


def test_what_is_outside_the_mask_does_not_count_even_if_infinite() -> None:
    loss = torch.tensor([[1.0, math.inf]], requires_grad=True)

    total = aggregate(loss, torch.tensor([[True, False]]), how="token_mean", num_tokens=1, num_sequences=1)
    total.backward()

    assert total.item() == 1.0
    assert loss.grad is not None
    assert loss.grad.tolist() == [[1.0, 0.0]]


def test_token_logprobs_are_those_of_the_next_token_at_the_temperature() -> None:
    logits = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(2))
    tokens = torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(3))

    found, _ = token_scores(logits, tokens, temperature=0.7)

    wanted = torch.log_softmax(logits / 0.7, dim=-1)
    assert found[:, 0].tolist() == [0.0, 0.0]
    for b in range(2):
        for position in range(1, 5):
            assert float(found[b, position]) == pytest.approx(
                float(wanted[b, position - 1, tokens[b, position]]), abs=1e-6
            )


def test_entropy_of_known_distributions() -> None:
    even = torch.zeros(1, 2, 8)
    sure = torch.tensor([[[50.0] + [0.0] * 7] * 2])

    tokens = torch.zeros(1, 2, dtype=torch.long)

    assert token_scores(even, tokens)[1][0].tolist() == pytest.approx([0.0, math.log(8)], abs=1e-6)
    assert float(token_scores(sure, tokens)[1][0, 1]) == pytest.approx(0.0, abs=1e-6)
