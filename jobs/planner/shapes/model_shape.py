"""The shape of a language model, read from its config.json: parameters counted exactly, KV bytes per token.

Source of the formulas: the modeling code of transformers, whose models on the meta device are the oracle in the tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.class_defaults import (
    class_aliases,
    foreign_keys,
    is_tied_by,
    said_last,
    text_defaults,
    type_inside,
)
from jobs.planner.shapes.config_doubts import doubts_of_known, doubts_of_unknown
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues, ShapeUnreadable
from jobs.planner.shapes.diffusion import is_diffusion
from jobs.planner.shapes.entries.known import FAMILIES, GENERIC, REFUSED
from jobs.planner.shapes.families import Family
from jobs.planner.shapes.headers import overruled, read_headers
from jobs.planner.shapes.image_tower import ImageTower, image_tower_of
from jobs.planner.shapes.layer_kinds import read_kinds
from jobs.planner.shapes.layer_shapes import LayerShape, Mixer
from jobs.planner.shapes.layers import norm_elements, read_layers
from jobs.planner.shapes.mixtures import read_mixture
from jobs.planner.shapes.quantization import read_quantization
from jobs.planner.shapes.served_parts import rotary_elements, tower_about
from jobs.planner.shapes.towers import KINDS, hearing_of, lacks_tower, tower_of

__all__ = ["LayerShape", "ModelShape", "ShapeUnreadable", "read_shape"]


@lru_cache(maxsize=256)
def _shared(layers: tuple[LayerShape, ...]) -> tuple[LayerShape, ...]:
    """Return the object that stands for all layers equal to these: so shapes that are equal are so at first sight."""
    return layers


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model, as arithmetic sees it. Sizes are numbers of elements unless a name says bytes.

    `hidden` h; `heads` a, `kv_heads` g, `head_size` d; `query` = a*d, `kv` = g*d (of MLA: the sizes attention works
    with); `mlp_width` f of a dense layer, of the widest where they differ; `experts` E, `experts_per_token` k,
    `expert_width` f_e, `shared_experts` n_s (of width `shared_width` together); `latent` = kv_rank + rope size of MLA,
    0 otherwise. `layers` has one entry per decoder layer, in order. `head` and `embedding` are vocab*hidden each; the
    head of a tied model has no own elements. `has_qk_norm`: queries and keys are normed per head. `quantized_bytes` is
    bytes per element as the checkpoint holds the matrices (2.0 for bf16), `quantization` its name, "" for none.
    `max_positions` is the context it was made for, 0 where the config does not say.

    Of MLA, `query` = `kv` = a*(nope+rope), what heads see after the up-projections, and `query_rank` (0: queries are
    not compressed), `kv_rank`, `nope_size`, `rope_size`, `value_size` are its parts; all 0 without it. `is_gated`: the
    MLP has three matrices, else two. `element_bytes` of what is not quantized; `quantizes`: all matrices of the layers,
    or only the experts; `expert_bytes` per element of these where they have a type of their own, else 0. `is_exact` is
    False for a model type that is not known, counted as most decoders are built.
    `parameters` are all, P, without multi-token prediction; `active_parameters` those that one token touches, with
    embeddings and routers in full; `expert_parameters` those of all routed experts. `rotary` are elements of the tables
    of positions that an engine keeps, `tower` of the part that sees images: neither is in `parameters`. `image`: what
    it computes of the greatest image, None where that is not known.
    `has_plain_head`: logits are the head applied to the last hidden states, neither scaled nor capped. `outside` are
    elements that no layer, embedding, head or norm has: tables of learned positions, embeddings per layer. `rests_on`
    says what the count rests on where it is not exact; `is_confirmed`: the headers of its weights were read, and their
    count is this one. `rough_layers` names the kinds of layers whose memory and time are estimated as if they were the
    usual ones. `has_fused_attention` is False where Transformers has no attention for it that leaves out the scores.
    `has_expert_bias`: what experts return takes a bias of its expert.
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
    image: ImageTower | None = None
    has_plain_head: bool = True
    outside: int = 0
    is_confirmed: bool = False
    rests_on: tuple[str, ...] = ()
    rough_layers: tuple[str, ...] = ()
    has_fused_attention: bool = True
    has_expert_bias: bool = False
    expert_bytes: float = 0.0
    parameters: int = field(init=False, repr=False, compare=False)
    active_parameters: int = field(init=False, repr=False, compare=False)
    expert_parameters: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Count once: a search asks thousands of times."""
        experts = sum(layer.experts for layer in self.layers)
        total = self.embedding + self.head + self.final + self.outside + sum(layer.total for layer in self.layers)
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
        experts = self.expert_parameters
        quantized = 0
        if self.quantizes == "layers":
            quantized = sum(layer.attention + layer.mlp + layer.replicated_linear for layer in self.layers)
        rest = self.parameters - experts - quantized
        size = experts * (self.expert_bytes or self.quantized_bytes) + quantized * self.quantized_bytes
        return round(size + rest * self.element_bytes)


def read_shape(config: Mapping[str, Any], *, name: str = "") -> ModelShape:
    """Return the shape of a model from the values of its config.json.

    Dense, GQA, MoE, MLA, tied or not, nested text configs, sliding windows, MTP. A model type that is not known is read
    as most decoders are built (`is_exact` is False) if it calls itself a causal language model and names nothing that
    such a decoder does not have. Raises: ShapeUnreadable, naming the key, for a value that is missing, of the wrong
    type, negative, zero, not finite or out of any range, and for a kind of model that cannot be counted.
    """
    outer, text, family, kind = _language_model(config, name)
    num_layers = _count_layers(text, family)
    hidden = text.count("hidden_size", "n_embd")
    mixture = read_mixture(text, family, num_layers) if _may_have_experts(family) else None
    kinds = read_kinds(text, family, mixture, num_layers)
    width = _width(text, family, hidden, is_needed=any(each.feed == "dense" and not each.width for each in kinds))
    made = read_layers(text, family, kinds, mixture, hidden=hidden, width=width)
    layers = tuple(layer for layer, _ in made)
    main = _main([mixer for _, mixer in made])
    vocab = text.count("vocab_size")
    quantization = read_quantization(outer, text)
    mtp_layers = _mtp_layers(text, family)
    norm = norm_elements(text, family, hidden)
    rotary = rotary_elements(text, main.rope_size or main.head_size)
    has_mla = main.kv_rank > 0
    tower, doubts = _tower(outer, hidden)
    is_tied = _is_tied(outer, text, family)
    own = doubts_of_known(outer, text, kind, is_tied=is_tied) if family.is_exact else doubts_of_unknown(text, kind)
    rests_on = (*own, *_alone(outer, kind), *doubts)
    counted = ModelShape(
        name=name,
        model_type=kind,
        layers=layers,
        hidden=hidden,
        heads=main.heads,
        kv_heads=main.kv_heads,
        head_size=main.head_size,
        query=main.heads * main.head_size,
        kv=main.kv_heads * main.head_size,
        mlp_width=max(width, *(each.width for each in kinds)),
        vocab=vocab,
        is_tied=is_tied,
        final=norm * family.has_final_norm.of(text) + vocab * family.head_bias.of(text),
        experts=mixture.experts if mixture else 0,
        experts_per_token=mixture.per_token if mixture else 0,
        expert_width=mixture.width if mixture else 0,
        shared_experts=mixture.num_shared if mixture else 0,
        shared_width=mixture.shared_width if mixture else 0,
        latent=main.kv_rank + main.rope_size if has_mla else 0,
        has_qk_norm=family.qk_norm.startswith("head") and family.qk_norm_flag.of(text),
        attention_kind="mla" if has_mla else "gqa",
        mtp_layers=mtp_layers,
        # Of each: a layer like the last, the projection of two hidden states into one, and three norms.
        mtp_parameters=mtp_layers * (layers[-1].total + 2 * hidden * hidden + 3 * norm),
        max_positions=text.optional_count("max_position_embeddings", "n_positions", limit=10**9) or 0,
        quantization=quantization.name,
        quantized_bytes=quantization.dense_bytes(
            sum(layer.attention + layer.replicated_linear for layer in layers), sum(layer.mlp for layer in layers)
        ),
        query_rank=main.query_rank,
        kv_rank=main.kv_rank,
        nope_size=main.nope_size,
        rope_size=main.rope_size,
        value_size=main.value_size,
        is_gated=family.is_gated,
        element_bytes=quantization.element_bytes,
        quantizes=quantization.reaches,
        is_exact=not rests_on,
        rotary=rotary,
        tower=tower,
        image=image_tower_of(outer, hidden),
        has_plain_head=not (kind in _CHANGED_LOGITS or any(text.has(key) for key in _LOGIT_CHANGES)),
        outside=family.outside(text, hidden, num_layers) if family.outside else 0,
        rests_on=rests_on,
        rough_layers=tuple(dict.fromkeys(mixer.kind for _, mixer in made if mixer.is_rough)),
        has_fused_attention=kind not in _WITH_SCORES,
        has_expert_bias=family.has_expert_bias,
        expert_bytes=quantization.expert_bytes,
    )
    return overruled(counted, read_headers(outer))


def _language_model(config: Mapping[str, Any], name: str) -> tuple[ConfigValues, ConfigValues, Family, str]:
    """Return the whole config, the part of it that is the language model's with what its family leaves out, the family
    and the model type. Raises: ShapeUnreadable, also for a kind of model that cannot be counted.
    """
    if not isinstance(config, Mapping):
        raise ShapeUnreadable("config", Sentence("{name}: a config is a table of values.", name=name or "config.json"))
    outer = ConfigValues(values=config, name=name)
    if is_diffusion(config):
        raise outer.refusal("_class_name", Sentence("makes it a diffusion transformer, which no trainer here trains."))
    nested = next(filter(None, map(outer.table, _NESTED)), outer)
    kind = _kind(outer, nested)
    family = _family(outer, nested, kind)
    others = class_aliases(nested.values, kind)
    text = ConfigValues(
        values=said_last(nested.values, others),
        name=name,
        path=nested.path,
        defaults={**text_defaults(kind, is_alone=nested is outer), **family.defaults},
        aliases={**{key: others.get(own, own) for key, own in family.aliases.items()}, **others},
        foreign=foreign_keys(kind).union(family.foreign),
    )
    if text.flag("add_cross_attention", False):
        raise text.refusal(
            "add_cross_attention", Sentence("is true. Layers that attend to an encoder are not counted.")
        )
    return outer, text, family, kind


# Under these keys a model with other towers has its language model.
_NESTED = ("text_config", "llm_config", "language_config")

# What makes logits more than the head applied to the last hidden states: keys of a config, and families that have it
# without saying so (modeling code of Transformers).
_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
_CHANGED_LOGITS = frozenset({"gemma2", "cohere", "cohere2", "granite", "granitemoe", "granitemoehybrid", "falcon_h1"})

# Whose attention Transformers writes out, with every score (no `_supports_sdpa` and no `_supports_flash_attn`): a bias
# by distance is added to the scores (ALiBi), or nobody has moved the code.
_WITH_SCORES = frozenset({"bloom", "codegen", "gpt_neox_japanese", "mpt", "openai-gpt", "xglm"})

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
    "block_configs",
)

_OF_EACH_LAYER = "num_key_value_heads_per_layer"
"""Under this key heads stand that each layer has for itself, as a search over architectures leaves them: DeciLM."""


def _kind(outer: ConfigValues, nested: ConfigValues) -> str:
    """Return the type of the decoder: where its keys stand alone that which the type wraps. A class that takes no other
    type inside takes this one, whatever its own is called; but a name that nobody knows may be of a class that is not
    known either."""
    if nested is outer:
        alone = outer.text("model_type")
        return alone if alone in FAMILIES else type_inside(alone, None, "inside") or alone
    whole, own = outer.value("model_type"), nested.value("model_type") or None
    if isinstance(whole, str) and (own is None or isinstance(own, str)):
        inside = type_inside(whole, own, "inside")
        if inside is not None and (own in (None, whole) or own in FAMILIES):
            own = inside
        if own is not None and own == whole and own not in FAMILIES:
            raise nested.refusal("model_type", Sentence("is {kind}, which is the whole model's.", kind=own))
    return own if isinstance(own, str) else (nested if own is not None else outer).text("model_type")


def _alone(outer: ConfigValues, kind: str) -> tuple[str, ...]:
    """Return what is said of a type that wraps a decoder of type `kind` where the decoder's keys stand alone."""
    whole = outer.text("model_type")
    if any(outer.table(key) is not None for key in _NESTED) or whole == kind:
        return ()
    text = "Its model type {whole} wraps a decoder, but its config has no text_config: counted as {kind} alone."
    return (Sentence(text, whole=outer.shown(whole), kind=outer.shown(kind)),)


def _family(outer: ConfigValues, nested: ConfigValues, kind: str) -> Family:
    if nested.values.get(_OF_EACH_LAYER):
        text = Sentence(
            "gives each layer heads and widths of its own, which are not counted. Such a model is cut from a "
            "larger one: plan for that one, and this one needs less."
        )
        raise nested.refusal(_OF_EACH_LAYER, text)
    for each, where in ((outer.value("model_type"), outer), (kind, nested)):
        if isinstance(each, str) and each in REFUSED:
            text = Sentence("is {kind}, which is not counted: {reason}", kind=each, reason=REFUSED[each])
            raise where.refusal("model_type", text)
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


def _tower(outer: ConfigValues, hidden: int) -> tuple[int, tuple[str, ...]]:
    """Return the elements of what sees images, and what they rest on where its kind is not known."""
    doubts: list[str] = []
    exact = tower_of(outer, hidden)
    if lacks_tower(outer):
        doubts.append(Sentence("vision_config is missing: what sees images is not counted."))
    if exact is None:
        kind = outer.shown(outer.value("model_type"))
        doubts.append(Sentence("What sees images in {kind} is not known: counted as most of its kind.", kind=kind))
    sound = hearing_of(outer, hidden)
    if sound is None:
        doubts.append(Sentence("audio_config: what takes in sound is not counted."))
    seen = tower_about(outer, hidden) if exact is None else exact
    return seen + (sound or 0), tuple(doubts)


def _may_have_experts(family: Family) -> bool:
    return family.mixture or family.mixture_of is not None or not family.is_exact


def _count_layers(text: ConfigValues, family: Family) -> int:
    if family.count_layers is not None:
        number = family.count_layers(text)
        if not 1 <= number <= LAYER_LIMIT:
            raise text.refusal("num_hidden_layers", Sentence("is {number}.", number=number))
        return number
    return text.count(text.first("num_hidden_layers", "n_layer", "num_layers"), limit=LAYER_LIMIT)


def _main(mixers: list[Mixer]) -> Mixer:
    """Return what mixes tokens in the layers that stand for the model: attention where any layer has it."""
    with_cache = [mixer for mixer in mixers if mixer.cache]
    return (with_cache or [mixer for mixer in mixers if mixer.heads] or mixers)[0]


def _width(text: ConfigValues, family: Family, hidden: int, *, is_needed: bool) -> int:
    if not is_needed and family.width is None:
        return text.optional_count(family.width_key) or 0
    if family.width is not None:
        return family.width(text, hidden) if is_needed else 0
    if family.width_times:
        return text.optional_count(family.width_key) or family.width_times * hidden
    return text.count(family.width_key)


def _is_tied(outer: ConfigValues, text: ConfigValues, family: Family) -> bool:
    if not family.may_tie:
        return False
    if not text.path:
        return text.flag("tie_word_embeddings", family.tied)
    kind = str(outer.value("model_type"))
    if is_tied_by(kind, "text") and text.flag("tie_word_embeddings", family.tied):
        return True
    if "tie_word_embeddings" in outer.values and not is_tied_by(kind, "text alone"):
        return outer.flag("tie_word_embeddings", False)
    return is_tied_by(kind, "default") or (kind not in KINDS and text.flag("tie_word_embeddings", family.tied))


def _mtp_layers(text: ConfigValues, family: Family) -> int:
    if not family.has_mtp:
        return 0
    return text.optional_count("num_nextn_predict_layers", low=0, limit=LAYER_LIMIT) or 0
