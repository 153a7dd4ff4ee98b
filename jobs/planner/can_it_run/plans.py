"""Jobs for a model and a method alone, before anybody chose a trainer: the layouts that a number of devices allows.

Two ways to train are tried: FSDP (DeepSpeed's ZeRO 3 where the optimizer works on the host), which shards everything
over all devices, and Megatron, which divides layers, stages and experts. Both recompute every layer and take the output
layer in chunks or divided, with one full-length sequence per micro-batch: the least that training needs. What sits on
the host is a question of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

from jobs.planner.job import (
    Engine,
    Fleet,
    FrozenModel,
    Job,
    Layout,
    Lengths,
    Method,
    Objective,
    Offload,
    Rollouts,
    Training,
)
from jobs.planner.search.axes import last_stage, powers, stage_counts
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.validity import least_bytes, parameters_of_a_stage

Way = Literal["nothing", "between_phases", "always", "activations", "weights", "pure"]
ON_HOST: Mapping[Way, str] = {
    "nothing": "Everything on the GPUs",
    "between_phases": "Training states in host memory while others work",
    "always": "Optimizer and its step in host memory",
}
"""The usual ways, by what sits on the host: less of it first."""

FURTHER_WAYS: Mapping[Way, str] = {
    "activations": "Checkpoints of layers in host memory, each sequence divided among GPUs",
    "weights": "Weights, optimizer and its step in host memory",
    "pure": "Pure 16-bit training: weights, gradients and moments in bf16, no copy in fp32",
}
"""What is tried where the usual ways take more devices. Pure 16-bit learns other weights than the rest, so that it is
never what a headline goes by."""

_NODE_SIZES = (1, 2, 4, 8)
_CLUSTER_SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # nodes
_CHUNK = 1024
_MOST_LAYOUTS = 16
_RANK = 32
_NF4_BYTES = 4.127 / 8
_UTILIZATIONS = (0.3, 0.45, 0.6, 0.75, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMethod:
    """A method to plan for: `objective` and `method` as in Training, and what is there beside the policy."""

    id: str
    label: str
    objective: Objective
    method: Method = "full"
    has_rollouts: bool = False
    has_critic: bool = False
    frozen: tuple[Literal["reference", "reward"], ...] = ()
    table: str = ""

    @property
    def algorithm(self) -> str:
        """The algorithm's id in the catalog."""
        return self.id.partition("-")[0]


METHODS: Mapping[str, TrainingMethod] = {
    each.id: each
    for each in (
        TrainingMethod(id="sft", label="SFT, all weights", objective="lm"),
        TrainingMethod(id="sft-lora", label="SFT with LoRA", objective="lm", method="lora"),
        TrainingMethod(id="sft-qlora", label="SFT with LoRA on 4-bit weights", objective="lm", method="qlora"),
        TrainingMethod(id="dpo", label="DPO, all weights", objective="pairs", frozen=("reference",)),
        TrainingMethod(id="dpo-lora", label="DPO with LoRA", objective="pairs", method="lora"),
        TrainingMethod(id="rm", label="Reward model, all weights", objective="scalar"),
        TrainingMethod(
            id="grpo", label="GRPO, all weights", objective="lm", has_rollouts=True, frozen=("reference",), table="GRPO"
        ),
        TrainingMethod(
            id="grpo-lora", label="GRPO with LoRA", objective="lm", method="lora", has_rollouts=True, table="GRPO-LoRA"
        ),
        TrainingMethod(
            id="ppo",
            label="PPO, all weights",
            objective="lm",
            has_rollouts=True,
            has_critic=True,
            frozen=("reference", "reward"),
            table="PPO",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of the hardware: the longest prompt and answer (of a sample, together), and what a step takes."""

    max_prompt: int = 1024
    max_response: int = 1024
    mean_prompt: float = 0.0
    mean_response: float = 0.0
    prompts: int = 64
    samples_per_prompt: int = 8
    batch_size: int = 64

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return self.max_prompt + self.max_response

    @property
    def document(self) -> int:
        """Mean tokens of a sample in a row of the longest, 0 if they are not known."""
        return min(round(self.mean_prompt + self.mean_response), self.longest)


def world_sizes(devices_per_node: int) -> tuple[int, ...]:
    """Return the numbers of devices that are tried, ascending: within a node, then whole nodes."""
    within = tuple(size for size in _NODE_SIZES if size < devices_per_node)
    return (*within, devices_per_node, *(nodes * devices_per_node for nodes in _CLUSTER_SIZES))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """One way to train, a job without an engine, and the ways to generate beside it, the least hungry first."""

    job: Job
    engines: tuple[Engine, ...]

    def jobs(self) -> Iterator[Job]:
        """Yield a job per engine, or the one without rollouts. They share their parts, so that an Estimator estimates
        each part once."""
        if self.job.rollouts is None:
            yield self.job
        for engine in self.engines:
            yield replace(self.job, engine=engine)


def plans_of(
    shape: ModelShape,
    recipe: TrainingMethod,
    fleet: Fleet,
    demand: Demand,
    on_host: Way,
    *,
    micro_batch: int,
    engines: tuple[Engine, ...] | None = None,
) -> Iterator[TrainingPlan]:
    """Yield the ways to train the model on all devices of the fleet that can hold its weights: FSDP first, then the
    Megatron layouts that hold least, the least divided of them first. `engines`: those of `engines_of`, where they are
    made already and shared, so that each is estimated once."""
    engines = engines_of(shape, recipe, fleet, demand) if engines is None else engines
    limit = fleet.accelerator.usable_bytes
    policies = [p for p in _policies(shape, recipe, fleet, demand, on_host, micro_batch) if least_bytes(p) <= limit]
    rollouts = Rollouts(
        prompts=demand.prompts,
        samples_per_prompt=demand.samples_per_prompt,
        lengths=Lengths(
            max_prompt=demand.max_prompt,
            max_response=demand.max_response,
            mean_prompt=demand.mean_prompt,
            mean_response=demand.mean_response,
        ),
    )
    for policy in policies:
        job = Job(
            algorithm=recipe.algorithm,
            fleet=fleet,
            policy=policy,
            critic=replace(policy, objective="scalar") if recipe.has_critic else None,
            frozen=_frozen(shape, recipe, policy, demand, on_host),
            rollouts=rollouts if recipe.has_rollouts else None,
        )
        yield TrainingPlan(job=job, engines=engines)


def _policies(
    shape: ModelShape, recipe: TrainingMethod, fleet: Fleet, demand: Demand, on_host: Way, micro: int
) -> Iterator[Training]:
    devices = fleet.num_devices
    samples = demand.prompts * demand.samples_per_prompt if recipe.has_rollouts else demand.batch_size
    attention: Literal["flash2", "sdpa"] = "flash2" if "flash2" in fleet.accelerator.attention else "sdpa"
    is_full = recipe.method == "full"
    stays = on_host in ("always", "weights") and is_full  # of adapters there is too little to be worth it
    is_pure = on_host == "pure" and is_full
    moves = on_host != "nothing" and recipe.has_rollouts
    offload = Offload(
        optimizer=1.0 if stays else 0.0,
        params=on_host == "weights",
        activations=on_host == "activations",
        params_between_phases=moves and on_host != "weights",
        optimizer_between_phases=moves,
        is_moved_by_phase=moves and not stays,  # as the trainer does that runs such a plan
    )
    is_wide = not stays and not is_pure
    for ulysses in _ulysses_sizes(shape, fleet) if on_host == "activations" else (1,):
        each = max(samples * ulysses // devices, 1)
        yield Training(
            model=shape,
            layout=Layout(num_devices=devices, shards=3, ulysses=ulysses),
            family="deepspeed" if stays else "fsdp",
            method=recipe.method,
            lora_rank=0 if is_full else _RANK,
            weight_bytes=4.0 if is_wide else 2.0,
            base_bytes=_NF4_BYTES if recipe.method == "qlora" else 2.0,
            gradient_bytes=4.0 if is_wide else 2.0,
            has_master=stays,
            optimizer="adam_bf16" if is_pure else "adam",
            compute="bf16" if fleet.accelerator.has_bf16 else "fp16",
            mixed_precision="pure" if is_pure else "fsdp",
            attention=attention,
            head="chunked",
            head_chunk=_CHUNK,
            objective=recipe.objective,
            micro_batch=min(micro, each) * (2 if recipe.objective == "scalar" else 1),
            sequence=demand.longest,
            document=0 if recipe.has_rollouts else demand.document,
            num_micro_batches=-(-each // min(micro, each)),
            offload=offload,
        )
    has_megatron = is_full and devices > 1 and fleet.accelerator.has_bf16 and recipe.objective == "lm"
    if not has_megatron or on_host in ("weights", "pure"):
        return
    offload = replace(offload, is_moved_by_phase=moves, has_one_thread=True)  # processes of Ray have one thread
    for layout in _roomiest(shape, devices, fleet.devices_per_node):
        each = max(samples // layout.data, 1)
        yield Training(
            model=shape,
            layout=layout,
            family="megatron",
            gradient_bytes=4.0,
            kernels="megatron",
            attention=attention,
            head="parallel",
            objective=recipe.objective,
            micro_batch=min(micro, each),
            sequence=demand.longest,
            document=0 if recipe.has_rollouts else demand.document,
            num_micro_batches=-(-each // min(micro, each)),
            offload=offload,
        )


@lru_cache(maxsize=512)
def _roomiest(shape: ModelShape, devices: int, devices_per_node: int) -> tuple[Layout, ...]:
    """Return the Megatron layouts that hold least of the model on a device, the least divided of them first."""

    def held(layout: Layout) -> float:
        return parameters_of_a_stage(shape, layout)

    layouts = sorted(_megatron_layouts(shape, devices, devices_per_node), key=held)[:_MOST_LAYOUTS]
    return tuple(sorted(layouts, key=lambda layout: (layout.tensor * layout.pipeline, layout.expert)))


def _ulysses_sizes(shape: ModelShape, fleet: Fleet) -> tuple[int, ...]:
    """Return among how many devices of a node a sequence may be divided by its heads, the fewest first."""
    sizes = powers(min(fleet.devices_per_node, fleet.num_devices))
    divided = (n for n in sizes if shape.heads % n == 0 and fleet.num_devices % n == 0)
    is_grouped = shape.attention_kind == "gqa"
    return tuple(n for n in divided if not is_grouped or shape.kv_heads % n == 0 or n % shape.kv_heads == 0)


def _megatron_layouts(shape: ModelShape, devices: int, devices_per_node: int) -> list[Layout]:
    """Return the layouts that divide layers within a node and stages among nodes."""
    per_node = min(devices_per_node, devices)
    stages = stage_counts(shape, devices)
    experts = [n for n in powers(64) if shape.experts and shape.experts % n == 0] or [1]
    layouts = []
    for tensor, pipeline, expert in product(powers(per_node), stages, experts):
        degree = tensor * pipeline
        if devices % degree or shape.heads % tensor or (devices // pipeline) % expert:
            continue
        if shape.kv_heads % tensor and tensor % shape.kv_heads and shape.attention_kind == "gqa":
            continue
        last = last_stage(shape.num_layers, pipeline)
        if last is None:
            continue
        layouts.append(
            Layout(
                num_devices=devices,
                tensor=tensor,
                pipeline=pipeline,
                expert=expert,
                shards=1,
                last_stage_layers=last,
            )
        )
    return layouts


def _frozen(
    shape: ModelShape, recipe: TrainingMethod, policy: Training, demand: Demand, on_host: Way
) -> tuple[FrozenModel, ...]:
    return tuple(
        FrozenModel(
            role=role,
            model=shape,
            layout=policy.layout,
            is_offloaded=on_host != "nothing",
            has_head=role == "reference",
            micro_batch=policy.micro_batch * (2 if recipe.objective == "pairs" else 1),
            sequence=demand.longest,
        )
        for role in recipe.frozen
    )


MOST_TENSOR = 32
"""Devices of an engine at most: they divide its matrices, and neither layers nor experts."""


def engines_of(shape: ModelShape, recipe: TrainingMethod, fleet: Fleet, demand: Demand) -> tuple[Engine, ...]:
    """Return engines for the shared devices: the smallest first, each with more and more of the memory; none for a
    method without rollouts."""
    return tuple(_engines(shape, fleet, demand, 1 if recipe.method != "full" else 2)) if recipe.has_rollouts else ()


def _engines(shape: ModelShape, fleet: Fleet, demand: Demand, sleep_level: int) -> Iterator[Engine]:
    weights = 2.0 * shape.parameters
    total = fleet.accelerator.usable_bytes
    for tensor in powers(min(fleet.num_devices, MOST_TENSOR)):
        if shape.heads % tensor or fleet.num_devices % tensor or weights / tensor > 0.85 * total:
            continue
        for share in _UTILIZATIONS:
            if share * total < 1.05 * weights / tensor:
                continue
            yield Engine(
                model=shape,
                num_engines=fleet.num_devices // tensor,
                tensor=tensor,
                utilization=share,
                weight_bytes=2.0,
                max_num_seqs=256,
                max_batched_tokens=8192,
                max_model_len=demand.longest,
                sleep_level=sleep_level,
            )
