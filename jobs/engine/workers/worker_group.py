"""The actors of a run: placed together, called together, and failures attributed to the one that failed first."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from jobs.catalog.log_line import tells_of_lost_peer
from jobs.catalog.role import ROLES, roles_of
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.device import Device
from jobs.engine.problem import RunProblem
from jobs.engine.warm import start
from jobs.engine.workers.actor import CAPTURES, LOOKING, Actor, CallResult, LogQueue
from jobs.engine.workers.first_failure import first_failure
from jobs.engine.workers.node_placement import RunNode, nodes_of
from jobs.engine.workers.worker import Pending, Worker, WorkerFailed, answer_of
from profiling.config import Device as DeviceName
from profiling.launch_nsys import runtime_env
from profiling.recorders.recorder import planned_tool

WARM_SOCKET = "PITWALL_WARM_SOCKET"
"""Where the server of jobs.engine.warm answers on this machine."""
_POLL_SECONDS = 0.5
_FAILURE_SECONDS = 5.0  # within which Ray tells of a process that died on a living node
_NODE_SECONDS = 40.0  # within which it tells of a node that is gone


def warm_start() -> tuple[str, ...]:
    """Return the command that stands for the interpreter of a rank which is forked; () where none is.

    The embedded console has a process with the libraries for runs on CPU (jobs.engine.warm); it has no vLLM.
    """
    socket = os.environ.get(WARM_SOCKET, "")
    return (sys.executable, "-IS", str(Path(start.__file__)), socket) if socket else ()


class WorkerGroup:
    """All actors of a run, in one placement group; `close` leaves nothing of it."""

    def __init__(
        self,
        spec: RunSpec,
        device: Device,
        *,
        log_dir: str,
        on_answer: Callable[[Worker, CallResult], None],
        check: Callable[[], None],
    ) -> None:
        self._on_answer, self._check = on_answer, check
        self.device = device
        counts = {role: role.num_workers(spec) for role in roles_of(spec)}
        sizes = {role.id: [role.devices(spec)] * count for role, count in counts.items() if count}
        self._trained = [role.id for role in counts if role.is_trained]
        guests = {role.id for role in counts if role.share_devices(spec)}
        self.share_devices = bool(guests)
        apart = [size for role, members in sizes.items() if role not in guests for size in members]
        bundles = [self._bundle(spec, device, size) for size in apart]
        self.group: PlacementGroup = placement_group(bundles, strategy="PACK")
        self.log_queue = ray.remote(LogQueue).options(num_cpus=0).remote()
        self._wait_for_place(bundles)
        nodes = nodes_of(self.group)
        self.by_role: dict[str, list[Worker]] = {}
        planned = planned_tool(spec.profile.what, spec.profile.tool, device=cast(DeviceName, device.name))
        warm = () if device.gpus_per_worker else warm_start()
        own_place = 0
        for role, members in sizes.items():
            self.by_role[role] = []
            environment = runtime_env(
                ready=spec.profile.nsys_ready,
                trace=device.nsys_trace,
                tool=planned,
                plain=() if ROLES[role].generates else warm,
            )
            for rank, size in enumerate(members):
                if role in guests:  # Ray gives it nothing of its own, and it sits with the first of its policy ranks
                    number, bundle = rank * size, {"CPU": 0.0}
                    _check_together(nodes[number : number + size])
                else:
                    number, bundle = own_place, bundles[own_place]
                    own_place += 1
                strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=number)
                actor = (
                    ray.remote(concurrency_groups={CAPTURES: 1, LOOKING: 1})(Actor)
                    .options(
                        num_cpus=bundle["CPU"],
                        num_gpus=bundle.get("GPU", 0),
                        scheduling_strategy=strategy,
                        max_concurrency=1,
                        runtime_env=environment or None,
                    )
                    .remote(role=role, rank=rank, log_dir=log_dir, queue=self.log_queue, marks=spec.profile.marks)
                )
                self.by_role[role].append(Worker(actor, role=role, rank=rank, node=nodes[number]))

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
        return self.by_role["policy"]

    @property
    def trained(self) -> dict[str, list[Worker]]:
        """The ranks of each trained role, in order: its own workers, or what the policy's ranks hold of it."""
        return {
            role: self.by_role.get(role) or [policy.held(role) for policy in self.policies] for role in self._trained
        }

    @property
    def generators(self) -> list[Worker]:
        """The rollout engines; none in SFT, and where the policy's ranks draw."""
        return self.by_role.get("vllm", [])

    @property
    def reference(self) -> Worker | None:
        """The reference, where the run has one with a worker of its own."""
        return next(iter(self.by_role.get("reference", ())), None)

    def all(self) -> list[Worker]:
        """Every worker."""
        return [worker for members in self.by_role.values() for worker in members]

    def node_of(self, role: str, rank: int) -> RunNode:
        """Return where a worker sits."""
        return self.by_role[role][rank].node

    def address_of(self, worker: Worker) -> tuple[str, int]:
        """Return the address of the worker's node and a port, free there until its next call has ended.

        Raises: WorkerFailed.
        """
        ((host, port),) = self.gather([worker.address()])
        return str(host), int(port)

    def devices_of(self, guest: Worker) -> str:
        """Return the devices of the policy ranks that a worker shares, as CUDA_VISIBLE_DEVICES names them; "" on CPU.

        Raises: WorkerFailed.
        """
        spread = len(self.policies) // len(self.by_role[guest.role])
        ranks = self.policies[guest.rank * spread : (guest.rank + 1) * spread]
        return ",".join(filter(None, self.gather([rank.visible_devices() for rank in ranks])))

    def gather(self, pending: Sequence[Pending], *, interruptible: bool = False) -> list[Any]:
        """Return the values of all calls, in order, as soon as all are there.

        The first error ends the waiting: where one rank is gone the others would wait in a collective for ever. Of
        failures, and the errors that they cause in the others, the first failure is reported, whichever worker it is
        of. With `interruptible` the check for commands runs meanwhile. Raises: WorkerFailed, RunProblem.
        """
        waiting = {p.reference: p for p in pending}
        values: dict[Any, Any] = {}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
            for reference in ready:
                call = waiting.pop(reference)
                try:
                    answer = answer_of(call)
                except WorkerFailed as failed:
                    raise self._root_failure(failed) from None
                self._on_answer(call.worker, answer)
                values[reference] = answer.value
            if interruptible:
                self._check()
        return [values[p.reference] for p in pending]

    def first_failure(
        self, *, step: int = -1, phase: str = "", seconds: float = _FAILURE_SECONDS
    ) -> WorkerFailed | None:
        """Return the failure of the worker that died first, None if nobody is known to be dead within `seconds`."""
        return first_failure(self.all(), step=step, phase=phase, seconds=seconds)

    def _root_failure(self, failed: WorkerFailed) -> WorkerFailed:
        """Return the first failure of a worker if one is reported soon, else `failed` itself.

        A rank that dies closes its connections, so its peers may raise before Ray knows of the death; where its whole
        node died Ray knows long after them.
        """
        has_lost_peer = failed.how == "raised" and tells_of_lost_peer(failed.text)
        seconds = _NODE_SECONDS if has_lost_peer or failed.how == "lost" else _FAILURE_SECONDS
        return self.first_failure(step=failed.step, phase=failed.phase, seconds=seconds) or failed

    def close(self) -> None:
        """End every actor and give the place back."""
        for worker in self.all():
            ray.kill(worker.actor)
        ray.kill(self.log_queue)
        remove_placement_group(self.group)


def _check_together(nodes: Sequence[RunNode]) -> None:
    """Raises: RunProblem where the policy ranks that an engine shares devices with are on several nodes."""
    if len(set(nodes)) > 1:
        raise RunProblem(
            "hardware.tensor_parallel_size",
            f"An engine shares the devices of {len(nodes)} policy ranks, which Ray placed on {len(set(nodes))} nodes. "
            "Use a number of devices that divides those of each node.",
        )
