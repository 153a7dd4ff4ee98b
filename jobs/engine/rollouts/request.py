"""What is asked of whoever draws completions, and what comes back. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One completion to draw: prompt tokens and the seed of its random numbers."""

    tokens: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledResponse:
    """One completion: its tokens, end token included, their log-probabilities, and whether it was cut at the longest
    answer.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    is_truncated: bool
