"""What each trainer's knobs become: every shipped recipe, and one run per trainer checked by hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobs.catalog.algorithm import is_in
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import changed
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.estimate import estimate
from jobs.planner.job import Offload
from jobs.planner.memory.states import optimizer_bytes
from jobs.planner.read.context import Workload
from jobs.planner.read.spec import read_job
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.weight_sync import transport_of
from tests.jobs.planner.hardware import fleet, models_for


def _read(spec: RunSpec, workload: Workload | None = None, **models: Any) -> Any:
    return read_job(spec, replace(models_for(spec), **models), fleet(), workload=workload)


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_is_read(name: str) -> None:
    spec = recipes()[name].spec

    job = _read(spec)

    assert job.fleet.num_devices == spec.num_workers
    own = sum(f.layout.num_devices for f in job.frozen if f.pool == f.role)
    critic = job.critic.layout.num_devices if job.critic and job.critic_pool == "critic" else 0
    assert job.policy.layout.num_devices + job.engine_devices + own + critic == spec.num_workers
    assert (job.engine is None) == (job.rollouts is None) == (not is_in(spec.algorithm, "rl"))
    assert (job.critic is not None) == (spec.algorithm == "ppo")
    if job.engine is not None:
        pool = job.engine_devices or job.policy.layout.num_devices
        assert job.engine.num_engines * job.engine.tensor * job.engine.pipeline == pool
        ways = _SHARED if job.placement == "colocated" else _TRANSPORTS
        assert transport_of(job) == ways[spec.trainer.name]


_TRANSPORTS = {"native": "broadcast", "openrlhf": "tensors", "verl": "broadcast"}
_SHARED = {"native": "ipc", "openrlhf": "handles", "trl": "ipc", "verl": "ipc"}


@pytest.mark.parametrize("trainer", [{"name": "native"}, {"name": "verl", "version": "0.9.1"}])
def test_answers_whose_end_is_passed_over_are_as_long_as_the_longest(trainer: dict[str, str]) -> None:
    knobs = {"rollout.max_new_tokens": 32, "rollout.ignore_eos": True}
    probe = _read(parse_spec({"trainer": trainer, "knobs": knobs}), Workload(mean_prompt=10, mean_response=8))
    usual = _read(parse_spec({"trainer": trainer, "knobs": knobs | {"rollout.ignore_eos": False}}))
    unknown = _read(parse_spec({"trainer": trainer, "knobs": knobs}))

    assert (probe.rollouts.lengths.mean_response, unknown.rollouts.lengths.mean_response) == (32, 32)
    assert usual.rollouts.lengths.mean_response == 0
    said = [any("response length" in note for note in estimate(job).notes) for job in (usual, unknown)]
    assert said == [True, False]
    assert "rollout.ignore_eos" not in unknown.unpriced


def test_labels_take_a_pass_of_the_policy_and_two_of_the_reference() -> None:
    """KTO scores each response under another prompt as well; a pair of DPO is two sequences, scored once."""
    kto, dpo = (
        estimate(_read(parse_spec({"algorithm": name, "knobs": {"train.batch_size": size}})))
        for name, size in (("kto", 64), ("dpo", 32))
    )

    assert set(kto.time.phases) == {"old_logprobs", "reference", "update"}
    assert set(dpo.time.phases) == {"reference", "update"}
    assert kto.time.phases["reference"].middle == pytest.approx(2 * dpo.time.phases["reference"].middle, rel=0.05)
    assert kto.time.phases["update"].middle == pytest.approx(dpo.time.phases["update"].middle, rel=0.05)
    assert 0 < kto.time.phases["old_logprobs"].middle < kto.time.phases["reference"].middle


def test_native_grpo_by_hand() -> None:
    spec = parse_spec(
        {
            "hardware": {
                "layout": "split",
                "policy_ranks": 4,
                "rollout_engines": 1,
                "tensor_parallel_size": 2,
                "device": "cuda",
            },
            "knobs": {
                "memory.precision": "bfloat16",
                "memory.zero_stage": "3",
                "memory.gradient_checkpointing": True,
                "train.packing": False,
                "train.micro_batch_size": 4,
                "rollout.prompts_per_step": 16,
                "rollout.samples_per_prompt": 8,
                "rollout.max_prompt_tokens": 96,
                "rollout.max_new_tokens": 32,
            },
        }
    )

    job = _read(spec)

    policy = job.policy
    assert (policy.family, policy.layout.num_devices, policy.layout.shards) == ("deepspeed", 4, 3)
    assert (policy.weight_bytes, policy.gradient_bytes, policy.has_master) == (2.0, 4.0, True)
    assert (policy.checkpointing, policy.head) == ("full", "chunked")
    assert (policy.micro_batch, policy.sequence, policy.is_padded) == (4, 128, True)
    assert policy.num_micro_batches == 16 * 8 // 4 // 4  # samples of the update, over ranks, over the micro-batch
    assert (job.placement, job.engine_devices, job.engine.tensor) == ("split", 2, 2)
    assert [(f.role, f.pool, f.layout.num_devices) for f in job.frozen] == [("reference", "reference", 1)]
    assert job.fleet.num_devices == 4 + 2 + 1


@pytest.mark.parametrize(
    ("algorithm", "layout", "pool", "devices"),
    [
        ("distill", "split", "teacher", 1),
        ("distill", "colocated", "policy", 2),
        ("distill_on_policy", "split", "teacher", 1),
    ],
)
def test_a_teacher_is_a_frozen_model_of_its_own_size(algorithm: str, layout: str, pool: str, devices: int) -> None:
    raw = {"algorithm": algorithm, "hardware": {"layout": layout, "policy_ranks": 2}}

    job = _read(parse_spec(raw), teacher=shape_of("Qwen/Qwen2.5-7B"))
    unknown = _read(parse_spec(raw))

    assert [(f.role, f.pool, f.layout.num_devices) for f in job.frozen] == [("teacher", pool, devices)]
    assert job.frozen[0].model == shape_of("Qwen/Qwen2.5-7B") != job.policy.model
    assert [any("teacher's size" in note for note in job.notes) for job in (job, unknown)] == [False, True]


def test_groups_that_are_drawn_again_take_time_and_change_nothing_else() -> None:
    once, thrice = (
        estimate(
            _read(
                parse_spec(
                    {
                        "hardware": {"layout": "split", "device": "cuda"},
                        "knobs": {
                            "algorithm.dynamic_sampling": is_on,
                            "algorithm.dynamic_sampling_generations": 3,
                            "rollout.prompts_per_step": 100,
                        },
                    }
                ),
                Workload(mean_prompt=60, mean_response=24),
            )
        ).time.phases
        for is_on in (False, True)
    )

    first, drawn = once["rollout"], thrice["rollout"]
    assert drawn.low == first.low  # all groups may have variance
    assert 1.1 < drawn.middle / first.middle < 1.0 + 0.3 + 0.3**2 + 0.6  # fewer responses wait as long for the longest
    assert drawn.high / first.high > drawn.middle / first.middle
    assert thrice["update"] == once["update"]


@pytest.mark.parametrize(("layout", "pool", "devices"), [("split", "reward", 1), ("shared", "policy", 2)])
def test_a_native_reward_model_is_a_frozen_model_without_a_vocabulary(layout: str, pool: str, devices: int) -> None:
    """Whichever part of the reward it is."""
    part = {"kind": "model", "location": "/models/reward"}
    raw = {"hardware": {"layout": layout, "policy_ranks": 2}, "reward": {"kind": "math", "more": [part]}}

    job = _read(parse_spec(raw), reward=shape_of("Qwen/Qwen2.5-7B"))

    judge = next(frozen for frozen in job.frozen if frozen.role == "reward")
    assert (judge.pool, judge.layout.num_devices, judge.has_head) == (pool, devices, False)
    assert judge.model == shape_of("Qwen/Qwen2.5-7B") != job.policy.model


@pytest.mark.parametrize("by_tokens", [False, True])
def test_native_reward_model_training_sees_both_answers(by_tokens: bool) -> None:
    knobs = {"train.micro_batch_size": 4, "train.dynamic_batch": by_tokens}

    policy = _read(parse_spec({"algorithm": "rm", "knobs": knobs})).policy

    assert (policy.objective, policy.micro_batch) == ("scalar", 1 if by_tokens else 2 * 4)


def test_native_micro_batches_by_tokens_are_rows_of_the_budget_without_padding() -> None:
    knobs = {"train.dynamic_batch": True, "train.max_tokens_per_gpu": 1024, "train.micro_batch_size": 2}
    known = Workload(mean_prompt=40, mean_response=24)

    job = _read(parse_spec({"hardware": {"policy_ranks": 2}, "knobs": knobs}), known)

    policy = job.policy
    assert (policy.micro_batch, policy.sequence, policy.document, policy.is_padded) == (1, 1024, 64, False)
    assert policy.num_micro_batches == 128 * 64 // 2 // 1024  # samples, tokens of each; ranks, budget
    assert [(f.micro_batch, f.sequence) for f in job.frozen] == [(1, 1024)]


def test_native_packing_leaves_padding_out_and_holds_no_more_than_so_many_samples() -> None:
    knobs = {"train.micro_batch_size": 8, "train.max_sequence_tokens": 512, "train.packing": False}
    raw: dict[str, Any] = {"algorithm": "sft", "knobs": knobs}
    known = Workload(mean_prompt=40, mean_response=24)

    padded = _read(parse_spec(raw), known).policy
    packed = _read(parse_spec(raw | {"knobs": raw["knobs"] | {"train.packing": True}}), known).policy

    assert (padded.micro_batch * padded.sequence, padded.is_padded) == (8 * 512, True)
    assert 8 * 64 < packed.micro_batch * packed.sequence < 8 * 512
    assert (packed.document, packed.is_padded) == (64, False)


def test_native_sums_gradients_in_float32_in_half_precision_too_and_runs_zero_2_for_it() -> None:
    knobs = {"memory.precision": "bfloat16", "memory.zero_stage": "0"}

    policy = _read(parse_spec({"knobs": knobs})).policy

    assert (policy.weight_bytes, policy.gradient_bytes, policy.has_master) == (2.0, 4.0, True)
    assert policy.reduced_bytes == 2.0  # DeepSpeed's communication_data_type: that of the weights
    assert policy.layout.shards == 2


def test_native_keeps_states_in_bfloat16_or_in_host_memory() -> None:
    knobs: dict[str, object] = {"memory.precision": "bfloat16", "memory.zero_stage": "3"}
    plain, half, host, both, on_cpu = (
        _read(parse_spec({"hardware": {"layout": "shared", "device": device}, "knobs": knobs | changes})).policy
        for device, changes in (
            ("cuda", {}),
            ("cuda", {"memory.master_precision": "bfloat16"}),
            ("cuda", {"memory.adam_offload": True}),
            ("cuda", {"memory.adam_offload": True, "memory.zero_param_offload": True}),
            ("cpu", {"memory.adam_offload": True, "memory.zero_param_offload": True}),
        )
    )

    assert (optimizer_bytes(plain), optimizer_bytes(half)) == (12, 6)
    assert [p.offload for p in (plain, host, both)] == [
        Offload(),
        Offload(optimizer=1.0),
        Offload(optimizer=1.0, params=True),
    ]
    assert (on_cpu.offload, on_cpu.step_buffer_bytes) == (Offload(), 6)  # its gradients, and weights from the masters
    early = _read(parse_spec({"knobs": {"memory.zero_stage": "0", "memory.adam_offload": True}})).policy
    assert early.layout.shards == 2


def test_native_takes_all_logits_of_a_model_that_caps_or_scales_them() -> None:
    plain, capped = shape_of("google/gemma-2b"), shape_of("google/gemma-2-2b")
    spec = parse_spec({"knobs": {"memory.precision": "bfloat16"}})

    heads = [_read(spec, policy=shape).policy.head for shape in (plain, capped)]

    assert heads == ["chunked", "unfused"]


def test_openrlhf_hybrid_ppo_by_hand() -> None:
    spec = recipes()["openrlhf-ppo-8b-hybrid"].spec

    job = _read(spec, reward=shape_of("meta-llama/Meta-Llama-3-8B"))

    policy, critic = job.policy, job.critic
    assert (policy.layout.num_devices, policy.layout.shards, policy.weight_bytes) == (8, 3, 2.0)
    assert (policy.sequence, policy.micro_batch) == (16384, 1)  # a dynamic batch: one row of the budget
    assert policy.num_micro_batches == 1024 // 8 // 8 * 2048 // 16384  # samples, updates, ranks; tokens, budget
    assert policy.document == 2048
    assert (policy.offload.optimizer, policy.offload.optimizer_between_phases) == (0.0, True)
    assert (critic.objective, job.critic_pool) == ("scalar", "policy")
    assert [(f.role, f.pool, f.has_head, f.layout.shards) for f in job.frozen] == [
        ("reference", "policy", True, 3),
        ("reward", "policy", False, 3),
    ]
    assert (job.placement, job.engine.num_engines, job.engine.tensor, job.engine.sleep_level) == ("colocated", 4, 2, 1)
    assert job.engine.utilization == 0.5
    assert not any("reward model" in note for note in job.notes)


def test_openrlhf_reward_model_training_sees_both_answers() -> None:
    policy = _read(recipes()["openrlhf-rm-8b"].spec).policy

    assert (policy.objective, policy.micro_batch) == ("scalar", 2 * 1)


def test_verl_fsdp_grpo_by_hand() -> None:
    spec = changed(recipes()["verl-grpo-qwen2-7b-memory-rescue"].spec, {"train.micro_batch_size": 16})

    job = _read(spec, workload=Workload(mean_prompt=100, mean_response=300, samples=10_240))

    policy = job.policy
    assert (policy.family, policy.layout.shards, policy.weight_bytes, policy.has_master) == ("fsdp", 3, 4.0, False)
    # 16 samples without padding: 16 x 400 tokens and three deviations of log-normal answers, sigma 0.7, half of which
    # is the prompt's, for the 4 others to it: 6400 + 3 x sqrt(16 x (1 + 4 / 2)) x 238.6.
    assert (policy.micro_batch, policy.sequence, policy.document) == (1, 11359, 400)
    assert policy.num_micro_batches == 1024 // 4 * 5 // 2 // 16  # prompts, updates, answers of each, ranks, micro-batch
    assert (policy.offload.params_between_phases, policy.offload.optimizer_between_phases) == (True, True)
    assert policy.offload.optimizer == 0.0  # the step itself stays on the device
    assert not policy.has_fused_optimizer
    assert [(f.role, f.is_offloaded) for f in job.frozen] == [("reference", True)]
    assert (job.engine.num_engines, job.engine.tensor, job.engine.sleep_level) == (1, 2, 2)
    assert job.num_steps == spec.num_steps or job.num_steps == 10_240 // 1024 * spec.int_knob("train.num_epochs")


def test_padding_free_micro_batches_are_planned_at_the_caps_where_lengths_are_not_known() -> None:
    policy = _read(recipes()["verl-grpo-qwen2-7b-memory-rescue"].spec).policy

    assert (policy.micro_batch, policy.sequence) == (4, 2048)


def test_verl_megatron_by_hand() -> None:
    job = _read(recipes()["verl-grpo-deepseek-v3-96gpu"].spec)

    layout = job.policy.layout
    assert (layout.tensor, layout.pipeline, layout.expert, layout.expert_tensor, layout.shards) == (8, 12, 8, 1, 1)
    assert (layout.data, layout.num_devices) == (1, 96)
    assert (job.policy.weight_bytes, job.policy.gradient_bytes, job.policy.has_master) == (2.0, 4.0, True)
    assert (job.policy.offload.optimizer, job.policy.checkpointing) == (1.0, "full")
    assert (job.engine.tensor, job.engine.num_engines) == (32, 3)


def test_lora_needs_no_reference_of_its_own_in_verl_and_keeps_its_base_beside_the_engine() -> None:
    job = _read(recipes()["verl-grpo-lora-qwen2.5-7b-1gpu"].spec)

    assert (job.policy.method, job.policy.lora_rank, job.policy.base_bytes) == ("lora", 32, 4.0)
    assert job.frozen == ()
    assert job.engine.sleep_level == 1


def test_a_ring_or_ulysses_group_shares_its_token_budget() -> None:
    ring = _read(recipes()["openrlhf-async-qwen3-4b"].spec).policy
    ulysses = _read(recipes()["verl-grpo-long-context-qwen2.5-7b"].spec).policy

    assert (ring.layout.context, ring.tokens * ring.layout.context) == (2, ring.sequence)
    assert (ulysses.layout.ulysses, ulysses.tokens * 4) == (4, ulysses.sequence)


_CHANGES: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "ema": ("openrlhf-grpo-qwen2.5-7b", {"train.ema": True}, "train.ema"),
    "deepep": ("verl-dapo-qwen3-30b-a3b", {"kernels.megatron_moe_deepep": "on"}, "kernels.megatron_moe_deepep"),
    "summon": ("verl-grpo-lora-qwen2.5-7b-1gpu", {"rollout.layered_summon": True}, "rollout.layered_summon"),
}


@pytest.mark.parametrize("case", _CHANGES)
def test_a_knob_that_is_not_priced_is_named(case: str) -> None:
    name, changes, knob_id = _CHANGES[case]

    assert knob_id in _read(changed(recipes()[name].spec, changes)).unpriced


def test_a_dispatcher_of_its_own_kernels_is_priced_with_its_library() -> None:
    changes = {"kernels.megatron_moe_dispatcher": "flex", "kernels.megatron_moe_deepep": "on"}
    plain = recipes()["verl-dapo-qwen3-30b-a3b"].spec
    job = _read(changed(plain, changes))

    assert (_read(plain).policy.dispatcher, job.policy.dispatcher) == ("alltoall", "flex")
    assert not set(changes) & set(job.unpriced)


def test_what_only_learning_is_changed_by_is_not_named() -> None:
    spec = changed(recipes()["verl-grpo-qwen3-8b"].spec, {"optimizer.learning_rate": 3e-7})

    assert _read(spec).unpriced == ()


def test_a_knob_that_means_nothing_counts_for_nothing() -> None:
    spec = recipes()["verl-grpo-qwen3-8b"].spec
    dead = changed(spec, {"parallel.tensor_parallel_size": 8, "memory.megatron_cpu_optimizer": True})  # FSDP runs

    assert _read(dead).policy == _read(spec).policy
    assert _read(dead).unpriced == ()


def test_end_stages_of_a_pipeline() -> None:
    by_hand = _read(recipes()["verl-grpo-deepseek-v3-96gpu"].spec).policy.layout
    counted = _read(recipes()["verl-grpo-qwen3-235b-32gpu"].spec).policy.layout

    assert (by_hand.first_stage_layers, by_hand.last_stage_layers) == (0, 6)  # 61 = 11 x 5 + 6
    assert (counted.first_stage_layers, counted.last_stage_layers) == (11, 11)  # 94 and two counted make 8 x 12


def test_a_dynamic_batch_is_no_larger_than_what_an_update_has_for_a_rank() -> None:
    few = Workload(mean_prompt=100, mean_response=300, samples=10_240)
    spec = recipes()["verl-grpo-qwen3-8b"].spec

    planned = _read(spec, workload=few).policy
    unknown = _read(spec).policy
    mine = spec.int_knob("rollout.prompts_per_step") // spec.int_knob("train.updates_per_rollout")
    mine = mine * spec.int_knob("rollout.samples_per_prompt") // planned.layout.data

    assert unknown.sequence >= planned.sequence
    assert planned.sequence <= mine * 400 + 3 * (mine * spec.int_knob("rollout.samples_per_prompt")) ** 0.5 * 238.7 + 1


def test_verl_takes_the_cross_entropy_of_flash_attention_unless_the_head_is_fused() -> None:
    spec = recipes()["verl-grpo-qwen3-8b"].spec

    assert _read(spec).policy.head == "inplace"
    assert _read(changed(spec, {"kernels.attention": "sdpa"})).policy.head == "unfused"
    assert _read(changed(spec, {"kernels.fused_head": True})).policy.head == "chunked"


def test_vllm_colocated_has_weights_of_its_own_while_the_policy_s_states_are_away() -> None:
    given: dict[str, Any] = {
        "hardware": {"policy_ranks": 4, "layout": "colocated", "tensor_parallel_size": 2, "device": "cuda"},
        "knobs": {"memory.precision": "bfloat16", "rollout.engine": "vllm"},
    }
    job = _read(parse_spec(given))
    assert job.engine is not None
    assert (job.placement, job.engine.num_engines, job.engine.tensor, job.engine.sleep_level) == ("colocated", 2, 2, 2)
    assert not job.engine.shares_weights
    found = estimate(job)
    by_phase = {phase.phase: phase.by_role for pool in found.pools for phase in pool.phases}

    assert [(pool.name, pool.num_devices) for pool in found.pools] == [("policy", 4)]
    assert by_phase["rollout"]["vllm"].terms["weights"] > 0
    assert not by_phase["rollout"]["policy"].terms.get("optimizer")
    assert by_phase["update"]["policy"].terms["optimizer"] > 0
    assert not by_phase["update"]["vllm"].terms.get("weights")
    assert by_phase["weight_sync"]["policy"].terms["weights"] > 0
    assert "weight_sync" in found.time.phases


@pytest.mark.parametrize("layout", ["split", "shared", "colocated"])
def test_native_layouts_say_who_holds_which_weights(layout: str) -> None:
    spec = parse_spec(
        {
            "hardware": {"policy_ranks": 1, "layout": layout, "device": "cuda"},
            "knobs": {"memory.precision": "bfloat16", "rollout.engine": "trainer"},
        }
    )
    held = {"split": ["policy", "reference", "vllm"], "shared": ["policy", "vllm"], "colocated": ["policy"]}[layout]

    job = _read(spec)
    found = estimate(job)

    assert job.fleet.num_devices == spec.num_workers == len(held)
    assert sorted(pool.name for pool in found.pools) == held
    by_phase = {phase.phase: phase for pool in found.pools for phase in pool.phases}
    is_colocated = layout == "colocated"
    assert ("weight_sync" in by_phase) is ("weight_sync" in found.time.phases) is (not is_colocated)
    assert (by_phase["rollout"].by_role["vllm"].terms["weights"] > 0) is (not is_colocated)
    has_process = by_phase["rollout"].by_role["vllm"].terms.get("overhead", 0) > 0
    assert has_process is (not is_colocated)
    assert found.verdict == "fits"
