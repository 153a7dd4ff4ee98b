"""What several samples of a prompt say: how likely one of k is right, and what most of them answer."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jobs.engine.rollouts.reward import Completion, Reward


def pass_at_k(*, num_samples: int, num_right: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k): the chance that k of the n samples, drawn without putting back, hold a right
    one, which is unbiased for that of k new samples.

    Source: Chen et al. 2021, Evaluating large language models trained on code, arXiv 2107.03374, equation 1; in whole
    numbers, so that nothing overflows. Raises: ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not (1 <= k <= num_samples and 0 <= num_right <= num_samples):
        raise ValueError(f"pass@{k} of {num_samples} samples, {num_right} of them right, means nothing.")
    return 1.0 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def sizes(num_samples: int) -> list[int]:
    """Return the k that are told of: 1, 2, 4, 8, … and the number of samples."""
    powers = [1 << i for i in range(num_samples.bit_length()) if 1 << i < num_samples]
    return [*powers, num_samples]


def majority_votes(
    completions: Sequence[Completion], is_right: Sequence[bool], *, reward: Reward, samples_per_prompt: int
) -> list[float]:
    """Return for each prompt whether the answer that most of its samples give is right: 1, 0, or between them the
    chance of it where several answers have as many votes.

    The samples of a prompt lie together. Two give the same answer where the reward takes one for right with the other
    as the expected answer; all right ones do. A sample in which the reward reads no answer, so that it does not even
    equal itself, does not vote. Source: Wang et al. 2022, Self-consistency, arXiv 2203.11171.
    """
    groups = _same_answers(completions, is_right, reward=reward, size=samples_per_prompt)
    votes = []
    for begin in range(0, len(completions), samples_per_prompt):
        of_prompt = groups[begin : begin + samples_per_prompt]
        counts = Counter(group for group in of_prompt if group != _NO_ANSWER)
        most = max(counts.values(), default=0)
        first = [group for group, count in counts.items() if count == most]
        votes.append((_RIGHT in first) / len(first) if first else 0.0)
    return votes


_RIGHT, _NO_ANSWER, _OPEN = -1, -2, -3


def _same_answers(
    completions: Sequence[Completion], is_right: Sequence[bool], *, reward: Reward, size: int
) -> list[int]:
    """Return a number for each completion, the same for the same answer to its prompt.

    In each round the first completion without one, of each prompt, is held against all others without: as many calls of
    the reward as there are answers to the prompt with most of them.
    """
    groups = [_RIGHT if right else _OPEN for right in is_right]
    while _OPEN in groups:
        calls: list[tuple[int, int]] = []
        for begin in range(0, len(groups), size):
            still = [i for i in range(begin, min(begin + size, len(groups))) if groups[i] == _OPEN]
            calls += [(i, still[0]) for i in still]
        scores = reward.score([replace(completions[i], answer=completions[first].completion) for i, first in calls])
        for (i, first), score in zip(calls, scores, strict=True):
            if score.is_right:
                groups[i] = first
            elif i == first:
                groups[i] = _NO_ANSWER
    return groups
