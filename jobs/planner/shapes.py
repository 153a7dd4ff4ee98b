"""The shape of a language model, read from its config.json: parameters counted exactly, KV bytes per token.

Source of the formulas: the modeling code of transformers, whose models on the meta device are the oracle in the tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


class ShapeUnreadable(ValueError):
    """A config cannot be read as a language model; `key` is the one at fault, the text a sentence for people."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One decoder layer. Parameter counts by what happens to them when a model is divided.

    `attention`: elements that tensor parallelism divides; `mlp`: of a dense or shared MLP, divided too;
    `experts`: of all routed experts together (0 if dense), divided by expert and expert-tensor parallelism;
    `replicated`: norms, routers, and what else every tensor rank holds whole.
    `window`: tokens that attention sees, 0 for all. `largest_matrix`: elements of the largest single matrix.
    """

    attention: int
    mlp: int
    experts: int
    replicated: int
    window: int
    is_moe: bool
    largest_matrix: int

    @property
    def total(self) -> int:
        """All elements of the layer."""
        return self.attention + self.mlp + self.experts + self.replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model, as arithmetic sees it. Sizes are numbers of elements unless a name says bytes.

    `hidden` h; `heads` a, `kv_heads` g, `head_size` d; `query` = a*d, `kv` = g*d (of MLA: the sizes attention works
    with); `mlp_width` f of a dense layer; `experts` E, `experts_per_token` k, `expert_width` f_e, `shared_experts` n_s
    (of width `shared_width` together); `latent` = kv_rank + rope size of MLA, 0 otherwise. `layers` has one entry per
    decoder layer, in order. `head` and `embedding` are vocab*hidden each; the head of a tied model has no own elements.
    `has_qk_norm`: queries and keys are normed per head. `quantized_bytes` is bytes per element as the checkpoint holds
    the matrices (2.0 for bf16), `quantization` its name, "" for none. `max_positions` is the context it was made for.
    """

    name: str
    model_type: str
    layers: tuple[LayerShape, ...]
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    query: int
    kv: int
    mlp_width: int
    vocab: int
    is_tied: bool
    final: int
    experts: int
    experts_per_token: int
    expert_width: int
    shared_experts: int
    shared_width: int
    latent: int
    has_qk_norm: bool
    attention_kind: Literal["gqa", "mla"]
    mtp_layers: int
    mtp_parameters: int
    max_positions: int
    quantization: str
    quantized_bytes: float

    @property
    def num_layers(self) -> int:
        """Decoder layers L, without multi-token prediction."""
        return len(self.layers)

    @property
    def embedding(self) -> int:
        """Elements of the input embedding."""
        return self.vocab * self.hidden

    @property
    def head(self) -> int:
        """Elements of the output head that are its own: 0 where it is tied to the embedding."""
        return 0 if self.is_tied else self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters P, without multi-token prediction."""
        return self.embedding + self.head + self.final + sum(layer.total for layer in self.layers)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token touches, embeddings included; routers in full."""
        unused = sum(
            layer.experts - layer.experts * self.experts_per_token // self.experts
            for layer in self.layers
            if layer.is_moe
        )
        return self.parameters - unused

    @property
    def matmul_parameters(self) -> int:
        """N_mm: parameters in matrix products per token: the active ones without the embedding; a tied head once."""
        return self.active_parameters - (0 if self.is_tied else self.embedding)

    def kv_bytes_per_token(self, element_bytes: float = 2.0) -> int:
        """Bytes of keys and values of one token over all layers: 2*L*g*d elements, of MLA L*latent."""
        elements = self.latent if self.attention_kind == "mla" else 2 * self.kv_heads * self.head_size
        return round(self.num_layers * elements * element_bytes)


def read_shape(config: Mapping[str, Any], *, name: str = "") -> ModelShape:
    """Return the shape of a model from the values of its config.json.

    Dense, GQA, MoE, MLA, tied or not, nested text configs, sliding windows, MTP. Raises: ShapeUnreadable, naming the
    key, for a value that is missing, of the wrong type, negative, zero, not finite or out of any range, and for a kind
    of model that is not known.
    """
    raise ShapeUnreadable("model_type", f"{name}: not built yet.")
