"""Bytes beside the devices: host memory of a node, checkpoints and exports on disk."""

from functools import lru_cache

from jobs.planner.constant import Constants
from jobs.planner.job import Engine, Fleet, Job, Layout, Training
from jobs.planner.memory.lora import adapter_parameters
from jobs.planner.memory.stages import telling_stages
from jobs.planner.memory.states import frozen_bytes, optimizer_bytes, states_of
from jobs.planner.serving.engine_weights import weight_bytes

_EXPORT_BYTES = 2.0  # weights leave a trainer in bf16


def trained_parameters(training: Training) -> int:
    """Return the parameters that are trained, of the whole model, each counted once."""
    if training.method != "full":
        return training.num_adapters * adapter_parameters(training)
    return training.model.parameters - (
        training.model.head - training.model.hidden if training.objective == "scalar" and training.model.head else 0
    )


def checkpoint_bytes(training: Training) -> int:
    """Return bytes on disk of one checkpoint that a run can be resumed from: weights, master copy and moments of what
    is trained; gradients are not written. Of LoRA the adapters alone."""
    return round(trained_parameters(training) * (training.weight_bytes + optimizer_bytes(training)))


def export_bytes(training: Training) -> int:
    """Return bytes on disk of the weights alone, in bf16: the model, or of LoRA its adapters."""
    return round(trained_parameters(training) * _EXPORT_BYTES)


def host_bytes(job: Job, constants: Constants) -> int:
    """Return bytes of host memory that the fullest node needs: what trainers, frozen models and sleeping engines keep
    there, and the processes of its devices themselves. Pools that fill nodes share none."""
    per_node = min(job.fleet.devices_per_node, job.fleet.num_devices)
    pools: dict[str, float] = {}
    sizes: dict[str, int] = {}

    def add(pool: str, layout: Layout, size: float) -> None:
        pools[pool] = pools.get(pool, 0.0) + min(layout.num_devices, per_node) * size
        sizes[pool] = max(sizes.get(pool, 0), layout.num_devices)

    for pool, trained in (("policy", job.policy), (job.critic_pool, job.critic)):
        if trained is not None:
            add(pool, trained.layout, _trainer_bytes(trained) * constants.memory.host_pinned)
    for frozen in job.frozen:
        if frozen.is_offloaded:
            add(frozen.pool, frozen.layout, max(frozen_bytes(frozen.model, frozen.layout, frozen.weight_bytes)))
    if job.engine is not None and job.engine.sleep_level == 1:
        pools["policy"] += per_node * _engine_bytes(job.engine)
    has_own_nodes = all(size % per_node == 0 for size in sizes.values())
    fullest = max(pools.values()) if has_own_nodes else sum(pools.values())
    return round(per_node * constants.memory.host_process_bytes + fullest)


def node_bytes(fleet: Fleet, constants: Constants) -> float:
    """Return host memory of a node: as it is known, or what nodes of as many such devices usually have."""
    return fleet.host_bytes or constants.estimate.host_memory * fleet.accelerator.memory_bytes * min(
        fleet.devices_per_node, fleet.num_devices
    )


@lru_cache(maxsize=1024)
def _trainer_bytes(training: Training) -> float:
    """Return bytes of one rank's states that are on the host at some time: during the step, or between phases.

    Of Megatron's buffers weights are copied there; main gradients are given up and zeroed when they are needed again
    (docs/develop/planner-formulas.md, States), unless the whole process is copied. An optimizer on the host has
    gradients of its own in the type of the masters: Megatron's (optimizer/cpu_offloading/hybrid_optimizer.py), and
    DeepSpeed's, whose ZeRO-3 has them beside those that it adds up (stage3.py, initialize_optimizer_states and
    grad_partitions_flat_buffer) and whose other stages add up only over several micro-batches (stage_1_and_2.py,
    accumulated_grads_in_cpu).
    """
    away = 0.0
    offload = training.offload
    for stage in telling_stages(training.model, training.layout):
        whole, held = states_of(training, stage, is_offloaded=False), states_of(training, stage)
        size = whole.optimizer if offload.optimizer_between_phases else whole.optimizer - held.optimizer
        if training.family != "deepspeed" or training.layout.shards == 3 or training.num_micro_batches > 1:
            size += whole.gradients - held.gradients
        if training.family in ("megatron", "deepspeed") and offload.optimizer:
            masters = whole.optimizer / optimizer_bytes(training)  # parameters whose masters this rank has
            size += offload.optimizer * masters * training.master_bytes
        if training.is_saved_beside:
            size += whole.optimizer + (0.0 if training.has_master else whole.weights)
        size += whole.weights if offload.params_between_phases else whole.weights - held.weights
        if offload.copies_process:
            size += whole.weights + whole.gradients
        if offload.activations:
            size += (
                2.0
                * training.model.hidden
                * training.tokens
                * stage.num_layers
                * stage.in_flight
                / training.layout.tensor
            )
        away = max(away, size)
    return away


def _engine_bytes(engine: Engine) -> float:
    return max(weight_bytes(engine, stage) for stage in range(engine.pipeline))
