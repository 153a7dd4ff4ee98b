"""Sequences in one row without padding, against the same sequences padded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    FalconConfig,
    FalconH1Config,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from jobs.engine.advantages import over_tokens
from jobs.engine.algorithm import Counts, Loss, PolicyOutputs, load_algorithm
from jobs.engine.batch import Batch
from jobs.engine.roles.head import score_counted_tokens
from jobs.engine.roles.language_model import load_model
from jobs.engine.roles.packed_attention import packed_row, why_not
from tests.jobs.engine.policy_batches import spec_of
from tests.jobs.engine.roles.test_head import SIZES, batch_of
from tests.jobs.engine.roles.test_sampler import PROMPTS, limits, requests_of, sampler_of

LENGTHS = [9, 4, 12, 1, 12, 7]
CONFIGS: dict[str, Any] = {
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, tie_word_embeddings=True),
    "llama": LlamaConfig(**SIZES),
}


def model_of(config: Any, *, dtype: torch.dtype = torch.float32, is_checkpointed: bool = False) -> Any:
    """Return a random model in training, with attention sharp enough to see who attends to whom."""
    torch.manual_seed(5)
    config._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0 if parameter.dim() > 1 else 1.0)
    if is_checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.to(dtype).train()


def loss_of(algorithm: str, batch: Batch, outputs: PolicyOutputs) -> Loss:
    """Return the loss of SFT, of DPO, or of GRPO with a KL and a policy that has moved since it sampled."""
    counts = Counts(num_tokens=batch.num_trained_tokens, num_sequences=batch.num_sequences)
    if algorithm == "dpo":
        batch = replace(batch, reference_logprobs_BL=torch.full(batch.tokens_BL.shape, -2.0) * batch.mask_BL)
    if algorithm == "grpo":
        random = torch.Generator().manual_seed(6)
        moved = [torch.randn(batch.tokens_BL.shape, generator=random) / 8 for _ in range(2)]
        old_BL, reference_BL = ((outputs.logprobs_BL.detach().float() + by_BL) * batch.mask_BL for by_BL in moved)
        advantages_BL = over_tokens(torch.linspace(-1, 1, batch.num_sequences), batch.mask_BL)
        batch = replace(batch, old_logprobs_BL=old_BL, reference_logprobs_BL=reference_BL, advantages_BL=advantages_BL)
    return load_algorithm(algorithm).policy_loss(batch, outputs, spec_of(algorithm), counts)


def learned(model: Any, batch: Batch, algorithm: str) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Return log-probabilities, loss and metrics, and the whole gradient."""
    logprobs_BL, entropies_BL = model(batch.tokens_BL, batch.mask_BL, 0.7, batch.lengths_B)
    loss, metrics = loss_of(algorithm, batch, PolicyOutputs(logprobs_BL=logprobs_BL, entropies_BL=entropies_BL))
    gradient = torch.cat([g.flatten().float() for g in torch.autograd.grad(loss, list(model.parameters()))])
    return logprobs_BL.detach(), {"loss": loss.detach(), **metrics}, gradient


def both(family: str, algorithm: str, **how: Any) -> list[tuple[Tensor, dict[str, Tensor], Tensor]]:
    """Return what one model learns of a batch that is padded, and that is packed."""
    found = []
    for is_packed in (False, True):
        model = model_of(CONFIGS[family], **how)
        assert not is_packed or not why_not(model)
        score_counted_tokens(model, is_packed=is_packed)
        found.append(learned(model, batch_of(LENGTHS), algorithm))
    return found


@pytest.mark.parametrize("family", list(CONFIGS))
@pytest.mark.parametrize("algorithm", ["sft", "grpo", "dpo"])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_packed_is_padded_in_float32(family: str, algorithm: str, is_checkpointed: bool) -> None:
    padded, packed = both(family, algorithm, is_checkpointed=is_checkpointed)

    assert torch.allclose(packed[0], padded[0], atol=1e-5)
    assert {name: float(value) for name, value in packed[1].items()} == pytest.approx(
        {name: float(value) for name, value in padded[1].items()}, abs=1e-5
    )
    assert float((packed[2] - padded[2]).norm()) <= 1e-5 * float(padded[2].norm())


@pytest.mark.parametrize("family", list(CONFIGS))
@pytest.mark.parametrize("algorithm", ["sft", "grpo"])
def test_packed_is_padded_up_to_rounding_in_bfloat16(family: str, algorithm: str) -> None:
    """The gradient is no further from the padded one than that is from float32's: sums of 8 bits in another order."""
    padded, packed = both(family, algorithm, dtype=torch.bfloat16, is_checkpointed=True)
    exact = both(family, algorithm)[0]

    norm = float(exact[2].norm())
    assert float(packed[1]["loss"]) == pytest.approx(float(padded[1]["loss"]), abs=5e-3)
    assert float((packed[2] - padded[2]).norm()) / norm < 0.02
    assert float((packed[2] - exact[2]).norm()) < 1.1 * float((padded[2] - exact[2]).norm())


def test_no_token_sees_another_sequence() -> None:
    """Other tokens in the second sequence leave the log-probabilities of all others as they are, to the last bit."""
    model, batch = model_of(CONFIGS["llama"]), batch_of(LENGTHS)
    assert not why_not(model)
    score_counted_tokens(model, is_packed=True)
    tokens_BL = batch.tokens_BL.clone()
    tokens_BL[1, :4] = (tokens_BL[1, :4] + 7) % 61

    before_BL, _ = model(batch.tokens_BL, batch.mask_BL, 1.0, batch.lengths_B)
    after_BL, _ = model(tokens_BL, batch.mask_BL, 1.0, batch.lengths_B)

    changed = (before_BL != after_BL).any(dim=1)
    assert changed.tolist() == [False, True, False, False, False, False]


def test_a_row_holds_no_padding_and_says_where_sequences_begin() -> None:
    batch = batch_of(LENGTHS)

    inputs, begins_B = packed_row(batch.tokens_BL, batch.lengths_B)

    assert inputs["input_ids"].shape == (1, sum(LENGTHS))
    assert inputs["input_ids"][0, 9:13].tolist() == batch.tokens_BL[1, :4].tolist()
    assert inputs["position_ids"][0, :14].tolist() == [*range(9), *range(4), 0]
    assert inputs["cu_seq_lens_q"].tolist() == [0, 9, 13, 25, 26, 38, 45]
    assert begins_B.tolist() == [0, 9, 13, 25, 26, 38]


def test_rows_without_bounds_are_attended_to_as_before() -> None:
    """The sampler of the same model keeps a cache, and has prompts of several lengths padded on the left."""
    sampler, _ = sampler_of()
    expected = sampler.generate(requests_of(PROMPTS), limits())

    packing, _ = sampler_of()
    assert not why_not(packing._model)

    assert packing.generate(requests_of(PROMPTS), limits()) == expected


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Gemma2Config(**SIZES), "it has layers of sliding_attention"),
        (MistralConfig(**SIZES, sliding_window=4), "it has layers of sliding_attention"),
        (Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1), "layers of sliding"),
        (
            FalconConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=2),
            "its attention cannot be replaced",
        ),
        (FalconH1Config(**SIZES, mamba_d_ssm=32, mamba_n_heads=2, mamba_d_head=16), "it has layers of hybrid"),
    ],
)
def test_models_whose_layers_would_mix_sequences_up_are_told(config: Any, reason: str) -> None:
    model = model_of(config)

    assert reason in why_not(model)
    assert model.config._attn_implementation == "sdpa"


def test_layers_that_are_not_told_where_a_sequence_begins_are_seen() -> None:
    model = model_of(CONFIGS["llama"])
    attention = model.model.layers[1].self_attn
    whole = attention.forward

    attention.forward = lambda *args, cu_seq_lens_q=None, **others: whole(*args, **others)
    lost = why_not(model)
    attention.forward = lambda hidden_states, **_: (hidden_states, None)
    other = why_not(model)

    assert lost.startswith("it does not take two sequences in one row (The size of tensor")
    assert other == "1 of its 2 layers do not ask where a sequence begins"
    assert model.config._attn_implementation == "sdpa"


def test_a_model_that_does_not_take_positions_is_seen() -> None:
    model = model_of(CONFIGS["llama"])
    model.model.rotary_emb.forward = _positions_of_the_row(model.model.rotary_emb.forward)

    assert why_not(model) == "two sequences in one row change each other"


def _positions_of_the_row(rotary: Any) -> Any:
    def forward(hidden_BLD: Tensor, position_ids: Tensor) -> Any:
        return rotary(hidden_BLD, torch.arange(position_ids.shape[1]).square()[None])  # no longer relative

    return forward


def test_such_a_model_is_padded_and_says_why(tmp_path: Path) -> None:
    model_of(Gemma2Config(**SIZES)).save_pretrained(tmp_path / "small")

    model: Any = load_model(tmp_path / "small", precision="float32", is_packed=True)

    assert model.packing_problem == "it has layers of sliding_attention"
    assert not model.is_packed
    assert model.config._attn_implementation == "sdpa"
