"""Keys of other versions of verl: what they are called now, which are gone, and which do nothing.

Sources: the composed configs of 0.7.0 and 0.9.1 held against each other, verl's release notes for the versions between
(option availability by version), and the readers of each key in the package of 0.9.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.catalog.trainer import as_version

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRename:
    """A key, or all keys below one (it ends with a dot), that is called `new` from version `since` on."""

    old: str
    new: str
    since: str


def _renamed(since: str, *pairs: tuple[str, str]) -> list[KeyRename]:
    return [KeyRename(old=old, new=new, since=since) for old, new in pairs]


RENAMED: Mapping[str, tuple[KeyRename, ...]] = {
    "main_ppo": (
        *_renamed(
            "0.7.1",
            (
                f"{ROLLOUT}.update_weights_bucket_megabytes",
                f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
            ),
            ("custom_reward_function.", "reward.custom_reward_function."),
            ("reward_manager.", "reward.reward_manager."),
            ("reward_model.reward_manager", "reward.reward_manager.name"),
            ("reward_model.num_workers", "reward.num_workers"),
            ("reward_model.enable", "reward.reward_model.enable"),
            ("reward_model.enable_resource_pool", "reward.reward_model.enable_resource_pool"),
            ("reward_model.n_gpus_per_node", "reward.reward_model.n_gpus_per_node"),
            ("reward_model.nnodes", "reward.reward_model.nnodes"),
            ("reward_model.model.path", "reward.reward_model.model_path"),
            ("reward_model.rollout.", "reward.reward_model.rollout."),
            ("reward_model.reward_kwargs.", "reward.reward_kwargs."),
            ("reward_model.overlong_buffer.", "reward.reward_kwargs.overlong_buffer_cfg."),
            ("reward_model.sandbox_fusion.", "reward.sandbox_fusion."),
            ("sandbox_fusion.", "reward.sandbox_fusion."),
        ),
        *_renamed(
            "0.8.0",
            ("critic.model.fsdp_config.", "critic.fsdp."),
            ("critic.fsdp_config.", "critic.fsdp."),
        ),
        *_renamed(
            "0.9.0",
            (f"{ROLLOUT}.skip_rollout", "skip.rollout_tq.enable"),
            (f"{ROLLOUT}.skip_dump_dir", "skip.rollout_tq.dump_dir"),
            (f"{ROLLOUT}.skip.enable", "skip.rollout_tq.enable"),
            (f"{ROLLOUT}.skip.dump_dir", "skip.rollout_tq.dump_dir"),
            (f"{ROLLOUT}.skip.action", "skip.rollout_tq.action"),
        ),
        *_renamed(
            "0.6.0",
            ("trainer.profile_steps", "global_profiler.steps"),
            ("trainer.profile_continuous_steps", "global_profiler.profile_continuous_steps"),
            ("trainer.worker_nsight_options.", "global_profiler.global_tool_config.nsys.worker_nsight_options."),
            (
                "trainer.controller_nsight_options.",
                "global_profiler.global_tool_config.nsys.controller_nsight_options.",
            ),
            ("global_profiler.discrete", "global_profiler.global_tool_config.nsys.discrete"),
            (f"{ACTOR}.profiler.discrete", f"{ACTOR}.profiler.tool_config.nsys.discrete"),
            (f"{ACTOR}.optim.warmup_style", f"{ACTOR}.optim.lr_scheduler_type"),
            ("critic.optim.warmup_style", "critic.optim.lr_scheduler_type"),
        ),
    ),
    "sft_trainer": tuple(
        _renamed(
            "0.6.0",
            ("model.partial_pretrain", "model.path"),
            ("model.fsdp_config.model_dtype", "engine.model_dtype"),
            ("model.strategy", "engine.strategy"),
            ("ulysses_sequence_parallel_size", "engine.ulysses_sequence_parallel_size"),
            ("use_remove_padding", "model.use_remove_padding"),
            ("trainer.checkpoint.", "checkpoint."),
            ("optim.lr_scheduler", "optim.lr_scheduler_type"),
            ("data.multiturn.messages_key", "data.messages_key"),
            ("data.multiturn.tools_key", "data.tools_key"),
        )
    ),
}

INERT_SINCE = "0.9.0"
INERT: Mapping[str, str] = {
    f"{ACTOR}.clip_ratio": "verl reads clip_ratio_low and clip_ratio_high, which have values of their own, before it.",
    f"{ACTOR}.grad_clip": f"No part of verl reads it; the gradient is clipped at {ACTOR}.optim.clip_grad.",
    "critic.grad_clip": "No part of verl reads it; the gradient is clipped at critic.optim.clip_grad.",
    f"{ACTOR}.use_torch_compile": f"The engine reads {ACTOR}.fsdp_config.use_torch_compile instead.",
    "actor_rollout_ref.ref.fsdp_config.param_offload": "A reference under FSDP only runs forward; verl always keeps "
    "its weights on the CPU.",
    f"{ROLLOUT}.over_sample_rate": "No part of verl reads it.",
    f"{ROLLOUT}.multi_stage_wake_up": "No part of verl reads it.",
    f"{ROLLOUT}.multi_turn.num_repeat_rollouts": "No part of verl reads it.",
    "actor_rollout_ref.nccl_timeout": "No part of verl reads it.",
    "algorithm.filter_groups.max_num_gen_batches": "The trainer only warns of it; max_inflight_gen_batches bounds it.",
    "trainer.esi_redundant_time": "Only verl's older trainer reads it.",
    f"{ACTOR}.use_prefix_grouper": "Only verl's older trainer reads it.",
    "trainer.ray_wait_register_center_timeout": "Only verl's older trainer reads it.",
    "trainer.balance_batch": "The trainer always balances samples over the ranks.",
    f"{ACTOR}.freeze_vision_tower": "No part of verl reads it.",
    "critic.forward_max_token_len_per_gpu": "Only experimental code reads it.",
    "data.val_batch_size": "Held-out prompts are sent to the engines all at once.",
}

_PER_GPU = "It counts over all devices and is deprecated: verl's workers insist on {0}."
REMOVED: Mapping[str, str] = {
    f"{ACTOR}.ppo_micro_batch_size": _PER_GPU.format("ppo_micro_batch_size_per_gpu"),
    f"{ROLLOUT}.log_prob_micro_batch_size": _PER_GPU.format("log_prob_micro_batch_size_per_gpu"),
    "actor_rollout_ref.ref.log_prob_micro_batch_size": _PER_GPU.format("log_prob_micro_batch_size_per_gpu"),
    "critic.ppo_micro_batch_size": _PER_GPU.format("ppo_micro_batch_size_per_gpu"),
    "critic.forward_micro_batch_size": _PER_GPU.format("forward_micro_batch_size_per_gpu"),
    "data.micro_batch_size": _PER_GPU.format("micro_batch_size_per_gpu"),
    "reward_model.": "Reward models are served by an inference engine since 0.7.1 and have no such setting any more.",
    "trainer.use_legacy_worker_impl": "There is one kind of worker since 0.8.0.",
    "data.sampler.": "Removed in 0.9.0: trainer.v1.sampler.custom_sampler names a sampler.",
    "data.datagen.": "Removed in 0.9.0.",
    f"{ROLLOUT}.skip.max_dump_step": "Removed in 0.9.0: skip.rollout_tq.steps lists the steps.",
    f"{ROLLOUT}.multi_turn.interaction_config_path": "Removed in 0.9.0: an agent loop does it.",
    "algorithm.rollout_correction.rollout_rs_threshold_lower": (
        "Removed in 0.9.0: rollout_rs_threshold takes a band, low_high."
    ),
    "algorithm.rollout_correction.rollout_token_veto_threshold": "Removed in 0.9.0.",
    "data.multiturn.enable": "Every sample is a list of messages.",
    "data.prompt_key": "verl's SFT reads one column of messages.",
    "data.response_key": "verl's SFT reads one column of messages.",
    "data.prompt_dict_keys": "verl's SFT reads one column of messages.",
    "data.response_dict_keys": "verl's SFT reads one column of messages.",
    "data.chat_template": "Gone; the template of the model's tokenizer is used.",
    "model.fsdp_config.cpu_offload": "Gone: engine.param_offload and engine.optimizer_offload say it apart.",
    "model.fsdp_config.offload_params": "Gone: engine.param_offload and engine.optimizer_offload say it apart.",
}

CONFIGS: Mapping[str, str] = {
    "ppo_trainer": "",
    "ppo_megatron_trainer": "megatron",
    "sft_trainer_engine": "",
    "sft_trainer": "",
}
"""Config names that are understood, and the engine that each stands for ("" is FSDP)."""

CONFIG_OPTIONS: Mapping[str, str] = dict.fromkeys(
    ("--config-path", "--config-dir"), "A folder with your own config is not available here."
)
"""Options of Hydra that name a config, and why none is read here."""

OTHER_PROGRAMS: Mapping[str, str] = {
    "fully_async_main": "the fully asynchronous trainer; Pitwall starts verl's main trainer, with the knob async.mode",
    "async_main_ppo": "the one-step-off trainer; Pitwall starts verl's main trainer, with the knob async.mode",
    "main_gkd": "on-policy distillation",
    "main_generation": "generation without training",
    "main_generation_server": "generation without training",
    "main_eval": "evaluation without training",
    "model_merger": "the merging of a checkpoint",
}
"""Programs of verl that no algorithm here stands for, and what they are."""


def translated(program: str, key: str, version: str) -> str:
    """Return what `version` calls a key that another version may have named; the key itself where nothing changed."""
    now = as_version(version)
    for renamed in RENAMED[program]:
        here, there = (renamed.old, renamed.new) if now >= as_version(renamed.since) else (renamed.new, renamed.old)
        if key == here:
            return there
        if here.endswith(".") and key.startswith(here):
            return there + key.removeprefix(here)
    return key


def why_not(table: Mapping[str, str], key: str) -> str:
    """Return the sentence that a table has for a key, or for all keys below one; "" if it has none."""
    if key in table:
        return table[key]
    return next((why for start, why in table.items() if start.endswith(".") and key.startswith(start)), "")
