"""The roles a run may have: which it needs, which it trains, and how many workers the built-in trainer gives each.

RunSpec, placements, planner and the built-in trainer's worker groups read this one table. A role that is added here
with its class is placed, started and planned; what it does in a step is said in `jobs/engine/loop.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.catalog.algorithm import is_in

if TYPE_CHECKING:  # a spec asks for its own roles
    from jobs.catalog.spec.runspec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One role: `label` is what people call it.

    `is_needed` says of a spec whether the run has the role. `is_trained`: it has gradients, optimizer states and
    checkpoints, and its ranks work together on one batch. `generates`: it is a rollout engine, which gets the policy's
    weights. What neither trains nor generates scores.

    `worker` is the class of the built-in trainer, as `module:Class`, "" where only other trainers have the role;
    `scalar_worker` the one where what is trained says a number of a sequence;
    `num_workers` is how many of it a spec asks for there, and `devices` on how many devices each of them is spread. A
    role that is needed and has no workers is held by the ranks of the policy. Workers that `share_devices` are
    processes of their own on the devices of these ranks, with which they take turns.
    """

    id: str
    label: str
    is_needed: Callable[["RunSpec"], bool]
    is_trained: bool = False
    generates: bool = False
    worker: str = ""
    scalar_worker: str = ""
    num_workers: Callable[["RunSpec"], int] = lambda _spec: 1
    devices: Callable[["RunSpec"], int] = lambda _spec: 1
    share_devices: Callable[["RunSpec"], bool] = lambda _spec: False

    def worker_of(self, spec: "RunSpec") -> str:
        """Return the class of the built-in trainer that a run needs for the role."""
        return self.scalar_worker if self.scalar_worker and is_in(spec.algorithm, "scalar") else self.worker


def _samples(spec: "RunSpec") -> bool:
    return is_in(spec.algorithm, "rl")


def _holds_near(spec: "RunSpec") -> bool:
    """Whether the policy is held near its start: by a KL term, or by what preferences are compared with.

    Other trainers place the reference of the latter themselves.
    """
    if is_in(spec.algorithm, "anchored"):
        return spec.is_native and not ("pairs.reference_free" in spec.knobs and spec.knob("pairs.reference_free"))
    has_kl = _samples(spec) and "algorithm.kl_coefficient" in spec.knobs
    return has_kl and spec.float_knob("algorithm.kl_coefficient") > 0


def _takes_turns(spec: "RunSpec") -> bool:
    """Whether vLLM draws on the devices of the policy's ranks."""
    return spec.hardware.layout == "colocated" and spec.knob("rollout.engine") == "vllm"


def _num_engines(spec: "RunSpec") -> int:
    """Engines have devices of their own, share those of all ranks, or are not there: then the ranks draw themselves."""
    hardware = spec.hardware
    if hardware.layout != "colocated":
        return hardware.rollout_engines
    return hardware.policy_ranks // hardware.tensor_parallel_size if _takes_turns(spec) else 0


def trains_adapters(spec: "RunSpec") -> bool:
    """Whether the built-in trainer trains adapters beside frozen weights: its ranks have the start of the run then."""
    return spec.is_native and "lora.rank" in spec.knobs and spec.int_knob("lora.rank") > 0


ROLES: Mapping[str, Role] = {
    role.id: role
    for role in (
        Role(
            id="policy",
            label="policy",
            is_needed=lambda _spec: True,
            is_trained=True,
            worker="jobs.engine.roles.policy:Policy",
            scalar_worker="jobs.engine.roles.reward_model:RewardModel",
            num_workers=lambda spec: spec.hardware.policy_ranks,
        ),
        Role(
            id="vllm",
            label="rollout",
            is_needed=_samples,
            generates=True,
            worker="jobs.engine.roles.generator:Generator",
            num_workers=_num_engines,
            devices=lambda spec: spec.hardware.tensor_parallel_size,
            share_devices=_takes_turns,
        ),
        Role(
            id="reference",
            label="reference",
            is_needed=_holds_near,
            worker="jobs.engine.roles.reference:Reference",
            num_workers=lambda spec: 1 if spec.hardware.layout == "split" and not trains_adapters(spec) else 0,
        ),
        Role(
            id="teacher",
            label="teacher",
            is_needed=lambda spec: is_in(spec.algorithm, "distillation"),
            worker="jobs.engine.roles.teacher:Teacher",
            num_workers=lambda spec: 1 if spec.hardware.layout == "split" else 0,
        ),
        Role(
            id="critic",
            label="critic",
            is_needed=lambda spec: is_in(spec.algorithm, "critic"),
            is_trained=True,
            worker="jobs.engine.roles.critic:Critic",
            num_workers=lambda spec: spec.hardware.policy_ranks if spec.hardware.layout == "split" else 0,
        ),
        Role(
            id="reward",
            label="reward",
            is_needed=lambda spec: _samples(spec) and spec.reward_model != "",
            worker="jobs.engine.roles.reward_scorer:RewardScorer",
            num_workers=lambda spec: 1 if spec.hardware.layout == "split" else 0,
        ),
    )
}
"""By id, in the order in which workers are placed."""


def roles_of(spec: "RunSpec") -> Iterator[Role]:
    """Yield the roles that a run needs, in the order of the table."""
    return (role for role in ROLES.values() if role.is_needed(spec))
