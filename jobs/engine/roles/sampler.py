"""Completions drawn by the policy's own process: no second copy of the weights, and nothing to sync.

Each prompt is computed once, whatever number of samples it has. Every sample has random numbers of its own, so what it
says depends neither on the others nor on how many are drawn at once. Shapes: P prompts, N samples under way, T tokens
of the longest prompt, D hidden, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jobs.engine.roles.compiled_layers import uncompiled
from jobs.engine.roles.decoding import decoding, growing_cache
from jobs.engine.rollouts.request import GenerationRequest, SampledResponse

_COMPACT_BELOW = 0.75
"""Samples that have ended are taken out of the batch once less than this fraction goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingLimits:
    """How tokens are drawn: at a temperature (0: the likeliest), up to so many, to one of the end tokens or past it."""

    temperature: float
    max_new_tokens: int
    eos_ids: Sequence[int]
    batch_size: int


class Sampler:
    """Draws completions from a causal language model of transformers, with a cache of keys and values.

    `model` is one that `score_counted_tokens` has prepared, with whole weights in this process; `pad_id` any token.
    """

    def __init__(self, model: Any, *, pad_id: int, device: str) -> None:
        self._model, self._pad_id, self._device = model, pad_id, device
        self._is_plain = bool(model.has_plain_head)

    @torch.no_grad()
    def generate(self, requests: Sequence[GenerationRequest], limits: SamplingLimits) -> list[SampledResponse]:
        """Return one completion per request, in order."""
        was_training = self._model.training
        self._model.eval()  # gradient checkpointing of a model in training keeps no cache
        responses: dict[int, SampledResponse] = {}
        order = sorted(range(len(requests)), key=lambda i: (len(requests[i].tokens), requests[i].tokens))
        try:
            with decoding(self._model), uncompiled():
                for begin in range(0, len(order), limits.batch_size):
                    chosen = order[begin : begin + limits.batch_size]
                    drawn = self._draw([requests[i] for i in chosen], limits)
                    responses.update(zip(chosen, drawn, strict=True))
            return [responses[i] for i in range(len(requests))]
        finally:
            self._model.train(was_training)

    def _draw(self, requests: Sequence[GenerationRequest], limits: SamplingLimits) -> list[SampledResponse]:
        cache = growing_cache()
        logits_NV, mask_NT = self._read_prompts(requests, cache)
        uniforms_NL = _uniforms(requests, limits.max_new_tokens).to(self._device)
        ends = torch.tensor(sorted(limits.eos_ids), dtype=torch.long)
        number_N = torch.arange(len(requests))  # which request each row of the batch continues
        tokens_NL = torch.zeros((len(requests), limits.max_new_tokens), dtype=torch.long)
        logprobs_NL = torch.zeros((len(requests), limits.max_new_tokens))
        lengths_N = torch.full((len(requests),), limits.max_new_tokens)
        has_ended_N = torch.zeros(len(requests), dtype=torch.bool)
        for position in range(limits.max_new_tokens):
            uniform_N = uniforms_NL[number_N.to(self._device), position]
            picked = _pick(logits_NV, uniform_N, limits.temperature)  # where the logits are: they are large
            token_N, logprob_N = (each.cpu() for each in picked)
            tokens_NL[number_N, position], logprobs_NL[number_N, position] = token_N, logprob_N
            ended_N = number_N[torch.isin(token_N, ends) & ~has_ended_N[number_N]]
            has_ended_N[ended_N], lengths_N[ended_N] = True, position + 1
            goes_on_N = ~has_ended_N[number_N]
            if position + 1 == limits.max_new_tokens or not goes_on_N.any():
                break
            if goes_on_N.float().mean() < _COMPACT_BELOW:
                kept_N = goes_on_N.nonzero().squeeze(1)
                cache.batch_select_indices(kept_N.to(self._device))
                number_N, token_N, mask_NT = number_N[kept_N], token_N[kept_N], mask_NT[kept_N]
            mask_NT = torch.cat([mask_NT, mask_NT.new_ones((len(number_N), 1))], dim=1)
            places_N1 = mask_NT.sum(dim=1, keepdim=True) - 1
            logits_NV = self._logits(token_N.unsqueeze(1), mask_NT, places_N1, cache)
        return [
            SampledResponse(
                tokens=tuple(tokens_NL[i, :length].tolist()),
                logprobs=tuple(logprobs_NL[i, :length].tolist()),
                is_truncated=not has_ended,
            )
            for i, (length, has_ended) in enumerate(zip(lengths_N.tolist(), has_ended_N.tolist(), strict=True))
        ]

    def _read_prompts(self, requests: Sequence[GenerationRequest], cache: Any) -> tuple[Tensor, Tensor]:
        """Fill the cache with each sample's prompt; return the logits behind it [N, V], and which places are its own.

        Prompts are padded on the left, so that all end at the same place.
        """
        prompts = list(dict.fromkeys(request.tokens for request in requests))
        row = {prompt: i for i, prompt in enumerate(prompts)}
        longest = max(map(len, prompts))
        tokens_PT = torch.full((len(prompts), longest), self._pad_id, dtype=torch.long)
        mask_PT = torch.zeros((len(prompts), longest), dtype=torch.long)
        for i, prompt in enumerate(prompts):
            tokens_PT[i, longest - len(prompt) :] = torch.tensor(prompt)
            mask_PT[i, longest - len(prompt) :] = 1
        logits_PV = self._logits(tokens_PT, mask_PT, (mask_PT.cumsum(dim=1) - 1).clamp(min=0), cache)
        of_N = torch.tensor([row[request.tokens] for request in requests])
        cache.batch_select_indices(of_N.to(self._device))
        return logits_PV[of_N.to(self._device)], mask_PT[of_N]

    def _logits(self, tokens_NT: Tensor, mask_NT: Tensor, places_NT: Tensor, cache: Any) -> Tensor:
        """Return the logits behind the last token: float32 [N, V]."""
        inputs = {
            "input_ids": tokens_NT.to(self._device),
            "attention_mask": None if bool(mask_NT.all()) else mask_NT.to(self._device),
            "position_ids": places_NT.to(self._device),
            "past_key_values": cache,
            "use_cache": True,
        }
        if self._is_plain:
            head = self._model.get_output_embeddings()
            hidden_ND = self._model.base_model(**inputs).last_hidden_state[:, -1]
            return torch.nn.functional.linear(hidden_ND, head.weight, head.bias).float()
        logits: Tensor = type(self._model).forward(self._model, **inputs, logits_to_keep=1).logits[:, -1]
        return logits.float()


def _uniforms(requests: Sequence[GenerationRequest], count: int) -> Tensor:
    """Return `count` random numbers of [0, 1) for each request, of its seed alone: [N, count]."""
    generator = torch.Generator()
    return torch.stack([torch.rand(count, generator=generator.manual_seed(request.seed)) for request in requests])


def _pick(logits_NV: Tensor, uniform_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return a token of softmax(logits / temperature) for each row, and its log-probability: where the running sum of
    probabilities passes the random number. At temperature 0 the likeliest, and its log-probability at 1.
    """
    logprobs_NV = torch.log_softmax(logits_NV / (temperature or 1.0), dim=-1)
    if temperature == 0:
        token_N = logprobs_NV.argmax(dim=-1)
    else:
        sums_NV = logprobs_NV.exp().cumsum(dim=-1)
        drawn_N1 = (uniform_N * sums_NV[:, -1]).unsqueeze(1)  # the sum is 1 up to rounding
        token_N = torch.searchsorted(sums_NV, drawn_N1, right=True).squeeze(1).clamp(max=logits_NV.shape[1] - 1)
    return token_N, logprobs_NV.gather(1, token_N.unsqueeze(1)).squeeze(1)
