"""How model families differ from one another, as far as their parameters and windows go.

Source: the modeling code of transformers, checked against its models on the meta device by the tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Windows = Literal["none", "all", "upper", "alternate", "pattern", "chunked"]


@dataclass(frozen=True, slots=True)
class FamilyProperty:
    """A property of a family: always as `default` says, or as the config's `key` says where it has one."""

    default: bool = False
    key: str = ""


_BIAS = FamilyProperty(False, "attention_bias")
_YES = FamilyProperty(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model type.

    `qkv_bias`, `output_bias`, `mlp_bias`, `head_bias`: which linear layers have one. `norms` per layer, of width h, or
    2h where `has_layer_norm` (they have a bias). `qk_norm`: queries and keys are normed per head or as a whole
    projection. `is_gated`: the MLP has three matrices, not two. `has_sinks`: one number per head in attention;
    `has_expert_bias`: experts and router have biases. `has_output_gate`: queries are twice as wide, one half gates.
    `mixture`: the model has experts; `width_key`: of a dense layer in a model with experts. `windows`: which layers see
    a window. `has_mla`: multi-head latent attention. `tied`: what an absent `tie_word_embeddings` means.
    `is_exact`: False for a kind nobody checked, read as most models are built.
    """

    qkv_bias: FamilyProperty = _BIAS
    output_bias: FamilyProperty = _BIAS
    mlp_bias: FamilyProperty = FamilyProperty(False)
    head_bias: bool = False
    norms: int = 2
    has_layer_norm: bool = False
    qk_norm: Literal["", "head", "projection"] = ""
    qk_norm_flag: FamilyProperty = _YES
    is_gated: bool = True
    has_sinks: bool = False
    has_expert_bias: bool = False
    has_output_gate: bool = False
    mixture: bool = False
    shared_gate: bool = False
    width_key: str = "intermediate_size"
    windows: Windows = "none"
    has_mla: bool = False
    has_mtp: bool = False
    tied: bool = False
    is_exact: bool = True
    defaults: Mapping[str, int] = field(default_factory=dict)


_NONE = FamilyProperty(False)
_LLAMA = Family(mlp_bias=FamilyProperty(False, "mlp_bias"))
_QWEN2 = Family(qkv_bias=_YES, output_bias=_NONE, windows="upper")
_QWEN2_MOE = Family(qkv_bias=FamilyProperty(True, "qkv_bias"), output_bias=_NONE, mixture=True, shared_gate=True)
_QWEN3 = Family(qk_norm="head", windows="upper")
_QWEN3_MOE = Family(qk_norm="head", windows="upper", mixture=True)
_QWEN3_5_MOE = Family(qk_norm="head", has_output_gate=True, mixture=True, shared_gate=True)
_GEMMA3 = Family(
    norms=4,
    qk_norm="head",
    windows="pattern",
    tied=True,
    # What released configs leave out, as the family's own code fills it in.
    defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
)
_DEEPSEEK = Family(qkv_bias=_BIAS, mixture=True, has_mla=True, has_mtp=True)
_LLAMA4 = Family(mixture=True, width_key="intermediate_size_mlp", windows="chunked")
_GRANITE = Family(mlp_bias=FamilyProperty(False, "mlp_bias"))

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "granite": _GRANITE,
    "smollm3": Family(mlp_bias=FamilyProperty(False, "mlp_bias"), tied=True),
    "seed_oss": Family(
        qkv_bias=FamilyProperty(True, "attention_bias"),
        output_bias=FamilyProperty(False, "attention_out_bias"),
        mlp_bias=_LLAMA.mlp_bias,
    ),
    "mistral": Family(qkv_bias=_NONE, output_bias=_NONE, windows="all", defaults={"sliding_window": 4096}),
    "mixtral": Family(qkv_bias=_NONE, output_bias=_NONE, windows="all", mixture=True),
    "qwen2": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": _QWEN2_MOE,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_5_text": Family(qk_norm="head", has_output_gate=True),
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    "gemma": Family(tied=True),
    "gemma2": Family(norms=4, windows="alternate", tied=True, defaults={"sliding_window": 4096}),
    "gemma3_text": _GEMMA3,
    "gemma3": _GEMMA3,
    "phi": Family(
        qkv_bias=_YES,
        output_bias=_YES,
        mlp_bias=_YES,
        head_bias=True,
        norms=1,
        has_layer_norm=True,
        is_gated=False,
    ),
    "phi3": Family(qkv_bias=_NONE, output_bias=_NONE, windows="all"),
    "gpt_neox": Family(
        qkv_bias=FamilyProperty(True, "attention_bias"),
        output_bias=FamilyProperty(True, "attention_bias"),
        mlp_bias=_YES,
        has_layer_norm=True,
        is_gated=False,
    ),
    "stablelm": Family(qkv_bias=FamilyProperty(False, "use_qkv_bias"), output_bias=_NONE, has_layer_norm=True),
    "falcon": Family(
        qkv_bias=FamilyProperty(False, "bias"),
        output_bias=FamilyProperty(False, "bias"),
        mlp_bias=FamilyProperty(False, "bias"),
        has_layer_norm=True,
        is_gated=False,
        width_key="ffn_hidden_size",
        tied=True,
        defaults={"max_position_embeddings": 2048},
    ),
    "olmo2": Family(qk_norm="projection"),
    "olmo3": Family(
        qk_norm="projection", windows="pattern", defaults={"sliding_window": 4096, "sliding_window_pattern": 4}
    ),
    "gpt_oss": Family(
        qkv_bias=FamilyProperty(True, "attention_bias"),
        output_bias=FamilyProperty(True, "attention_bias"),
        has_sinks=True,
        has_expert_bias=True,
        mixture=True,
        windows="alternate",
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe": Family(
        output_bias=_NONE, qk_norm="head", qk_norm_flag=FamilyProperty(False, "use_qk_norm"), mixture=True, has_mtp=True
    ),
    "llama4_text": _LLAMA4,
    "minimax_m2": Family(qkv_bias=_NONE, output_bias=_NONE, qk_norm="projection", mixture=True),
}

# For a model type that is not known: a decoder as most are built, with whatever of these its config names.
GENERIC = Family(mlp_bias=FamilyProperty(False, "mlp_bias"), windows="all", is_exact=False)
