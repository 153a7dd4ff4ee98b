"""All pairs of the proof, judged."""

from dataclasses import replace
from itertools import combinations

from jobs.comparison.conditions import RunConditions
from tests.proofs.verdict.corpus import MEASURED, Sample, demos, others
from tests.proofs.verdict.pairs import Told, same_run, told, two_seeds
from tests.proofs.verdict.report import Found

PLANTED = (0.02, 0.05, 0.1, 0.3)
QUIET = 0.2
"""What others take of a quiet node's CPU cores at most: what this machine does for itself is a tenth."""


def judge(*, num_pairs: int) -> Found:
    """Return what is said of so many pairs of each kind, the same ones in every call."""
    alone = [sample for sample in demos() if not sample.spinning]
    quiet = [sample for sample in alone if sample.conditions.load and sample.conditions.load.taken < QUIET]
    return Found(
        demos=demos(),
        others=others(),
        identical={
            "one run of the demo, resampled twice": list(same_run(alone, num_pairs=num_pairs, seed=1)),
            "one run of another kind, resampled twice": list(same_run(others(), num_pairs=num_pairs, seed=2)),
            "two seeds of the demo, whatever the node did beside": list(two_seeds(alone, num_pairs=num_pairs, seed=3)),
            "two seeds on a quiet node, of which the spread is": list(
                two_seeds([one for one in quiet if one.seed <= MEASURED], num_pairs=num_pairs, seed=5)
            ),
            "two later seeds on a quiet node": list(
                two_seeds([one for one in quiet if one.seed > MEASURED], num_pairs=num_pairs, seed=7)
            ),
            "two seeds on a quiet node, by the spread of all others": list(
                two_seeds(quiet, num_pairs=num_pairs, seed=6, has_repeats=True)
            ),
        },
        power={
            share: list(same_run([*alone, *others()], num_pairs=num_pairs, seed=4, faster=share)) for share in PLANTED
        },
        beside=[_beside(one, other) for one, other in combinations(demos(), 2) if one.seed == other.seed],
    )


def _beside(one: Sample, other: Sample) -> tuple[Sample, Sample, Told, Told]:
    """Return the two, and what is said of the second with and without their conditions."""
    blind = [replace(sample, conditions=RunConditions()) for sample in (other, one)]
    return one, other, told(*blind), told(other, one)
