"""The driver's hand on an actor: calls of it, and what went wrong with one, by role and rank."""

from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)

from jobs.engine.problem import RunProblem
from jobs.engine.workers.actor import CallResult, RoleError
from jobs.engine.workers.node_placement import RunNode

DEAD_ACTOR_ERRORS = (
    RayActorError,
    OutOfMemoryError,  # Ray's own killer, which is told instead of the actor's end
    WorkerCrashedError,
    NodeDiedError,
    RuntimeEnvSetupError,
    ActorUnschedulableError,
)
"""How Ray says that an actor's process is gone, or never came. No one of them is a subclass of RayTaskError."""

GONE = (*DEAD_ACTOR_ERRORS, ActorUnavailableError)
"""The same, for who need not know whether it may come back."""

_CUT_OFF = "connection error code 2. End of file"
_TELLING = ("Worker exit detail:", "The actor died because of an error", "The actor is dead because", "exit detail")


class WorkerFailed(RuntimeError):
    """A role of the run raised, died, or did not come through with its answer; says which, at which step, and how.

    `phase` is that of the call in which it was noticed, "" where nothing was asked just then.
    """

    def __init__(
        self,
        *,
        role: str,
        rank: int,
        step: int,
        text: str,
        how: Literal["raised", "died", "lost"],
        phase: str = "",
    ) -> None:
        self.role, self.rank, self.step, self.text, self.how = role, rank, step, text, how
        self.phase = phase
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call under way."""

    worker: "Worker"
    reference: Any
    step: int
    phase: str = ""

    def failed(self, text: str, how: Literal["raised", "lost"]) -> WorkerFailed:
        """Return that the call did not come through, and the worker is not known to be dead."""
        worker = self.worker
        return WorkerFailed(role=worker.role, rank=worker.rank, step=self.step, phase=self.phase, text=text, how=how)


class Worker:
    """The driver's hand on one actor; `part` begins the names of the methods of what it means within it."""

    def __init__(self, actor: Any, *, role: str, rank: int, node: RunNode, part: str = "") -> None:
        self.actor, self.role, self.rank, self.node, self._part = actor, role, rank, node, part

    def held(self, role: str) -> "Worker":
        """Return a hand on the role that this worker's object holds under its name, in the same process."""
        return Worker(self.actor, role=self.role, rank=self.rank, node=self.node, part=f"{role}.")

    @property
    def name(self) -> str:
        """What logs, notes and files call it: "policy-0"."""
        return f"{self.role}-{self.rank}"

    def call(self, method: str, *arguments: Any, step: int = -1, phase: str = "", **options: Any) -> Pending:
        """Start a call; `phase` marks it on the actor's lane of the timeline."""
        reference = self.actor.call.remote(f"{self._part}{method}", step, phase, arguments, options)
        return Pending(worker=self, reference=reference, step=step, phase=phase)

    def start(self, target: str, **arguments: Any) -> Pending:
        """Start building the role's object."""
        return Pending(worker=self, reference=self.actor.start.remote(target, arguments), step=0, phase="load")

    def address(self) -> Pending:
        """Ask for the address of the worker's node and a port that is kept free for its next call: (host, port)."""
        return Pending(worker=self, reference=self.actor.address.remote(), step=-1)

    def visible_devices(self) -> Pending:
        """Ask which accelerators Ray gave it: as CUDA_VISIBLE_DEVICES has them."""
        return Pending(worker=self, reference=self.actor.visible_devices.remote(), step=-1)

    def died(self, error: Exception, *, step: int, phase: str) -> WorkerFailed:
        """Return what one of DEAD_ACTOR_ERRORS says of this worker."""
        return WorkerFailed(role=self.role, rank=self.rank, step=step, phase=phase, text=_why_died(error), how="died")


def answer_of(call: Pending) -> CallResult:
    """Return what a call gave; waits for it. Raises: RunProblem, WorkerFailed; RayError where Ray itself failed."""
    try:
        answer: CallResult = ray.get(call.reference)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, RoleError) and cause.field:
            raise RunProblem(cause.field, cause.text) from None
        raise call.failed(str(cause).strip() or type(cause).__name__, "raised") from None
    except (ActorUnavailableError, ObjectLostError) as error:  # it may be alive: whoever gathers asks who died
        raise call.failed(_first_line(error), "lost") from None
    except DEAD_ACTOR_ERRORS as error:
        raise call.worker.died(error, step=call.step, phase=call.phase) from None
    return answer


def _why_died(error: Exception) -> str:
    """Return the sentence of Ray's report that says how the process ended."""
    if _CUT_OFF in str(error):  # all that Ray knows of it; what it says besides is advice about settings of its own
        return "it was killed, or crashed in native code (Ray saw its connection end)"
    for line in str(error).splitlines():
        for mark in _TELLING:
            if mark in line:
                return line.split(mark, 1)[-1].strip(" :.") or line.strip()
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
