"""What every algorithm of the built-in trainer promises: one suite for each file of jobs/engine/algorithms."""

import ast
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import jobs.engine
from jobs.catalog.algorithm import algorithms, is_in
from jobs.catalog.knob import knobs
from jobs.catalog.spec.parse import SpecInvalid
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.engine.algorithm import Counts, Loss, PolicyOutputs, load_algorithm
from jobs.engine.batch import Batch
from jobs.engine.micro_batches import sequences_per_sample
from profiling import plugins
from tests.jobs.engine.policy_batches import counts_of, four, outputs_of, spec_of

FOLDER = "jobs.engine.algorithms"
NAMES = plugins.names(FOLDER)
SAMPLING = tuple(name for name in NAMES if is_in(name, "rl"))
REWARDED = tuple(name for name in SAMPLING if not is_in(name, "distillation"))
SCALAR = tuple(name for name in NAMES if is_in(name, "scalar"))
OF_TOKENS = tuple(name for name in NAMES if name not in SCALAR)
CRITICAL = tuple(name for name in NAMES if is_in(name, "critic"))
GROUPED = tuple(name for name in NAMES if is_in(name, "grouped"))
OF_GROUPS = tuple(name for name in GROUPED if "algorithm.whiten_by_std" not in spec_of(name).knobs)
"""Whose advantages are those of a group alone; the others whiten them over the whole batch."""
AVERAGES = [
    (name, average)
    for name in OF_TOKENS
    for average in (knobs()["algorithm.loss_aggregation"].choices if name in SAMPLING else ("token_mean",))
]
NOWHERE = 1e6


def file_of(name: str) -> Path:
    return Path(jobs.engine.__path__[0]) / "algorithms" / f"{name}.py"


def of(name: str, **changes: object) -> RunSpec:
    return spec_of(name, **({"rollout__samples_per_prompt": 2} if name in SAMPLING else {}), **changes)


def advantages(name: str, batch: Batch, **changes: object) -> torch.Tensor:
    estimate = load_algorithm(name).advantages
    assert estimate is not None
    return estimate(batch, of(name, **changes)).advantages_BL


def loss_of(name: str) -> Callable[[Batch, PolicyOutputs, RunSpec, Counts], Loss]:
    policy_loss = load_algorithm(name).policy_loss
    assert policy_loss is not None
    return policy_loss


def test_the_built_in_trainer_offers_each_algorithm_that_has_a_file() -> None:
    assert set(trainers()["native"].algorithms) == set(NAMES)
    assert set(NAMES) <= set(algorithms())


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_its_families_say(name: str) -> None:
    plugin = load_algorithm(name)

    assert (plugin.advantages is not None) == (is_in(name, "rl") and not is_in(name, "distillation"))
    assert (plugin.value_loss is not None) == is_in(name, "critic")
    assert (plugin.score_loss is not None) == is_in(name, "scalar") != (plugin.policy_loss is not None)
    assert (plugin.rewards is not None) == (is_in(name, "pairs") or is_in(name, "labeled"))


@pytest.mark.parametrize("name", NAMES)
def test_it_never_sees_logits(name: str) -> None:
    nodes = ast.walk(ast.parse(file_of(name).read_text("utf-8")))
    words = {getattr(node, "id", getattr(node, "arg", "")) for node in nodes}

    assert not [word for word in words if word and "logits" in word]


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_only_knobs_that_its_runs_have(name: str) -> None:
    texts = {n.value for n in ast.walk(ast.parse(file_of(name).read_text("utf-8"))) if isinstance(n, ast.Constant)}

    assert {text for text in texts if text in knobs()} <= set(of(name).knobs)


@pytest.mark.parametrize(("name", "average"), AVERAGES)
def test_the_shares_of_micro_batches_add_up_to_the_whole(name: str, average: str) -> None:
    spec = of(name, **({"algorithm__loss_aggregation": average} if name in SAMPLING else {}))
    batch, logits_BLV = four()
    size = sequences_per_sample(spec)
    counts = counts_of(batch)

    whole, metrics = loss_of(name)(batch, outputs_of(logits_BLV, batch), spec, counts)
    parts = [
        loss_of(name)(micro, outputs_of(logits_BLV[i : i + size, : micro.tokens_BL.shape[1]], micro), spec, counts)
        for i in range(0, batch.num_sequences, size)
        for micro in [batch.rows(slice(i, i + size))]
    ]

    assert float(sum(loss for loss, _ in parts)) == pytest.approx(float(whole), rel=1e-6, abs=1e-6)
    for metric, value in metrics.items():
        assert float(sum(m[metric] for _, m in parts)) == pytest.approx(float(value), rel=1e-6, abs=1e-6), metric


@pytest.mark.parametrize("name", OF_TOKENS)
def test_the_loss_is_one_number_and_gradients_flow_through_log_probabilities_alone(name: str) -> None:
    batch, logits_BLV = four()
    logits_BLV.requires_grad_()
    outputs = outputs_of(logits_BLV, batch)

    loss, metrics = loss_of(name)(batch, outputs, of(name), counts_of(batch))

    assert loss.shape == ()
    assert loss.requires_grad
    assert not any(value.requires_grad for value in metrics.values())
    assert all(value.shape == () for value in metrics.values())


@pytest.mark.parametrize("name", REWARDED)
def test_a_bonus_for_entropy_has_a_gradient_and_makes_the_loss_smaller(name: str) -> None:
    batch, logits_BLV = four()
    spec = of(name, algorithm__entropy_coefficient=0.5)
    outputs = outputs_of(logits_BLV, batch)
    entropies_BL = outputs.entropies_BL.clone().requires_grad_()

    free, _ = loss_of(name)(batch, outputs, of(name), counts_of(batch))
    loss, metrics = loss_of(name)(batch, replace(outputs, entropies_BL=entropies_BL), spec, counts_of(batch))
    loss.backward()

    assert float(loss.detach()) < float(free)
    assert entropies_BL.grad is not None
    assert bool((entropies_BL.grad[batch.mask_BL] < 0).all())
    assert not entropies_BL.grad[~batch.mask_BL].any()
    assert not any(value.requires_grad for value in metrics.values())


@pytest.mark.parametrize("name", OF_TOKENS)
def test_what_is_outside_of_the_mask_changes_nothing(name: str) -> None:
    plugin, spec = load_algorithm(name), of(name)
    batch, logits_BLV = four()
    outputs = outputs_of(logits_BLV, batch)

    def spoiled(values_BL: torch.Tensor) -> torch.Tensor:
        mask = batch.mask_BL if values_BL.ndim == 2 else batch.mask_BL.unsqueeze(-1)
        return torch.where(mask, values_BL, NOWHERE)

    other = replace(
        batch,
        **{
            field.name: spoiled(value)
            for field in fields(batch)
            if (value := getattr(batch, field.name)) is not None and value.is_floating_point() and value.ndim > 1
        },
    )
    said = {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    elsewhere = replace(outputs, **{name: spoiled(value) for name, value in said.items() if value is not None})
    loss, metrics = loss_of(name)(batch, outputs, spec, counts_of(batch))
    same, same_metrics = loss_of(name)(other, elsewhere, spec, counts_of(batch))

    assert torch.equal(loss, same)
    assert {key: float(value) for key, value in same_metrics.items()} == {k: float(v) for k, v in metrics.items()}
    if plugin.advantages is not None:
        assert torch.equal(advantages(name, batch), advantages(name, other))


@pytest.mark.parametrize("name", REWARDED)
def test_advantages_are_one_number_a_token_and_none_outside_of_the_mask(name: str) -> None:
    batch, _ = four()

    found = advantages(name, batch)

    assert found.shape == batch.tokens_BL.shape
    assert found.dtype == torch.float32
    assert found.abs().sum() > 0
    assert not found[~batch.mask_BL].any()


@pytest.mark.parametrize("name", CRITICAL)
def test_what_a_critic_learns_adds_up_and_is_that_of_counted_tokens(name: str) -> None:
    """Shares of micro-batches add up; values outside of the mask change nothing; gradients flow through values."""
    value_loss, spec = load_algorithm(name).value_loss, of(name)
    assert value_loss is not None
    batch, _ = four()
    values_BL = torch.linspace(-1, 1, batch.mask_BL.numel()).view(batch.mask_BL.shape).requires_grad_()
    counts = counts_of(batch)

    whole, metrics = value_loss(batch, values_BL, spec, counts)
    spoiled, _ = value_loss(batch, torch.where(batch.mask_BL, values_BL, NOWHERE), spec, counts)
    micros = [(batch.rows(slice(i, i + 1)), values_BL.detach()[i : i + 1]) for i in range(batch.num_sequences)]
    parts = [value_loss(micro, values_1L[:, : micro.tokens_BL.shape[1]], spec, counts) for micro, values_1L in micros]

    assert whole.shape == ()
    assert whole.requires_grad
    assert whole.item() > 0
    assert spoiled.item() == whole.item()
    assert float(sum(loss for loss, _ in parts)) == pytest.approx(whole.item(), abs=1e-6)
    for metric, value in metrics.items():
        assert not value.requires_grad
        assert float(sum(m[metric] for _, m in parts)) == pytest.approx(float(value), abs=1e-6), metric


@pytest.mark.parametrize("name", CRITICAL)
def test_what_a_critic_should_expect_is_said_of_counted_tokens_alone(name: str) -> None:
    estimate = load_algorithm(name).advantages
    assert estimate is not None
    batch, _ = four()

    returns_BL = estimate(batch, of(name)).returns_BL

    assert returns_BL is not None
    assert returns_BL.shape == batch.tokens_BL.shape
    assert returns_BL.dtype == torch.float32
    assert not returns_BL[~batch.mask_BL].any()


@pytest.mark.parametrize("name", SCALAR)
def test_scores_of_pairs_add_up_and_learn_to_be_in_order(name: str) -> None:
    """Shares of micro-batches add up; the chosen response is pulled up and the rejected one down."""
    score_loss, rewards, spec = load_algorithm(name).score_loss, load_algorithm(name).rewards, of(name)
    assert score_loss is not None
    assert rewards is not None
    batch, _ = four()
    batch = replace(batch, margins_B=torch.tensor([0.5, 0.5, 0.0, 0.0]))
    scores_B = torch.tensor([0.3, -0.2, -1.0, 0.4], requires_grad=True)
    counts = counts_of(batch)

    whole, metrics = score_loss(batch, scores_B, spec, counts)
    whole.backward()
    micros = [(batch.rows(slice(i, i + 2)), scores_B.detach()[i : i + 2]) for i in (0, 2)]
    parts = [score_loss(micro, scores_2, spec, counts) for micro, scores_2 in micros]

    assert whole.shape == ()
    assert scores_B.grad is not None
    assert (scores_B.grad.view(2, 2) * torch.tensor([-1.0, 1.0]) > 0).all()
    assert float(sum(loss for loss, _ in parts)) == pytest.approx(whole.item(), abs=1e-6)
    for metric, value in metrics.items():
        assert not value.requires_grad
        assert float(sum(m[metric] for _, m in parts)) == pytest.approx(float(value), abs=1e-6), metric
    assert torch.equal(rewards(batch, scores_B, spec), scores_B)


@pytest.mark.parametrize("name", OF_GROUPS)
def test_a_zero_variance_group_gives_no_signal(name: str) -> None:
    batch, _ = four()
    batch = replace(batch, rewards_B=torch.tensor([0.1, 0.1, 0.0, 1.0]), reference_logprobs_BL=None)

    found = advantages(name, batch, algorithm__kl_coefficient=0.0)

    assert not found[:2].any()
    assert found[2:].any()


@pytest.mark.parametrize("name", OF_GROUPS)
def test_the_order_of_the_prompts_does_not_matter(name: str) -> None:
    batch, _ = four()
    order = torch.tensor([2, 3, 0, 1])

    assert torch.equal(advantages(name, batch)[order], advantages(name, batch.rows(order)))


@pytest.mark.parametrize("name", OF_GROUPS)
def test_a_group_judges_itself_alone(name: str) -> None:
    batch, _ = four()
    assert batch.rewards_B is not None
    raised = replace(batch, rewards_B=batch.rewards_B + torch.tensor([0.0, 0.0, 3.0, 0.0]))

    assert torch.equal(advantages(name, batch)[:2], advantages(name, raised)[:2])


@pytest.mark.parametrize("name", GROUPED)
def test_a_better_answer_of_a_group_has_the_greater_advantage(name: str) -> None:
    batch, _ = four()

    found = advantages(name, batch, algorithm__kl_coefficient=0.0)[:, 1]

    assert found[0] > 0 > found[1]
    assert found[2] > 0 > found[3]


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_of_one_is_refused(name: str) -> None:
    with pytest.raises(SpecInvalid, match="from 2"):
        spec_of(name, rollout__samples_per_prompt=1)
