"""Counts that transformers makes: every causal and vision-language type on the meta device, as a data file.

    python -m tests.jobs.planner.shapes.count_with_transformers      (make proof-shapes)

Of each type it builds a small model of its own defaults, with what its experts have and what it keeps of a token, then
one for each value that can be changed, left out, null or under another name, and keeps those whose count differs or
that cannot be built; beside them configs as hubs have them (`hub_configs.py`). Nothing is fetched, no code but
transformers' own is run. `test_counts.py` compares all of it with the planner in a second.
"""

import copy
import dataclasses
import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.jobs.planner.shapes.hub_configs import HUB_CONFIGS

COUNTS = Path(__file__).parent / "counts.json"
ABSENT = "absent"
RENAMED = "as:"
BESIDE = "and:"
SECONDS = 60  # of one model; those that compute values in Python while they are built take longer

_LAYERS = 6
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth", "num_blocks")
# Lists with an item per layer, which the type fills in again for fewer layers.
_PER_LAYER = (
    "layer_types",
    "mlp_layer_types",
    "no_rope_layers",
    "moe_layers",
    "indexer_types",
    "num_attention_heads_per_layer",
    "hybrid_layer_ids",
    "activation_sparsity_pattern",
    "layer_rope_theta",
    "per_layer_config",
    "attention_layers",
    "full_attn_idxs",
    "moe_layer_freq",
)
# What a type needs to be built at all, or to have each of its parts with few layers.
_NEEDED: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "ernie4_5_moe": {"moe_layer_end_index": 5},
    "gemma3n_text": {"num_kv_shared_layers": 1},
    "glm4_moe": {"head_dim": 128, "num_hidden_layers": 6, "first_k_dense_replace": 1},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 3]]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 8, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention"] * 2},
    "ministral": {"head_dim": 128},
    "mllama": {"text_config": {"cross_attention_layers": [1, 4]}},
    "nemotron": {"num_key_value_heads": 8},
    "qwen2": {"max_window_layers": 3},
    "idefics3": {"text_config": {"pad_token_id": 0, "vocab_size": 32000}},
    "smolvlm": {"text_config": {"pad_token_id": 0, "vocab_size": 32000}},
    "zamba": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2},
    "zamba2": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2},
}
# Keys that no parameter depends on, and what a build would choke on.
_LEAVE = (
    "token_id",
    "token_index",
    "initializer",
    "_multiplier",
    "_scaling",
    "dropout",
    "_eps",
    "max_position",
    "rope_t",
    "rope_p",
    "rope_i",
    "rope_s",
    "return_dict",
    "output_",
    "chunk_size",
    "is_encoder",
    "use_cache",
    "problem",
    "id2label",
    "label2id",
    "router_aux",
    "softcapping",
    "routed_scaling",
    "norm_topk",
    "transformers_version",
    "dtype",
    "hidden_act",
    "time_step_m",
    "time_step_f",
    "time_step_limit",
    "num_logits",
    "rescale",
    "residual_in",
    "architectures",
    "_name_or_path",
)


def types() -> dict[str, tuple[str, ...]]:
    """Return every model type that AutoModelForCausalLM or AutoModelForImageTextToText maps, and by which it is."""
    from transformers.models.auto import modeling_auto

    maps = {
        "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "vision": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    return {
        kind: tuple(name for name in maps if kind in maps[name]) for kind in sorted({*maps["causal"], *maps["vision"]})
    }


def count(kind: str, config: dict[str, Any], *, maps: tuple[str, ...]) -> int:
    """Return the parameters of the model that transformers builds: with its tower where it is one that sees images."""
    return _elements(_build(kind, config, maps))


def _build(kind: str, config: dict[str, Any], maps: tuple[str, ...]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    whole = AutoModelForImageTextToText if "vision" in maps else AutoModelForCausalLM
    with torch.device("meta"):
        return whole.from_config(AutoConfig.for_model(kind, **_plain(config)))


def _elements(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _experts(model: Any) -> int:
    """Return the parameters of all routed experts."""
    modules = dict(model.named_modules())
    inside = tuple(f"{name}." for name, module in modules.items() if type(module).__name__.endswith("Experts"))
    inside = inside or tuple(f"{name}." for name in modules if name.endswith(".experts"))
    return sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith(inside))


def cached(model: Any) -> int | None:
    """Return the elements that all layers hand their cache for a token; None of a model that does not run on the meta
    device. Experts return what they are handed: which of them a token goes to takes values."""
    import torch
    from transformers.cache_utils import Cache

    seen: dict[int, int] = {}
    usual = Cache.update

    def update(self: Any, keys: Any, values: Any, layer_idx: int, *more: Any, **named: Any) -> Any:
        seen[layer_idx] = sum(each.shape[1] * each.shape[3] for each in (keys, values))
        return usual(self, keys, values, layer_idx, *more, **named)

    for module in model.modules():
        if type(module).__name__.endswith("Experts"):
            module.forward = lambda states, *more, **named: states
    Cache.update = update
    try:
        with torch.no_grad():
            model(input_ids=torch.zeros((1, 4), dtype=torch.long, device="meta"), use_cache=True)
    except Exception:  # whatever asks for values
        return None
    finally:
        Cache.update = usual
    return sum(seen.values()) or None


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    return {key: dict(value) if isinstance(value, dict) else value for key, value in kept.items()}


def base_config(kind: str) -> dict[str, Any]:
    """Return a type's own config with few layers, as transformers writes it, without what changes nothing."""
    from transformers import AutoConfig

    own = _merged(_written(AutoConfig.for_model(kind)), {})
    for table in (own, own.get("text_config"), own.get("vision_config")):
        if isinstance(table, dict):
            _shorten(table, is_text=table is not own.get("vision_config"))
    own = _merged(own, _NEEDED.get(kind, {}))
    return _written(AutoConfig.for_model(kind, **_plain(own)))


def _shorten(table: dict[str, Any], *, is_text: bool) -> None:
    if not any(isinstance(table.get(key), int) for key in _LAYER_KEYS):
        return
    for key in _LAYER_KEYS:
        if isinstance(table.get(key), int):
            table[key] = _LAYERS
    for key in _PER_LAYER if is_text else ():
        table.pop(key, None)
    if isinstance(table.get("intermediate_size"), list):
        table["intermediate_size"] = table["intermediate_size"][:_LAYERS]
    if "deepstack_visual_indexes" in table:
        table["deepstack_visual_indexes"] = [1, 3]


def _written(config: Any) -> dict[str, Any]:
    return _cleaned(json.loads(config.to_json_string(use_diff=False)))


def _cleaned(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _cleaned(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if key in ("tie_word_embeddings", "model_type")
        or not (any(part in key for part in _LEAVE) or (value is None and key != "q_lora_rank"))
    }


def _merged(table: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    made = dict(table)
    for key, value in own.items():
        made[key] = _merged(made.get(key) or {}, value) if isinstance(value, dict) else value
    return made


def variations(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return changes of one value each, as path and value: numbers twice as large, flags the other way, flags and
    lists null, all absent, and numbers twice as large under another name that the type's class knows, or under both
    names; of a decoder and a tower inside another model no type of its own, or that of another; and keys that other
    types have."""
    for path, table in [("", config)] + [
        (f"{key}.", config[key]) for key in ("text_config", "vision_config") if isinstance(config.get(key), dict)
    ]:
        if path and "model_type" in table:
            others = (config["model_type"],) if path == "text_config." else _BODIES
            for other in (ABSENT, *others):
                yield f"{path}model_type", other
        for key, value in table.items():
            if key in _LAYER_KEYS or any(part in key for part in _LEAVE):
                continue
            if isinstance(value, bool | list):
                yield f"{path}{key}", None
            if key in _PER_LAYER:
                yield f"{path}{key}", ABSENT
                continue
            if isinstance(value, bool):
                yield f"{path}{key}", not value
            elif isinstance(value, int):
                yield f"{path}{key}", 2 * value if value > 1 else value + 1
            if not isinstance(value, dict) and key != "model_type":
                yield f"{path}{key}", ABSENT
        if (
            not {"head_dim", "attention_head_dim", "kv_channels"} & set(table)
            and "num_key_value_heads" in table
            and "kv_lora_rank" not in table
        ):
            yield f"{path}head_dim", 48
        for key, other in _other_names(str(table.get("model_type"))):
            if isinstance(table.get(key), int) and key not in _LAYER_KEYS and table[key] > 1:
                yield f"{path}{key}", f"{RENAMED}{other}"
                yield f"{path}{key}", f"{BESIDE}{other}"
    yield from _general(config)


# Keys of other families, which a type's own code may take or not.
_GENERAL_FLAGS = ("attention_bias", "mlp_bias", "qk_layernorm", "use_bias", "use_qk_norm")
_GENERAL_SIZES = (
    "decoder_sparse_step",
    "expert_layer_period",
    "first_k_dense_replace",
    "interleave_moe_layer_step",
    "moe_intermediate_size",
    "moe_layer_freq",
    "moe_layer_interval",
    "moe_layer_start_index",
    "n_shared_experts",
    "num_dense_layers",
    "num_experts",
    "num_experts_per_tok",
    "num_shared_experts",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "v_head_dim",
)


def _general(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    path, table = ("text_config.", config["text_config"]) if "text_config" in config else ("", config)
    for key in (*_GENERAL_FLAGS, *_GENERAL_SIZES):
        if key not in table:
            yield f"{path}{key}", True if key in _GENERAL_FLAGS else 2


_BODIES = ("siglip_vision_model", "clip_vision_model")


def _other_names(kind: str) -> Iterator[tuple[str, str]]:
    """Return keys of a type with other names of theirs that its class takes, and that are no keys of their own."""
    from transformers import CONFIG_MAPPING

    if kind in CONFIG_MAPPING:
        own = {each.name for each in dataclasses.fields(CONFIG_MAPPING[kind])}
        for other, key in sorted(CONFIG_MAPPING[kind].attribute_map.items()):
            if other not in own:
                yield key, other
            elif key not in own:
                yield other, key


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a config with one value changed."""
    made = copy.deepcopy(config)
    table = made
    *tables, key = path.split(".")
    for name in tables:
        table = table[name]
    if isinstance(value, str) and value.startswith(RENAMED):
        table[value.removeprefix(RENAMED)] = 2 * table.pop(key)
        return made
    if isinstance(value, str) and value.startswith(BESIDE):
        table[value.removeprefix(BESIDE)] = 2 * table[key]
        return made
    table[key] = value
    if value == ABSENT:
        del table[key]
    return made


def _in_time(signum: int, frame: Any) -> None:
    raise TimeoutError


def counted(kind: str, maps: tuple[str, ...]) -> dict[str, Any]:
    """Return what transformers counts of a type: its config, its parameters, and those with one value changed."""
    signal.signal(signal.SIGALRM, _in_time)
    signal.alarm(SECONDS)
    try:
        config = base_config(kind)
        model = _build(kind, config, maps)
        number, experts, cache = _elements(model), _experts(model), cached(model)
    except Exception as error:  # whatever a type's code raises, it cannot be built from its defaults
        return {"maps": maps, "error": type(error).__name__}
    finally:
        signal.alarm(0)
    rows = []
    for path, value in variations(config):
        signal.alarm(SECONDS)
        try:
            other = count(kind, changed(config, path, value), maps=maps)
        except Exception:  # a value that the type does not take
            other = None
        finally:
            signal.alarm(0)
        if other != number:
            rows.append([path, value, other])
    beside = {"parameters": number, "experts": experts, "cache": cache}
    return {"maps": maps, "config": config, **beside, "varied": rows}


def write(rows: dict[str, dict[str, Any]], hub: dict[str, int]) -> None:
    """Write the data file: one line for each type."""
    import transformers

    head = json.dumps({"transformers": transformers.__version__, "hub": hub}, indent=1)[:-2]
    lines = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(row, separators=(',', ':'))}" for kind, row in rows.items())
    COUNTS.write_text(f'{head},\n "types": {{\n{lines}\n }}\n}}\n', encoding="utf-8")


def main() -> None:
    """Count everything, and write it down."""
    logging.disable(logging.CRITICAL)
    hub = {
        name: count(config["model_type"], config, maps=("vision",) if "vision_config" in config else ("causal",))
        for name, config in HUB_CONFIGS.items()
    }
    write({kind: counted(kind, maps) for kind, maps in types().items()}, hub)


if __name__ == "__main__":
    main()
