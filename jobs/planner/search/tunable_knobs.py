"""Which knobs a plan may change: those that decide how fast and on how much memory, never those that decide what is
learned.

The batch of an optimizer step, lengths, precision, learning rate, KL and sampling are no such knobs; nor is anything
that makes samples older than their policy. A smaller micro-batch leaves the batch as it is: every trainer here divides
its own sum over more micro-batches.
"""

from jobs.catalog.knob import is_live, knobs
from jobs.catalog.spec.runspec import RunSpec, default_of

PERFORMANCE: frozenset[str] = frozenset(
    {
        "hardware.layout",
        "hardware.policy_ranks",
        "hardware.rollout_engines",
        "hardware.tensor_parallel_size",
        "kernels.attention",
        "kernels.fused_head",
        "kernels.liger",
        "memory.activation_offload",
        "memory.adam_offload",
        "memory.cpu_offload_policy",
        "memory.critic_optimizer_offload",
        "memory.critic_param_offload",
        "memory.entropy_checkpointing",
        "memory.entropy_chunking",
        "memory.fsdp_group_size",
        "memory.gradient_checkpointing",
        "memory.megatron_cpu_optimizer",
        "memory.megatron_cpu_optimizer_share",
        "memory.megatron_optimizer_offload",
        "memory.megatron_param_offload",
        "memory.megatron_recompute",
        "memory.megatron_recompute_layers",
        "memory.megatron_recompute_method",
        "memory.optimizer_offload",
        "memory.param_offload",
        "memory.reference_offload",
        "memory.reshard_after_forward",
        "memory.reward_offload",
        "memory.trainer_sleep",
        "memory.zero_secondary_partition",
        "memory.zero_stage",
        "parallel.context_parallel_size",
        "parallel.count_embedding_as_layer",
        "parallel.count_loss_as_layer",
        "parallel.distributed_optimizer",
        "parallel.expert_parallel_size",
        "parallel.expert_tensor_parallel_size",
        "parallel.first_stage_layers",
        "parallel.fsdp_version",
        "parallel.last_stage_layers",
        "parallel.pipeline_parallel_size",
        "parallel.sequence_parallel_size",
        "parallel.tensor_parallel_size",
        "parallel.virtual_pipeline_stages",
        "placement.colocate_all",
        "placement.colocate_critic_reward",
        "placement.colocate_policy_reference",
        "placement.critic_gpus_per_node",
        "placement.critic_nodes",
        "placement.policy_gpus_per_node",
        "placement.policy_nodes",
        "placement.reference_gpus_per_node",
        "placement.reference_nodes",
        "placement.reward_gpus_per_node",
        "placement.reward_nodes",
        "placement.rollout_engines",
        "placement.rollout_gpus_per_node",
        "placement.rollout_nodes",
        "placement.rollout_tensor_parallel",
        "rollout.enable_prefix_caching",
        "rollout.enforce_eager",
        "rollout.gpu_memory_fraction",
        "rollout.max_batched_tokens",
        "rollout.max_num_seqs",
        "rollout.sleep",
        "train.critic_max_tokens_per_gpu",
        "train.dynamic_batch",
        "train.max_tokens_per_gpu",
        "train.micro_batch_size",
        "train.packing",
        "train.score_max_tokens_per_gpu",
        "train.score_micro_batch_size",
    }
)
"""Knobs by id, and fields of the section hardware."""


def teaches_the_same(before: RunSpec, after: RunSpec) -> bool:
    """Return True if the two runs learn the same: they differ in performance knobs alone, and no knob that somebody
    set begins or ceases to count beside them."""
    sections = ("algorithm", "trainer", "model", "data", "reward", "policy")
    if any(getattr(before, name) != getattr(after, name) for name in sections):
        return False
    old, new = before.values(), after.values()
    for knob_id in knobs():
        if knob_id in PERFORMANCE or (knob_id not in old and knob_id not in new):
            continue
        if old.get(knob_id) != new.get(knob_id):
            return False
        ceases = knob_id in old and is_live(knob_id, old) != is_live(knob_id, new)
        if ceases and old[knob_id] != default_of(before, knobs()[knob_id]):
            return False
    return True
