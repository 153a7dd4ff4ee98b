"""Policy losses, averages and KL against the functions of verl, OpenRLHF and TRL, in float64 to 1e-6.

Known differences, none of which these inputs meet: verl holds GSPO's log-ratio to at most 10 and KL's k3 to -10, ours
are held to 20 and 10; TRL does not hold ratios; TRL's CISPO has no lower bound, and says the upper one as 1 + ours.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs.engine.algorithm import Counts, PolicyOutputs, load_algorithm
from jobs.engine.batch import Batch
from jobs.engine.losses import aggregate, kl_estimate, kl_loss
from tests.jobs.engine.oracles.peers import OPENRLHF, TRL, VERL, peer
from tests.jobs.engine.policy_batches import spec_of

VERL_AVERAGES = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "token_sum": "token-sum",
    "sequence_sum": "seq-mean-token-sum",
    "sequence_sum_scaled": "seq-mean-token-sum-norm",
}
TRL_LOSSES = {"token_mean": "dapo", "sequence_mean": "grpo", "sequence_sum_scaled": "dr_grpo"}
LONGEST = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Random float64 tensors of six sequences, [6, 9]; the first position never counts."""

    now: Tensor
    old: Tensor
    reference: Tensor
    advantages: Tensor
    mask: Tensor

    @property
    def batch(self) -> Batch:
        return Batch(
            tokens_BL=torch.zeros(self.mask.shape, dtype=torch.long),
            mask_BL=self.mask,
            lengths_B=torch.full((6,), LONGEST),
            old_logprobs_BL=self.old,
            reference_logprobs_BL=self.reference,
            advantages_BL=self.advantages,
        )

    @property
    def counts(self) -> Counts:
        return Counts(num_tokens=int(self.mask.sum()), num_sequences=6)


def case(*, spread: float = 0.4) -> Case:
    generator = torch.Generator().manual_seed(17)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    now = -normal(6, LONGEST).abs() - 0.1
    mask = torch.rand(6, LONGEST, generator=generator) < 0.7
    mask[:, 0], mask[:, 1] = False, True
    return Case(
        now=now,
        old=now + spread * normal(6, LONGEST),
        reference=now + 0.3 * normal(6, LONGEST),
        advantages=torch.where(mask, normal(6, 1), 0.0),
        mask=mask,
    )


def ours(algorithm: str, x: Case, **knobs: Any) -> tuple[Tensor, Tensor]:
    """Return our loss and its gradient by the log-probabilities of now."""
    now = x.now.clone().requires_grad_()
    spec = spec_of(algorithm, **({"algorithm__kl_coefficient": 0.0, "rollout__samples_per_prompt": 2} | knobs))
    batch = x.batch if spec.float_knob("algorithm.kl_coefficient") else replace(x.batch, reference_logprobs_BL=None)
    outputs = PolicyOutputs(logprobs_BL=now, entropies_BL=torch.zeros_like(now))
    loss, _ = load_algorithm(algorithm).policy_loss(batch, outputs, spec, x.counts)
    loss.backward()
    assert now.grad is not None
    return loss.detach(), now.grad


def verls(mode: str, x: Case, *, low: float, high: float, average: str = "token-mean") -> tuple[Tensor, Tensor]:
    core = peer(VERL, "verl.trainer.ppo.core_algos")
    config = core.ActorConfig(
        strategy="fsdp",
        rollout_n=2,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=3.0,
    )
    config.global_batch_info.update({"loss_scale_factor": 11.0} if average.endswith("norm") else {})
    now = x.now.clone().requires_grad_()
    loss, _ = getattr(core, f"compute_policy_loss_{mode}")(
        old_log_prob=x.old,
        log_prob=now,
        advantages=x.advantages,
        response_mask=x.mask.double(),
        loss_agg_mode=average,
        config=config,
    )
    loss.backward()
    assert now.grad is not None
    return loss.detach(), now.grad


def trls(x: Case, *, loss_type: str, low: float, high: float, level: str = "token", beta: float = 0.0) -> Any:
    """Return TRL's loss and gradient: its own method, on a trainer that has a policy with these log-probabilities."""
    now = x.now.clone().requires_grad_()
    trainer = peer(TRL, "trl.trainer.grpo_trainer").cut("GRPOTrainer", "_compute_loss")()
    calls = dict.fromkeys(("gather", "gather_for_metrics", "reduce"), lambda t, **_: t)
    known: dict[str, Any] = {
        "_get_per_token_logps_and_entropies": lambda *_, **__: (now, torch.zeros_like(now), None),
        "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": level,
        "beta": beta,
        "args": SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        "loss_type": loss_type,
        "epsilon_low": low,
        "epsilon_high": high,
        "use_vllm": False,
        "model": SimpleNamespace(training=True),
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": 11,
        "_entropy_bonus_enabled": False,
        "accelerator": SimpleNamespace(num_processes=1, **calls),
        "_metrics": {"train": _Lists()},
    }
    for name, value in known.items():
        setattr(trainer, name, value)
    empty = torch.zeros((6, 0), dtype=torch.long)
    loss = trainer._compute_loss(
        None,
        {
            "prompt_ids": empty,
            "prompt_mask": empty,
            "completion_ids": torch.zeros((6, LONGEST), dtype=torch.long),
            "completion_mask": x.mask.long(),
            "advantages": x.advantages[:, 1],
            "old_per_token_logps": x.old,
            "ref_per_token_logps": x.reference,
            "num_items_in_batch": x.mask.sum(),
        },
    )
    loss.backward()
    assert now.grad is not None
    return loss.detach(), now.grad


class _Lists(dict[str, list[float]]):
    def __missing__(self, name: str) -> list[float]:
        self[name] = []
        return self[name]


def openrlhfs(x: Case, **options: Any) -> tuple[Tensor, Tensor]:
    now = x.now.clone().requires_grad_()
    loss, *_ = peer(OPENRLHF, "openrlhf.models.loss").PolicyLoss(**options)(now, x.old, x.advantages, x.mask.double())
    loss.backward()
    assert now.grad is not None
    return loss.detach(), now.grad


def is_same(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> None:
    assert float(wanted[1].abs().sum()) > 0
    assert torch.allclose(found[0], wanted[0].double(), atol=1e-6, rtol=0)
    assert torch.allclose(found[1], wanted[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("average", VERL_AVERAGES)
@pytest.mark.parametrize(
    ("algorithm", "mode", "low", "high"),
    [
        ("grpo", "vanilla", 0.2, 0.28),
        ("gspo", "gspo", 0.05, 0.1),
        ("cispo", "cispo", 0.3, 0.5),
    ],
)
def test_losses_are_those_of_verl(algorithm: str, mode: str, low: float, high: float, average: str) -> None:
    x = case()

    found = ours(
        algorithm,
        x,
        algorithm__clip_ratio_low=low,
        algorithm__clip_ratio_high=high,
        algorithm__loss_aggregation=average,
        algorithm__loss_scale=11.0,
    )

    is_same(found, verls(mode, x, low=low, high=high, average=VERL_AVERAGES[average]))


@pytest.mark.parametrize("average", VERL_AVERAGES)
def test_averages_are_those_of_verl(average: Any) -> None:
    x = case()

    found = aggregate(x.old, x.mask, how=average, num_tokens=int(x.mask.sum()), num_sequences=6, scale=11.0)

    scale = {"loss_scale_factor": 11.0} if average == "sequence_sum_scaled" else {}
    agg_loss = peer(VERL, "verl.trainer.ppo.core_algos").agg_loss
    wanted = agg_loss(loss_mat=x.old, loss_mask=x.mask.double(), loss_agg_mode=VERL_AVERAGES[average], **scale)
    assert float(found) == pytest.approx(float(wanted), abs=1e-6)


@pytest.mark.parametrize("average", TRL_LOSSES)
def test_clipped_losses_are_those_of_trl(average: str) -> None:
    x = case()

    found = ours(
        "dr_grpo",
        x,
        algorithm__clip_ratio_high=0.28,
        algorithm__dual_clip=1000.0,
        algorithm__loss_aggregation=average,
        algorithm__loss_scale=11.0,
        algorithm__kl_coefficient=0.05,
    )

    is_same(found, trls(x, loss_type=TRL_LOSSES[average], low=0.2, high=0.28, beta=0.05))


def test_gspo_is_that_of_trl_and_of_openrlhf() -> None:
    x = case()
    found = ours("gspo", x, algorithm__clip_ratio_low=0.05, algorithm__clip_ratio_high=0.1)

    is_same(found, trls(x, loss_type="grpo", level="sequence", low=0.05, high=0.1))
    is_same(found, openrlhfs(x, policy_loss_type="gspo", clip_eps_low=0.05, clip_eps_high=0.1))


def test_cispo_is_that_of_trl() -> None:
    x = case()

    found = ours("cispo", x, algorithm__clip_ratio_low=1.0, algorithm__clip_ratio_high=0.5)

    is_same(found, trls(x, loss_type="cispo", low=0.2, high=1.5))


@pytest.mark.parametrize("algorithm", ["dapo", "rloo", "reinforce_pp"])
def test_the_dual_clip_is_that_of_openrlhf(algorithm: str) -> None:
    x = case(spread=2.0)

    found = ours(algorithm, x, algorithm__clip_ratio_low=0.2, algorithm__clip_ratio_high=0.28)

    is_same(found, openrlhfs(x, clip_eps_low=0.2, clip_eps_high=0.28, dual_clip=3.0))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_estimates_are_those_of_verl_and_openrlhf(estimator: Any) -> None:
    x = case()

    found = kl_estimate(x.now, x.reference, estimator=estimator)

    verl = peer(VERL, "verl.trainer.ppo.core_algos").kl_penalty(x.now, x.reference, estimator)
    openrlhf = peer(OPENRLHF, "openrlhf.models.utils").compute_approx_kl(x.now, x.reference, kl_estimator=estimator)
    assert torch.allclose(found, verl, atol=1e-6, rtol=0)
    assert torch.allclose(found, openrlhf.double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_true_kl_gradient_is_that_of_verl_before_the_policy_has_moved(estimator: Any) -> None:
    """verl's `k3+` has no weight by the ratio, which is 1 as long as the policy is the one that sampled."""
    x = case()
    found, wanted = x.now.clone().requires_grad_(), x.now.clone().requires_grad_()

    kl_loss(found, x.reference, estimator=estimator, ratio_BL=torch.ones_like(x.now)).sum().backward()
    peer(VERL, "verl.trainer.ppo.core_algos").kl_penalty(wanted, x.reference, f"{estimator}+").sum().backward()

    assert found.grad is not None
    assert wanted.grad is not None
    assert torch.allclose(found.grad, wanted.grad, atol=1e-6, rtol=0)
