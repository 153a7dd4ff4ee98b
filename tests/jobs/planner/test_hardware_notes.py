"""What a device cannot do, and what is assumed of long rows, stands in the notes of every answer."""

from dataclasses import replace

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.can_it_run.language_models import can_it_run
from jobs.planner.can_it_run.plans import Demand
from jobs.planner.estimate import estimate
from jobs.planner.job import Attention, Compute, Fleet, Job, Layout, Training
from jobs.planner.shapes.known import shape_of


def _job(accelerator: str, *, compute: Compute = "bf16", attention: Attention = "sdpa", sequence: int = 2048) -> Job:
    policy = Training(
        model=shape_of("qwen2.5-0.5b"),
        layout=Layout(num_devices=8, shards=3),
        family="fsdp",
        compute=compute,
        attention=attention,
        sequence=sequence,
    )
    fleet = Fleet(accelerator=find_accelerator(accelerator), num_devices=8)
    return Job(algorithm="sft", fleet=fleet, policy=policy)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (_job("a100-80-sxm", compute="fp8"), "A100 SXM 80 GB multiplies nothing in fp8"),
        (_job("t4"), "computes nothing in bf16: this does not run there. Use fp16."),
        (_job("v100-32", compute="fp16", attention="flash3"), "does not run FlashAttention 3. Use PyTorch's own"),
        (_job("a100-80-sxm", attention="flash3"), "does not run FlashAttention 3. Use FlashAttention 2."),
    ],
)
def test_what_the_device_lacks_is_a_note_of_the_estimate(job: Job, says: str) -> None:
    assert any(says in note for note in estimate(job).notes)
    able = replace(job, fleet=replace(job.fleet, accelerator=find_accelerator("h100-sxm")))
    assert not any("does not run" in note or "in fp8" in note for note in estimate(able).notes)


def test_can_it_run_says_what_is_planned_in_place_of_what_a_device_lacks() -> None:
    found = can_it_run(shape_of("qwen2.5-0.5b"), find_accelerator("t4"), "sft-lora", 1)

    assert found.at is not None
    assert found.at.estimate is not None
    assert any("planned in fp16" in note for note in found.at.estimate.notes)


def test_a_long_row_of_unknown_documents_asks_for_their_mean_length() -> None:
    demand = Demand(max_prompt=1024, max_response=64 * 1024)
    known = replace(demand, mean_prompt=500, mean_response=1500)
    asked = [
        can_it_run(shape_of("qwen2.5-0.5b"), find_accelerator("h100-sxm"), "sft", 8, demand=each).at
        for each in (demand, known)
    ]

    notes = [each.estimate.notes if each is not None and each.estimate is not None else () for each in asked]
    assert any("Fill in the mean tokens of a sample (mean_prompt)" in note for note in notes[0])
    assert not any("mean tokens of a sample" in note for note in notes[1])
    assert not any("mean tokens of a sample" in note for note in estimate(_job("h100-sxm")).notes)
