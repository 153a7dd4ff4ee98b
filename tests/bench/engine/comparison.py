"""From what two trainers told of themselves to a ratio: pairs, medians, whether both did the same work, and the gates.

Pure arithmetic; the module imports nothing that starts a process.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

WARM_UP = 2
"""Steps at the start that do not count: the first pays for caches and allocators, the second for its end alone."""
LENGTH_TOLERANCE = 0.05
REWARD_TOLERANCE = 0.05
LOSS_TOLERANCE = 0.005
QUIET = 0.1
"""Fraction of the machine that other work may take, until the times of a run say more about that work."""
MOST_REPORTING = 0.005
"""Fraction of a step that telling what happens may take."""
LARGEST_GAP = 1e-3
"""Nats between the log-probabilities of sampler and trainer in float32; above it they do not have the same weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step of a trainer: when it ended (Unix seconds), and the work that was in it.

    `tokens` are those that were sampled, in fine-tuning all that were trained on; `prompts` is the digest of the step's
    different prompts, "" in fine-tuning; `reward` is the mean of the step, `loss` that of fine-tuning. `gap` is the
    largest difference between the log-probabilities of sampler and trainer, in nats, where that is known.
    """

    step: int
    end: float
    sequences: int
    tokens: int
    prompts: str = ""
    reward: float | None = None
    loss: float | None = None
    gap: float | None = None
    shortest: int = 0
    longest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRun:
    """One run of one side: its steps, and what its processes took in the steps that count.

    `cpu_seconds` is of all its processes together, over the counted steps; `others_cpu_seconds` of everything else on
    the machine meanwhile. `memory_bytes` sums the resident memory of all its processes at the worst moment,
    `shared_once_bytes` counts a page that several of them map only once. `phases` are seconds per step by phase, and
    `waiting` the fraction of the time in which a role's ranks had nothing to do; `reporting` is the fraction of each
    step that went into telling what happens. All are empty for a trainer that reports none of them.
    """

    side: str
    steps: Sequence[StepRecord]
    cpu_seconds: float
    others_cpu_seconds: float
    cores: int
    memory_bytes: int
    shared_once_bytes: int
    ready_seconds: float
    phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    reporting: Sequence[float] = ()

    @property
    def counted(self) -> Sequence[StepRecord]:
        """The steps after the first two."""
        return self.steps[WARM_UP:]

    @property
    def seconds(self) -> Sequence[float]:
        """Seconds of each counted step."""
        return step_seconds([step.end for step in self.steps])

    @property
    def step_median(self) -> float:
        """Median seconds per step."""
        return statistics.median(self.seconds)

    @property
    def samples_per_second(self) -> float:
        """Sequences of a step per its median seconds."""
        return statistics.median(step.sequences for step in self.counted) / self.step_median

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all counted steps per their seconds."""
        return sum(step.tokens for step in self.counted) / sum(self.seconds)

    @property
    def mean_length(self) -> float:
        """Tokens of a sequence, over the counted steps."""
        return sum(step.tokens for step in self.counted) / sum(step.sequences for step in self.counted)

    @property
    def mean_reward(self) -> float | None:
        """Mean reward of the counted steps; None where there is none."""
        rewards = [step.reward for step in self.counted if step.reward is not None]
        return statistics.fmean(rewards) if rewards else None

    @property
    def largest_gap(self) -> float | None:
        """The largest difference between sampler and trainer, in nats; None where it is not known."""
        return max((step.gap for step in self.steps if step.gap is not None), default=None)

    @property
    def cpu_per_step(self) -> float:
        """CPU seconds of all processes per counted step."""
        return self.cpu_seconds / len(self.counted)

    @property
    def idle_fraction(self) -> float:
        """Fraction of the machine's CPU time that its own processes did not use, whoever else did."""
        return 1 - self.cpu_seconds / (self.cores * sum(self.seconds))

    @property
    def others_fraction(self) -> float:
        """Fraction of the machine's CPU time that other work took from it."""
        return self.others_cpu_seconds / (self.cores * sum(self.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What is asked of a number, as the least or with `is_most` as the most, and whether it is so."""

    what: str
    asked: float
    measured: float
    is_most: bool = False

    @property
    def holds(self) -> bool:
        """True if at least, or at most, what is asked was measured."""
        return self.measured <= self.asked if self.is_most else self.measured >= self.asked

    def __str__(self) -> str:
        most = "at most " if self.is_most else ""
        return (
            f"{self.what}: asked {most}{self.asked:g}, measured {self.measured:.3g}{'' if self.holds else ' (missed)'}"
        )


def step_seconds(ends: Sequence[float]) -> list[float]:
    """Return the seconds of each step after the first two, from the times at which the steps ended.

    Raises: ValueError if no step is left.
    """
    if len(ends) <= WARM_UP:
        raise ValueError(f"{len(ends)} steps are too few: the first {WARM_UP} do not count.")
    return [after - before for before, after in pairwise(ends[WARM_UP - 1 :])]


def ratios(baseline: Sequence[SideRun], ours: Sequence[SideRun]) -> list[float]:
    """Return for each round how many times as many samples per second `ours` had as the baseline of that round."""
    return [mine.samples_per_second / theirs.samples_per_second for theirs, mine in zip(baseline, ours, strict=True)]


def fastest(runs: Mapping[str, SideRun]) -> str:
    """Return the side with the most samples per second. Raises: ValueError if there is none."""
    if not runs:
        raise ValueError("No side ran.")
    return max(runs, key=lambda side: runs[side].samples_per_second)


def off_policy(run: SideRun) -> str:
    """Return a sentence if a run sampled with other weights than it trained, else ""."""
    if run.largest_gap is None or run.largest_gap <= LARGEST_GAP:
        return ""
    return f"{run.side} samples with other weights: {run.largest_gap:.3g} nats off, {LARGEST_GAP:g} are allowed."


def differences(baseline: SideRun, ours: SideRun) -> list[str]:
    """Return a sentence for each way in which the two runs did not do the same work on policy; [] if they did."""
    wrong = [sentence for sentence in (off_policy(baseline), off_policy(ours)) if sentence]
    if len(ours.steps) != len(baseline.steps):
        wrong.append(f"{len(ours.steps)} steps against {len(baseline.steps)}.")
    for mine, theirs in zip(ours.steps, baseline.steps, strict=False):
        if mine.sequences != theirs.sequences:
            wrong.append(f"Step {mine.step} has {mine.sequences} sequences against {theirs.sequences}.")
        if mine.prompts != theirs.prompts:
            wrong.append(f"Step {mine.step} has other prompts.")
        if mine.loss is not None and theirs.loss is not None:
            if mine.tokens != theirs.tokens:
                wrong.append(f"Step {mine.step} has {mine.tokens} tokens against {theirs.tokens}.")
            apart = abs(mine.loss - theirs.loss) / abs(theirs.loss)
            if not apart <= LOSS_TOLERANCE:
                wrong.append(f"The loss of step {mine.step} is {mine.loss:.5g} against {theirs.loss:.5g}.")
    apart = abs(ours.mean_length / baseline.mean_length - 1)
    if apart > LENGTH_TOLERANCE:
        wrong.append(
            f"Sequences have {ours.mean_length:.1f} tokens against {baseline.mean_length:.1f}: {apart:.1%} apart, "
            f"{LENGTH_TOLERANCE:.0%} are allowed."
        )
    return wrong


def reward_difference(baseline: Sequence[SideRun], ours: Sequence[SideRun]) -> str:
    """Return a sentence if the mean rewards of all rounds are apart, else "".

    A single round does not say: each side samples for itself, so one learns a step or two before the other.
    """
    theirs = [run.mean_reward for run in baseline if run.mean_reward is not None]
    mine = [run.mean_reward for run in ours if run.mean_reward is not None]
    if not theirs or not mine or abs(statistics.fmean(mine) - statistics.fmean(theirs)) <= REWARD_TOLERANCE:
        return ""
    return (
        f"The mean reward is {statistics.fmean(mine):.3f} against {statistics.fmean(theirs):.3f}; {REWARD_TOLERANCE:g} "
        "are allowed."
    )


def not_quiet(run: SideRun) -> str:
    """Return a sentence if other work took too much of the machine for the run's times to say anything, else ""."""
    if run.others_fraction <= QUIET:
        return ""
    return f"{run.side} ran while other work took {run.others_fraction:.0%} of the machine; {QUIET:.0%} are allowed."
