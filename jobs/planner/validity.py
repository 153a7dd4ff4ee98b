"""Whether a layout can be at all: what `validate` refuses, and what trainers and engines ask beside it.

The former is arithmetic that no trainer gets around (jobs.planner.validation); the latter are even stages, ranks that
divide the batch, layers that stay within a node, and engines that fill their devices. Sources: Megatron-LM's arguments
and the trainers' own validators.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from jobs.catalog.sentence import Sentence, sentence_of
from jobs.planner.job import Engine, Job, Layout, Training
from jobs.planner.result import JobInvalid
from jobs.planner.serving.engine_memory import validate_engine
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.validation import validate

REASONS: Mapping[str, str] = {
    "devices": "The parallel sizes do not divide the devices.",
    "tensor": "The heads or the widths of the model do not divide among the devices.",
    "layers": "The layers do not divide into stages.",
    "experts": "The experts do not divide among the devices.",
    "node": "Every layer would cross the network between nodes.",
    "batch": "The samples of an update do not divide among the ranks.",
    "context": "The engine takes no sequence as long as prompt and response.",
    "invalid": "The planner cannot estimate it.",
    "memory": "It does not fit into the memory of a device.",
    "engine_memory": "The engine's KV cache cannot hold one full sequence.",
    "host": "It does not fit into the memory of a node.",
    "rule": "A rule of the guide or the validator refuses it.",
}
"""Why a layout was rejected, by key, as people read it."""

_BY_FIELD = {
    "tensor": "tensor",
    "ulysses": "tensor",
    "pipeline": "layers",
    "virtual": "layers",
    "first_stage_layers": "layers",
    "expert": "experts",
    "expert_tensor": "experts",
    "context": "devices",
    "num_devices": "devices",
    "num_engines": "devices",
    "engine_devices": "devices",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a layout cannot be: a key of REASONS, and the numbers in a sentence."""

    reason: str
    message: str


def misfit_of(job: Job) -> Misfit | None:
    """Return the first thing that makes a job's layout impossible, None if there is none."""
    return training_misfit(job) or engine_misfit(job)


def training_misfit(job: Job) -> Misfit | None:
    """Return what makes the layout of the models that are trained impossible, whatever the engines are."""
    try:
        validate(replace(job, engine=None, engine_devices=0))
    except JobInvalid as invalid:
        return _from(invalid)
    for trained in (job.policy, job.critic):
        if trained is not None:
            misfit = next(_training_misfits(job, trained), None)
            if misfit is not None:
                return misfit
    return None


def engine_misfit(job: Job) -> Misfit | None:
    """Return what makes the layout of the engines impossible, whatever is trained."""
    if job.engine is None:
        return None
    try:
        validate_engine(job.engine)
    except JobInvalid as invalid:
        return _from(invalid)
    return next(_engine_misfits(job, job.engine), None)


def _from(invalid: JobInvalid) -> Misfit:
    return Misfit(reason=_BY_FIELD.get(invalid.field.rpartition(".")[2], "invalid"), message=sentence_of(invalid))


def _training_misfits(job: Job, trained: Training) -> Iterator[Misfit]:
    layout, per_node = trained.layout, job.fleet.devices_per_node
    if layout.tensor > per_node:
        yield Misfit(
            reason="node",
            message=Sentence(
                "{tensor} devices share a layer; a node has {per_node}.", tensor=layout.tensor, per_node=per_node
            ),
        )
    yield from _stage_misfits(trained.model, layout)
    if job.rollouts is not None:
        samples = job.rollouts.prompts * job.rollouts.samples_per_prompt // job.rollouts.updates
        if samples % max(layout.data, 1):
            yield Misfit(
                reason="batch",
                message=Sentence(
                    "{samples:,} samples of an update do not divide by {data} ranks.", samples=samples, data=layout.data
                ),
            )


def _stage_misfits(model: ModelShape, layout: Layout) -> Iterator[Misfit]:
    ends = (layout.first_stage_layers, layout.last_stage_layers)
    layers = model.num_layers - sum(ends)
    chunks = (layout.pipeline - sum(end > 0 for end in ends)) * layout.virtual
    if layout.pipeline > 1 and (layers <= 0 or chunks <= 0 or layers % chunks):
        yield Misfit(
            reason="layers",
            message=Sentence("{layers} layers do not divide by {chunks}.", layers=layers, chunks=chunks),
        )


def _engine_misfits(job: Job, engine: Engine) -> Iterator[Misfit]:
    pool = job.engine_devices or job.policy.layout.num_devices
    if engine.num_engines * engine.tensor * engine.pipeline != pool:
        size = engine.tensor * engine.pipeline
        yield Misfit(
            reason="devices",
            message=Sentence(
                "Devices: {pool}, which is not {num_engines} × {size}, engines by devices of each.",
                pool=pool,
                num_engines=engine.num_engines,
                size=size,
            ),
        )
    if job.rollouts is not None and engine.max_model_len:
        lengths = job.rollouts.lengths
        longest = lengths.max_prompt + lengths.max_response
        if engine.max_model_len < longest:
            yield Misfit(
                reason="context",
                message=Sentence(
                    "{max_model_len:,} tokens are less than {longest:,}.",
                    max_model_len=engine.max_model_len,
                    longest=longest,
                ),
            )


def least_bytes(trained: Training) -> float:
    """Return bytes of weights and gradients that no layout of these sizes gets below on its fullest device: the mean
    over the stages of a pipeline, nothing gathered."""
    layout = trained.layout
    if trained.offload.params or trained.optimizer_in_backward:
        return 0.0
    held = parameters_of_a_stage(trained.model, layout)
    if trained.method != "full":
        return held * trained.base_bytes / (layout.shard_ranks if layout.shards == 3 else 1)
    weights = trained.weight_bytes / (layout.shard_ranks if layout.shards == 3 else 1)
    return held * (weights + trained.gradient_bytes / (layout.shard_ranks if layout.shards >= 2 else 1))


def parameters_of_a_stage(model: ModelShape, layout: Layout) -> float:
    """Return the parameters on a device, before any sharding: the mean over the stages of a pipeline."""
    experts = model.expert_parameters
    spread = layout.pipeline * layout.expert * layout.expert_tensor
    return (model.parameters - experts) / (layout.tensor * layout.pipeline) + experts / max(spread, 1)
