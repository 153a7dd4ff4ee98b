"""The share of devices that generates where a job does not say it."""

from dataclasses import replace

from jobs.planner.estimate import estimate
from jobs.planner.job import Engine, Job, Layout, Lengths, Rollouts, Training
from jobs.planner.shapes.known import shape_of
from tests.jobs.planner.hardware import fleet

MODEL = shape_of("qwen3-0.6b")
JOB = Job(
    algorithm="grpo",
    fleet=fleet(8),
    policy=Training(model=MODEL, layout=Layout(num_devices=8, shards=3), family="fsdp", micro_batch=8),
    engine=Engine(model=MODEL),
    rollouts=Rollouts(
        prompts=64,
        samples_per_prompt=8,
        lengths=Lengths(max_prompt=512, max_response=1024, mean_prompt=200, mean_response=600),
    ),
    placement="split",
    schedule="one_step_off",
)


def given(num: int) -> Job:
    assert JOB.engine is not None
    policy = replace(JOB.policy, layout=replace(JOB.policy.layout, num_devices=8 - num))
    return replace(JOB, engine_devices=num, policy=policy, engine=replace(JOB.engine, num_engines=num))


def test_the_best_share_is_taken_and_said() -> None:
    found = estimate(JOB)
    steps = {num: estimate(given(num)).time.step.middle for num in range(1, 8)}
    best = min(steps, key=lambda num: steps[num])

    assert found.time.step.middle == steps[best]
    assert f"{best} of 8" in found.notes[0]


def test_a_share_that_is_said_is_kept() -> None:
    assert not [note for note in estimate(given(2)).notes if "shortest" in note]
