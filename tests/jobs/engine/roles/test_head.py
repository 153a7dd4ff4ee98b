"""The output layer in pieces, against the model's own logits."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

import jobs.engine.roles.head as head
from jobs.engine.batch import Batch, make_batch
from jobs.engine.losses import token_scores
from jobs.engine.micro_batches import Cut
from jobs.engine.roles.language_model import score

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "pad_token_id": 0,
}


def model_of(family: str, *, is_tied: bool) -> Any:
    """Return a small random model: Qwen2, or Gemma 2, which caps its logits."""
    torch.manual_seed(11)
    if family == "gemma2":
        return Gemma2ForCausalLM(Gemma2Config(**SIZES, tie_word_embeddings=is_tied, final_logit_softcapping=3.0))
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=is_tied))


def batch_of(lengths: list[int]) -> Batch:
    """Return sequences of those lengths; the last two thirds of each count."""
    generator = torch.Generator().manual_seed(4)
    sequences = [
        (torch.randint(1, 61, (n,), generator=generator).tolist(), [i >= n // 3 for i in range(n)]) for n in lengths
    ]
    return make_batch(sequences, pad_id=0)


def gradients(model: Any, logprobs_BL: Tensor, mask_BL: Tensor) -> list[Tensor]:
    """Return the gradients of a weighted sum of the counted log-probabilities."""
    weights_BL = torch.linspace(-1, 1, logprobs_BL.numel()).view(logprobs_BL.shape)
    loss = (weights_BL * torch.where(mask_BL, logprobs_BL, 0.0)).sum()
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_scores_and_gradients_are_those_of_the_whole_logits(
    family: str, is_tied: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", chunk * 61)
    batch, model = batch_of([9, 4, 12]), model_of(family, is_tied=is_tied)
    whole = token_scores(model(input_ids=batch.tokens_BL, use_cache=False).logits, batch.tokens_BL, temperature=0.7)
    expected = gradients(model, whole[0], batch.mask_BL)

    head.score_counted_tokens(model)
    found = model(batch.tokens_BL, batch.mask_BL, 0.7)

    for mine, all_BL in zip(found, whole, strict=True):
        assert torch.allclose(mine, torch.where(batch.mask_BL, all_BL, 0.0), atol=1e-5)
    assert not found[1].requires_grad
    for mine, theirs in zip(gradients(model, found[0], batch.mask_BL), expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_a_model_that_does_more_to_its_logits_is_recognized() -> None:
    assert head.has_plain_head(model_of("qwen2", is_tied=True))
    assert not head.has_plain_head(model_of("gemma2", is_tied=True))


def test_a_batch_in_which_nothing_counts_has_zeros_and_a_gradient() -> None:
    model = model_of("qwen2", is_tied=False)
    head.score_counted_tokens(model)
    batch = batch_of([6, 3])

    logprobs_BL, entropies_BL = model(batch.tokens_BL, torch.zeros_like(batch.mask_BL), 1.0)
    logprobs_BL.sum().backward()

    assert not logprobs_BL.any()
    assert not entropies_BL.any()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_scoring_puts_each_sequence_where_it_was_whatever_the_micro_batch() -> None:
    model = model_of("qwen2", is_tied=True)
    head.score_counted_tokens(model)
    batch = batch_of([3, 11, 5, 8, 2])

    one, two, all_at_once = (
        score(model, batch, micros=Cut(size=size).rows(batch.lengths_B), temperature=1.0, device="cpu")
        for size in (1, 2, 5)
    )

    assert one.shape == batch.tokens_BL.shape
    assert torch.allclose(one, all_at_once, atol=1e-5)
    assert torch.allclose(two, all_at_once, atol=1e-5)
    assert (one != 0).equal(batch.mask_BL)


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
@pytest.mark.parametrize("size", [61, 1 << 26])
def test_entropies_have_the_gradient_of_the_models_own_logits_where_it_is_wanted(
    family: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", size)
    batch = batch_of([9, 5, 7])
    plain, ours, without = (model_of(family, is_tied=False) for _ in range(3))
    head.score_counted_tokens(ours, with_entropy_gradient=True)
    head.score_counted_tokens(without)

    logits_BLV = plain(input_ids=batch.tokens_BL).logits
    wanted_BL = token_scores(logits_BLV, batch.tokens_BL, with_entropy_gradient=True)[1]
    wanted_BL[batch.mask_BL].sum().backward()
    ours(batch.tokens_BL, batch.mask_BL, 1.0)[1].sum().backward()

    assert not without(batch.tokens_BL, batch.mask_BL, 1.0)[1].requires_grad
    for expected, found in zip(plain.parameters(), ours.parameters(), strict=True):
        assert expected.grad is not None
        assert found.grad is not None
        assert torch.allclose(found.grad, expected.grad, atol=1e-5)
