"""Finished runs on GPUs that took so many times what the planner uses, told by the product's own way in."""

from typing import Any

from django.contrib.auth.models import AbstractUser

from jobs.cluster.ray_api import ClusterState
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Project, Run
from jobs.planner.constant import shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.job import Lengths
from jobs.planner.read.context import Workload
from jobs.planner.time.generation import mean_lengths
from jobs.planning.plan_vs_measured import RunMeasurements
from jobs.planning.run_plan import question_of
from profiling import events
from tests.batches import T0, delivery
from tests.rows import NOW, make_run

AWAY = ClusterState(is_reachable=False, problem="away", away_since=None, nodes=(), cpus_total=0.0, gpus_total=0.0)
PROMPT, RESPONSE = mean_lengths(
    Lengths(max_prompt=512, max_response=512), shipped_constants()
)  # as a plan assumes them


def spec_of(prompts: int, **knobs: Any) -> dict[str, Any]:
    return {
        "algorithm": "grpo",
        "trainer": {"name": "verl", "version": "0.9.1"},
        "model": {"kind": "hub", "id": "Qwen/Qwen2.5-7B"},
        "knobs": {"placement.policy_gpus_per_node": 8, "rollout.prompts_per_step": prompts, **knobs},
    }


def measured_run(
    project: Project,
    admin: AbstractUser,
    *,
    prompts: int = 128,
    kind: str = "H200",
    response: float = RESPONSE,
    steps: int = 5,
    knobs: dict[str, Any] | None = None,
    **factors: float,
) -> Run:
    """Return a finished run on eight devices of a kind whose phases took so many times what is estimated."""
    run = make_run(project, state="finished", spec=spec_of(prompts, **(knobs or {})))
    row = {"accelerator": kind, "gpus": 8, "cpus": 64, "memory_bytes": 1e12, "count": 1, "ids": []}
    Attempt.objects.filter(run=run).update(num_gpus=8, ran_on={"nodes": [row]})
    known = Workload(mean_prompt=PROMPT, mean_response=response)
    asked = question_of(run, user=admin, state=AWAY, measured=RunMeasurements(), workload=known, reads=False)
    planned = estimate(asked.job, shipped_constants()).time.phases
    values = {f"time/{phase}_seconds": seconds.middle * factors.get(phase, 1.0) for phase, seconds in planned.items()}
    values["time/step_seconds"] = sum(values.values()) / 0.9
    values |= {"prompt/length_mean": PROMPT, "response/length_mean": response}
    told = [events.metric(values, attempt=1, step=number, t=T0 + number) for number in range(1, steps + 1)]
    store([delivery(run.pk, 1, told)], memory=AttemptCache(), now=NOW)
    return run


def four_runs(project: Project, admin: AbstractUser, **factors: float) -> list[Run]:
    return [measured_run(project, admin, prompts=prompts, **factors) for prompts in (64, 128, 256, 512)]
