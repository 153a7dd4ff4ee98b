"""The actors of a run: placed together, called together, and whose death or error is told apart."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from jobs.catalog.runspec import RunSpec
from jobs.engine.actor import CAPTURES, Actor, Answer, LogQueue, RoleError
from jobs.engine.device import Device
from jobs.engine.places import Place, places_of
from jobs.engine.problem import RunProblem
from profiling.launch_nsys import runtime_env

_POLL_SECONDS = 0.5
_CUT_OFF = "connection error code 2. End of file"
_DEATH_SECONDS = 5.0  # within which Ray tells of a process that died on a living node


class WorkerFailed(RuntimeError):
    """A role of the run raised or died; says which, at which step, and how."""

    def __init__(self, *, role: str, rank: int, step: int, text: str, is_death: bool) -> None:
        self.role, self.rank, self.step, self.text, self.is_death = role, rank, step, text, is_death
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call under way."""

    worker: "Worker"
    reference: Any
    step: int


class Worker:
    """The driver's hand on one actor."""

    def __init__(self, actor: Any, *, role: str, rank: int, place: Place) -> None:
        self.actor, self.role, self.rank, self.place = actor, role, rank, place

    @property
    def name(self) -> str:
        """What logs, notes and files call it: "policy-0"."""
        return f"{self.role}-{self.rank}"

    def call(self, method: str, *arguments: Any, step: int = -1, phase: str = "", **options: Any) -> Pending:
        """Start a call; `phase` marks it on the actor's lane of the timeline."""
        return Pending(
            worker=self, reference=self.actor.call.remote(method, step, phase, arguments, options), step=step
        )

    def start(self, target: str, **arguments: Any) -> Pending:
        """Start building the role's object."""
        return Pending(worker=self, reference=self.actor.start.remote(target, arguments), step=0)


class Crew:
    """All actors of a run, in one placement group; `close` leaves nothing of it."""

    def __init__(
        self,
        spec: RunSpec,
        device: Device,
        *,
        log_dir: str,
        on_answer: Callable[[Worker, Answer], None],
        check: Callable[[], None],
    ) -> None:
        self._on_answer, self._check = on_answer, check
        tensor_parallel = spec.hardware.tensor_parallel_size
        sizes = {
            "policy": [1] * spec.hardware.policy_ranks,
            "vllm": [tensor_parallel] * (spec.hardware.rollout_engines if spec.algorithm != "sft" else 0),
            "reference": [1] * int(spec.needs_reference),
        }
        bundles = [self._bundle(spec, device, size) for members in sizes.values() for size in members]
        self.group: PlacementGroup = placement_group(bundles, strategy="PACK")
        self.log_queue = ray.remote(LogQueue).options(num_cpus=0).remote()
        self._wait_for_place(bundles)
        places = places_of(self.group)
        self.workers: dict[str, list[Worker]] = {}
        environment = runtime_env(ready=spec.profile.nsys_ready, trace=device.nsys_trace, tool=spec.profile.tool)
        number = 0
        for role, members in sizes.items():
            self.workers[role] = []
            for rank in range(len(members)):
                bundle = bundles[number]
                strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=number)
                actor = (
                    ray.remote(concurrency_groups={CAPTURES: 1})(Actor)
                    .options(
                        num_cpus=bundle["CPU"],
                        num_gpus=bundle.get("GPU", 0),
                        scheduling_strategy=strategy,
                        max_concurrency=1,
                        runtime_env=environment or None,
                    )
                    .remote(role=role, rank=rank, log_dir=log_dir, queue=self.log_queue, marks=spec.profile.marks)
                )
                self.workers[role].append(Worker(actor, role=role, rank=rank, place=places[number]))
                number += 1

    @staticmethod
    def _bundle(spec: RunSpec, device: Device, size: int) -> dict[str, float]:
        bundle = {"CPU": float(spec.hardware.cpus_per_worker * size)}
        if device.gpus_per_worker:
            bundle["GPU"] = device.gpus_per_worker * size
        return bundle

    def _wait_for_place(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Wait for resources; refuse at once what the cluster can never give.

        Raises: RunProblem naming `hardware.policy_ranks`.
        """
        total = ray.cluster_resources()
        for kind, name in (("CPU", "logical CPUs"), ("GPU", "GPUs")):
            needed = sum(b.get(kind, 0.0) for b in bundles)
            if needed > total.get(kind, 0.0):
                raise RunProblem(
                    "hardware.policy_ranks",
                    f"The run needs {needed:g} {name}, the cluster has {total.get(kind, 0.0):g}. Ask for fewer "
                    "workers.",
                )
        while not self.group.wait(timeout_seconds=_POLL_SECONDS):
            self._check()

    @property
    def policies(self) -> list[Worker]:
        """The policy ranks, in order."""
        return self.workers["policy"]

    @property
    def generators(self) -> list[Worker]:
        """The rollout engines; none in SFT."""
        return self.workers["vllm"]

    @property
    def reference(self) -> Worker | None:
        """The reference, where the run has one."""
        return next(iter(self.workers["reference"]), None)

    def all(self) -> list[Worker]:
        """Every worker."""
        return [worker for members in self.workers.values() for worker in members]

    def place_of(self, role: str, rank: int) -> Place:
        """Return where a worker sits."""
        return self.workers[role][rank].place

    @staticmethod
    def address_of(worker: Worker) -> tuple[str, int]:
        """Return the address of the worker's node and a port that is free there now."""
        host, port = ray.get(worker.actor.address.remote())
        return str(host), int(port)

    def gather(self, pending: Sequence[Pending], *, interruptible: bool = False) -> list[Any]:
        """Return the values of all calls, in order, as soon as all are there.

        The first error ends the waiting: where one rank is gone the others would wait in a collective for ever. Of a
        death and the errors that it causes in the others, the death is told.
        With `interruptible` the check for commands runs meanwhile. Raises: WorkerFailed, RunProblem.
        """
        waiting = {p.reference: p for p in pending}
        values: dict[Any, Any] = {}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
            for reference in ready:
                call = waiting.pop(reference)
                try:
                    values[reference] = self._value(call)
                except WorkerFailed as failed:
                    raise self._death_behind(failed, waiting) from None
            if interruptible:
                self._check()
        return [values[p.reference] for p in pending]

    def _death_behind(self, failed: WorkerFailed, waiting: dict[Any, Pending]) -> WorkerFailed:
        """Return the death of another worker if one is told of soon, else `failed` itself.

        A rank that dies closes its connections, so its peers may raise before Ray knows of the death.
        """
        end = time.monotonic() + _DEATH_SECONDS
        while waiting and not failed.is_death and (left := end - time.monotonic()) > 0:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=left)
            for reference in ready:
                try:
                    self._value(waiting.pop(reference))
                except WorkerFailed as other:
                    if other.is_death:
                        return other
                except RunProblem:
                    continue  # the first failure is the one to tell
        return failed

    def _value(self, call: Pending) -> Any:
        try:
            answer: Answer = ray.get(call.reference)
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, RoleError) and cause.field:
                raise RunProblem(cause.field, cause.text) from None
            text = str(cause).strip() or type(cause).__name__
            raise self._failed(call, text, is_death=False) from None
        except (RayActorError, GetTimeoutError) as error:
            raise self._failed(call, _why_died(error), is_death=True) from None
        self._on_answer(call.worker, answer)
        return answer.value

    @staticmethod
    def _failed(call: Pending, text: str, *, is_death: bool) -> WorkerFailed:
        return WorkerFailed(role=call.worker.role, rank=call.worker.rank, step=call.step, text=text, is_death=is_death)

    def close(self) -> None:
        """End every actor and give the place back."""
        for worker in self.all():
            ray.kill(worker.actor)
        ray.kill(self.log_queue)
        remove_placement_group(self.group)


def _why_died(error: Exception) -> str:
    """Return the sentence of Ray's report that says how the process ended."""
    if _CUT_OFF in str(error):  # all that Ray knows of it; what it says besides is advice about settings of its own
        return "it was killed, or crashed in native code (Ray saw its connection end)"
    for line in str(error).splitlines():
        for mark in (
            "Worker exit detail:",
            "The actor died because of an error",
            "The actor is dead because",
            "exit detail",
        ):
            if mark in line:
                return line.split(mark, 1)[-1].strip(" :.") or line.strip()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
