"""How random specs of verl are drawn: the parts that are no knobs, plausible texts, and what has to fit together."""

import random
from collections.abc import Sequence
from typing import Any

from jobs.catalog.knob import Knob
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.specs import Drawing, Values, draw

ALGORITHMS = ("grpo", "ppo", "dapo", "dr_grpo", "gspo", "reinforce_pp", "reinforce_pp_baseline", "rloo", "sft")
TURNS = (*ALGORITHMS, "ppo", "sft")
"""Algorithms in the order in which specs are drawn; those with knobs of their own come twice."""
PATHS = ("/srv/shared/part one.yaml", "/srv/shared/a=b,c.yaml", "relative/plan.yaml")
NAMES = ("qwen3", "It's #1", "café: {x}", "a b")
RANKS = ("0", "0,3", "1,2,5")
CONTENTS = ("cpu", "cpu,memory", "cuda,stack")

TEXTS = {
    "agent.loop": ("tool_agent",),
    "agent.loop_config_path": PATHS,
    "agent.tool_config_path": PATHS,
    "agent.function_tool_path": PATHS,
    "agent.tool_format": ("qwen3_coder", "gpt-oss"),
    "agent.router_config_path": PATHS,
    "algorithm.correction_cap": ("5.0", "1", "0.5_5.0"),
    "algorithm.dynamic_sampling_metric": ("acc", "seq_final_reward"),
    "algorithm.rejection": ("token_k1", "seq_sum_k1,token_k3"),
    "algorithm.rejection_threshold": ("0.5_2.0", "1.001", "0.6_1.6,2.0"),
    "async.custom_sampler_path": PATHS,
    "async.custom_sampler_name": ("MySampler", "Sampler2"),
    "checkpoint.callback_class": ("package.module.Class", "other.Callback"),
    "checkpoint.resume_from": ("/srv/checkpoints/global_step_20", "/srv/c d/global_step_3"),
    "checkpoint.save_contents": ("model", "model,optimizer,extra,hf_model"),
    "checkpoint.load_contents": ("model", "model,extra"),
    "checkpoint.megatron_sharded_path": PATHS,
    "data.dataset_class_name": ("MyDataset", "Other"),
    "data.dataset_class_path": PATHS,
    "data.image_column": ("pictures", "image list"),
    "data.source_column": ("source", "data.source"),
    "data.tools_column": ("functions", "tools 2"),
    "logging.project": ("sums", "it's one"),
    "logging.services": ("wandb", "mlflow,tensorboard"),
    "lora.adapter_path": PATHS,
    "lora.exclude_modules": ("lm_head", "gate_proj,up_proj"),
    "lora.megatron_adapter_path": PATHS,
    "lora.megatron_target_modules": ("linear_qkv", "linear_qkv,linear_proj"),
    "lora.target_modules": ("q_proj", "q_proj,k_proj,v_proj"),
    "models.chat_template": ("{{ messages[0]['content'] }}\n", "$x} {% if a %}'b'{% endif %}"),
    "models.critic_path": ("Qwen/Qwen2.5-0.5B", "/srv/models/critic"),
    "models.external_module": ("my.package", "os"),
    "models.teacher_path": ("Qwen/Qwen2.5-7B", "/srv/models/teacher"),
    "models.tokenizer_path": ("Qwen/Qwen2.5-7B", "/srv/models/tokenizer"),
    "profiling.finish_command": ("gzip $VERL_PROFILE_SAVE_PATH/*.json", "echo '$HOME' && true"),
    "profiling.finish_ranks": RANKS,
    "profiling.npu_contents": ("npu", "npu,cpu"),
    "profiling.nsys_trace": ("cuda,nvtx", "cuda"),
    "profiling.precision_config_path": PATHS,
    "profiling.precision_stages": ("actor_update", "actor_update,ref_compute_log_prob"),
    "profiling.ranks": RANKS,
    "profiling.steps": ("1", "2,5,9"),
    "profiling.torch_contents": CONTENTS,
    "quantization.qat_config_path": PATHS,
    "quantization.qat_ignore": ("lm_head", "lm_head,re:.*gate$"),
    "quantization.rollout_config_file": PATHS,
    "reward.function_name": ("score", "my_reward"),
    "reward.sandbox_url": ("http://sandbox:8080/run_code", "https://h/a?b=c"),
    "rollout.cuda_graph_sizes": ("1,2,4", "8"),
    "rollout.engine_options": ("max_lora_rank: 64", "swap_space: 4, seed_name: 'a b', sizes: [1,2]"),
    "rollout.sync_custom_module": ("my.engine", "other.engine"),
    "rope.config_folder": PATHS,
    "skip.folder": PATHS,
    "skip.steps": ("1,2,3", "7"),
    "trace.prometheus_file": PATHS,
    "trace.prometheus_model_name": NAMES,
}


def sections(algorithm: str) -> dict[str, Any]:
    """Return model, data and reward as verl's own users have them: on the cluster, in verl's columns."""
    data = {"kind": "path", "id": "/srv/data/train.parquet", "eval_id": "/srv/data/test set.parquet"}
    model = {"kind": "hub", "id": "Qwen/Qwen2.5-0.5B-Instruct"}
    if algorithm == "sft":
        return {"name": "It's run #1", "model": model, "data": data | {"messages_column": "conversation"}}
    return {
        "name": "a run",
        "model": model,
        "data": data | {"answer_column": "reward_model.ground_truth"},
        "reward": {"kind": "file", "location": "/srv/rewards/score one.py"},
    }


def repair(algorithm: str, values: Values, rng: random.Random) -> None:
    """Make batches divide, and leave alone what other values switch off or on."""
    if algorithm == "sft":
        return
    if values.get("parallel.engine") == "megatron":  # whose config of 0.7.0 lacks them
        values |= {"eval.only": False, "memory.entropy_chunking": False, "logging.dump_evaluations": False}
    updates = max(int(values["train.updates_per_rollout"] or 1), 1)
    prompts = int(values["rollout.prompts_per_step"] or 1)
    values["rollout.prompts_per_step"] = prompts + -prompts % updates
    if not values["algorithm.kl_coefficient"]:
        values["algorithm.kl_in_loss"], values["algorithm.kl_target"] = False, None
        values["algorithm.kl_estimator"] = "k3"
    elif values["algorithm.kl_in_loss"]:
        values["algorithm.kl_target"] = None
    if values["reward.overlong_buffer_tokens"] is None:
        values["reward.overlong_penalty"] = 1.0
    if values["rollout.cuda_graph_sizes"] is not None and values["rollout.enforce_eager"]:
        values["rollout.cuda_graph_sizes"] = None


DRAWING = Drawing(trainer="verl", sections=sections, texts=TEXTS, repair=repair)


def drawn(version: str, algorithm: str, rng: random.Random, wanted: Sequence[str] = ()) -> RunSpec:
    """Return a random spec that verl takes. Raises: SpecInvalid if the repair missed something."""
    return draw(DRAWING, version=version, algorithm=algorithm, rng=rng, wanted=wanted)


def reachable(knob: Knob) -> int:
    """Return how many values that are not its default a knob has to be seen with: two, or as many as it has."""
    if knob.id in DRAWING.skip:
        return 0
    if knob.type == "bool" and not knob.is_optional:
        return 1
    if knob.type == "choice":
        return min(len(knob.choices) - (not knob.is_optional), 2)
    return min(len(DRAWING.texts.get(knob.id, ())), 2) if knob.type == "text" else 2
