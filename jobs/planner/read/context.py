"""What a reader of a trainer's knobs has before it, and what all of them estimate alike."""

import math
from dataclasses import dataclass, field

from jobs.catalog.algorithm import is_in
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.placement import group_size
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Fleet, Lengths, Rollouts
from jobs.planner.read.knob_values import Knobs
from jobs.planner.shapes.model_shape import ModelShape

_SPREAD = 0.7
_BY_PROMPT = 0.5  # share of the variance of lengths of answers that is the prompt's
"""Sigma of ln(answer length) where only the mean is known: between that of chat (0.5) and of
reasoning (up to 1)."""

_ALIKE = 1e-3
"""The same of answers that are all of one length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is known of the data: mean tokens of prompts and answers (of a sample, both together; 0: unknown), sigma of
    ln(answer length), samples of the training set (0: unknown), seconds in which rewards of one step are computed.

    `earlier_prompt`, `earlier_response`: the means that an earlier run of the same model and data measured, 0 for none.
    Seconds follow them where nobody said a mean; memory does not, as answers may grow while a policy learns."""

    mean_prompt: float = 0.0
    mean_response: float = 0.0
    spread: float = 0.0
    samples: int = 0
    reward_seconds: float = 0.0
    earlier_prompt: float = 0.0
    earlier_response: float = 0.0

    @property
    def mean_sample(self) -> float:
        """Mean tokens of a whole sample, 0 if unknown."""
        return self.mean_prompt + self.mean_response


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The shapes of the models of a run; None for one that nobody named."""

    policy: ModelShape
    critic: ModelShape | None = None
    reference: ModelShape | None = None
    reward: ModelShape | None = None
    teacher: ModelShape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """The micro-batches of a model that is trained or scores: `size` rows of `sequence` tokens, `count` of them per
    optimizer step and rank; `document`: mean tokens of one sample in a packed row, 0 where a row is one sample."""

    size: int
    sequence: int
    count: int
    document: int = 0


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run: its spec, its models, the devices it asks for, what is known of its data.

    `samples_per_update`: samples of one optimizer step over all ranks; `longest`: tokens of the longest sample, prompt
    and answer together."""

    spec: RunSpec
    models: Models
    fleet: Fleet
    workload: Workload
    samples_per_update: int
    knobs: Knobs = field(init=False)
    longest: int = field(init=False)

    def __post_init__(self) -> None:
        knobs = Knobs(self.spec)
        longest = knobs.whole("train.max_sequence_tokens")
        if self.is_rl:
            longest = knobs.whole("rollout.max_prompt_tokens") + knobs.whole("rollout.max_new_tokens")
        object.__setattr__(self, "knobs", knobs)
        object.__setattr__(self, "longest", longest)

    def num_workers(self) -> int:
        """Return the devices that the run asks for, as the spec says it."""
        return self.spec.num_workers

    def group(self, role: str) -> int:
        """Return the devices of a role's group."""
        return group_size(self.knobs.values, role)

    @property
    def is_rl(self) -> bool:
        """Whether samples are rolled out."""
        return is_in(self.spec.algorithm, "rl")

    @property
    def has_reward_model(self) -> bool:
        """Whether a model scores answers."""
        return self.is_rl and bool(DERIVED["has.reward_model"](self.spec))

    @property
    def usual(self) -> float:
        """Mean tokens of a sample; the longest one's where nothing is known."""
        return min(self.workload.mean_sample or self.longest, self.longest)

    def rows(self, micro: int, *, ranks: int, is_packed: bool = False) -> MicroBatches:
        """Return micro-batches of so many samples, each as long as the longest; joined without padding they are one
        row, as long as so many samples are at most where their lengths are known."""
        samples_per_rank = max(self.samples_per_update // max(ranks, 1), 1)
        size = max(min(micro, samples_per_rank), 1)
        count = -(-samples_per_rank // size)
        if is_packed and self.workload.mean_sample:
            length = max(min(self._most_together(size), size * self.longest), self.longest)
            return MicroBatches(size=1, sequence=length, count=count, document=round(self.usual))
        return MicroBatches(size=size, sequence=self.longest, count=count)

    def _most_together(self, size: int) -> int:
        """Return the tokens that so many samples seldom exceed: three deviations above their mean, lengths of answers
        being log-normal, and half of what they vary by the prompt, whose answers come together (assumed)."""
        workload = self.workload
        deviation = workload.mean_response * math.sqrt(math.exp((workload.spread or _SPREAD) ** 2) - 1)
        others = min(self.knobs.whole("rollout.samples_per_prompt", 1), size) - 1 if self.is_rl else 0
        return math.ceil(size * self.usual + 3 * math.sqrt(size * (1 + _BY_PROMPT * others)) * deviation)

    def packed(self, tokens: int, *, ranks: int) -> MicroBatches:
        """Return micro-batches filled up to a number of tokens; a sample that is longer has one of its own."""
        samples_per_rank = max(self.samples_per_update // max(ranks, 1), 1)
        budget = max(tokens, self.longest)
        count = max(-(-round(samples_per_rank * self.usual) // budget), 1)
        if self.workload.mean_sample:  # an update may have fewer samples than would fill it
            budget = max(min(budget, self._most_together(samples_per_rank)), self.longest)
        return MicroBatches(size=1, sequence=budget, count=count, document=min(round(self.usual), budget))

    @property
    def _goes_to_the_cap(self) -> bool:
        """Whether every answer is as long as the longest: its end is passed over, as in a probe."""
        return self.knobs.flag("rollout.ignore_eos")

    def rollouts(self, *, score: MicroBatches, has_old_logprobs: bool = True) -> Rollouts:
        """Return what a step generates and how it is used."""
        workload, cap = self.workload, self.knobs.whole("rollout.max_new_tokens")
        response = workload.mean_response or workload.earlier_response
        return Rollouts(
            prompts=self.knobs.whole("rollout.prompts_per_step", 1),
            samples_per_prompt=self.knobs.whole("rollout.samples_per_prompt", 1),
            lengths=Lengths(
                max_prompt=self.knobs.whole("rollout.max_prompt_tokens"),
                max_response=cap,
                mean_prompt=workload.mean_prompt or workload.earlier_prompt,
                mean_response=float(cap) if self._goes_to_the_cap else response,
                spread=_ALIKE if self._goes_to_the_cap else workload.spread,
            ),
            epochs=self.knobs.whole("train.epochs_per_rollout", 1),
            updates=max(self.knobs.whole("train.updates_per_rollout", 1), 1),
            has_old_logprobs=has_old_logprobs,
            reward_seconds=workload.reward_seconds,
            score_micro_batch=score.size,
            score_sequence=score.sequence,
        )

    def num_steps(self) -> int:
        """Return the steps that the passes over the data make; 0 where its size is not known."""
        samples = min(self.workload.samples, self.knobs.whole("data.max_samples", self.workload.samples))
        batch = self.knobs.whole("rollout.prompts_per_step" if self.is_rl else "train.batch_size", 1)
        return samples // max(batch, 1) * self.knobs.whole("train.num_epochs", 1)

    def notes(self) -> tuple[str, ...]:
        """Return what was assumed, in sentences."""
        sentences = []
        if self.has_reward_model and self.models.reward is None:
            sentences.append(Sentence("The reward model's size is not known; that of the policy is assumed."))
        is_taught = self.spec.needs("teacher") or self.knobs.flag("algorithm.distillation")
        if is_taught and self.models.teacher is None:
            sentences.append(Sentence("The teacher's size is not known; that of the policy is assumed."))
        return tuple(sentences)


def samples_per_update(spec: RunSpec) -> int:
    """Return the samples of one optimizer step over all ranks."""
    return int(DERIVED["batch.samples_per_update"](spec))


def split_targets(text: str) -> tuple[str, ...]:
    """Return the modules that a knob names, separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) or ("all-linear",)
