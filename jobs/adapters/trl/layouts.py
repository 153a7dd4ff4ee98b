"""TRL's layouts: processes of one node, all of which train; rollouts come from the same devices."""

from collections.abc import Iterator

from jobs.adapters.trl.placement import uses_vllm
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Fleet
from jobs.planner.read.context import samples_per_update
from jobs.planner.search.axes import Changes, across, axis, generation, micro_batches
from jobs.planner.search.layout_space import Space
from jobs.planner.shapes.model_shape import ModelShape

_FRACTIONS = (0.2, 0.3, 0.4, 0.5, 0.6)
"""Of device memory for vLLM, which keeps its share while the trainer works unless it sleeps."""


def trl_spaces(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
    """Yield the placements of a run on at most `size` devices of a node, with every way to train and to generate."""
    devices = min(size, fleet.devices_per_node)
    train = _ways_to_train(spec, devices)
    generate: tuple[Changes, ...] = ({},)
    if is_in(spec.algorithm, "rl") and uses_vllm(spec):
        generate = tuple(across(generation(shape, devices, _FRACTIONS), axis("rollout.sleep", (True, False))))
    yield Space(placement={"placement.policy_gpus_per_node": devices}, ways_to_train=train, ways_to_generate=generate)


def _ways_to_train(spec: RunSpec, devices: int) -> tuple[Changes, ...]:
    return tuple(
        across(
            axis("memory.zero_stage", ("0", "1", "2", "3") if devices > 1 else ("0",)),
            axis("memory.gradient_checkpointing", (True, False)),
            axis("train.micro_batch_size", micro_batches(samples_per_update(spec), devices)),
        )
    )
