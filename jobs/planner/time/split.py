"""How many devices generate where nobody says: the share with the shortest step, as an engineer would choose it."""

import math
from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.constant import Constants
from jobs.planner.job import Job, Training
from jobs.planner.memo import Memo
from jobs.planner.serving.engine_memory import engine_memory
from jobs.planner.time.steps import step_time

_MOST = 32  # shares that are tried


def with_best_split(job: Job, constants: Constants, memo: Memo) -> Job:
    """Return a job whose engine has devices of its own with as many as make its step shortest, and a note that says so.

    A job that says how many it has, or whose devices cannot be divided, comes back as it is.
    """
    engine, rollouts, total = job.engine, job.rollouts, job.fleet.num_devices
    if job.placement != "split" or job.engine_devices or engine is None or rollouts is None:
        return job
    each = engine.tensor * engine.pipeline
    unit = _unit(job.policy)
    shares = [num for num in range(each, total, each) if (total - num) % unit == 0]
    if not shares:
        return job
    stride = -(-len(shares) // _MOST)
    held = engine_memory(engine, job.fleet.accelerator, constants)
    divided = [_divided(job, num) for num in shares[::stride]]
    best = min(divided, key=lambda one: step_time(one, held, constants, memo).step.middle)
    note = Sentence(
        "How many devices generate is not said: {num} of {total}, with which a step is shortest.",
        num=best.engine_devices,
        total=total,
    )
    return replace(best, notes=(*best.notes, note))


def _divided(job: Job, engine_devices: int) -> Job:
    """Return the job with so many devices for its engines; models that had all devices have the others."""
    total, left = job.fleet.num_devices, job.fleet.num_devices - engine_devices
    assert job.engine is not None
    engine = replace(job.engine, num_engines=engine_devices // (job.engine.tensor * job.engine.pipeline))

    def smaller(training: Training) -> Training:
        layout = training.layout
        return replace(training, layout=replace(layout, num_devices=left)) if layout.num_devices == total else training

    return replace(
        job,
        engine_devices=engine_devices,
        engine=engine,
        policy=smaller(job.policy),
        critic=smaller(job.critic) if job.critic is not None else None,
        frozen=tuple(
            replace(each, layout=replace(each.layout, num_devices=left)) if each.layout.num_devices == total else each
            for each in job.frozen
        ),
    )


def _unit(training: Training) -> int:
    """Return the number of devices that one replica of a training takes, experts included."""
    layout = training.layout
    ranks = layout.tensor * layout.pipeline * layout.context * layout.ulysses
    return math.lcm(ranks, layout.pipeline * layout.expert * layout.expert_tensor)
