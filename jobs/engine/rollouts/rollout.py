"""The driver's side of a rollout: which prompts, with which seeds, on which engine; and what came back, as a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.engine.batch import Batch, make_batch, stable_seed
from jobs.engine.data.examples import Example
from jobs.engine.roles.generator import GenerationRequest, SampledResponse
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
        """Return prompts and responses as sequences whose response tokens count."""
        return make_batch(
            [
                (e.tokens + r.tokens, [False] * len(e.tokens) + [True] * len(r.tokens))
                for e, r in zip(self.examples, self.responses, strict=True)
            ],
            pad_id=pad_id,
        )

    def padded_logprobs(self, width: int) -> Tensor:
        """Return vLLM's log-probabilities at the batch's positions: [B, width], zeros elsewhere."""
        padded_BL = torch.zeros((len(self.responses), width))
        for i, (example, response) in enumerate(zip(self.examples, self.responses, strict=True)):
            begin = len(example.tokens)
            padded_BL[i, begin : begin + len(response.tokens)] = torch.tensor(response.logprobs)
        return padded_BL


def roll_out(
    workers: WorkerGroup,
    examples: Sequence[Example],
    *,
    samples_per_prompt: int,
    seed: int,
    step: int,
    phase: str = "rollout",
    greedy: bool = False,
) -> Rollout:
    """Draw `samples_per_prompt` completions of each example, prompts spread over the engines.

    Each sample has its own seed made of (seed, step, prompt's row, sample), so that it does not depend on the number of
    engines.
    """
    repeated = [e for e in examples for _ in range(samples_per_prompt)]
    requests = [
        GenerationRequest(tokens=e.tokens, seed=stable_seed(seed, step, e.row, i % samples_per_prompt))
        for i, e in enumerate(repeated)
    ]
    num_engines = len(workers.generators)
    per_engine = -(-len(examples) // num_engines) * samples_per_prompt
    calls = [
        generator.call("generate", part, greedy=greedy, step=step, phase=phase)
        for k, generator in enumerate(workers.generators)
        if (part := requests[k * per_engine : (k + 1) * per_engine])
    ]
    responses: list[SampledResponse] = [r for part in workers.gather(calls) for r in part]
    return Rollout(examples=repeated, responses=responses)


def largest_gap(rollout_logprobs_BL: Tensor, trainer_logprobs_BL: Tensor, mask_BL: Tensor) -> float:
    """Return the largest difference between the two log-probabilities of a counted token; NaN if one is no number."""
    differences = (rollout_logprobs_BL - trainer_logprobs_BL)[mask_BL].abs()
    return float(differences.max()) if differences.numel() else 0.0
