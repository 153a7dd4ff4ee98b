"""Why a run failed, in a form the console can show: side, role, rank, step, a sentence, and the log line behind it."""

import errno
from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from ray.exceptions import RayError

from jobs.catalog.log_line import tells_of_lost_peer
from jobs.engine.problem import CheckpointLost, DiskTooSmall, RunProblem
from jobs.engine.rollouts.reward import RewardFailed
from jobs.engine.workers.actor import UNWRITABLE
from jobs.engine.workers.worker import WorkerFailed
from profiling.phases import BY_KEY

_OUT_OF_MEMORY = (
    "out of memory",
    "OutOfMemory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "DefaultCPUAllocator: can't allocate",
)
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "file write failed")


class SyncGap(RuntimeError):
    """vLLM's log-probabilities are not the trainer's: the rollout does not have the policy's weights."""


class NonFinite(RuntimeError):
    """Gradients or weights are no numbers any more: training has diverged."""


class Diverged(RuntimeError):
    """A guard ended the run; `checkpoint` is the step of the last checkpoint from before, -1 if none is left."""

    def __init__(self, text: str, *, checkpoint: int) -> None:
        self.checkpoint = checkpoint
        super().__init__(text)


class RunStopped(Exception):
    """The run was asked to stop before its first step, or while responses are scored: that step is dropped."""


Side = Literal["user", "trainer", "cluster"]
"""The spec, the work, or what it runs on."""


class FailureCause(TypedDict):
    """Why a run failed: who is at fault, where and when, a sentence, and the log line behind it."""

    side: Side
    role: str
    rank: int
    step: int
    text: str
    log_line: str
    field: NotRequired[str]
    phase: NotRequired[str]  # in which memory ran out
    checkpoint: NotRequired[int]  # the last one from before a divergence


NAMED = (RunProblem, RewardFailed, WorkerFailed, SyncGap, NonFinite, Diverged)
"""Failures that say themselves who is at fault."""


def is_full(error: BaseException) -> bool:
    """Return True if the driver found a disk full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def cause_of(error: BaseException, *, step: int, log_tail: Mapping[tuple[str, int], str]) -> FailureCause:
    """Return the cause of a failure."""
    if isinstance(error, CheckpointLost):  # the console passes it over when it starts the run again
        return _cause("cluster", "driver", 0, step, error.message, "", field=error.field)
    if isinstance(error, RunProblem):
        return _cause("user", "driver", 0, step, error.message, "", field=error.field)
    if isinstance(error, RewardFailed):
        if error.kind in ("not_started", "unreachable"):
            return _cause("cluster", "reward", 0, step, str(error), error.log_line)
        return _cause("user", "reward", 0, step, str(error), error.log_line, field=error.field)
    if isinstance(error, WorkerFailed):
        return _worker_cause(error, step, log_tail)
    if isinstance(error, SyncGap):
        return _cause("trainer", "vllm", 0, step, str(error), "")
    if isinstance(error, NonFinite):
        return _cause("trainer", "policy", 0, step, str(error), "")
    if isinstance(error, Diverged):
        return {**_cause("trainer", "policy", 0, step, str(error), ""), "checkpoint": error.checkpoint}
    if isinstance(error, DiskTooSmall):
        return _cause("cluster", "driver", 0, step, error.message, "")
    if is_full(error):
        where = getattr(error, "filename", None) or "the run directory"
        text = f"The disk is full: {where} cannot be written. Free space and launch again."
        return _cause("cluster", "driver", 0, step, text, str(error))
    if isinstance(error, MemoryError):
        return _cause(
            "cluster",
            "driver",
            0,
            step,
            "The driver ran out of memory. Lower the batch, or use a node with more.",
            str(error),
        )
    if isinstance(error, (RayError, ConnectionError)):
        return _cause(
            "cluster", "driver", 0, step, f"The Ray cluster does not answer: {_first_line(error)}", _first_line(error)
        )
    return _cause(
        "trainer",
        "driver",
        0,
        step,
        f"The trainer's driver raised {type(error).__name__}: {_first_line(error)}",
        _first_line(error),
    )


def _worker_cause(error: WorkerFailed, step: int, log_tail: Mapping[tuple[str, int], str]) -> FailureCause:
    line = log_tail.get((error.role, error.rank), "")
    who = f"{error.role} rank {error.rank}"
    at = step if error.step < 0 else error.step
    phase = BY_KEY[error.phase].label.lower() if error.phase in BY_KEY else ""
    when = f"step {at} ({phase})" if phase else f"step {at}"
    if UNWRITABLE in error.text:
        why = error.text.partition(f"{UNWRITABLE}: ")[2]
        text = f"{who} has no run directory: {why}. Set PITWALL_RUN_ROOT to a folder that every node can write."
        return _cause("cluster", error.role, error.rank, at, text, "")
    message = f"{error.text} {line}"
    if any(mark in message for mark in _OUT_OF_MEMORY):
        knob = "rollout.max_num_seqs or rollout.kv_cache_mib" if error.role == "vllm" else "train.micro_batch_size"
        text = f"{who} ran out of memory at {when}. Lower {knob}, or give it a node with more."
        cause = _cause("trainer", error.role, error.rank, at, text, line or error.text)
        return {**cause, "phase": error.phase} if phase else cause
    if any(mark in message for mark in _NO_SPACE):
        return _cause(
            "cluster",
            error.role,
            error.rank,
            at,
            f"The disk is full: {who} could not write at {when}. Free space and launch again.",
            line or error.text,
        )
    if error.how == "died":
        text = f"The process of {who} died at {when}: {error.text}"
        return _cause("cluster", error.role, error.rank, at, text, line)
    if error.how == "lost":
        text = f"The answer of {who} at {when} was lost, and Ray reports no dead worker: {error.text}"
        return _cause("cluster", error.role, error.rank, at, text, line)
    if tells_of_lost_peer(error.text):
        text = f"{who} lost its connection to another rank at {when}, and Ray reports no dead worker: {error.text}"
        return _cause("cluster", error.role, error.rank, at, text, line or error.text)
    return _cause("trainer", error.role, error.rank, at, f"{who} raised at {when}: {error.text}", line or error.text)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _cause(
    side: Side, role: str, rank: int, step: int, text: str, log_line: str, *, field: str | None = None
) -> FailureCause:
    cause: FailureCause = {"side": side, "role": role, "rank": rank, "step": step, "text": text, "log_line": log_line}
    if field is not None:
        cause["field"] = field
    return cause
