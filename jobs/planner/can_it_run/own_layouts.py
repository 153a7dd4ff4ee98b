"""The built-in trainer's layouts of GRPO with KL, each on a few numbers of devices: whether it fits there, and how.

*Can it run?* plans jobs before anybody chose a trainer; this says which of the built-in trainer's layouts such a job
takes on one device, on two, on a node. All train in bfloat16 with checkpointing and one sequence at a time: the least
that training needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.spec.parse import parse_spec
from jobs.planner.can_it_run.plans import Demand
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.estimate import Estimator
from jobs.planner.job import Fleet, Job
from jobs.planner.read.context import Models
from jobs.planner.read.spec import read_job
from jobs.planner.result import Estimate, JobInvalid, Verdict
from jobs.planner.shapes.model_shape import ModelShape

OwnLayout = Literal["split", "shared", "colocated"]
LEAST_DEVICES: dict[OwnLayout, int] = {"split": 3, "shared": 2, "colocated": 1}
"""Devices that a layout takes at least: for policy, engine and reference; for policy and engine; for the policy."""

COUNTS = (1, 2, 8)
_SAMPLES = (256, 64, 16)
"""How many samples the ranks draw at once in the layout colocated: the more, the faster and the fuller."""

_SHARE = 0.9  # of an engine that has its devices alone
_RANKS: dict[Verdict, int] = {"fits": 0, "tight": 1, "no": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLayoutFit:
    """A layout on so many devices. `job` and `estimate` are those of the fastest way that fits, or of the one that
    comes nearest; None where it needs more devices or cannot be laid out on them. `is_best`: the fastest of all that
    fit there."""

    layout: OwnLayout
    num_devices: int
    job: Job | None
    estimate: Estimate | None
    is_best: bool = False


def own_layouts(
    shape: ModelShape,
    accelerator: Accelerator,
    demand: Demand | None = None,
    *,
    counts: Sequence[int] = COUNTS,
    constants: Constants | None = None,
) -> tuple[OwnLayoutFit, ...]:
    """Return every layout of GRPO with KL on each number of devices, the layouts in the order of LEAST_DEVICES."""
    estimator = Estimator(constants or shipped_constants())
    rows: list[OwnLayoutFit] = []
    for count in counts:
        here = [
            OwnLayoutFit(layout=layout, num_devices=count, job=job, estimate=estimate)
            for layout in LEAST_DEVICES
            for job, estimate in [_best(estimator, shape, accelerator, demand or Demand(), layout, count)]
        ]
        orders = {each.layout: _order(each.estimate) for each in here if each.estimate is not None}
        fitting = {layout: order for layout, order in orders.items() if order[0] < _RANKS["no"]}
        best = min(fitting, key=lambda layout: fitting[layout], default=None)
        rows += [replace(each, is_best=each.layout == best) for each in here]
    return tuple(rows)


def _order(estimate: Estimate) -> tuple[int, float]:
    """Return what comes first: what fits, and of that the fastest; of what does not the nearest."""
    share = max(pool.share for pool in estimate.pools)
    rank = _RANKS[estimate.verdict]
    return rank, share if rank == _RANKS["no"] else estimate.time.step.middle


def _best(
    estimator: Estimator, shape: ModelShape, accelerator: Accelerator, demand: Demand, layout: OwnLayout, count: int
) -> tuple[Job, Estimate] | tuple[None, None]:
    fleet = Fleet(accelerator=accelerator, num_devices=count)
    estimates: list[tuple[Job, Estimate]] = []
    for hardware, knobs in _ways(layout, count, demand):
        spec = parse_spec({"algorithm": "grpo", "hardware": hardware, "knobs": knobs})
        try:
            job = read_job(spec, Models(policy=shape), fleet)
            estimates.append((job, estimator.estimate(job)))
        except JobInvalid:
            continue  # heads that do not divide, say
    return min(estimates, key=lambda each: _order(each[1]), default=(None, None))


def _ways(layout: OwnLayout, count: int, demand: Demand) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    """Yield hardware and knobs of the ways to place a run on all devices, each as a spec has it."""
    samples = demand.prompts * demand.samples_per_prompt
    knobs: dict[str, object] = {
        "memory.precision": "bfloat16",
        "memory.gradient_checkpointing": True,
        "train.micro_batch_size": 1,
        "train.updates_per_rollout": 1,
        "rollout.max_prompt_tokens": demand.max_prompt,
        "rollout.max_new_tokens": demand.max_response,
        "rollout.prompts_per_step": demand.prompts,
        "rollout.samples_per_prompt": demand.samples_per_prompt,
        "rollout.gpu_memory_fraction": _SHARE,
    }
    rest = count - (layout == "split")
    for engines in (0,) if layout == "colocated" else sorted({1, rest // 2}):
        ranks = max((size for size in range(1, rest - engines + 1) if samples % size == 0), default=0)
        if ranks < 1 or (layout != "colocated" and engines < 1):
            continue
        hardware: dict[str, object] = {"device": "cuda", "layout": layout, "policy_ranks": ranks}
        if layout == "colocated":
            yield from ((hardware, {**knobs, "rollout.max_num_seqs": most}) for most in _SAMPLES)
            continue
        hardware["rollout_engines"] = engines
        yield from ((hardware, {**knobs, "memory.zero_stage": stage}) for stage in ("2", "3"))
