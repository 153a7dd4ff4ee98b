"""LoRA against PEFT's own model, against merged weights, and against the base that is left when it is off."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config, Qwen2Config

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.batch import Batch
from jobs.engine.checkpoints.adapter_export import write_adapters
from jobs.engine.problem import RunProblem
from jobs.engine.roles.adapters import (
    AdapterConfig,
    TrainedShare,
    adapter_files,
    adapter_parameters,
    add_adapters,
    dropping,
    exported_parameters,
    whole_weights,
    without_adapters,
)
from jobs.engine.roles.head import score_counted_tokens
from jobs.engine.roles.packed_attention import why_not
from jobs.engine.roles.sampler import Sampler
from jobs.engine.roles.value_head import load_score_model
from tests.jobs.engine.roles.test_head import SIZES, batch_of
from tests.jobs.engine.roles.test_packed_attention import CONFIGS, LENGTHS, model_of
from tests.jobs.engine.roles.test_sampler import PROMPTS, limits, requests_of
from tests.jobs.engine.roles.test_value_head import save

KINDS = {
    "lora": AdapterConfig(rank=4, alpha=8, targets="all-linear"),
    "some layers": AdapterConfig(rank=2, alpha=6, targets="q_proj, v_proj"),
    "rslora": AdapterConfig(rank=4, alpha=8, targets="all-linear", is_rank_stabilized=True),
    "dora": AdapterConfig(rank=4, alpha=8, targets="all-linear", has_magnitudes=True),
}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def moved(model: Any) -> Any:
    """Let adapters be some steps away from where they start, which is nothing."""
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.add_(torch.randn(parameter.shape, generator=random) * parameter.abs().mean().clamp(min=0.02))
    return model


def adapted(kind: str, *, family: str = "qwen2", dtype: torch.dtype = torch.float32, is_packed: bool = False) -> Any:
    """Return a random model with adapters that have moved."""
    model = model_of(CONFIGS[family], dtype=dtype)
    assert not is_packed or not why_not(model)
    score_counted_tokens(model, is_packed=is_packed)
    add_adapters(model, KINDS[kind], seed=1)
    return moved(model)


def merged(model: Any, *, family: str = "qwen2", dtype: torch.dtype = torch.float32) -> Any:
    """Return the model without adapters whose weights are the merged ones, as an engine would load them."""
    plain = model_of(CONFIGS[family], dtype=dtype)
    weights = {weight.name: weight.value().clone() for weight in whole_weights(model)}
    assert {name: tuple(p.shape) for name, p in plain.named_parameters()} == {
        weight.name: weight.shape for weight in whole_weights(model)
    }
    missing = plain.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    score_counted_tokens(plain)
    return plain


@torch.no_grad()
def logprobs(model: Any, batch: Batch | None = None) -> Tensor:
    """Return the log-probabilities of the counted tokens of a batch."""
    batch = batch or batch_of(LENGTHS)
    scored: Tensor = model(batch.tokens_BL, batch.mask_BL, 1.0, batch.lengths_B)[0]
    return scored


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])  # qwen3 has its output layer tied to the embedding
@kinds
def test_merged_weights_say_what_the_adapters_say(kind: str, family: str) -> None:
    model = adapted(kind, family=family)

    torch.testing.assert_close(logprobs(merged(model, family=family)), logprobs(model), atol=1e-5, rtol=0)


@kinds
def test_without_adapters_the_model_is_its_base_to_the_last_bit(kind: str) -> None:
    model, base = adapted(kind), model_of(CONFIGS["qwen2"])
    score_counted_tokens(base)

    with without_adapters(model):
        off = logprobs(model)

    assert torch.equal(off, logprobs(base))
    assert (logprobs(model) - off).abs().max() > 0.01  # they are on again
    assert [p.requires_grad for p in adapter_parameters(model).values()].count(False) == 0


@kinds
def test_merging_leaves_the_base_and_the_adapters_as_they_were(kind: str) -> None:
    model = adapted(kind, dtype=torch.bfloat16)
    before = {name: p.clone() for name, p in model.named_parameters()}
    said = logprobs(model)

    for weight in whole_weights(model):
        weight.value()

    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert torch.equal(logprobs(model), said)


@kinds
def test_a_fresh_adapter_changes_nothing_and_is_the_same_of_the_same_seed(kind: str) -> None:
    base, models = model_of(CONFIGS["qwen2"]), []
    score_counted_tokens(base)
    for seed in (1, 1, 2):
        torch.manual_seed(17 * seed)  # what was drawn before counts for nothing
        models.append(model_of(CONFIGS["qwen2"]))
        score_counted_tokens(models[-1])
        add_adapters(models[-1], KINDS[kind], seed=seed)
    first, same, other = (torch.cat([p.flatten() for p in adapter_parameters(m).values()]) for m in models)

    torch.testing.assert_close(logprobs(models[0]), logprobs(base), atol=1e-6, rtol=0)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@kinds
def test_gradients_are_those_of_pefts_own_model(kind: str) -> None:
    ours, config, batch = adapted(kind), KINDS[kind], batch_of(LENGTHS)
    theirs = get_peft_model(
        model_of(CONFIGS["qwen2"]),
        LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            target_modules="all-linear" if config.targets == "all-linear" else ["q_proj", "v_proj"],
            use_rslora=config.is_rank_stabilized,
            use_dora=config.has_magnitudes,
            task_type="CAUSAL_LM",
        ),
    )
    trained = {name.removeprefix("base_model.model."): p for name, p in theirs.named_parameters() if p.requires_grad}
    assert list(trained) == list(adapter_parameters(ours))
    with torch.no_grad():
        for name, parameter in adapter_parameters(ours).items():
            trained[name].copy_(parameter)

    loss = -ours(batch.tokens_BL, batch.mask_BL, 1.0, batch.lengths_B)[0].sum()
    logits = theirs(input_ids=batch.tokens_BL).logits[:, :-1]
    chosen = torch.log_softmax(logits, dim=-1).gather(2, batch.tokens_BL[:, 1:, None]).squeeze(2)
    expected = -(chosen * batch.mask_BL[:, 1:]).sum()

    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    gradients = torch.autograd.grad(loss, list(adapter_parameters(ours).values()))
    for ours_of, theirs_of in zip(gradients, torch.autograd.grad(expected, list(trained.values())), strict=True):
        assert torch.linalg.vector_norm(ours_of - theirs_of) <= 1e-5 * torch.linalg.vector_norm(theirs_of)
    assert all(not p.requires_grad for name, p in ours.named_parameters() if name not in trained)


@kinds
def test_packed_sequences_say_and_teach_adapters_what_padded_ones_do(kind: str) -> None:
    found = []
    for is_packed in (False, True):
        model, batch = adapted(kind, is_packed=is_packed), batch_of(LENGTHS)
        scored = model(batch.tokens_BL, batch.mask_BL, 1.0, batch.lengths_B)[0]
        gradient = torch.autograd.grad(scored.sum(), list(adapter_parameters(model).values()))
        found.append((scored.detach(), torch.cat([g.flatten() for g in gradient])))
    (padded, of_padded), (packed, of_packed) = found

    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=0)
    assert torch.linalg.vector_norm(of_packed - of_padded) <= 1e-5 * torch.linalg.vector_norm(of_padded)


@kinds
def test_ranks_that_draw_say_what_merged_weights_say(kind: str) -> None:
    model = adapted(kind)
    requests = requests_of(PROMPTS)

    drawn, expected = (
        Sampler(each, pad_id=0, device="cpu").generate(requests, limits()) for each in (model, merged(model))
    )

    assert [response.tokens for response in drawn] == [response.tokens for response in expected]


@kinds
def test_the_exported_folder_is_loaded_by_peft_and_says_the_same(kind: str, tmp_path: Path) -> None:
    model = adapted(kind)
    own = {name: p.detach().clone() for name, p in adapter_parameters(model).items()}

    write_adapters(tmp_path / "adapter", *adapter_files(model, own), about={"step": 4})
    loaded = PeftModel.from_pretrained(model_of(CONFIGS["qwen2"]), tmp_path / "adapter").eval()

    batch = batch_of(LENGTHS)
    with torch.no_grad():
        theirs = torch.log_softmax(loaded(input_ids=batch.tokens_BL).logits[:, :-1], dim=-1)
    said = theirs.gather(2, batch.tokens_BL[:, 1:, None]).squeeze(2) * batch.mask_BL[:, 1:]
    torch.testing.assert_close(said, logprobs(model, batch)[:, 1:], atol=1e-5, rtol=0)
    assert json.loads((tmp_path / "adapter" / "pitwall.json").read_text()) == {"step": 4}


def test_of_a_reward_model_the_exported_folder_holds_the_head_too(tmp_path: Path) -> None:
    base = save(Qwen2Config(**SIZES, num_labels=1), tmp_path / "base", auto=AutoModelForSequenceClassification)
    model = load_score_model(base, precision="float32", is_packed=False, field="model.id")
    add_adapters(moved(model), KINDS["lora"], seed=1)
    with torch.no_grad():
        moved(model).scalar_head.weight.add_(0.1)
    own = {name: p.detach().clone() for name, p in exported_parameters(model).items()}

    write_adapters(tmp_path / "adapter", *adapter_files(model, own), about={})
    plain = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    loaded = PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()

    batch = batch_of([9])
    with torch.no_grad():
        (theirs,) = loaded(input_ids=batch.tokens_BL).logits[:, 0]
        (ours,) = model(batch.tokens_BL, batch.mask_BL, batch.lengths_B)
    assert float(ours) == pytest.approx(float(theirs), abs=1e-5)
    assert set(own) - set(adapter_parameters(model)) == {"score.weight"}


def test_in_bfloat16_a_merged_weight_is_rounded_once() -> None:
    model = adapted("lora", dtype=torch.bfloat16)
    weight = next(w for w in whole_weights(model) if w.name.endswith("q_proj.weight"))
    base, first, second = (p.detach().double() for p in weight.parameters)

    exact = base + 2.0 * second @ first

    assert weight.value().dtype == torch.bfloat16
    assert ((weight.value().double() - exact).abs() <= (2.0**-8 + 2.0**-9) * exact.abs() + 2e-4).all()


def test_inputs_are_dropped_in_updates_alone_and_alike_of_a_seed() -> None:
    config = AdapterConfig(rank=4, alpha=8, targets="all-linear", dropout=0.5)
    model = model_of(CONFIGS["qwen2"])
    score_counted_tokens(model)
    add_adapters(model, config, seed=1)
    before = logprobs(moved(model))
    said = []
    for seed in (1, 1, 2):
        with dropping(model, config, seed=seed):
            said.append(logprobs(model))

    assert torch.equal(said[0], said[1])
    assert not torch.equal(said[0], said[2])
    assert not torch.equal(said[0], before)
    assert torch.equal(logprobs(model), before)


def test_it_is_counted_how_much_is_trained() -> None:
    model = adapted("some layers")
    share = TrainedShare.of(model)

    assert share is not None
    assert TrainedShare.of(model_of(CONFIGS["qwen2"])) is None
    assert share.num_trained == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert share.num_all == sum(p.numel() for p in model.parameters())
    assert share.metrics()["policy/adapter_bytes"] == 4 * share.num_trained
    assert f"{share.num_trained:,} of {share.num_all:,} parameters" in str(share)


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        ("q_proj,nowhere", "'nowhere' is no layer"),
        ("lm_head", "the output layer"),
        ("q_proj, mlp", "'mlp' is no linear layer"),
        ("embed_tokens", "no linear layer"),
    ],
)
def test_layers_that_take_no_adapter_are_refused_with_those_that_do(targets: str, says: str) -> None:
    with pytest.raises(RunProblem) as refused:
        add_adapters(model_of(CONFIGS["qwen2"]), AdapterConfig(rank=2, alpha=2, targets=targets), seed=1)

    assert refused.value.field == "knobs.lora.target_modules"
    assert says in refused.value.message
    assert "gate_proj" in refused.value.message


def test_the_knobs_say_what_adapters_a_run_has() -> None:
    knobs = {"lora.rank": 8, "lora.alpha": 4, "lora.rslora": True, "lora.dropout": 0.1}

    assert AdapterConfig.of(parse_spec({"algorithm": "sft"})) is None
    assert AdapterConfig.of(parse_spec({"algorithm": "sft", "knobs": knobs})) == AdapterConfig(
        rank=8, alpha=4, targets="all-linear", dropout=0.1, is_rank_stabilized=True
    )


def test_layers_of_gpt2_which_hold_their_weights_the_other_way_round_are_merged_right() -> None:
    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config).eval()
    plain = AutoModelForCausalLM.from_config(config).eval()
    add_adapters(model, KINDS["lora"], seed=1)
    moved(model)
    plain.load_state_dict({w.name: w.value().clone() for w in whole_weights(model)}, strict=False)
    tokens = torch.arange(20).reshape(2, 10)

    with torch.no_grad():
        torch.testing.assert_close(plain(tokens).logits, model(tokens).logits, atol=1e-5, rtol=0)
