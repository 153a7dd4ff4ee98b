"""The first families: layer norms with biases, MLPs of two matrices, tables of positions, keys of their own."""

from collections.abc import Mapping
from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.families import BIASED, NO, YES, Family, FamilyProperty
from jobs.planner.shapes.layer_kinds import named
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer
from jobs.planner.shapes.mixers import attention, read_heads

_GPT2 = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
_BIAS = FamilyProperty(True, "enable_bias")
_FALCON = FamilyProperty(False, "bias")
_NEOX = FamilyProperty(True, "attention_bias")


def _positions(config: ConfigValues, hidden: int, num_layers: int) -> int:
    return config.count("max_position_embeddings", limit=10**9) * hidden


def _positions_and_two(config: ConfigValues, hidden: int, num_layers: int) -> int:
    return (config.count("max_position_embeddings", limit=10**9) + 2) * hidden


def _norm_of_embedding(config: ConfigValues, hidden: int, num_layers: int) -> int:
    return 2 * hidden


def _one_bias(config: ConfigValues, hidden: int, num_layers: int) -> int:
    return hidden  # only the last layer's output of attention has one


def _opt_outside(config: ConfigValues, hidden: int, num_layers: int) -> int:
    """Return the table of positions. Raises: ShapeUnreadable where the embedding is narrower than the layers."""
    width = config.optional_count("word_embed_proj_dim") or hidden
    if width != hidden:
        text = "is {width}. An embedding of another width than the layers, here {hidden}, is not counted."
        raise config.refusal("word_embed_proj_dim", Sentence(text, width=width, hidden=hidden))
    return _positions_and_two(config, hidden, num_layers)


def _one_or_all(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return attention with one head of keys and values for all queries, or one for each (SantaCoder, StarCoder)."""
    sizes = read_heads(config, hidden)
    kv_heads = 1 if config.flag("multi_query", True) else sizes.heads
    return attention(config, family, replace(sizes, kv_heads=kv_heads))


def _neo_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    names = config.items("attention_layers", str) or ("global",) * num_layers
    return named(config, family, names, num_layers)


_GPTJ = Family(
    qkv_bias=NO,
    output_bias=NO,
    mlp_bias=YES,
    head_bias=YES,
    norms=1,
    has_layer_norm=True,
    is_gated=False,
    width_times=4,
    aliases=_GPT2,
)
_GPT = replace(
    BIASED,
    width_times=4,
    outside=_positions,
    tied=True,
    aliases=_GPT2,
    defaults={"max_position_embeddings": 1024},
)

CLASSIC: Mapping[str, Family] = {
    "gpt2": _GPT,
    "gpt_bigcode": replace(
        BIASED,
        width_times=4,
        outside=_positions,
        tied=True,
        aliases=_GPT2,
        attention=_one_or_all,
    ),
    "openai-gpt": replace(
        BIASED,
        has_final_norm=NO,
        width_times=4,
        outside=_positions,
        tied=True,
        aliases=_GPT2,
    ),
    "gptj": _GPTJ,
    "codegen": _GPTJ,
    "gpt_neo": Family(
        qkv_bias=NO,
        output_bias=YES,
        mlp_bias=YES,
        has_layer_norm=True,
        is_gated=False,
        width_times=4,
        outside=_positions,
        kinds=_neo_layers,
        tied=True,
        aliases={
            "num_attention_heads": "num_heads",
            "num_hidden_layers": "num_layers",
            "sliding_window": "window_size",
        },
    ),
    "gpt_neox": Family(qkv_bias=_NEOX, output_bias=_NEOX, mlp_bias=YES, has_layer_norm=True, is_gated=False),
    "gpt_neox_japanese": Family(
        qkv_bias=NO,
        output_bias=NO,
        has_layer_norm=True,
        is_gated=False,
        width=lambda config, hidden: (config.optional_count("intermediate_multiple_size") or 4) * hidden,
        outside=_one_bias,
        tied=True,
    ),
    "falcon": Family(
        qkv_bias=_FALCON,
        output_bias=_FALCON,
        mlp_bias=_FALCON,
        has_layer_norm=True,
        is_gated=False,
        width_key="ffn_hidden_size",
        width_times=4,
        tied=True,
        defaults={"max_position_embeddings": 2048},
    ),
    "opt": Family(
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias=_BIAS,
        has_layer_norm=True,
        is_gated=False,
        width_key="ffn_dim",
        outside=_opt_outside,
        has_final_norm=FamilyProperty(True, "do_layer_norm_before"),
        tied=True,
    ),
    "xglm": replace(
        BIASED,
        width_key="ffn_dim",
        tied=True,
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "attention_heads",
            "num_hidden_layers": "num_layers",
        },
    ),
    "biogpt": replace(
        BIASED,
        outside=_positions_and_two,
        tied=True,
    ),
    "bloom": replace(
        BIASED,
        width_times=4,
        outside=_norm_of_embedding,
        tied=True,
        # Hub configs say n_embed, the class hidden_size.
        aliases={"hidden_size": "n_embed", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    ),
    "mpt": Family(
        qkv_bias=NO,
        output_bias=NO,
        has_layer_norm=True,
        norm_bias=NO,
        is_gated=False,
        width=lambda config, hidden: 4 * hidden,
        tied=True,
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
            "max_position_embeddings": "max_seq_len",
        },
    ),
    "ctrl": replace(
        BIASED,
        head_bias=YES,
        width_key="dff",
        tied=True,
        aliases=_GPT2,
    ),
}
