"""The contract of a reward, and the lookup of one in the folder `rewards/`. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from jobs.catalog.spec.runspec import RewardSource
from profiling import plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one completion earned: `total` is what training uses, `parts` what it is made of.

    `is_right` says whether the answer itself is right, for held-out accuracy; None where a reward has no such notion.
    """

    total: float
    parts: Mapping[str, float]
    is_right: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a reward sees: the raw prompt, the completion without special tokens, the expected answer (may be empty)."""

    prompt: str
    completion: str
    answer: str


class Reward(Protocol):
    """A scorer of completions. `score` may raise RewardFailed, which ends the run and names the reward."""

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return one score per completion, in order."""

    def close(self) -> None:
        """End what the reward started."""


class RewardPlugin(Protocol):
    """What a file in `rewards/` offers as PLUGIN."""

    def open(self, source: RewardSource, *, timeout_seconds: float) -> Reward:
        """Return the scorer for a spec's reward."""


class RewardFailed(RuntimeError):
    """The reward raised, answered something that is no number, or did not answer in time; the text says where."""

    def __init__(self, message: str, *, kind: str, log_line: str = "") -> None:
        self.kind, self.log_line = kind, log_line
        super().__init__(message)


def open_reward(source: RewardSource, *, timeout_seconds: float = 60.0) -> Reward:
    """Return the scorer of `source.kind`; `timeout_seconds` bounds one batch where code of the user runs."""
    plugin = cast(RewardPlugin, plugins.load("jobs.engine.rewards", source.kind))
    return plugin.open(source, timeout_seconds=timeout_seconds)
