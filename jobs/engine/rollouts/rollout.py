"""The driver's side of a rollout: which prompts, with which seeds, on which engine; and what came back, as a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jobs.engine.batch import Batch, make_batch, stable_seed
from jobs.engine.data.examples import Example
from jobs.engine.rollouts.request import GenerationRequest, SampledResponse
from jobs.engine.workers.worker_group import WorkerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Responses of a step: `examples[i]` was continued as `responses[i]`; the samples of a prompt lie together."""

    examples: Sequence[Example]
    responses: Sequence[SampledResponse]

    @property
    def num_new_tokens(self) -> int:
        """All generated tokens."""
        return sum(len(r.tokens) for r in self.responses)

    @property
    def lengths(self) -> Tensor:
        """Tokens of each response: float32 [B]."""
        return torch.tensor([len(r.tokens) for r in self.responses], dtype=torch.float32)

    @property
    def truncated_share(self) -> float:
        """Fraction of responses cut at the longest length."""
        return sum(r.is_truncated for r in self.responses) / len(self.responses)

    def batch(self, *, pad_id: int) -> Batch:
        """Return prompts and responses as sequences whose response tokens count, with their log-probabilities."""
        batch = make_batch(
            [
                (e.tokens + r.tokens, [False] * len(e.tokens) + [True] * len(r.tokens))
                for e, r in zip(self.examples, self.responses, strict=True)
            ],
            pad_id=pad_id,
        )
        logprobs_BL = torch.zeros(batch.tokens_BL.shape)
        for i, (example, response) in enumerate(zip(self.examples, self.responses, strict=True)):
            begin = len(example.tokens)
            logprobs_BL[i, begin : begin + len(response.tokens)] = torch.tensor(response.logprobs)
        return replace(batch, rollout_logprobs_BL=logprobs_BL)


def roll_out(
    workers: WorkerGroup,
    examples: Sequence[Example],
    *,
    samples_per_prompt: int,
    seed: int,
    step: int,
    phase: str = "rollout",
    temperature: float | None = None,
    first: int = 0,
) -> Rollout:
    """Draw `samples_per_prompt` completions of each example, prompts spread over the engines; without engines over the
    policy's ranks, which then draw themselves.

    Each sample has its own seed made of (seed, step, its place in the step, where `first` prompts of the step were
    drawn before these), so that it does not depend on the number of engines, and a row that comes twice in a step is
    not answered twice the same. `temperature` is the run's where it is None; 0 takes the likeliest token.
    """
    repeated = [e for e in examples for _ in range(samples_per_prompt)]
    requests = [
        GenerationRequest(tokens=e.tokens, seed=stable_seed(seed, step, i))
        for i, e in enumerate(repeated, start=first * samples_per_prompt)
    ]
    engines = workers.generators or workers.policies
    num_engines = len(engines)
    per_engine = -(-len(examples) // num_engines) * samples_per_prompt
    calls = [
        generator.call("generate", part, temperature=temperature, step=step, phase=phase)
        for k, generator in enumerate(engines)
        if (part := requests[k * per_engine : (k + 1) * per_engine]) or generator.role == "policy"
    ]
    responses: list[SampledResponse] = [r for part in workers.gather(calls) for r in part]
    return Rollout(examples=repeated, responses=responses)
