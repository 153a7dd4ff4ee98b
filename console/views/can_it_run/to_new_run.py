"""The way from an answer of *Can it run?* to a run: the address of a New run page that plans the very layout, as far as
the trainer has knobs for it."""

from collections.abc import Mapping
from urllib.parse import urlencode

from django.urls import reverse

from console.forms.new_run.form import nearest, show
from jobs.catalog.accelerator import Accelerator
from jobs.catalog.knob import Knob, KnobValueInvalid
from jobs.catalog.model import find_model
from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value
from jobs.planner.can_it_run.plans import METHODS, Demand, TrainingMethod
from jobs.planner.job import Job, Training

_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def plan_url(
    model: str, config: str, method: str, demand: Demand, accelerator: Accelerator, job: Job, num_devices: int
) -> str:
    """Return the address of a New run page that plans a layout on hypothetical hardware. `config`: a pasted
    config.json, or the name under which it is kept (console.session)."""
    recipe = METHODS[method]
    chosen = nearest(algorithm=recipe.algorithm, trainer=_planned_by(recipe, job), version="")
    per_node = min(num_devices, job.fleet.devices_per_node)
    nodes = num_devices // per_node
    query = [("algorithm", chosen.algorithm), ("trainer", chosen.trainer), ("version", chosen.version)]
    query += [("accelerator", accelerator.id), ("nodes", str(nodes)), ("devices_per_node", str(per_node))]
    if config:
        query.append(("config", config))
    elif name := _hub_id(model):
        query.append(("set", f"model.id={name}"))
    here = chosen.knobs()
    wanted = _wanted(recipe, demand, job, nodes, per_node)
    query += [("set", f"{name}={show(value)}") for name, value in wanted.items() if _takes(here, name, value)]
    return f"{reverse('new-run')}?{urlencode(query)}"


def _planned_by(recipe: TrainingMethod, job: Job) -> str:
    """Return the trainer that plans it on New run, "" if none offers the algorithm: rather one that trains with the
    layout's engine, and rather another than the built-in one, whose roles never share devices."""
    family = "deepspeed" if recipe.method == "qlora" else job.policy.family  # which packs weights into 4 bits
    able = [info for info in trainers().values() if info.offers(recipe.algorithm, info.versions[0])]
    able.sort(key=lambda info: (family not in info.families, not info.package))
    return next((info.id for info in able), "")


def _takes(here: Mapping[str, Knob], name: str, value: Value) -> bool:
    """Return True if the run has the knob, takes the value, and has another one unless it is said."""
    if name not in here or value is None:
        return False
    try:
        here[name].check(show(value))
    except KnobValueInvalid:
        return False
    return True


def _wanted(recipe: TrainingMethod, demand: Demand, job: Job, nodes: int, per_node: int) -> dict[str, Value]:
    """Return the values of knobs that make the layout, of all trainers; a trainer takes those that it has."""
    policy = job.policy
    values: dict[str, Value] = {
        "rollout.max_prompt_tokens": demand.max_prompt,
        "rollout.max_new_tokens": demand.max_response,
        "train.max_sequence_tokens": demand.longest,
        "rollout.prompts_per_step": demand.prompts,
        "rollout.samples_per_prompt": demand.samples_per_prompt,
        "train.micro_batch_size": policy.micro_batch // (2 if recipe.algorithm == "rm" else 1),
        "train.dynamic_batch": False,
        "memory.precision": _PRECISION[policy.compute],
        "memory.gradient_checkpointing": policy.checkpointing == "full",
        "lora.rank": policy.lora_rank or None,
        "quantization.load_in_4bit": True if policy.method == "qlora" else None,
    }
    if not recipe.has_rollouts:
        values["train.batch_size"] = demand.batch_size
    for role in ("policy", "critic", "reference", "reward"):
        values |= {f"placement.{role}_nodes": nodes, f"placement.{role}_gpus_per_node": per_node}
    values |= _trained(policy)
    if job.engine is not None:
        values |= {
            "placement.colocate_all": True,
            "placement.rollout_engines": job.engine.num_engines,
            "placement.rollout_tensor_parallel": job.engine.tensor,
            "rollout.gpu_memory_fraction": job.engine.utilization,
            "rollout.max_num_seqs": job.engine.max_num_seqs,
            "rollout.max_batched_tokens": max(job.engine.max_batched_tokens, demand.longest),
            "rollout.sleep": True,
        }
    return values


def _trained(policy: Training) -> dict[str, Value]:
    """Return how the policy is sharded, divided and offloaded."""
    layout, offload = policy.layout, policy.offload
    if policy.family == "deepspeed":
        return {"memory.zero_stage": layout.shards, "memory.adam_offload": bool(offload.optimizer)}
    between = {"params": offload.params_between_phases, "optimizer": offload.optimizer_between_phases}
    if policy.family == "megatron":
        return {
            "parallel.engine": "megatron",
            "parallel.tensor_parallel_size": layout.tensor,
            "parallel.pipeline_parallel_size": layout.pipeline,
            "parallel.expert_parallel_size": layout.expert,
            "parallel.expert_tensor_parallel_size": 1 if layout.expert > 1 else None,
            "parallel.last_stage_layers": layout.last_stage_layers or None,
            "memory.megatron_param_offload": between["params"],
            "memory.megatron_optimizer_offload": between["optimizer"],
            "memory.megatron_cpu_optimizer": bool(offload.optimizer),
            "memory.megatron_cpu_optimizer_share": offload.optimizer or None,
            "memory.megatron_recompute": "full",
            "memory.megatron_recompute_method": "uniform",
            "memory.megatron_recompute_layers": 1,
        }
    values: dict[str, Value] = {
        "parallel.engine": "fsdp",
        "kernels.fused_head": policy.head == "chunked",
        "memory.zero_stage": layout.shards,  # where the trainer shards by DeepSpeed
    }
    for whose in ("", "critic_"):
        values |= {
            f"memory.{whose}param_offload": between["params"],
            f"memory.{whose}optimizer_offload": between["optimizer"],
        }
    return values


def _hub_id(name: str) -> str:
    """Return the repository of a known model that a name means, "" if there is none."""
    try:
        model = find_model(name)
    except LookupError:
        return ""
    return name if "/" in name else next(iter(model.hub), "")
