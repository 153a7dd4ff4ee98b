"""Responses under prompts that they do not answer: what KTO estimates its reference point from."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from jobs.engine.batch import Batch
from jobs.engine.data.examples import Example
from jobs.engine.preferences import reference_point


def mismatched(examples: Sequence[Example], *, limit: int) -> list[Example]:
    """Return for each example its prompt with the response of another one, cut to `limit` tokens.

    The other is the one before it whose prompt differs, the last one coming before the first: each response is used
    about once, as the estimate wants it. Which it is follows from the order alone, so ranks change nothing.
    """
    return [_joined(example, examples[_other(examples, i)], limit) for i, example in enumerate(examples)]


def with_reference_point(batch: Batch, others: Batch, logprobs_BL: Tensor) -> Batch:
    """Return the batch of a step with the reference point of its `mismatched` ones, which the reference has scored.

    `logprobs_BL` are the policy's of these. The point is of the whole step, the same for every rank and micro-batch.
    """
    assert others.reference_logprobs_BL is not None
    point = reference_point(logprobs_BL, others.reference_logprobs_BL, others.mask_BL)
    return replace(batch, reference_points_B=point.expand(batch.num_sequences).clone())


def _other(examples: Sequence[Example], i: int) -> int:
    """Return which example's response comes under prompt i."""
    before = range(i - 1, i - len(examples), -1)
    return next((j for j in before if _prompt_tokens(examples[j]) != _prompt_tokens(examples[i])), i - 1)


def _joined(example: Example, other: Example, limit: int) -> Example:
    """Return the other's response under the example's prompt."""
    prompt, begin = _prompt_tokens(example), _num_prompt_tokens(other)
    tokens = (*prompt, *other.tokens[begin:])[:limit]
    is_trained = ((False,) * len(prompt) + other.is_trained[begin:])[:limit]
    return replace(other, prompt=example.prompt, tokens=tokens, is_trained=is_trained)


def _prompt_tokens(example: Example) -> tuple[int, ...]:
    return example.tokens[: _num_prompt_tokens(example)]


def _num_prompt_tokens(example: Example) -> int:
    return example.is_trained.index(True)
