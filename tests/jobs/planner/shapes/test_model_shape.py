"""Counts of known models, to the last parameter, and what a config may and may not say."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.catalog.model import models
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import ModelShape, ShapeUnreadable, read_shape
from tests.jobs.planner.shapes.hub_configs import HUB_CONFIGS
from tests.planner_cases.measure import kv_bytes_of

# Model, parameters, active ones, bytes of keys and values per token in bf16.
_COUNTS = [
    ("qwen2.5-0.5b", 494_032_768, 494_032_768, 12_288),
    ("qwen2.5-1.5b", 1_543_714_304, 1_543_714_304, 28_672),
    ("qwen2.5-3b", 3_085_938_688, 3_085_938_688, 36_864),
    ("qwen2.5-7b", 7_615_616_512, 7_615_616_512, 57_344),
    ("qwen2.5-14b", 14_770_033_664, 14_770_033_664, 196_608),
    ("qwen2.5-32b", 32_763_876_352, 32_763_876_352, 262_144),
    ("qwen2.5-72b", 72_706_203_648, 72_706_203_648, 327_680),
    ("qwen3-0.6b", 596_049_920, 596_049_920, 114_688),
    ("qwen3-1.7b", 1_720_574_976, 1_720_574_976, 114_688),
    ("qwen3-4b", 4_022_468_096, 4_022_468_096, 147_456),
    ("qwen3-8b", 8_190_735_360, 8_190_735_360, 147_456),
    ("qwen3-14b", 14_768_307_200, 14_768_307_200, 163_840),
    ("qwen3-32b", 32_762_123_264, 32_762_123_264, 262_144),
    ("qwen3-30b-a3b", 30_532_122_624, 3_353_032_704, 98_304),
    ("qwen3-235b-a22b", 235_093_634_560, 22_190_763_520, 192_512),
    ("llama-2-7b", 6_738_415_616, 6_738_415_616, 524_288),
    ("llama-2-13b", 13_015_864_320, 13_015_864_320, 819_200),
    ("llama-2-70b", 68_976_648_192, 68_976_648_192, 327_680),
    ("llama-3.2-1b", 1_235_814_400, 1_235_814_400, 32_768),
    ("llama-3.2-3b", 3_212_749_824, 3_212_749_824, 114_688),
    ("llama-3.1-8b", 8_030_261_248, 8_030_261_248, 131_072),
    ("llama-3.1-70b", 70_553_706_496, 70_553_706_496, 327_680),
    ("llama-3.1-405b", 405_853_388_800, 405_853_388_800, 516_096),
    ("mixtral-8x7b", 46_702_792_704, 12_879_925_248, 131_072),
    ("gemma-2-2b", 2_614_341_888, 2_614_341_888, 106_496),
    ("gemma-2-9b", 9_241_705_984, 9_241_705_984, 344_064),
    ("gemma-3-1b", 999_885_952, 999_885_952, 26_624),
    ("gemma-3-4b", 3_880_263_168, 3_880_263_168, 139_264),
    ("gemma-3-12b", 11_766_034_176, 11_766_034_176, 393_216),
    ("deepseek-v3", 671_026_404_352, 37_552_282_624, 70_272),
    ("moonlight-16b-a3b", 15_960_108_544, 2_914_774_528, 31_104),
    ("deepseek-v2-lite", 15_706_484_224, 2_661_150_208, 31_104),
    ("gpt-oss-20b", 20_914_757_184, 4_187_440_704, 49_152),
    ("gpt-oss-120b", 116_829_156_672, 5_711_982_912, 73_728),
    ("glm-4.5-air", 106_852_245_504, 13_424_123_904, 188_416),
]


@pytest.mark.parametrize(("model", "parameters", "active", "kv_bytes"), _COUNTS, ids=[row[0] for row in _COUNTS])
def test_a_known_model_is_counted_exactly(model: str, parameters: int, active: int, kv_bytes: int) -> None:
    shape = shape_of(model)
    assert (shape.parameters, shape.active_parameters, kv_bytes_of(shape)) == (parameters, active, kv_bytes)


# What the checkpoints on the hub hold, as it counts their safetensors itself.
@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("smollm2-135m", 134_515_008),
        ("smollm2-360m", 361_821_120),
        ("smollm2-1.7b", 1_711_376_384),
        ("smollm3-3b", 3_075_098_624),
        ("mistral-7b-v0.1", 7_241_732_096),
        ("mistral-7b-v0.3", 7_248_023_552),
        ("mistral-nemo-12b", 12_247_782_400),
        ("gemma-2b", 2_506_172_416),
        ("gemma-7b", 8_537_680_896),
        ("gemma-2-27b", 27_227_128_320),
        ("phi-1.5", 1_418_270_720),
        ("phi-2", 2_779_683_840),
        ("phi-3-mini", 3_821_079_552),
        ("phi-4", 14_659_507_200),
        ("pythia-1.4b", 1_414_647_808),
        ("pythia-6.9b", 6_857_302_016),
        ("falcon-7b", 6_921_720_704),
        ("olmo-2-7b", 7_298_617_344),
        ("olmo-2-13b", 13_716_198_400),
        ("qwen1.5-moe-a2.7b", 14_315_784_192),
        ("mixtral-8x22b", 140_630_071_296),
        ("deepseek-v2", 235_741_434_880),
    ],
)
def test_models_beyond_the_table_are_counted_exactly_too(model: str, parameters: int) -> None:
    assert shape_of(model).parameters == parameters


def test_multi_token_prediction_is_counted_apart() -> None:
    shape = shape_of("deepseek-v3")
    assert shape.mtp_parameters == 11_610_067_968
    assert shape.parameters + shape.mtp_parameters == 682_636_472_320
    # A checkpoint repeats embedding and head for each module.
    assert shape.parameters + shape.mtp_parameters + shape.embedding + shape.head == 684_489_830_400


def test_a_layer_is_divided_into_what_parallelism_divides() -> None:
    shape = shape_of("qwen3-30b-a3b")
    layer = shape.layers[0]
    assert layer.experts == 128 * 3 * 2048 * 768
    assert layer.attention == 2 * 2048 * 4096 + 2 * 2048 * 512
    assert layer.replicated == 2 * 2048 + 2 * 128 + 2048 * 128
    assert layer.mlp == 0
    assert layer.is_moe
    assert layer.largest_matrix == 2048 * 4096
    latent = shape_of("deepseek-v3").layers
    assert [layer.is_moe for layer in latent[:4]] == [False, False, False, True]
    assert latent[0].replicated_linear == 7168 * 1536 + 7168 * (512 + 64)
    assert latent[0].attention == 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168


def test_products_per_token_leave_out_the_embedding_and_count_a_tied_head_once() -> None:
    tied, untied = shape_of("qwen3-4b"), shape_of("qwen3-8b")
    assert tied.matmul_parameters == tied.parameters
    assert untied.matmul_parameters == untied.parameters - 151_936 * 4096
    assert shape_of("deepseek-v3").attention_width == 128 * (128 + 64 + 128) // 2
    assert untied.attention_width == untied.query == 32 * 128


@pytest.mark.parametrize(
    ("model", "windows"),
    [
        ("gemma-2-2b", [4096, 0] * 13),
        ("gemma-3-1b", ([512] * 5 + [0]) * 4 + [512] * 2),
        ("gpt-oss-20b", [128, 0] * 12),
        ("mistral-7b-v0.1", [4096] * 32),
        ("mistral-7b-v0.3", [0] * 32),
        ("llama-4-scout", [8192, 8192, 8192, 0] * 12),
        ("qwen2.5-7b", [0] * 28),
    ],
)
def test_windows_stand_where_the_family_has_them(model: str, windows: list[int]) -> None:
    assert [layer.window for layer in shape_of(model).layers] == windows


def test_linear_attention_keeps_a_state_and_no_cache() -> None:
    shape = shape_of("qwen3.5-35b-a3b")
    assert [layer.has_cache for layer in shape.layers] == [False, False, False, True] * 10
    assert kv_bytes_of(shape) == 10 * 2 * 2 * 256 * 2
    # Per head a matrix of key size times value size, and what the convolution still needs of three tokens.
    assert shape.layers[0].state == 32 * 128 * 128 + (2 * 16 * 128 + 32 * 128) * 3
    assert shape.layers[0].float_state == 32 * 128 * 128


def _groups(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": weights}}}


@pytest.mark.parametrize(
    ("quantization", "bytes_per_element"),
    [
        (None, 2.0),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 128**2),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, (4 + 20 / 128) / 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, (4 + 20 / 64) / 8),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 4.126953125 / 8),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "mxfp4"}, 4.25 / 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5 / 8),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, 8.25 / 8),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, (4 + 20 / 128) / 8),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"}, 4.25 / 8),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, 4.5 / 8),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, 4.25 / 8),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, 1.0),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8}}}}, 1.0),
        (_groups(num_bits=4, type="int", group_size=128), (4 + 16 / 128) / 8),  # symmetric: no zero point
        (_groups(num_bits=4, type="int", group_size=128, symmetric=False), (4 + 20 / 128) / 8),
        (_groups(num_bits=4, type="float", group_size=16), 4.5 / 8),  # NVFP4
    ],
)
def test_a_quantization_changes_bytes_and_not_parameters(
    quantization: dict[str, Any] | None, bytes_per_element: float
) -> None:
    plain = models()["llama-3.1-8b"].config
    shape = read_shape({**plain, "quantization_config": quantization})
    assert shape.quantized_bytes == pytest.approx(bytes_per_element, abs=1e-12)
    assert shape.parameters == 8_030_261_248
    linear = sum(layer.attention + layer.mlp for layer in shape.layers)
    if shape.quantizes == "experts":  # this model has none
        linear = 0
    expected = linear * bytes_per_element + (shape.parameters - linear) * 2
    assert shape.checkpoint_bytes() == pytest.approx(expected, rel=1e-12)


def test_what_is_not_quantized_keeps_its_width() -> None:
    shape = shape_of("gpt-oss-20b")
    experts = sum(layer.experts for layer in shape.layers)
    assert shape.checkpoint_bytes() == round(experts * 0.53125 + (shape.parameters - experts) * 2)
    assert (
        read_shape({**models()["llama-3.1-8b"].config, "torch_dtype": "float32"}).checkpoint_bytes()
        == 4 * 8_030_261_248
    )


def test_head_dim_null_missing_kv_heads_and_synonyms_read_as_the_families_mean_them() -> None:
    plain = dict(models()["llama-3.1-8b"].config)
    assert read_shape({**plain, "head_dim": None}) == read_shape(plain)
    del plain["num_key_value_heads"]
    assert read_shape(plain).kv_heads == read_shape({**plain, "num_key_value_heads": None}).kv_heads == 32
    mixture = dict(models()["qwen3-30b-a3b"].config)
    experts = mixture.pop("num_experts")
    for synonym in ("num_experts", "num_local_experts"):
        assert read_shape({**mixture, synonym: experts}).parameters == 30_532_122_624
    # Both: transformers takes the second name. One that its class does not know is none.
    twice = read_shape({**mixture, "num_experts": experts, "num_local_experts": experts // 2})
    assert twice.experts == 64
    with pytest.raises(ShapeUnreadable, match="num_experts is missing"):
        read_shape({**mixture, "n_routed_experts": experts})


def test_keys_that_a_type_does_not_take_change_nothing() -> None:
    plain = models()["qwen3-30b-a3b"].config
    for stray in ({"first_k_dense_replace": 4}, {"n_shared_experts": 2}, {"moe_layer_freq": 2}, {"v_head_dim": 64}):
        assert read_shape({**plain, **stray}).parameters == 30_532_122_624


def test_layers_of_a_search_lack_parts_and_have_widths_of_their_own() -> None:
    """Llama-3.3-Nemotron-Super-49B: 49,867,145,216 parameters, with attention in 49 of 80 layers."""

    def block(ffn: float, *, is_seeing: bool) -> dict[str, Any]:
        attention = {"n_heads_in_group": 8} if is_seeing else {"n_heads_in_group": None, "no_op": True}
        return {"attention": attention, "ffn": {"ffn_mult": ffn, "no_op": False}}

    kinds = [(True, 5.25)] * 48 + [(True, 2.625)] + [(False, 2.625)] * 5 + [(False, 3.28125), (False, 5.25)]
    kinds += [(False, 1.3125)] * 10 + [(False, 1.0)] * 8 + [(False, 0.5)] * 6
    config = {
        **models()["llama-3.1-8b"].config,
        "model_type": "nemotron-nas",
        "architectures": ["DeciLMForCausalLM"],
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": None,
        "intermediate_size": None,
        "block_configs": [block(width, is_seeing=sees) for sees, width in kinds],
    }
    shape = read_shape(config)
    assert (shape.parameters, shape.is_exact, shape.mlp_width) == (49_867_145_216, True, 28_672)
    assert sum(layer.cache for layer in shape.layers) == 49 * 2 * 8 * 128
    assert [shape.layers[at].norms for at in (0, 79)] == [2, 1]
    for odd in ({"block_configs": None}, {"block_configs": [{}] * 80}, {"block_configs": config["block_configs"][:5]}):
        with pytest.raises(ShapeUnreadable, match="block_configs"):
            read_shape({**config, **odd})


_LING = {
    "architectures": ["BailingMoeV2ForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 256,
    "num_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
    "use_qk_norm": True,
    "vocab_size": 157_184,
}
_INTERNLM = {
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 92_544,
}
_HUNYUAN = {
    "model_type": "hunyuan_v1_moe",
    "hidden_size": 4096,
    "intermediate_size": 3072,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 64,
    "moe_intermediate_size": [3072] * 32,
    "moe_topk": [8] * 32,
    "tie_word_embeddings": True,
    "vocab_size": 128_167,
}
_KIMI_K3 = {
    "model_type": "kimi_linear",
    "hidden_size": 7168,
    "intermediate_size": 33_792,
    "num_hidden_layers": 93,
    "num_attention_heads": 96,
    "num_key_value_heads": 96,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_output_gate": True,
    "linear_attn_config": {
        "full_attn_layers": [*range(4, 93, 4), 93],
        "head_dim": 128,
        "num_heads": 96,
        "short_conv_kernel_size": 4,
        "use_full_rank_gate": True,
    },
    "num_experts": 896,
    "num_experts_per_token": 16,
    "num_shared_experts": 2,
    "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584,
    "latent_moe_use_norm": True,
    "attn_res_block_size": 12,
    "first_k_dense_replace": 1,
    "vocab_size": 163_840,
}


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        # Ling-mini-2.0: its checkpoint has 16,255,643,392, with a number for each expert that is no parameter.
        ({**_LING, "model_type": "bailing_moe_v2"}, 16_255_638_528, 1_432_968_192),
        ({**_LING, "model_type": "bailing_moe"}, 16_255_638_528, 1_432_968_192),
        (_HUNYUAN, 80_393_183_232, 12_747_448_320),  # Hunyuan-A13B: lists of one number
        (_KIMI_K3, 2_779_484_393_568, 105_363_935_328),  # published as 2.8T, 104B active
        ({**_INTERNLM, "model_type": "internlm2", "bias": False}, 7_737_708_544, 7_737_708_544),
    ],
)
def test_released_models_of_types_that_transformers_lacks(config: dict[str, Any], total: int, active: int) -> None:
    shape = read_shape(config)
    assert (shape.parameters, shape.active_parameters) == (total, active)


def test_windows_by_letters_end_with_a_layer_that_sees_all() -> None:
    config = {**models()["llama-3.1-8b"].config, "model_type": "exaone4", "architectures": ["Exaone4ForCausalLM"]}
    shape = read_shape({**config, "sliding_window": 4096, "sliding_window_pattern": "LLGL", "num_hidden_layers": 6})
    assert [layer.window for layer in shape.layers] == [4096, 4096, 0, 4096, 4096, 0]
    with pytest.raises(ShapeUnreadable, match="sliding_window_pattern"):
        read_shape({**config, "sliding_window": 4096, "sliding_window_pattern": "LX"})


def test_a_class_that_takes_no_other_decoder_or_tower_has_its_own() -> None:
    """As hubs have them: the type of the whole inside, or none; "" in NVIDIA's checkpoints of Kimi K2.5."""
    whole = HUB_CONFIGS["Qwen/Qwen3-VL-2B-Instruct"]
    usual = read_shape(whole)
    for own in ({"model_type": "qwen3_vl"}, {"model_type": None}, {"model_type": ""}, {"model_type": "qwen3"}):
        other = {"text_config": {**whole["text_config"], **own}, "vision_config": {**whole["vision_config"], **own}}
        assert read_shape({**whole, **other}) == usual
    with pytest.raises(ShapeUnreadable, match=r"text_config\.model_type"):
        read_shape({**whole, "text_config": {**whole["text_config"], "model_type": "qwen9"}})


@pytest.mark.parametrize(
    ("own", "which"),
    [
        ({"decoder_sparse_step": 2}, [1, 3, 5]),
        ({"mlp_only_layers": [0, 5]}, [1, 2, 3, 4]),
        ({"first_k_dense_replace": 4}, [4, 5]),
        ({"interleave_moe_layer_step": 3}, [2, 5]),
        ({"moe_layer_freq": 2}, [0, 2, 4]),
        ({"moe_layer_freq": [0, 1, 1, 0, 0, 1]}, [1, 2, 5]),
        ({"moe_layers": [1, 4]}, [1, 4]),
    ],
)
def test_layers_with_experts_alternate_as_the_config_says(own: dict[str, Any], which: list[int]) -> None:
    plain = {key: value for key, value in _MIXTURE.items() if key != "decoder_sparse_step"}
    config = {**plain, "model_type": "my_mixture", "num_hidden_layers": 6, **own}
    assert [index for index, layer in enumerate(read_shape(config).layers) if layer.is_moe] == which


def test_a_kind_that_is_not_known_is_read_as_most_are_built_and_says_so() -> None:
    config = {**models()["llama-3.1-8b"].config, "model_type": "my_llama"}
    shape = read_shape(config)
    assert shape.parameters == 8_030_261_248
    assert not shape.is_exact
    assert shape_of("llama-3.1-8b").is_exact
    mixture = {**models()["mixtral-8x7b"].config, "model_type": "my_mixtral"}
    assert read_shape(mixture).parameters == 46_702_792_704


_LLAMA = models()["llama-3.1-8b"].config
_MIXTURE = models()["qwen3-30b-a3b"].config
_LATENT = models()["deepseek-v2-lite"].config


@pytest.mark.parametrize(
    ("base", "own", "key", "says"),
    [
        (_LLAMA, {"hidden_size": None}, "hidden_size", "is null"),
        (_LLAMA, {"hidden_size": math.nan}, "hidden_size", "is nan"),
        (_LLAMA, {"hidden_size": math.inf}, "hidden_size", "is inf"),
        (_LLAMA, {"hidden_size": 0}, "hidden_size", "is 0"),
        (_LLAMA, {"hidden_size": -4096}, "hidden_size", "is -4096"),
        (_LLAMA, {"hidden_size": "4096"}, "hidden_size", "is '4096'"),
        (_LLAMA, {"hidden_size": True}, "hidden_size", "is True"),
        (_LLAMA, {"hidden_size": 4096.0}, "hidden_size", "is 4096.0"),
        (_LLAMA, {"hidden_size": 10**400}, "hidden_size", "is 100000"),
        (_LLAMA, {"hidden_size": 4097}, "hidden_size", "multiple of the 32 attention heads"),
        (_LLAMA, {"num_hidden_layers": 10**9}, "num_hidden_layers", "from 1 to 1000"),
        (_LLAMA, {"vocab_size": []}, "vocab_size", "is []"),
        (_LLAMA, {"num_attention_heads": 8192}, "num_attention_heads", "from 1 to 4096"),
        (_LLAMA, {"num_key_value_heads": 64}, "num_key_value_heads", "from 1 to 32"),
        (_LLAMA, {"num_key_value_heads": 5}, "num_key_value_heads", "a multiple of it"),
        (_LLAMA, {"tie_word_embeddings": "yes"}, "tie_word_embeddings", "must be true or false"),
        (_LLAMA, {"model_type": None}, "model_type", "is missing"),
        (_LLAMA, {"model_type": 7}, "model_type", "must be a text"),
        (_LLAMA, {"model_type": "bertish", "architectures": ["BertModel"]}, "model_type", "is not known"),
        (
            _LLAMA,
            {"model_type": "bert", "architectures": ["BertModel"]},
            "model_type",
            "is not counted: it is an encoder",
        ),
        (_LLAMA, {"model_type": "mamba_like", "state_size": 16}, "model_type", "has state_size"),
        (_LLAMA, {"layer_types": ["full_attention"]}, "layer_types", "one for each of 32 layers"),
        (_LLAMA, {"layer_types": ["mamba"] * 32}, "layer_types", "has 'mamba'"),
        (_LLAMA, {"layer_types": ["sliding_attention"] * 32}, "sliding_window", "is missing"),
        (_LLAMA, {"torch_dtype": "int3"}, "torch_dtype", "is 'int3'"),
        (_LLAMA, {"quantization_config": "fp8"}, "quantization_config", "must be a table"),
        (_LLAMA, {"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method", "is 'magic'"),
        (_LLAMA, {"quantization_config": {"quant_method": "gptq", "bits": 0}}, "quantization_config.bits", "is 0"),
        (_LLAMA, {"text_config": [1]}, "text_config", "must be a table"),
        (_MIXTURE, {"num_experts_per_tok": 129}, "num_experts_per_tok", "more than the 128 experts"),
        (_MIXTURE, {"num_experts": None}, "num_experts", "is missing (also called"),
        (_MIXTURE, {"num_experts": 0}, "num_experts", "is 0"),
        (_MIXTURE, {"mlp_only_layers": ["1"]}, "mlp_only_layers", "must be whole numbers"),
        (_LATENT, {"q_lora_rank": "none"}, "q_lora_rank", "is 'none'"),
        (_LATENT, {"q_lora_rank": 0}, "q_lora_rank", "or null for none"),
        (
            _LLAMA,
            {"model_type": "deci", "num_key_value_heads_per_layer": [4] * 32},
            "num_key_value_heads_per_layer",
            "plan for that one",
        ),
        (_LATENT, {"kv_lora_rank": None}, "kv_lora_rank", "is null"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_key(
    base: dict[str, Any], own: dict[str, Any], key: str, says: str
) -> None:
    with pytest.raises(ShapeUnreadable) as refused:
        read_shape({**base, **own}, name="somebody/model")
    assert refused.value.key == key
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"somebody/model: {key} ")


@pytest.mark.parametrize(
    ("base", "key"),
    [
        *((_LLAMA, key) for key in ("model_type", "num_hidden_layers", "hidden_size", "num_attention_heads")),
        *((_LLAMA, key) for key in ("intermediate_size", "vocab_size")),
        *((_MIXTURE, key) for key in ("num_experts", "num_experts_per_tok")),
        *((_LATENT, key) for key in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim")),
    ],
)
def test_a_key_that_is_missing_is_named(base: dict[str, Any], key: str) -> None:
    config = {name: value for name, value in base.items() if name != key}
    with pytest.raises(ShapeUnreadable, match="is missing") as refused:
        read_shape(config)
    assert refused.value.key == key


def test_a_refusal_inside_a_nested_config_gives_the_whole_path() -> None:
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": -1}}
    with pytest.raises(ShapeUnreadable) as refused:
        read_shape(config)
    assert refused.value.key == "text_config.num_hidden_layers"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-2, 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
_KNOWN = sorted(models())
_KEYS = sorted({key for model in models().values() for key in model.config})


def _read(config: Any) -> ModelShape | ShapeUnreadable:
    try:
        return read_shape(config)
    except ShapeUnreadable as refused:
        return refused


def _is_sound(read: ModelShape | ShapeUnreadable) -> bool:
    """Return True for a refusal that says why, and for a shape whose numbers can be numbers of a model."""
    if isinstance(read, ShapeUnreadable):
        return bool(read.key) and len(str(read)) < 400
    counts = (read.parameters, read.active_parameters, read.checkpoint_bytes(), kv_bytes_of(read))
    return all(isinstance(count, int) for count in counts) and 0 < counts[1] <= counts[0] and min(counts) >= 0


@given(config=st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=12) | _JSON)
def test_no_json_brings_anything_but_a_shape_or_a_refusal(config: Any) -> None:
    assert _is_sound(_read(config))


@given(
    model=st.sampled_from(_KNOWN),
    changes=st.dictionaries(st.sampled_from([*_KEYS, "layer_types", "moe_layers", "dtype"]), _JSON, max_size=3),
    removed=st.sets(st.sampled_from(_KEYS), max_size=2),
    nested=st.booleans(),
)
def test_a_real_config_that_was_tampered_with_is_read_or_refused(
    model: str, changes: dict[str, Any], removed: set[str], nested: bool
) -> None:
    config = dict(models()[model].config)
    inner = dict(config.get("text_config", config)) if nested else config
    for key in removed:
        inner.pop(key, None)
    inner.update(changes)
    assert _is_sound(_read({**config, "text_config": inner} if nested else inner))


@pytest.mark.parametrize(
    "value",
    [[[[[[[]]]]]] * 50, 10**5000, [10**5000], {"a": "b" * 9999}, "x" * 9999, 1e308],
    ids=["deep", "many digits", "many digits in a list", "table", "text", "float"],
)
def test_a_value_that_is_long_or_deep_is_shown_in_short(value: object) -> None:
    assert _is_sound(_read({**_LLAMA, "hidden_size": value}))


@given(model=st.sampled_from(_KNOWN))
def test_the_parts_of_every_known_model_add_up(model: str) -> None:
    shape = shape_of(model)
    parts = sum(layer.attention + layer.mlp + layer.experts + layer.replicated for layer in shape.layers)
    assert shape.parameters == parts + shape.vocab * shape.hidden * (1 if shape.is_tied else 2) + shape.final
    assert all(0 <= layer.replicated_linear <= layer.replicated for layer in shape.layers)
    assert all(layer.largest_matrix <= layer.total for layer in shape.layers)
    assert shape.max_positions > 0


def test_a_diffusion_transformer_is_no_language_model() -> None:
    with pytest.raises(ShapeUnreadable, match="_class_name makes it a diffusion transformer") as refused:
        read_shape({"_class_name": "FluxTransformer2DModel", "num_layers": 19})

    assert refused.value.key == "_class_name"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, 10**400, "2", True])
def test_a_factor_of_a_width_is_a_number_above_0(value: object) -> None:
    config = HUB_CONFIGS["LiquidAI/LFM2-1.2B"] | {"block_ffn_dim_multiplier": value}

    with pytest.raises(ShapeUnreadable, match=r"block_ffn_dim_multiplier is .* It must be a number above 0"):
        read_shape(config)
