"""Decoders of attention and dense MLPs."""

from collections.abc import Mapping
from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.families import BIASED, NO, YES, Family, FamilyProperty, Heads
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer
from jobs.planner.shapes.mixers import attention, read_heads

_MLP_BIAS = FamilyProperty(False, "mlp_bias")
_BIAS = FamilyProperty(True, "bias")
_USE_BIAS = FamilyProperty(False, "use_bias")
_STARCODER_BIAS = FamilyProperty(True, "use_bias")


def _lambdas(config: ConfigValues, sizes: Heads) -> int:
    return 4 * sizes.size


def _norm_of_output(config: ConfigValues, sizes: Heads) -> int:
    return sizes.hidden


def _square_output(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return attention whose output projection is square, whatever the size of its heads (Helium)."""
    sizes = read_heads(config, hidden)
    made = attention(config, family, sizes)
    return replace(made, divided=made.divided + hidden * (hidden - sizes.query))


def _norm_of_width(hidden: int, width: int) -> int:
    return width


def _two_numbers(hidden: int, width: int) -> int:
    return 2


def _cross_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    crossing = set(config.items("cross_attention_layers", int) or ())
    return tuple(
        LayerKind(mixer="cross_attention" if index in crossing else "full_attention") for index in range(num_layers)
    )


def _cross_attention(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a layer that attends to what was seen: normed queries and keys, and two gates (Llama 3.2 Vision)."""
    made = attention(config, replace(family, qk_norm="head"), read_heads(config, hidden))
    return replace(made, replicated=made.replicated + 2, kind="cross-attention", is_rough=True)


def _layers_of_nas(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return layers of which a search has taken out parts, and made narrower what it left (Llama-Nemotron)."""
    blocks = config.table_list("block_configs")
    if len(blocks) != num_layers:
        text = Sentence("must have a table for each of {num_layers} layers.", num_layers=num_layers)
        raise config.refusal("block_configs", text)
    return tuple(_layer_of_nas(block, config.count("hidden_size")) for block in blocks)


def _layer_of_nas(block: ConfigValues, hidden: int) -> LayerKind:
    parts: dict[str, ConfigValues] = {}
    for key in ("attention", "ffn"):
        table = block.table(key)
        if table is None:
            raise block.refusal(key, Sentence("is missing. It must be a table of values."))
        if table.flag("replace_with_linear", False):
            raise table.refusal("replace_with_linear", Sentence("is true. Such a layer is not counted."))
        if not table.flag("no_op", False):
            parts[key] = table
    kind = LayerKind(mixer="", feed="")
    if heads := parts.get("attention"):
        window = heads.optional_count("window_length") or 0
        kind = replace(kind, mixer="full_attention", window=window, variant=heads.count("n_heads_in_group"))
    if mlp := parts.get("ffn"):
        width = -(-int(2 * mlp.factor("ffn_mult") * hidden / 3) // 256) * 256
        kind = replace(kind, feed="dense", width=width)
    return kind


def _attention_of_nas(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    sizes = read_heads(config, hidden)
    if sizes.heads % kind.variant:
        text = Sentence("must divide the {heads} attention heads.", heads=sizes.heads)
        raise config.refusal("block_configs.attention.n_heads_in_group", text)
    return attention(config, family, replace(sizes, kv_heads=sizes.heads // kind.variant))


_LLAMA = Family(
    mlp_bias=_MLP_BIAS,
)
_QWEN2 = Family(
    qkv_bias=YES,
    output_bias=NO,
    windows="upper",
)
_QWEN2_VL = replace(_QWEN2, foreign=("head_dim",))
_QWEN3 = Family(qk_norm="head", windows="upper")
_MISTRAL = Family(qkv_bias=NO, output_bias=NO, windows="all")
_GLM4V = Family(qkv_bias=YES, output_bias=NO, norms=4)
_ERNIE = Family(qkv_bias=_USE_BIAS, output_bias=_USE_BIAS, mlp_bias=_USE_BIAS, tied=True)

DENSE: Mapping[str, Family] = {
    "llama": _LLAMA,
    "nemotron-nas": Family(mlp_bias=_MLP_BIAS, kinds=_layers_of_nas, attention=_attention_of_nas, norms_each_part=True),
    "cwm": Family(qkv_bias=NO, output_bias=NO),
    "mllama_text_model": Family(
        qkv_bias=NO,
        output_bias=NO,
        foreign=("head_dim",),
        kinds=_cross_layers,
        mixers={"cross_attention": _cross_attention},
        outside=lambda config, hidden, num_layers: 8 * hidden,  # the embedding has eight entries more than the head
    ),
    "emu3_text_model": Family(mlp_bias=_MLP_BIAS),
    "granite": Family(mlp_bias=_MLP_BIAS),
    "granite_swa": Family(mlp_bias=_MLP_BIAS, has_sinks=True, tied=True),
    "hyperclovax": Family(
        mlp_bias=_MLP_BIAS,
        layer_extra=lambda config, hidden, kind: 2 * hidden * config.flag("use_post_norm", True),
    ),
    "smollm3": Family(mlp_bias=_MLP_BIAS, tied=True),
    "seed_oss": Family(
        qkv_bias=FamilyProperty(True, "attention_bias"),
        output_bias=FamilyProperty(False, "attention_out_bias"),
        mlp_bias=_MLP_BIAS,
    ),
    "mistral": Family(
        qkv_bias=NO,
        output_bias=NO,
        windows="all",
        defaults={"sliding_window": 4096},
    ),
    "ministral": _MISTRAL,
    "ministral3": _MISTRAL,
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2_VL,
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen2_5_omni_text": _QWEN2,
    "mimo": replace(_QWEN2, has_mtp=True),
    "internlm": Family(qkv_bias=_BIAS, output_bias=_BIAS),
    "internlm2": Family(qkv_bias=_BIAS, output_bias=_BIAS),
    "baichuan": Family(qkv_bias=NO, output_bias=NO),
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "glm4v_text": replace(_GLM4V, foreign=("head_dim",)),
    "glm_ocr_text": replace(_GLM4V, qkv_bias=NO),
    "paddleocr_vl_text": _ERNIE,
    "phi": replace(
        BIASED,
        head_bias=YES,
        norms=1,
    ),
    "phi3": Family(qkv_bias=NO, output_bias=NO, windows="all"),
    "stablelm": Family(
        qkv_bias=FamilyProperty(False, "use_qkv_bias"), output_bias=NO, has_layer_norm=True, foreign=("head_dim",)
    ),
    "starcoder2": Family(
        qkv_bias=_STARCODER_BIAS,
        output_bias=_STARCODER_BIAS,
        mlp_bias=_STARCODER_BIAS,
        has_layer_norm=True,
        is_gated=False,
        windows="all",
        tied=True,
    ),
    "nemotron": Family(mlp_bias=_MLP_BIAS, has_layer_norm=True, is_gated=False),
    "persimmon": replace(
        BIASED,
        qk_norm="head_biased",
        qk_norm_flag=FamilyProperty(True, "qk_layernorm"),
    ),
    "olmo": Family(norms=0, has_final_norm=NO),
    "olmo2": Family(qk_norm="projection"),
    "olmo3": Family(
        qk_norm="projection", windows="pattern", defaults={"sliding_window": 4096, "sliding_window_pattern": 4}
    ),
    "cohere": Family(norms=1, qk_norm="projection", qk_norm_flag=FamilyProperty(False, "use_qk_norm"), tied=True),
    "cohere2": Family(
        norms=1, windows="pattern", tied=True, defaults={"sliding_window": 4096, "sliding_window_pattern": 4}
    ),
    "ernie4_5": _ERNIE,
    "helium": Family(output_bias=NO, attention=_square_output),
    "exaone4": Family(
        qkv_bias=NO,
        output_bias=NO,
        qk_norm="head",
        windows="pattern",
        defaults={"sliding_window_pattern": 4},
    ),
    "glm": Family(qkv_bias=FamilyProperty(True, "attention_bias"), output_bias=NO),
    "glm4": Family(qkv_bias=FamilyProperty(True, "attention_bias"), output_bias=NO, norms=4),
    "arcee": Family(mlp_bias=_MLP_BIAS, is_gated=False),
    "apertus": Family(is_gated=False, qk_norm="head", mlp_extra=_two_numbers),
    "bitnet": Family(attention_extra=_norm_of_output, mlp_extra=_norm_of_width),
    "diffllama": Family(attention_extra=_lambdas),
    "nanochat": Family(norms=0, has_final_norm=NO, is_gated=False),
    "jais2": Family(
        qkv_bias=FamilyProperty(True, "attention_bias"),
        output_bias=FamilyProperty(True, "attention_bias"),
        mlp_bias=FamilyProperty(True, "mlp_bias"),
        has_layer_norm=True,
        is_gated=False,
    ),
    "hunyuan_v1_dense": Family(qk_norm="head"),
    "youtu": Family(has_mla=True, tied=True),
    "minicpm3": Family(has_mla=True, mlp_bias=_MLP_BIAS, tied=True),
}

# For a model type that is not known: a decoder as most are built, with whatever of these its config names.
GENERIC = Family(mlp_bias=_MLP_BIAS, windows="all", is_exact=False)
