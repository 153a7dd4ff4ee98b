"""An algorithm of the user's own file: the example of docs/ keeps every promise of ours, and a fault names its line."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, PolicyOutputs, load_algorithm
from jobs.engine.own_algorithm import FIELD, algorithm_of
from jobs.engine.problem import RunProblem
from tests.contracts import test_algorithms as contract
from tests.jobs.engine.oracles.peers import VERL, peer
from tests.jobs.engine.oracles.test_policy_losses import case
from tests.jobs.engine.policy_batches import counts_of, four, outputs_of, spec_of

EXAMPLE = Path(__file__).parents[3] / "docs/examples/geometric_mean.py"
BASE = "grpo"
GRPO = "from dataclasses import replace\nfrom jobs.engine.algorithms.grpo import PLUGIN\nBASE = 'grouped'\n"


def example(**knobs: Any) -> RunSpec:
    return spec_of(BASE, algorithm__source=EXAMPLE.read_text(encoding="utf-8"), **knobs)


def ask_all(own: Algorithm, spec: RunSpec) -> None:
    batch, logits_BLV = four()
    assert own.advantages is not None
    assert own.policy_loss is not None
    own.needs_old_logprobs(spec)
    own.advantages(batch, spec)
    own.policy_loss(batch, outputs_of(logits_BLV.requires_grad_(), batch), spec, counts_of(batch))


def promises() -> Iterator[Any]:
    """Yield each promise of the contract that is made of GRPO, with its arguments."""
    for name, promise in vars(contract).items():
        for mark in getattr(promise, "pytestmark", ()):
            cases = [one if isinstance(one, tuple) else (one,) for one in mark.args[1]]
            yield from (pytest.param(promise, one, id=f"{name}-{'-'.join(one)}") for one in cases if one[0] == BASE)


@pytest.mark.parametrize(("promise", "arguments"), promises())
def test_the_example_keeps_the_contract(
    promise: Callable[..., None], arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "load_algorithm", lambda _: algorithm_of(example()))
    monkeypatch.setattr(contract, "file_of", lambda _: EXAMPLE)

    promise(*arguments)


def test_the_example_is_the_loss_of_verl_s_geometric_means() -> None:
    """The mean of its sequences; verl adds 1e-8 to the number of tokens."""
    x = case(spread=1.0)
    core = peer(VERL, "verl.trainer.ppo.core_algos")
    config = core.ActorConfig(
        strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=1, clip_ratio_low=0.4, clip_ratio_high=0.4
    )
    theirs, now = x.now.clone().requires_grad_(), x.now.clone().requires_grad_()
    expected, _ = core.compute_policy_loss_geo_mean(
        old_log_prob=x.old, log_prob=theirs, advantages=x.advantages, response_mask=x.mask.double(), config=config
    )
    expected.backward()

    spec = example(algorithm__loss_aggregation="sequence_mean", algorithm__kl_coefficient=0.0)
    batch = replace(x.batch, reference_logprobs_BL=None)
    outputs = PolicyOutputs(logprobs_BL=now, entropies_BL=torch.zeros_like(now))
    policy_loss = algorithm_of(spec).policy_loss
    assert policy_loss is not None
    loss, _ = policy_loss(batch, outputs, spec, x.counts)
    loss.backward()

    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert now.grad is not None
    assert theirs.grad is not None
    assert torch.allclose(now.grad, theirs.grad, atol=1e-6)


def test_without_a_file_the_formulas_are_the_algorithm_s() -> None:
    assert algorithm_of(spec_of(BASE)) is load_algorithm(BASE)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("BASE = 'grpo'\nPLUGIN =", "algorithm.py line 2 raised while it was loaded: SyntaxError"),
        ("BASE = 'grpo'\n\nimport not_there", "algorithm.py line 3 raised while it was loaded: ModuleNotFoundError"),
        ("raise SystemExit(0)", "algorithm.py line 1 raised while it was loaded: SystemExit"),
        ("PLUGIN = 1", "algorithm.py has no BASE."),
        ("BASE = 'grop'\nPLUGIN = 1", "names its base 'grop'. There is no algorithm or family 'grop'."),
        ("BASE = 'critic'\nPLUGIN = 1", "is made for critic, and this run trains grpo. Use one of ppo"),
        ("BASE = 'grpo'\nPLUGIN = 1", "has no PLUGIN = Algorithm(...)"),
        (f"{GRPO}PLUGIN = replace(PLUGIN, advantages=None)", "lacks advantages, which grpo has."),
        (f"{GRPO}PLUGIN = replace(PLUGIN, value_loss=lambda *_: 0)", "has value_loss, which grpo has not got."),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_a_sentence(source: str, said: str) -> None:
    with pytest.raises(RunProblem) as refused:
        algorithm_of(spec_of(BASE, algorithm__source=source))

    assert refused.value.field == FIELD
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("formulas", "said"),
    [
        ("policy_loss=lambda b, o, s, c: 1 / 0", "algorithm.py line 4 raised in policy_loss: ZeroDivisionError"),
        ("policy_loss=lambda b, o, s, c: o.logprobs_BL.sum()", "The policy_loss of algorithm.py returned Tensor."),
        ("policy_loss=lambda b, o, s, c: (o.logprobs_BL, {})", "as its loss. Return a tensor of one number."),
        ("policy_loss=lambda b, o, s, c: (b.rewards_B.sum(), {})", "a loss without a gradient."),
        (
            "policy_loss=lambda b, o, s, c: (o.logprobs_BL.sum(), {'mine': o.logprobs_BL.mean()})",
            "a tensor () of float32 as 'mine'. Return tensors of one number, without gradients",
        ),
        ("advantages=lambda b, s: b.rewards_B", "The advantages of algorithm.py returned Tensor. Return Estimates"),
        (
            "advantages=lambda b, s: __import__('jobs.engine.algorithm').engine.algorithm.Estimates("
            "advantages_BL=b.rewards_B)",
            "returned a tensor (4,) of float32 as advantages_BL. Return float32 of (4, 5).",
        ),
        (
            "advantages=lambda b, s: __import__('jobs.engine.algorithm').engine.algorithm.Estimates("
            "advantages_BL=b.mask_BL.float() + 1)",
            "not 0 outside of the mask",
        ),
        ("needs_old_logprobs=lambda s: 1", "The needs_old_logprobs of algorithm.py returned int."),
    ],
)
def test_a_formula_that_is_wrong_is_told_with_its_line_or_what_it_returned(formulas: str, said: str) -> None:
    spec = spec_of(BASE, algorithm__source=f"{GRPO}PLUGIN = replace(PLUGIN, {formulas})", rollout__samples_per_prompt=2)

    with pytest.raises(RunProblem) as refused:
        ask_all(algorithm_of(spec), spec)

    assert refused.value.field == FIELD
    assert said in refused.value.message


def test_memory_that_runs_out_is_not_the_file_s_fault() -> None:
    source = f"{GRPO}def loss(*_):\n    raise MemoryError\nPLUGIN = replace(PLUGIN, policy_loss=loss)"

    policy_loss = algorithm_of(spec_of(BASE, algorithm__source=source)).policy_loss
    assert policy_loss is not None

    with pytest.raises(MemoryError):
        policy_loss(*[None] * 4)  # type: ignore[arg-type]
