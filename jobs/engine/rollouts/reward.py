"""The contract of a reward, and the lookup of one in the folder `rewards/`. Imports no torch."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from jobs.catalog.spec.runspec import RewardPart, RunSpec
from profiling import plugins

MOST_PROCESSES = 16
_LOAD_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one completion earned: `total` is what training uses, `parts` what it is made of.

    `is_right` says whether the answer itself is right, for held-out accuracy; None where a reward has no such notion.
    `is_abandoned`: the check took too long, was ended, and counts as failed; None where nothing is checked like that.
    `failure` says why a part of it could not be scored, "" where all were. With `is_skipped` the completion is to give
    no signal, and `total` means nothing.
    """

    total: float
    parts: Mapping[str, float]
    is_right: bool | None
    is_abandoned: bool | None = None
    failure: str = ""
    is_skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a reward sees: the raw prompt, the completion without special tokens, the expected answer (may be empty).

    `tokens` are those of prompt and completion as the policy had them; () where nothing was drawn.
    """

    prompt: str
    completion: str
    answer: str
    tokens: Sequence[int] = ()


AskModel = Callable[[Sequence[Sequence[int]]], Sequence[float]]
"""How a run's reward model is asked: the tokens of whole sequences, and what each is worth, in order."""


def _go_on() -> None:
    """Nobody asks to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """How a service is asked: `batch_size` completions a request (of a reward server), `num_at_once` requests.

    One that is not answered is tried `retries` times again. After `breaker_failures` such requests in a row (0: never)
    the service is left alone for `breaker_seconds`.
    """

    batch_size: int = 64
    num_at_once: int = 8
    retries: int = 4
    breaker_failures: int = 8
    breaker_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What a judge is asked, and the range of its scores. `prompt` has {prompt}, {completion}, {answer} in it."""

    model: str = ""
    prompt: str = "{prompt}\n{completion}\n{answer}"
    lowest: float = 0.0
    highest: float = 10.0
    max_tokens: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """What a process of the user's own file may use: memory in address space (0: no limit of ours), and sockets.

    `is_boxed`: neither another process nor a file to write, as in a trial on a machine without namespaces.
    """

    memory_mib: int = 0
    has_network: bool = True
    is_boxed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLimits:
    """What a response's code may use over all its tests; whether each case counts, or only all of them together."""

    cpu_seconds: int = 5
    memory_mib: int = 512
    gives_share: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringLimits:
    """What scoring may take, where code runs whose time nobody knows.

    `num_workers` processes at most; `timeout_seconds` for each completion, a limit that `timeout_name` names to people;
    `load_seconds` until the code is loaded. `check` is called about twice a second while scoring waits; what it raises
    ends the scoring. With `keeps_failures` a reward hands over the failure of a completion in place of its score, and
    goes on; else it raises the first. `ask_model` asks the run's reward model; None where there is none.
    """

    num_workers: int = 1
    timeout_seconds: float = 60.0
    timeout_name: str = "reward.timeout_seconds"
    load_seconds: float = _LOAD_SECONDS
    check: Callable[[], None] = _go_on
    keeps_failures: bool = False
    ask_model: AskModel | None = None
    service: ServiceLimits = ServiceLimits()
    judge: JudgeSettings = JudgeSettings()
    code: CodeLimits = CodeLimits()
    file: FileLimits = FileLimits()


def limits_of(spec: RunSpec, *, check: Callable[[], None] = _go_on, ask_model: AskModel | None = None) -> ScoringLimits:
    """Return the limits that a run's knobs set; 0 workers are one for each CPU, at most 16."""
    return ScoringLimits(
        num_workers=spec.int_knob("reward.num_workers") or min(MOST_PROCESSES, _num_cpus()),
        timeout_seconds=spec.float_knob("reward.timeout_seconds"),
        check=check,
        keeps_failures=spec.knob("reward.on_failure") != "stop",
        ask_model=ask_model,
        service=ServiceLimits(
            batch_size=spec.int_knob("reward.server_batch_size"),
            num_at_once=spec.int_knob("reward.max_concurrent"),
            retries=spec.int_knob("reward.retries"),
            breaker_failures=spec.int_knob("reward.breaker_failures"),
            breaker_seconds=spec.float_knob("reward.breaker_seconds"),
        ),
        judge=JudgeSettings(
            model=str(spec.knob("reward.judge_model") or ""),
            prompt=str(spec.knob("reward.judge_prompt")),
            lowest=spec.float_knob("reward.judge_lowest"),
            highest=spec.float_knob("reward.judge_highest"),
            max_tokens=spec.int_knob("reward.judge_max_tokens"),
        ),
        code=CodeLimits(
            cpu_seconds=spec.int_knob("reward.code_seconds"),
            memory_mib=spec.int_knob("reward.code_memory_mib"),
            gives_share=spec.knob("reward.code_score") == "share",
        ),
        file=FileLimits(
            memory_mib=spec.int_knob("reward.file_memory_mib"), has_network=bool(spec.knob("reward.file_network"))
        ),
    )


def _num_cpus() -> int:
    """Return how many CPUs this process may use, on systems that say so; else how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Reward(Protocol):
    """A scorer of completions. `score` may raise RewardFailed, which ends the run and names the reward."""

    def score(self, completions: Sequence[Completion]) -> Sequence["Score | RewardFailed"]:
        """Return one score per completion, in order; failures only where the limits keep them."""

    def close(self) -> None:
        """End what the reward started."""


class RewardPlugin(Protocol):
    """What a file in `rewards/` offers as PLUGIN."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> Reward:
        """Return the scorer for a part of a spec's reward. Raises: RewardFailed if it cannot be started."""


class RewardFailed(RuntimeError):
    """The reward raised, answered something that is no number, or did not answer in time; the text says where.

    `field` is the one of the spec that it is about. Of the kinds, `not_started` and `unreachable` are no fault of what
    the person wrote. `is_refused`: the system refused what the code asked for, a file or a connection.
    """

    def __init__(
        self, message: str, *, kind: str, log_line: str = "", field: str = "reward.source", is_refused: bool = False
    ) -> None:
        self.kind, self.log_line, self.field, self.is_refused = kind, log_line, field, is_refused
        super().__init__(message)


def open_reward(source: RewardPart, limits: ScoringLimits | None = None) -> Reward:
    """Return the scorer of `source.kind`. Raises: RewardFailed if it cannot be started."""
    plugin = cast(RewardPlugin, plugins.load("jobs.engine.rewards", source.kind))
    return plugin.open(source, limits or ScoringLimits())
