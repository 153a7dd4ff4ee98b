"""The shape of a language model, read from its config.json: parameters counted exactly, KV bytes per token.

Source of the formulas: the modeling code of transformers, whose models on the meta device are the oracle in the tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues, ShapeUnreadable
from jobs.planner.shapes.diffusion import is_diffusion
from jobs.planner.shapes.families import FAMILIES, GENERIC, Family
from jobs.planner.shapes.layer_shapes import (
    Attention,
    LayerShape,
    Mixture,
    layer,
    linear_attention,
    read_attention,
    read_latent_attention,
    read_mixture,
    read_windows,
)
from jobs.planner.shapes.quantization import read_quantization
from jobs.planner.shapes.served_parts import rotary_elements, tower_elements

__all__ = ["LayerShape", "ModelShape", "ShapeUnreadable", "read_shape"]


@lru_cache(maxsize=256)
def _shared(layers: tuple[LayerShape, ...]) -> tuple[LayerShape, ...]:
    """Return the object that stands for all layers equal to these: so shapes that are equal are so at first sight."""
    return layers


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model, as arithmetic sees it. Sizes are numbers of elements unless a name says bytes.

    `hidden` h; `heads` a, `kv_heads` g, `head_size` d; `query` = a*d, `kv` = g*d (of MLA: the sizes attention works
    with); `mlp_width` f of a dense layer; `experts` E, `experts_per_token` k, `expert_width` f_e, `shared_experts` n_s
    (of width `shared_width` together); `latent` = kv_rank + rope size of MLA, 0 otherwise. `layers` has one entry per
    decoder layer, in order. `head` and `embedding` are vocab*hidden each; the head of a tied model has no own elements.
    `has_qk_norm`: queries and keys are normed per head. `quantized_bytes` is bytes per element as the checkpoint holds
    the matrices (2.0 for bf16), `quantization` its name, "" for none. `max_positions` is the context it was made for,
    0 where the config does not say.

    Of MLA, `query` = `kv` = a*(nope+rope), what heads see after the up-projections, and `query_rank` (0: queries are
    not compressed), `kv_rank`, `nope_size`, `rope_size`, `value_size` are its parts; all 0 without it. `is_gated`: the
    MLP has three matrices, else two. `element_bytes` of what is not quantized; `quantizes`: all matrices of the layers,
    or only the experts. `is_exact` is False for a model type that is not known, counted as most decoders are built.
    `parameters` are all, P, without multi-token prediction; `active_parameters` those that one token touches, with
    embeddings and routers in full; `expert_parameters` those of all routed experts. `rotary` are elements of the tables
    of positions that an engine keeps, `tower` of the part that sees images: neither is in `parameters`.
    `has_plain_head`: logits are the head applied to the last hidden states, neither scaled nor capped.
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
    query_rank: int = 0
    kv_rank: int = 0
    nope_size: int = 0
    rope_size: int = 0
    value_size: int = 0
    is_gated: bool = True
    element_bytes: float = 2.0
    quantizes: Literal["layers", "experts"] = "layers"
    is_exact: bool = True
    rotary: int = 0
    tower: int = 0
    has_plain_head: bool = True
    parameters: int = field(init=False, repr=False, compare=False)
    active_parameters: int = field(init=False, repr=False, compare=False)
    expert_parameters: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Count once: a search asks thousands of times."""
        experts = sum(layer.experts for layer in self.layers)
        total = self.embedding + self.head + self.final + sum(layer.total for layer in self.layers)
        unused = sum(
            layer.experts - layer.experts * self.experts_per_token // self.experts
            for layer in self.layers
            if layer.is_moe
        )
        object.__setattr__(self, "layers", _shared(self.layers))
        object.__setattr__(self, "parameters", total)
        object.__setattr__(self, "active_parameters", total - unused)
        object.__setattr__(self, "expert_parameters", experts)

    def __hash__(self) -> int:
        """Of what tells models apart, not of all layers: shapes are keys of caches that are asked all the time."""
        return hash((self.name, self.parameters, self.active_parameters, self.vocab))

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
    def matmul_parameters(self) -> int:
        """N_mm: parameters in matrix products per token: the active ones without the embedding; a tied head once."""
        return self.active_parameters - (0 if self.is_tied else self.embedding)

    @property
    def attention_width(self) -> int:
        """The q of 2*L*q*S: FLOPs of scores and values per token and position; of MLA a*(nope+rope+value)/2."""
        if self.attention_kind == "mla":
            return self.heads * (self.nope_size + self.rope_size + self.value_size) // 2
        return self.query

    @property
    def cache_layers(self) -> int:
        """Layers that keep keys and values per token: all but those of linear attention."""
        return sum(layer.has_cache for layer in self.layers)

    def checkpoint_bytes(self) -> int:
        """Bytes of the weights as the checkpoint holds them, without multi-token prediction.

        Embedding, head, norms and routers keep `element_bytes`; what is quantized takes `quantized_bytes`.
        """
        quantized = self.expert_parameters
        if self.quantizes == "layers":
            quantized += sum(layer.attention + layer.mlp + layer.replicated_linear for layer in self.layers)
        return round(quantized * self.quantized_bytes + (self.parameters - quantized) * self.element_bytes)


def read_shape(config: Mapping[str, Any], *, name: str = "") -> ModelShape:
    """Return the shape of a model from the values of its config.json.

    Dense, GQA, MoE, MLA, tied or not, nested text configs, sliding windows, MTP. A model type that is not known is read
    as most decoders are built (`is_exact` is False) if it calls itself a causal language model and names nothing that
    such a decoder does not have. Raises: ShapeUnreadable, naming the key, for a value that is missing, of the wrong
    type, negative, zero, not finite or out of any range, and for a kind of model that cannot be counted.
    """
    if not isinstance(config, Mapping):
        raise ShapeUnreadable("config", Sentence("{name}: a config is a table of values.", name=name or "config.json"))
    outer = ConfigValues(values=config, name=name)
    if is_diffusion(config):
        raise outer.refusal("_class_name", Sentence("makes it a diffusion transformer, which no trainer here trains."))
    nested = next(filter(None, map(outer.table, _NESTED)), outer)
    kind = nested.text("model_type") if nested.has("model_type") else outer.text("model_type")
    family = _family(outer, nested, kind)
    text = ConfigValues(values=nested.values, name=name, path=nested.path, defaults=family.defaults)
    layers_key = text.first("num_hidden_layers", "n_layer", "num_layers")
    num_layers = text.count(layers_key, limit=LAYER_LIMIT)
    hidden = text.count("hidden_size", "n_embd")
    attention = read_latent_attention(text, hidden) if family.has_mla else read_attention(text, family, hidden)
    mixture = read_mixture(text, family, num_layers) if family.mixture or not family.is_exact else None
    width = _width(text, family, mixture, hidden)
    layers = _layers(text, family, attention, mixture, hidden=hidden, width=width, num_layers=num_layers)
    vocab = text.count("vocab_size")
    quantization = read_quantization(outer, text)
    mtp_layers = _mtp_layers(text, family)
    norm = hidden * (2 if family.has_layer_norm else 1)
    return ModelShape(
        name=name,
        model_type=kind,
        layers=layers,
        hidden=hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_size=attention.head_size,
        query=attention.heads * attention.head_size,
        kv=attention.kv_heads * attention.head_size,
        mlp_width=width,
        vocab=vocab,
        is_tied=_is_tied(outer, text, family),
        final=norm + vocab * family.head_bias,
        experts=mixture.experts if mixture else 0,
        experts_per_token=mixture.per_token if mixture else 0,
        expert_width=mixture.width if mixture else 0,
        shared_experts=mixture.num_shared if mixture else 0,
        shared_width=mixture.shared_width if mixture else 0,
        latent=attention.kv_rank + attention.rope_size if family.has_mla else 0,
        has_qk_norm=family.qk_norm == "head" and text.flag(family.qk_norm_flag.key, family.qk_norm_flag.default),
        attention_kind="mla" if family.has_mla else "gqa",
        mtp_layers=mtp_layers,
        # Of each: a layer like the last, the projection of two hidden states into one, and three norms.
        mtp_parameters=mtp_layers * (layers[-1].total + 2 * hidden * hidden + 3 * norm),
        max_positions=text.optional_count("max_position_embeddings", "n_positions", limit=10**9) or 0,
        quantization=quantization.name,
        quantized_bytes=quantization.quantized_bytes,
        query_rank=attention.query_rank,
        kv_rank=attention.kv_rank,
        nope_size=attention.nope_size,
        rope_size=attention.rope_size,
        value_size=attention.value_size,
        is_gated=family.is_gated,
        element_bytes=quantization.element_bytes,
        quantizes=quantization.reaches,
        is_exact=family.is_exact,
        rotary=rotary_elements(text, attention.rope_size or attention.head_size),
        tower=tower_elements(outer, hidden),
        has_plain_head=not (kind in _CHANGED_LOGITS or any(text.has(key) for key in _LOGIT_CHANGES)),
    )


# Under these keys a model with other towers has its language model.
_NESTED = ("text_config", "llm_config", "language_config")

# What makes logits more than the head applied to the last hidden states: keys of a config, and families that have it
# without saying so (modeling code of Transformers).
_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
_CHANGED_LOGITS = frozenset({"gemma2", "cohere", "cohere2", "granite", "granitemoe", "granitemoehybrid", "falcon_h1"})

# Keys of parts that a plain decoder does not have: a model that is not known and names one cannot be counted.
_FOREIGN = (
    "state_size",
    "ssm_cfg",
    "mamba_d_state",
    "linear_num_value_heads",
    "index_n_heads",
    "kv_lora_rank",
    "is_encoder_decoder",
    "encoder_layers",
    "num_encoder_layers",
    "cross_attention_layers",
    "num_decoder_layers",
)


def _family(outer: ConfigValues, nested: ConfigValues, kind: str) -> Family:
    if kind in FAMILIES:
        return FAMILIES[kind]
    foreign = next((key for key in _FOREIGN if nested.values.get(key)), None)
    if foreign is not None:
        raise nested.refusal(
            "model_type",
            Sentence("is {kind}, which is not known, and it has {foreign}.", kind=outer.shown(kind), foreign=foreign),
        )
    names = (outer if outer.has("architectures") else nested).items("architectures", str) or ()
    if not any(each.endswith("ForCausalLM") for each in names):
        problem = Sentence(
            "is {kind}, which is not known, and architectures does not name a causal language model.",
            kind=outer.shown(kind),
        )
        raise nested.refusal("model_type", problem)
    return GENERIC


def _width(text: ConfigValues, family: Family, mixture: Mixture | None, hidden: int) -> int:
    if family.width_key == "ffn_hidden_size":
        return text.optional_count("ffn_hidden_size") or 4 * hidden
    if mixture is None or not all(mixture.layers):
        return text.count(family.width_key)
    return text.optional_count(family.width_key) or 0


def _layers(
    text: ConfigValues,
    family: Family,
    attention: Attention,
    mixture: Mixture | None,
    *,
    hidden: int,
    width: int,
    num_layers: int,
) -> tuple[LayerShape, ...]:
    windows = read_windows(text, family, num_layers)
    linear = linear_attention(text, hidden) if any(is_linear for _, is_linear in windows) else attention
    has_experts = mixture.layers if mixture else (False,) * num_layers
    made: dict[tuple[int, bool, bool], LayerShape] = {}
    kinds = [(*window, is_moe) for window, is_moe in zip(windows, has_experts, strict=True)]
    for window, is_linear, is_moe in set(kinds):
        made[window, is_linear, is_moe] = layer(
            text,
            family,
            hidden,
            linear if is_linear else attention,
            width=width,
            mixture=mixture if is_moe else None,
            window=window,
            is_linear=is_linear,
        )
    return tuple(made[kind] for kind in kinds)


def _is_tied(outer: ConfigValues, text: ConfigValues, family: Family) -> bool:
    where = outer if outer.has("tie_word_embeddings") else text
    return where.flag("tie_word_embeddings", family.tied)


def _mtp_layers(text: ConfigValues, family: Family) -> int:
    if not family.has_mtp:
        return 0
    return text.optional_count("num_nextn_predict_layers", low=0, limit=LAYER_LIMIT) or 0
