r"""Whether two mathematical answers are equal, by math-verify: fractions, roots, sets, intervals, tuples, equations.

Runs in the processes of a reward pool: algebra may take for ever or all memory, and math-verify's own time limit is an
alarm signal that not every computation notices. https://github.com/huggingface/Math-Verify
"""

import logging
import resource

from math_verify import LatexExtractionConfig, parse, verify

from jobs.engine.rollouts.answers import tidy, without_percent

MOST_BYTES = 4 << 30
_FORMULA = (LatexExtractionConfig(boxed_match_priority=0),)


def prepare() -> None:
    """Let this process take at most 4 GiB of address space, and load what the first check would have to load.

    What asks for more memory fails as a check.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [MOST_BYTES, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # that it has no time limit of its own is known
    is_equal(r"\sqrt{8}", r"2^{3/2}")


def reward(prompt: str, completion: str, answer: str) -> float:  # noqa: ARG001
    """Return 1 if `completion`, the given answer, equals `answer`, the expected one; else 0."""
    return float(is_equal(answer, completion))


def is_equal(expected: str, actual: str) -> bool:
    """Return whether two answers, as plain text or LaTeX without dollar signs, mean the same.

    What math-verify cannot read, or fails at, is not equal. A percentage is equal to its number and to its hundredth.
    """
    (expected, is_percent), (actual, is_given_percent) = map(without_percent, (tidy(expected), tidy(actual)))
    pairs = [(expected, actual)]
    if is_percent and not is_given_percent:
        pairs.append((_hundredth(expected), actual))
    if is_given_percent and not is_percent:
        pairs.append((expected, _hundredth(actual)))
    return any(_verified(*pair) for pair in pairs)


def _hundredth(text: str) -> str:
    return rf"\frac{{{text}}}{{100}}"


def _verified(expected: str, actual: str) -> bool:
    try:
        gold, target = (parse(rf"\boxed{{{text}}}", _FORMULA, parsing_timeout=None) for text in (expected, actual))
        return bool(verify(gold, target, timeout_seconds=None))
    except Exception:  # of any kind: the text may be anything at all
        return False
