"""Completions drawn in the policy's process, against plain forward passes of transformers."""

import math
from typing import Any

import pytest
import torch

import jobs.engine.roles.decoding as decoding
from jobs.engine.roles.head import score_counted_tokens
from jobs.engine.roles.sampler import Sampler, SamplingLimits
from jobs.engine.rollouts.request import GenerationRequest, SampledResponse
from tests.jobs.engine.roles.test_head import model_of

EOS = 7
PROMPTS = [(3, 9, 4), (11, 2), (3, 9, 4), (5, 6, 8, 1, 12), (11, 2)]


def limits(*, temperature: float = 0.8, longest: int = 12, batch_size: int = 64, eos: int = EOS) -> SamplingLimits:
    return SamplingLimits(temperature=temperature, max_new_tokens=longest, eos_ids=[eos], batch_size=batch_size)


def sampler_of(family: str = "qwen2", *, is_sharp: bool = True) -> tuple[Sampler, Any]:
    """Return a sampler, and a twin of its model as transformers has it; sharp logits, so that choices are clear."""
    pair = []
    for _ in range(2):
        model = model_of(family, is_tied=True)
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(4.0 if is_sharp else 1.0)
        pair.append(model.train())
    score_counted_tokens(pair[0])
    return Sampler(pair[0], pad_id=0, device="cpu"), pair[1]


def requests_of(prompts: list[tuple[int, ...]]) -> list[GenerationRequest]:
    return [GenerationRequest(tokens=prompt, seed=100 + i) for i, prompt in enumerate(prompts)]


def slow(model: Any, request: GenerationRequest, wanted: SamplingLimits) -> SampledResponse:
    """Draw one completion token by token, each by a forward pass over everything before it, without a cache."""
    uniforms = torch.rand(wanted.max_new_tokens, generator=torch.Generator().manual_seed(request.seed))
    tokens, logprobs = list(request.tokens), []
    for position in range(wanted.max_new_tokens):
        with torch.no_grad():
            logits = model.eval()(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        shares = torch.softmax(logits / (wanted.temperature or 1.0), dim=-1)
        if wanted.temperature == 0:
            token = int(shares.argmax())
        else:
            token = next(i for i in range(61) if float(shares[: i + 1].sum()) > float(uniforms[position]))
        tokens.append(token)
        logprobs.append(math.log(float(shares[token])))
        if token in wanted.eos_ids:
            break
    drawn = tuple(tokens[len(request.tokens) :])
    return SampledResponse(tokens=drawn, logprobs=tuple(logprobs), is_truncated=drawn[-1] not in wanted.eos_ids)


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_each_completion_is_what_plain_forward_passes_draw(family: str, temperature: float) -> None:
    sampler, twin = sampler_of(family)
    asked, wanted = requests_of(PROMPTS), limits(temperature=temperature)

    found = sampler.generate(asked, wanted)

    for request, response in zip(asked, found, strict=True):
        expected = slow(twin, request, wanted)
        assert response.tokens == expected.tokens
        assert response.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
        assert response.is_truncated is expected.is_truncated


def test_what_a_sample_says_depends_on_no_other_sample() -> None:
    sampler, _ = sampler_of()
    asked = requests_of(PROMPTS)

    together = sampler.generate(asked, limits())
    alone = [sampler.generate([request], limits())[0] for request in asked]
    two_by_two = sampler.generate(asked, limits(batch_size=2))

    assert [r.tokens for r in together] == [r.tokens for r in alone] == [r.tokens for r in two_by_two]


@pytest.mark.parametrize("room", [0, 1, 5])
def test_what_a_sample_says_does_not_depend_on_the_room_of_the_cache(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler, _ = sampler_of()
    asked = requests_of(PROMPTS)
    expected = sampler.generate(asked, limits())

    monkeypatch.setattr(decoding, "_ROOM", room)

    assert sampler.generate(asked, limits()) == expected


def test_samples_of_one_prompt_differ_and_end_at_their_own_end_tokens() -> None:
    sampler, _ = sampler_of(is_sharp=False)
    asked = [GenerationRequest(tokens=(3, 9, 4), seed=seed) for seed in range(40)]

    found = sampler.generate(asked, limits(longest=40))

    assert len({r.tokens for r in found}) > 30
    ended = [r for r in found if not r.is_truncated]
    assert len({len(r.tokens) for r in ended}) > 3
    assert all(r.tokens[-1] == EOS and EOS not in r.tokens[:-1] for r in ended)
    assert all(len(r.tokens) == 40 and EOS not in r.tokens for r in found if r.is_truncated)
    assert all(len(r.logprobs) == len(r.tokens) for r in found)


def test_tokens_come_as_often_as_the_model_says() -> None:
    """6,000 draws of one token: Pearson's statistic, 60 degrees of freedom, far in the tail."""
    sampler, twin = sampler_of(is_sharp=False)
    asked = [GenerationRequest(tokens=(3, 9, 4), seed=seed) for seed in range(6000)]

    found = sampler.generate(asked, limits(temperature=1.0, longest=1, batch_size=6000))

    with torch.no_grad():
        shares = torch.softmax(twin(input_ids=torch.tensor([[3, 9, 4]]), use_cache=False).logits[0, -1], dim=-1)
    counts = torch.bincount(torch.tensor([r.tokens[0] for r in found]), minlength=61)
    expected = 6000 * shares
    assert float(((counts - expected).square() / expected).sum()) < 110  # 1 in 10,000
    assert all(r.is_truncated is (r.tokens[0] != EOS) for r in found)


def test_end_tokens_are_passed_over_where_there_are_none_and_nothing_is_drawn_for_nobody() -> None:
    sampler, _ = sampler_of(is_sharp=False)
    wanted = SamplingLimits(temperature=1.0, max_new_tokens=9, eos_ids=[], batch_size=4)

    assert [len(r.tokens) for r in sampler.generate(requests_of(PROMPTS), wanted)] == [9] * 5
    assert sampler.generate([], wanted) == []


def test_a_model_in_training_stays_in_training() -> None:
    sampler, _ = sampler_of()
    sampler._model.gradient_checkpointing_enable()
    sampler._model.train()

    sampler.generate(requests_of(PROMPTS[:1]), limits(longest=2))

    assert sampler._model.training
    assert sampler._model.config._attn_implementation == "sdpa"
