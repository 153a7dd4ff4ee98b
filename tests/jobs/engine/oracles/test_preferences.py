"""Losses of learning from pairs, held against OpenRLHF's and TRL's own code in float64."""

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from jobs.engine.algorithm import Counts, PolicyOutputs, load_algorithm
from jobs.engine.batch import Batch, make_batch
from jobs.engine.preferences import preference_loss, sequence_logprobs, sides
from tests.jobs.engine.oracles.peers import OPENRLHF, TRL, peer
from tests.jobs.engine.policy_batches import spec_of

BETA = 0.3


@pytest.fixture(autouse=True)
def _in_float64() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pairs_of(seed: int = 2) -> tuple[Batch, Tensor]:
    """Return five pairs whose responses differ in length, a reference, and log-probabilities of the policy."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 9, (10,), generator=random).tolist()
    batch = make_batch([([1] * n, [False, False] + [True] * (n - 2)) for n in lengths], pad_id=0)
    logprobs_BL, reference_BL = (
        -3 * torch.rand(batch.tokens_BL.shape, generator=random) * batch.mask_BL for _ in range(2)
    )
    return replace(batch, reference_logprobs_BL=reference_BL), logprobs_BL


def ours(batch: Batch, logprobs_BL: Tensor, **knobs: Any) -> tuple[float, dict[str, float]]:
    spec = spec_of("dpo", pairs__beta=BETA, **knobs)
    outputs = PolicyOutputs(logprobs_BL=logprobs_BL, entropies_BL=torch.zeros_like(logprobs_BL))
    counts = Counts(num_tokens=batch.num_trained_tokens, num_sequences=batch.num_sequences)
    policy_loss = load_algorithm("dpo").policy_loss
    assert policy_loss is not None
    loss, metrics = policy_loss(batch, outputs, spec, counts)
    return float(loss), {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("ipo", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_dpo_is_openrlhfs(ipo: bool, smoothing: float) -> None:
    batch, logprobs_BL = pairs_of()
    chosen, rejected = sides(sequence_logprobs(logprobs_BL, batch.mask_BL))
    assert batch.reference_logprobs_BL is not None
    references = sides(sequence_logprobs(batch.reference_logprobs_BL, batch.mask_BL))
    theirs = peer(OPENRLHF, "openrlhf.models.loss").DPOLoss(beta=BETA, label_smoothing=smoothing, ipo=ipo)
    wanted, chosen_rewards, rejected_rewards = theirs(chosen, rejected, *references)

    loss, metrics = ours(batch, logprobs_BL, pairs__ipo=ipo, **({} if ipo else {"pairs__label_smoothing": smoothing}))

    assert loss == pytest.approx(float(wanted), abs=1e-6)
    assert metrics["pairs/chosen_reward"] == pytest.approx(float(chosen_rewards.mean()), abs=1e-6)
    assert metrics["pairs/rejected_reward"] == pytest.approx(float(rejected_rewards.mean()), abs=1e-6)


def trls(batch: Batch, logprobs_BL: Tensor, kind: str) -> tuple[float, dict[str, float]]:
    """Return what TRL's DPOTrainer makes of the same numbers: its batches have all chosen responses first."""
    order = torch.cat([torch.arange(0, 10, 2), torch.arange(1, 10, 2)])
    apart, logprobs_BL = batch.rows(order), logprobs_BL[order]
    assert apart.reference_logprobs_BL is not None
    references = sequence_logprobs(apart.reference_logprobs_BL, apart.mask_BL).chunk(2)
    plain = torch.zeros_like(logprobs_BL)
    outputs = SimpleNamespace(log_probs=logprobs_BL, entropy=plain, mean_logits=plain, is_top1=apart.mask_BL)
    told: dict[str, list[float]] = defaultdict(list)
    same = Mock(side_effect=lambda value: value)
    trainer = Mock(
        accelerator=Mock(device="cpu", gather=same, gather_for_metrics=same),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[kind],
        loss_weights=[1.0],
        beta=BETA,
        use_weighting=False,
        _metrics={"train": told},
        _tp_size=1,
        _total_train_tokens=0,
    )
    inputs = {
        "input_ids": apart.tokens_BL,
        "attention_mask": apart.tokens_BL > 0,
        "completion_mask": apart.mask_BL.long(),
        "ref_chosen_logps": references[0],
        "ref_rejected_logps": references[1],
    }
    compute = peer(TRL, "trl.trainer.dpo_trainer").cut("DPOTrainer", "_compute_loss")._compute_loss  # type: ignore[attr-defined]
    loss = compute(trainer, Mock(return_value=outputs), inputs, False)
    return float(loss), {name: values[-1] for name, values in told.items()}


@pytest.mark.parametrize(
    ("kind", "knobs"),
    [
        ("sigmoid", {}),
        ("sigmoid_norm", {"pairs__length_normalized": True}),
        ("ipo", {"pairs__ipo": True, "pairs__length_normalized": True}),
    ],
)
def test_dpo_is_trls(kind: str, knobs: dict[str, Any]) -> None:
    batch, logprobs_BL = pairs_of()
    wanted, theirs = trls(batch, logprobs_BL, kind)

    loss, metrics = ours(batch, logprobs_BL, **knobs)

    assert loss == pytest.approx(wanted, abs=1e-6)
    if not knobs:  # TRL tells rewards of sums whatever the loss compares
        for mine, name in (
            ("pairs/accuracy", "rewards/accuracies"),
            ("pairs/margin", "rewards/margins"),
            ("pairs/chosen_reward", "rewards/chosen"),
            ("pairs/rejected_reward", "rewards/rejected"),
            ("pairs/chosen_logprob", "logps/chosen"),
            ("pairs/rejected_logprob", "logps/rejected"),
        ):
            assert metrics[mine] == pytest.approx(theirs[name], abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_reference_by_length_and_with_a_margin_it_is_simpo_as_trl_has_it(smoothing: float) -> None:
    batch, logprobs_BL = pairs_of()
    batch = replace(batch, reference_logprobs_BL=None)
    chosen, rejected = sides(sequence_logprobs(logprobs_BL, batch.mask_BL, is_averaged=True))
    trainer = Mock(
        alpha=0.0,
        beta=BETA,
        simpo_gamma=0.7,
        loss_type="simpo",
        label_smoothing=smoothing,
        accelerator=Mock(device="cpu"),
    )
    theirs = peer(TRL, "trl.experimental.cpo.cpo_trainer").cut("CPOTrainer", "cpo_loss").cpo_loss  # type: ignore[attr-defined]
    losses, chosen_rewards, _ = theirs(trainer, chosen, rejected)

    loss, metrics = ours(
        batch,
        logprobs_BL,
        pairs__reference_free=True,
        pairs__length_normalized=True,
        pairs__target_margin=0.7,
        pairs__label_smoothing=smoothing,
    )

    assert loss == pytest.approx(float(losses.mean()), abs=1e-6)
    assert metrics["pairs/chosen_reward"] == pytest.approx(float(chosen_rewards.mean()), abs=1e-6)


def scores_of(batch: Batch, scores_B: Tensor, **knobs: Any) -> tuple[float, dict[str, float]]:
    score_loss = load_algorithm("rm").score_loss
    assert score_loss is not None
    counts = Counts(num_tokens=batch.num_trained_tokens, num_sequences=batch.num_sequences)
    loss, metrics = score_loss(batch, scores_B, spec_of("rm", **knobs), counts)
    return float(loss), {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_a_reward_models_loss_is_openrlhfs(margin: float) -> None:
    batch, _ = pairs_of()
    scores_B = torch.linspace(-2, 3, 10).roll(3)
    chosen, rejected = sides(scores_B)
    theirs = peer(OPENRLHF, "openrlhf.models.loss").PairWiseLoss()

    loss, _ = scores_of(batch, scores_B, pairs__target_margin=margin)

    assert loss == pytest.approx(float(theirs(chosen, rejected, torch.full((5,), margin))), abs=1e-6)


@pytest.mark.parametrize("coefficient", [0.0, 0.01])
@pytest.mark.parametrize("has_margins", [False, True])
def test_a_reward_models_loss_is_trls(coefficient: float, has_margins: bool) -> None:
    """TRL's batches have all chosen responses first, and one margin a pair."""
    batch, _ = pairs_of()
    scores_B, margins_P = torch.linspace(-2, 3, 10).roll(3), torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    order = torch.cat([torch.arange(0, 10, 2), torch.arange(1, 10, 2)])
    told: dict[str, list[float]] = defaultdict(list)
    gather = Mock(side_effect=lambda value: value)
    trainer = Mock(
        args=SimpleNamespace(center_rewards_coefficient=coefficient or None),
        accelerator=Mock(gather=gather, gather_for_metrics=gather),
        _metrics={"train": told},
        _total_train_tokens=0,
        _tp_size=1,
    )
    inputs = {"input_ids": batch.tokens_BL[order], "attention_mask": batch.tokens_BL[order] > 0}
    model = Mock(return_value=SimpleNamespace(logits=scores_B[order].unsqueeze(1)))
    compute = peer(TRL, "trl.trainer.reward_trainer").cut("RewardTrainer", "compute_loss").compute_loss  # type: ignore[attr-defined]
    wanted = compute(trainer, model, inputs | ({"margin": margins_P} if has_margins else {}))
    if has_margins:
        batch = replace(batch, margins_B=margins_P.repeat_interleave(2))

    loss, metrics = scores_of(batch, scores_B, pairs__center_coefficient=coefficient)

    assert loss == pytest.approx(float(wanted), abs=1e-6)
    assert metrics["pairs/accuracy"] == pytest.approx(told["accuracy"][-1])
    assert metrics["pairs/margin"] == pytest.approx(told["margin"][-1], abs=1e-6)


def test_by_hand() -> None:
    """beta 0.5, d = 2: -log sigmoid(1) = 0.31326; (2 - 1)^2 = 1."""
    d_P = torch.tensor([2.0])

    assert float(preference_loss(d_P, kind="sigmoid", beta=0.5)) == pytest.approx(0.313262, abs=1e-6)
    assert float(preference_loss(d_P, kind="ipo", beta=0.5)) == pytest.approx(1.0)
    assert float(preference_loss(d_P, kind="sigmoid", beta=0.5, target_margin=1.0)) == pytest.approx(0.693147, abs=1e-6)
