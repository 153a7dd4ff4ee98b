"""Jobs that cannot be: each is refused with its field and a sentence, and none is estimated or breaks anything."""

import math
from dataclasses import replace
from typing import Any

import pytest

from jobs.planner.job import Engine, Fleet, FrozenModel, Job, Layout, Lengths, Offload, Rollouts, Training
from jobs.planner.result import JobInvalid
from jobs.planner.shapes.known import shape_of
from jobs.planner.validation import validate
from tests.jobs.planner.hardware import fleet

DENSE, MIXED = shape_of("qwen2.5-7b"), shape_of("qwen3-30b-a3b")  # 28 heads, 4 of keys; 32 and 4, 128 experts


def job(**changes: Any) -> Job:
    layout = changes.pop("layout", {})
    policy = Training(
        model=changes.pop("model", DENSE),
        layout=Layout(**{"num_devices": 8, "shards": 3, **layout}),
        family="fsdp",
        **changes.pop("policy", {}),
    )
    return Job(**{"algorithm": "sft", "fleet": fleet(8), "policy": policy, **changes})


def with_rollouts(**changes: Any) -> Job:
    lengths = {"max_prompt": 512, "max_response": 1024, **changes.pop("lengths", {})}
    rollouts = Rollouts(
        **{"prompts": 64, "samples_per_prompt": 8, **changes.pop("rollouts", {}), "lengths": Lengths(**lengths)}
    )
    engine = Engine(model=DENSE, **{"num_engines": 8, "utilization": 0.5, **changes.pop("engine", {})})
    return job(algorithm="grpo", rollouts=rollouts, engine=engine, **changes)


def refusal(found: Job) -> JobInvalid:
    with pytest.raises(JobInvalid) as refused:
        validate(found)
    text = str(refused.value)
    assert refused.value.field in text
    assert text.endswith(".")
    assert "Use" in text
    return refused.value


def test_a_whole_job_is_taken() -> None:
    validate(job())
    validate(with_rollouts())
    validate(job(model=MIXED, layout={"expert": 8, "tensor": 2, "shards": 1}))


@pytest.mark.parametrize("value", [0, -1, 10**9 + 1, math.nan, math.inf, 2.5, "8", True, None])
@pytest.mark.parametrize("field", ["sequence", "micro_batch", "num_micro_batches"])
def test_sizes_of_training_are_whole_and_in_range(field: str, value: object) -> None:
    assert refusal(job(policy={field: value})).field == f"policy.{field}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -2.0, 0.0, 1e9, "2", None])
@pytest.mark.parametrize("field", ["weight_bytes", "gradient_bytes", "base_bytes"])
def test_bytes_of_an_element_are_a_number(field: str, value: object) -> None:
    assert refusal(job(policy={field: value})).field == f"policy.{field}"


@pytest.mark.parametrize("value", [0, -8, 10**12, math.nan, 1.5, "many"])
@pytest.mark.parametrize("field", ["num_devices", "devices_per_node"])
def test_a_fleet_has_devices(field: str, value: Any) -> None:
    given = {"num_devices": 8, field: value}
    where = Fleet(accelerator=fleet(8).accelerator, **given)
    assert refusal(job(fleet=where)).field == f"fleet.{field}"


@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf, "2"])
def test_a_price_is_a_number(value: Any) -> None:
    assert refusal(job(fleet=fleet(8, price=value))).field == "fleet.price"


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        ({"tensor": 0}, "tensor"),
        ({"tensor": -2}, "tensor"),
        ({"tensor": 3}, "tensor"),  # does not divide 28 heads
        ({"tensor": 8}, "tensor"),  # nor does this
        ({"ulysses": 8}, "ulysses"),
        ({"context": 3}, "context"),
        ({"pipeline": 29}, "pipeline"),  # more stages than layers
        ({"pipeline": 4, "virtual": 8}, "virtual"),
        ({"tensor": 4, "context": 4}, "num_devices"),
        ({"expert": 2}, "expert"),  # it has no experts
        ({"expert_tensor": 2}, "expert_tensor"),
        ({"pipeline": 2, "first_stage_layers": 28, "last_stage_layers": 1}, "first_stage_layers"),
        ({"shard_group": 3}, "shard_group"),
        ({"shards": 4}, "shards"),
        ({"num_devices": 16}, "num_devices"),  # the fleet has eight
    ],
)
def test_sizes_divide_what_they_divide(layout: dict[str, Any], field: str) -> None:
    assert refusal(job(layout=layout)).field == f"policy.layout.{field}"


def test_chunks_at_ends_that_are_set_may_hold_the_embedding_and_the_loss_alone() -> None:
    layout = {"pipeline": 5, "virtual": 6, "first_stage_layers": 5, "last_stage_layers": 5, "num_devices": 5}  # of 28
    validate(job(layout=layout, fleet=fleet(5)))
    assert refusal(job(layout={**layout, "last_stage_layers": 0}, fleet=fleet(5))).field == "policy.layout.virtual"


@pytest.mark.parametrize(
    ("layout", "field"),
    [({"expert": 3}, "expert"), ({"expert": 256}, "expert"), ({"expert_tensor": 5}, "expert_tensor")],
)
def test_experts_divide(layout: dict[str, Any], field: str) -> None:
    assert refusal(job(model=MIXED, layout=layout)).field == f"policy.layout.{field}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"lengths": {"max_prompt": 0}}, "rollouts.lengths.max_prompt"),
        ({"lengths": {"max_response": -5}}, "rollouts.lengths.max_response"),
        ({"lengths": {"mean_response": 2000.0}}, "rollouts.lengths.mean_response"),
        ({"lengths": {"mean_prompt": math.nan}}, "rollouts.lengths.mean_prompt"),
        ({"lengths": {"spread": 50.0}}, "rollouts.lengths.spread"),
        ({"rollouts": {"prompts": 0}}, "rollouts.prompts"),
        ({"rollouts": {"updates": 0}}, "rollouts.updates"),
        ({"rollouts": {"samples_per_prompt": 10**9}}, "rollouts.samples_per_prompt"),
        ({"engine": {"utilization": 1.5}}, "engine.utilization"),
        ({"engine": {"utilization": math.nan}}, "engine.utilization"),
        ({"engine": {"tensor": 3}}, "engine.tensor"),
        ({"engine": {"num_engines": 9}}, "engine.num_engines"),
        ({"staleness": -1.0}, "staleness"),
        ({"placement": "split", "engine_devices": 8}, "engine_devices"),
        ({"placement": "beside"}, "placement"),
        ({"schedule": "never"}, "schedule"),
    ],
)
def test_rollouts_and_engines(changes: dict[str, Any], field: str) -> None:
    assert refusal(with_rollouts(**changes)).field == field


@pytest.mark.parametrize(
    ("field", "value"), [("optimizer", "lion"), ("kernels", ""), ("attention", "flash9"), ("is_padded", 1.0)]
)
def test_words_are_known(field: str, value: object) -> None:
    assert refusal(job(policy={field: value})).field == f"policy.{field}"


def test_lora_has_a_rank() -> None:
    assert refusal(job(policy={"method": "lora"})).field == "policy.lora_rank"


def test_a_share_is_a_share() -> None:
    assert refusal(job(policy={"offload": Offload(optimizer=1.5)})).field == "policy.offload.optimizer"


def test_frozen_models_and_critics_are_looked_at_too() -> None:
    frozen = FrozenModel(role="reference", model=DENSE, layout=Layout(num_devices=8), micro_batch=0)
    assert refusal(job(frozen=(frozen,))).field == "frozen[0].micro_batch"
    critic = replace(job().policy, layout=Layout(num_devices=8, tensor=3))
    assert refusal(job(critic=critic)).field == "critic.layout.tensor"
