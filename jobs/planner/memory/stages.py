"""What one rank of a training group holds of a model: its stage of the pipeline, and its share of each matrix.

Matrices divide by tensor parallelism, norms and routers do not; experts divide by expert and expert-tensor parallelism
(never by tensor parallelism as well); the embedding is on the first stage and the head on the last, a tied model holds
both copies where they are apart. See docs/develop/planner-formulas.md.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from jobs.planner.job import Layout
from jobs.planner.shapes.model_shape import LayerShape, ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Elements by the ranks over which data parallelism divides them: `dense` over all that hold the same weights,
    `experts` over those that hold the same experts."""

    dense: float = 0.0
    experts: float = 0.0

    @property
    def total(self) -> float:
        """Both."""
        return self.dense + self.experts

    def __add__(self, other: "Elements") -> "Elements":
        return Elements(dense=self.dense + other.dense, experts=self.experts + other.experts)

    def scaled(self, factor: float) -> "Elements":
        """Return both times a factor."""
        return Elements(dense=self.dense * factor, experts=self.experts * factor)

    def sharded(self, layout: Layout) -> float:
        """Return the elements that one rank keeps of them where they are divided over data parallelism."""
        copies = min(layout.expert_data, layout.shard_group or layout.expert_data)
        return self.dense / layout.shard_ranks + self.experts / copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a pipeline: each kind of its layers with how many, and whether it has the model's ends.

    `in_flight`: micro-batches whose activations it holds at its fullest, in micro-batches of the whole stage.
    """

    index: int
    layers: tuple[tuple[LayerShape, int], ...]
    has_embedding: bool
    has_head: bool
    in_flight: float

    @property
    def num_layers(self) -> int:
        """Decoder layers of the stage."""
        return sum(count for _, count in self.layers)


@lru_cache(maxsize=1024)
def stages_of(model: ModelShape, layout: Layout, num_micro_batches: int = 1) -> tuple[Stage, ...]:
    """Return the stages of the pipeline, in order.

    One forward, one backward: stage i of p holds min(p - i, m) of m micro-batches; v virtual chunks make it
    (2(p - i - 1) + (v - 1)p + 1) / v, never more than m. Source:
    "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (arXiv 2104.04473).
    """
    sizes = stage_sizes(model.num_layers, layout)
    stages, start = [], 0
    for index, size in enumerate(sizes):
        layers = model.layers[start : start + size]
        start += size
        kinds = {id(layer): layer for layer in layers}  # layers alike are one object: far cheaper than to compare them
        counts = Counter(map(id, layers))
        stages.append(
            Stage(
                index=index,
                layers=tuple((kinds[key], count) for key, count in counts.items()),
                has_embedding=index == 0,
                has_head=index == len(sizes) - 1,
                in_flight=_in_flight(index, layout, num_micro_batches),
            )
        )
    return tuple(stages)


@lru_cache(maxsize=1024)
def telling_stages(model: ModelShape, layout: Layout, num_micro_batches: int = 1) -> tuple[Stage, ...]:
    """Return one of each kind of stages, in order: of those with the same layers and the same ends the first, as it
    has as many micro-batches in flight as any of them, or more. The fullest stage is among them."""
    distinct: dict[object, Stage] = {}
    for stage in stages_of(model, layout, num_micro_batches):
        layers = tuple((id(layer), count) for layer, count in stage.layers)
        distinct.setdefault((layers, stage.has_embedding, stage.has_head), stage)
    return tuple(distinct.values())


def stage_sizes(num_layers: int, layout: Layout) -> tuple[int, ...]:
    """Return the layers of each stage: the ends as they are set, the others alike, the first ones one more if need
    be."""
    stages = layout.pipeline
    if stages == 1:
        return (num_layers,)
    sizes = [0] * stages
    sizes[0], sizes[-1] = layout.first_stage_layers, layout.last_stage_layers
    free = [index for index in range(stages) if not sizes[index]]
    rest = max(num_layers - sum(sizes), 0)
    for position, index in enumerate(free):
        sizes[index] = rest // len(free) + (position < rest % len(free))
    return tuple(sizes)


def _in_flight(index: int, layout: Layout, num_micro_batches: int) -> float:
    stages, chunks = layout.pipeline, layout.virtual
    held = float(stages - index)
    if chunks > 1 and stages > 1:
        held = (2 * (stages - index - 1) + (chunks - 1) * stages + 1) / chunks
    return min(held, float(max(num_micro_batches, 1)))


def layer_share(layer: LayerShape, layout: Layout) -> Elements:
    """Return the elements of a layer that one rank of its stage holds, before data parallelism divides them."""
    dense = (layer.attention + layer.mlp) / layout.tensor + layer.replicated
    return Elements(dense=dense, experts=layer.experts / (layout.expert * layout.expert_tensor))


def matrix_share(layer: LayerShape, layout: Layout) -> Elements:
    """Return the elements of a layer's linear matrices that one rank holds: what a quantized base packs."""
    dense = (layer.attention + layer.mlp) / layout.tensor + layer.replicated_linear
    return Elements(dense=dense, experts=layer.experts / (layout.expert * layout.expert_tensor))


def stage_share(stage: Stage, model: ModelShape, layout: Layout, *, has_vocabulary: bool = True) -> Elements:
    """Return the elements of a stage that one rank holds; `has_vocabulary` False for a head of one output."""
    total = Elements(dense=float(sum(vocabulary_share(stage, model, layout, has_vocabulary=has_vocabulary))))
    for layer, count in stage.layers:
        total = total + layer_share(layer, layout).scaled(count)
    return total


def vocabulary_share(
    stage: Stage, model: ModelShape, layout: Layout, *, has_vocabulary: bool = True
) -> tuple[float, float]:
    """Return a rank's elements of the embedding, and of the head with the final norm. A head that is tied counts where
    it is apart from the embedding alone."""
    embedding = model.embedding / layout.tensor + model.outside if stage.has_embedding else 0.0
    if not stage.has_head:
        return embedding, 0.0
    if not has_vocabulary:
        return embedding, float(model.hidden + model.final)
    own = 0.0 if model.is_tied and stage.has_embedding else model.vocab * model.hidden / layout.tensor
    return embedding, own + model.final
