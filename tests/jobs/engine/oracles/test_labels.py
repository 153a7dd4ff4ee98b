"""KTO held against TRL's own code in float64: loss, reference point, and what is told of both labels."""

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
from jobs.engine.mismatches import with_reference_point
from jobs.engine.preferences import labeled_loss, reference_point, sequence_logprobs
from tests.jobs.engine.oracles.peers import TRL, peer
from tests.jobs.engine.policy_batches import spec_of

BETA, DESIRABLE, UNDESIRABLE = 0.3, 1.0, 1.25
NUM = 7
TOLD = {
    "labels/desirable_reward": "rewards/chosen",
    "labels/undesirable_reward": "rewards/rejected",
    "labels/desirable_logprob": "logps/chosen",
    "labels/undesirable_logprob": "logps/rejected",
    "labels/margin": "rewards/margins",
    "labels/reference_point": "kl",
}


@pytest.fixture(autouse=True)
def _in_float64() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def scored(seed: int, *, shift: float = 0.0) -> tuple[Batch, Tensor]:
    """Return responses of several lengths with a reference's log-probabilities, and a policy's, higher by `shift`."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 9, (NUM,), generator=random).tolist()
    batch = make_batch([([1] * n, [False, False] + [True] * (n - 2)) for n in lengths], pad_id=0)
    logprobs_BL, reference_BL = (
        -3 * torch.rand(batch.tokens_BL.shape, generator=random) * batch.mask_BL for _ in range(2)
    )
    return replace(batch, reference_logprobs_BL=reference_BL), (logprobs_BL + shift) * batch.mask_BL


def trls(batch: Batch, logprobs_BL: Tensor, others: Batch, others_BL: Tensor) -> tuple[float, dict[str, float]]:
    """Return what TRL's KTOTrainer makes of the same numbers."""
    assert batch.reference_logprobs_BL is not None
    assert others.reference_logprobs_BL is not None
    plain = torch.zeros_like(logprobs_BL)
    told: dict[str, list[float]] = defaultdict(list)
    same = Mock(side_effect=lambda value: value)
    trainer = Mock(
        accelerator=Mock(device="cpu", gather_for_metrics=same),
        aux_loss_enabled=False,
        precompute_ref_logps=True,
        calculate_KL=True,
        loss_type="kto",
        beta=BETA,
        desirable_weight=DESIRABLE,
        undesirable_weight=UNDESIRABLE,
        _compute_kl_logps=Mock(return_value=sequence_logprobs(others_BL, others.mask_BL)),
        _metrics={"train": told},
        _tp_size=1,
        _total_train_tokens=0,
    )
    inputs = {
        "input_ids": batch.tokens_BL,
        "attention_mask": batch.tokens_BL > 0,
        "completion_mask": batch.mask_BL.long(),
        "label": batch.is_desirable_B,
        "ref_logps": sequence_logprobs(batch.reference_logprobs_BL, batch.mask_BL),
        "ref_KL_logps": sequence_logprobs(others.reference_logprobs_BL, others.mask_BL),
    }
    outputs = SimpleNamespace(log_probs=logprobs_BL, entropy=plain, mean_logits=plain)
    compute = peer(TRL, "trl.trainer.kto_trainer").cut("KTOTrainer", "_compute_loss")._compute_loss
    loss = compute(trainer, Mock(return_value=outputs), inputs, False)
    return float(loss), {name: values[-1] for name, values in told.items()}


@pytest.mark.parametrize("shift", [-1.5, 1.5], ids=["clamped at 0", "above 0"])
@pytest.mark.parametrize("labels", [[1, 0, 0, 1, 1, 0, 1], [1] * NUM, [0] * NUM], ids=["both", "desirable", "not"])
def test_kto_is_trls(labels: list[int], shift: float) -> None:
    batch, logprobs_BL = scored(2)
    batch = replace(batch, is_desirable_B=torch.tensor(labels).bool())
    others, others_BL = scored(3, shift=shift)
    spec = spec_of("kto", pairs__beta=BETA, pairs__desirable_weight=DESIRABLE, pairs__undesirable_weight=UNDESIRABLE)
    wanted, theirs = trls(batch, logprobs_BL, others, others_BL)

    batch = with_reference_point(batch, others, others_BL)
    outputs = PolicyOutputs(logprobs_BL=logprobs_BL, entropies_BL=torch.zeros_like(logprobs_BL))
    policy_loss = load_algorithm("kto").policy_loss
    assert policy_loss is not None
    loss, metrics = policy_loss(batch, outputs, spec, Counts.of(batch))

    assert float(loss) == pytest.approx(wanted, abs=1e-6)
    assert (theirs["kl"] > 0) == (shift > 0)
    for ours, name in TOLD.items():
        assert (ours in metrics) == (name in theirs), ours
        if ours in metrics:
            assert float(metrics[ours]) == pytest.approx(theirs[name], abs=1e-6), ours


def test_by_hand() -> None:
    """beta 0.5, gains of 2 and of 4 nats: 1 - sigmoid(1) = 0.26894, 3 (1 - sigmoid(-2)) = 3 * 0.88080; z0 of +1 and
    +3 nats is 2, of -1 and -3 it is 0.
    """
    losses_B = labeled_loss(
        torch.tensor([2.0, 4.0]), torch.tensor([True, False]), beta=0.5, desirable_weight=1.0, undesirable_weight=3.0
    )
    zeros_BL, mask_BL = torch.zeros((2, 2)), torch.tensor([[False, True], [True, True]])
    logprobs_BL = torch.tensor([[9.0, 1.0], [1.0, 2.0]])

    assert losses_B.tolist() == pytest.approx([0.268941, 2.642391], abs=1e-6)
    assert float(reference_point(logprobs_BL, zeros_BL, mask_BL)) == 2.0
    assert float(reference_point(-logprobs_BL, zeros_BL, mask_BL)) == 0.0
