"""Whether a layout can be at all: the arithmetic that trainers and engines ask of sizes, before any memory is reckoned.

Sources: Megatron-LM's arguments, vLLM's checks of a model's parallel configuration, verl's validate_config, OpenRLHF's
train_ppo_ray, and planner reference section 11.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from jobs.planner.job import Engine, Job, Layout, Training
from jobs.planner.shapes import ModelShape

REASONS: Mapping[str, str] = {
    "devices": "The parallel sizes do not divide the devices.",
    "heads": "The attention heads do not divide among the devices.",
    "layers": "The layers do not divide into stages.",
    "experts": "The experts do not divide among the devices.",
    "width": "The width of a layer does not divide among the devices.",
    "node": "Every layer would cross the network between nodes.",
    "batch": "The samples of an update do not divide among the ranks.",
    "context": "The engine takes no sequence as long as prompt and answer.",
    "offers": "The trainer does not offer it.",
    "memory": "It does not fit into the memory of a device.",
    "host": "It does not fit into the memory of a node.",
    "rule": "A rule of the guide refuses it.",
    "engine_memory": "The engine has no room for one whole sequence.",
}
"""Why a layout was rejected, by key, as people read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a layout cannot be: a key of REASONS, and the numbers in a sentence."""

    reason: str
    says: str


def misfit_of(job: Job) -> Misfit | None:
    """Return the first thing that makes a job's layout impossible, None if there is none."""
    return training_misfit(job) or engine_misfit(job)


def training_misfit(job: Job) -> Misfit | None:
    """Return what makes the layout of the models that are trained impossible."""
    for trained in (job.policy, job.critic):
        if trained is not None:
            found = _layout_misfits(trained.model, trained.layout, job.fleet.devices_per_node)
            if misfit := next(chain(found, _batch_misfits(job, trained)), None):
                return misfit
    return None


def engine_misfit(job: Job) -> Misfit | None:
    """Return what makes the layout of the engines impossible."""
    return None if job.engine is None else next(_engine_misfits(job, job.engine), None)


def _layout_misfits(model: ModelShape, layout: Layout, per_node: int) -> Iterator[Misfit]:
    degree = layout.tensor * layout.pipeline * layout.context * layout.ulysses
    if layout.num_devices % degree:
        yield Misfit(reason="devices", says=f"{layout.num_devices} devices do not divide by {degree}.")
    for size in (layout.tensor, layout.ulysses):
        yield from _head_misfits(model, size)
    if model.mlp_width % layout.tensor or model.hidden % layout.tensor:
        yield Misfit(reason="width", says=f"A width of {model.mlp_width} does not divide by {layout.tensor}.")
    if layout.tensor > per_node:
        yield Misfit(reason="node", says=f"{layout.tensor} devices share a layer; a node has {per_node}.")
    yield from _stage_misfits(model, layout)
    yield from _expert_misfits(model, layout)


def _stage_misfits(model: ModelShape, layout: Layout) -> Iterator[Misfit]:
    ends = (layout.first_stage_layers, layout.last_stage_layers)
    layers = model.num_layers - sum(ends)
    chunks = (layout.pipeline - sum(end > 0 for end in ends)) * layout.virtual
    if layout.pipeline > 1 and (layers <= 0 or chunks <= 0 or layers % chunks):
        yield Misfit(reason="layers", says=f"{layers} layers do not divide by {chunks}.")


def _head_misfits(model: ModelShape, size: int) -> Iterator[Misfit]:
    if model.heads % size:
        yield Misfit(reason="heads", says=f"{model.heads} attention heads do not divide by {size}.")
    elif model.attention_kind == "gqa" and model.kv_heads % size and size % model.kv_heads:
        yield Misfit(reason="heads", says=f"{model.kv_heads} key and value heads do not divide by {size}.")


def _expert_misfits(model: ModelShape, layout: Layout) -> Iterator[Misfit]:
    if layout.expert == 1 and layout.expert_tensor <= layout.tensor:
        return
    if model.experts == 0 and layout.expert > 1:
        yield Misfit(reason="experts", says="The model has no experts to spread.")
    elif layout.expert > 1 and model.experts % layout.expert:
        yield Misfit(reason="experts", says=f"{model.experts} experts do not divide by {layout.expert}.")
    group = layout.num_devices // max(layout.pipeline, 1)
    if group % (layout.expert * layout.expert_tensor):
        size = layout.expert * layout.expert_tensor
        yield Misfit(reason="experts", says=f"{group} devices of a stage do not divide by {size} for experts.")
    if layout.expert_tensor > 1 and model.expert_width % layout.expert_tensor:
        yield Misfit(
            reason="experts",
            says=f"An expert's width of {model.expert_width} does not divide by {layout.expert_tensor}.",
        )


def _batch_misfits(job: Job, trained: Training) -> Iterator[Misfit]:
    if job.rollouts is None:
        return
    samples = job.rollouts.prompts * job.rollouts.samples_per_prompt // job.rollouts.updates
    ranks = trained.layout.data
    if ranks and samples % ranks:
        yield Misfit(reason="batch", says=f"{samples:,} samples of an update do not divide by {ranks} ranks.")


def _engine_misfits(job: Job, engine: Engine) -> Iterator[Misfit]:
    pool = job.engine_devices or job.policy.layout.num_devices
    if engine.num_engines * engine.tensor * engine.pipeline != pool:
        size = engine.tensor * engine.pipeline
        yield Misfit(reason="devices", says=f"{pool} devices are not {engine.num_engines} engines of {size}.")
    yield from _head_misfits(engine.model, engine.tensor)
    if engine.expert > 1 and engine.model.experts % engine.expert:
        yield Misfit(reason="experts", says=f"{engine.model.experts} experts do not divide by {engine.expert}.")
    if job.rollouts is not None and engine.max_model_len:
        lengths = job.rollouts.lengths
        longest = lengths.max_prompt + lengths.max_response
        if engine.max_model_len < longest:
            yield Misfit(reason="context", says=f"{engine.max_model_len:,} tokens are less than {longest:,}.")


def least_bytes(trained: Training) -> float:
    """Return bytes of weights and gradients that no layout of these sizes gets below on its fullest device: the mean
    over the stages of a pipeline, nothing gathered."""
    layout, model = trained.layout, trained.model
    if trained.offload.params or trained.optimizer_in_backward:
        return 0.0
    experts = sum(layer.experts for layer in model.layers)
    spread = layout.pipeline * layout.expert * layout.expert_tensor
    held = (model.parameters - experts) / (layout.tensor * layout.pipeline) + experts / max(spread, 1)
    if trained.method != "full":
        return held * trained.base_bytes / (layout.shard_ranks if layout.shards == 3 else 1)
    weights = trained.weight_bytes / (layout.shard_ranks if layout.shards == 3 else 1)
    return held * (weights + trained.gradient_bytes / (layout.shard_ranks if layout.shards >= 2 else 1))
