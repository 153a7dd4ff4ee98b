"""How model families differ from one another, as far as their parameters and windows go.

A family is an entry of data: properties that most decoders share, and, for what is its own, readers of what mixes
tokens, by the name a layer's kind has. Source: the modeling code of transformers, checked against its models on the
meta device by the tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer, Mixture

Windows = Literal["none", "all", "upper", "alternate", "pattern", "chunked", "interval"]


@dataclass(frozen=True, slots=True)
class FamilyProperty:
    """A property of a family: always as `default` says, or as the config's `key` says where it has one."""

    default: bool = False
    key: str = ""

    def of(self, config: ConfigValues) -> bool:
        """Return what it is for this config. Raises: ShapeUnreadable."""
        return config.flag(self.key, self.default) if self.key else self.default


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of attention with keys and values per head; `value` is that of a value where it is not `size`."""

    hidden: int
    heads: int
    kv_heads: int
    size: int
    value: int

    @property
    def query(self) -> int:
        """Elements of all queries of a token."""
        return self.heads * self.size

    @property
    def kv(self) -> int:
        """Elements of all keys of a token."""
        return self.kv_heads * self.size


MixerReader = Callable[[ConfigValues, "Family", int, LayerKind], Mixer]
"""Config, family, hidden size and kind of layer -> what mixes its tokens. Raises ShapeUnreadable."""

KindsReader = Callable[[ConfigValues, "Family", int], tuple[LayerKind, ...]]
"""Config, family and number of layers -> the kind of each. Raises ShapeUnreadable."""

BIAS = FamilyProperty(False, "attention_bias")
YES = FamilyProperty(True)
NO = FamilyProperty(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model type.

    `qkv_bias`, `output_bias`, `mlp_bias`, `head_bias`: which linear layers have one. `norms` per layer, of width h, or
    2h where `has_layer_norm` (they have a bias); of one that may lack attention or its MLP it `norms_each_part`.
    `qk_norm`: queries and keys are normed per head or as a whole projection. `is_gated`: the MLP has three matrices,
    not two. `has_sinks`: one number per head in attention; `has_expert_bias`: experts and router have biases.
    `output_gate`: what gates the output of attention: queries twice as wide, a projection of its own, or one number per
    head. `mixture`: the model has experts, none where it `may_lack_experts` and says 0; `mixture_of` corrects what the
    usual keys say of them. `width_key`: of a dense layer; without it `width_times` the hidden size, where that is not
    0, and `width` reads one that is computed. `windows`: which layers see a window. `has_mla`: multi-head latent
    attention; `indexer`: which of its layers choose what they attend to. `tied`: what an absent `tie_word_embeddings`
    means, unless it never ties (`may_tie`). `is_exact`: False for a kind nobody checked, read as most models are built.

    `attention` reads what mixes tokens where it is not the usual attention, `mixers` those of single kinds of layers;
    `kinds` reads which layer is what, where `layer_types` and the family's windows do not say it; `count_layers` how
    many, where no key has it; `has_final_norm`. `attention_extra`, `mlp_extra` (of the hidden size and the width),
    `router_extra` (of the number of experts and the hidden size) and `layer_extra` are elements that stand beside;
    `outside` those outside all layers, beside embedding, head and final norm: tables of positions, streams, embeddings
    per layer. `defaults` are what the family's code takes for keys that are absent, where it is not what its class says
    (class_defaults.json); `aliases` are its own names of keys, `foreign` what its code names and its layers do not
    take.
    """

    qkv_bias: FamilyProperty = BIAS
    output_bias: FamilyProperty = BIAS
    mlp_bias: FamilyProperty = NO
    head_bias: FamilyProperty = NO
    norms: int = 2
    norms_each_part: bool = False
    has_layer_norm: bool = False
    norm_bias: FamilyProperty = YES
    has_final_norm: FamilyProperty = YES
    qk_norm: Literal["", "head", "head_biased", "projection"] = ""
    qk_norm_flag: FamilyProperty = YES
    is_gated: bool = True
    has_sinks: bool = False
    has_expert_bias: bool = False
    output_gate: Literal["", "queries", "projection", "head"] = ""
    mixture: bool = False
    may_lack_experts: bool = False
    mixture_of: Callable[[ConfigValues, Mixture], Mixture | None] | None = None
    shared_gate: bool = False
    width_key: str = "intermediate_size"
    width_times: int = 0
    windows: Windows = "none"
    has_mla: bool = False
    indexer: Literal["", "all", "listed"] = ""
    has_mtp: bool = False
    tied: bool = False
    may_tie: bool = True
    is_exact: bool = True
    attention: MixerReader | None = None
    mixers: Mapping[str, MixerReader] = field(default_factory=dict)
    kinds: KindsReader | None = None
    count_layers: Callable[[ConfigValues], int] | None = None
    attention_extra: Callable[[ConfigValues, Heads], int] | None = None
    mlp_extra: Callable[[int, int], int] | None = None
    router_extra: Callable[[int, int], int] | None = None
    layer_extra: Callable[[ConfigValues, int, LayerKind], int] | None = None
    outside: Callable[[ConfigValues, int, int], int] | None = None
    width: Callable[[ConfigValues, int], int] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()


BIASED = Family(qkv_bias=YES, output_bias=YES, mlp_bias=YES, has_layer_norm=True, is_gated=False)
"""What many early decoders are: biases everywhere, layer norms, and an MLP of two matrices."""
