"""How the planner sees a run of TRL."""

from typing import Any

from jobs.catalog.spec.parse import parse_spec
from jobs.planner.estimate import estimate
from jobs.planner.job import Job
from jobs.planner.read.context import Models
from jobs.planner.read.spec import read_job
from jobs.planner.shapes.known import shape_of
from tests.jobs.planner.hardware import fleet

SMALL = shape_of("Qwen/Qwen2.5-0.5B")


def job_of(algorithm: str, **knobs: Any) -> Job:
    spec = parse_spec({"algorithm": algorithm, "trainer": {"name": "trl"}, "knobs": knobs})
    return read_job(spec, Models(policy=SMALL), fleet(spec.num_workers))


def test_weights_are_loaded_in_float32_and_deepspeed_makes_bfloat16_with_masters_of_them() -> None:
    plain, sharded = job_of("sft").policy, job_of("sft", **{"memory.zero_stage": "2"}).policy

    assert (plain.family, plain.weight_bytes, plain.has_master, plain.compute) == ("plain", 4.0, False, "bf16")
    assert (sharded.family, sharded.weight_bytes, sharded.has_master) == ("deepspeed", 2.0, True)
    assert sharded.layout.shards == 2


def test_an_adapter_leaves_no_reference_beside_the_policy() -> None:
    full, adapted = job_of("dpo"), job_of("dpo", **{"lora.rank": 8})

    assert [model.role for model in full.frozen] == ["reference"]
    assert (adapted.policy.method, adapted.frozen) == ("lora", ())


def test_labels_keep_a_reference_and_score_mismatches_and_a_reward_model_has_no_vocabulary() -> None:
    labels, reward = job_of("kto"), job_of("rm")

    assert ([model.role for model in labels.frozen], labels.scores_mismatches) == (["reference"], True)
    assert (reward.policy.objective, reward.frozen) == ("scalar", ())
    assert reward.policy.micro_batch == 2 * labels.policy.micro_batch, "both responses of a pair at once"


def test_rollouts_come_from_the_devices_that_train_and_without_vllm_the_plan_says_how_they_are_estimated() -> None:
    size = {"placement.policy_gpus_per_node": 4}
    transformers, vllm = job_of("grpo", **size), job_of("grpo", **size, **{"rollout.backend": "vllm"})

    for job in (transformers, vllm):
        assert job.engine is not None
        assert (job.placement, job.engine.num_engines) == ("colocated", 4)
        assert estimate(job).verdict != "no"
    assert any("Transformers" in note for note in transformers.notes)
    assert not any("Transformers" in note for note in vllm.notes)
    assert transformers.engine is not None
    assert transformers.engine.utilization < 0.2


def test_adapters_are_float32_but_on_a_quantized_base_whose_embedding_stays_as_it_was_loaded() -> None:
    lora = job_of("sft", **{"lora.rank": 8}).policy
    quantized = job_of("sft", **{"lora.rank": 8, "quantization.load_in_4bit": True}).policy

    assert (lora.weight_bytes, lora.base_bytes, lora.ends_bytes) == (4.0, 4.0, 0.0)
    assert (quantized.method, quantized.weight_bytes, quantized.ends_bytes) == ("qlora", 2.0, 4.0)
