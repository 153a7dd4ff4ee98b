"""Diffusion transformers are counted to the last parameter, and what cannot be read is refused by its key.

The counts are those of the models that diffusers 0.42 builds on the meta device of these very configs, and the saved
elements were counted there with autograd hooks, in bfloat16, as the difference of one block more and of more tokens.
"""

from typing import Any

import pytest

from jobs.catalog.diffusion_model import diffusion_models, find_diffusion_model
from jobs.planner.diffusion.job import stand_in
from jobs.planner.shapes.config_values import ShapeUnreadable
from jobs.planner.shapes.diffusion import DiffusionShape, is_diffusion, read_diffusion_shape
from jobs.planner.shapes.known import shape_of, shape_of_diffusion

COUNTS = {
    "sd3-medium": 2_028_328_000,
    "sd3.5-medium": 2_243_171_520,
    "sd3.5-large": 8_056_627_520,
    "flux.1-dev": 11_901_408_320,
    "flux.1-schnell": 11_891_178_560,
    "qwen-image": 20_430_401_088,
    "wan2.1-t2v-1.3b": 1_418_996_800,
    "wan2.1-t2v-14b": 14_288_491_584,
    "hunyuanvideo": 12_821_012_544,
}


@pytest.mark.parametrize("name", diffusion_models())
def test_parameters_are_exact(name: str) -> None:
    shape = shape_of_diffusion(name)

    assert shape.parameters == COUNTS[name]
    assert stand_in(shape).parameters == COUNTS[name]


@pytest.mark.parametrize(
    ("base", "changes", "parameters"),
    [
        ("wan2.1-t2v-14b", {"in_channels": 36, "image_dim": 1280, "added_kv_proj_dim": 5120}, 16_394_878_784),
        (
            "wan2.1-t2v-1.3b",
            {"in_channels": 48, "out_channels": 48, "num_attention_heads": 24, "ffn_dim": 14336},
            4_999_787_712,
        ),
        (
            "hunyuanvideo",
            {
                "num_attention_heads": 5,
                "attention_head_dim": 32,
                "num_layers": 3,
                "num_single_layers": 3,
                "num_refiner_layers": 3,
                "mlp_ratio": 2.0,
                "patch_size_t": 2,
                "text_embed_dim": 96,
                "pooled_projection_dim": 48,
            },
            4_478_784,
        ),
    ],
    ids=["image to video", "Wan 2.2 5B", "an MLP of another width"],
)
def test_variants_of_published_models_are_exact(base: str, changes: dict[str, Any], parameters: int) -> None:
    assert _read(base, **changes).parameters == parameters


def test_saved_elements_are_those_that_hooks_counted() -> None:
    """Per latent and text token over the hidden size."""

    def over_hidden(shape: DiffusionShape, index: int) -> tuple[float, float]:
        block = shape.blocks[index]
        return block.kept_latent / shape.hidden, block.kept_text / shape.hidden

    assert over_hidden(shape_of_diffusion("sd3-medium"), 0) == (21, 21)
    assert over_hidden(shape_of_diffusion("sd3.5-large"), 0) == (29, 29)
    assert over_hidden(shape_of_diffusion("sd3.5-medium"), 1) == (43, 29)
    assert over_hidden(shape_of_diffusion("flux.1-dev"), 1) == (25, 25)
    assert over_hidden(shape_of_diffusion("hunyuanvideo"), 1) == (26, 26)
    assert over_hidden(_read("wan2.1-t2v-1.3b", ffn_dim=4 * 1536), 0) == (42, 6)


def test_a_repository_is_found_by_any_of_its_names() -> None:
    for name in ("flux.1-dev", "black-forest-labs/FLUX.1-dev", "FLUX.1-DEV"):
        assert find_diffusion_model(name).id == "flux.1-dev"
    with pytest.raises(LookupError, match=r"FLUX\.1 dev is a diffusion transformer, which no trainer here trains"):
        shape_of("black-forest-labs/FLUX.1-dev")
    with pytest.raises(LookupError, match="is not a known diffusion transformer"):
        find_diffusion_model("flux.9")


def _read(base: str, **changes: Any) -> DiffusionShape:
    config = {**diffusion_models()[base].config, **changes}
    return read_diffusion_shape({key: value for key, value in config.items() if value is not ...}, name="made up")


@pytest.mark.parametrize(
    ("base", "changes", "key"),
    [
        ("flux.1-dev", {"_class_name": "UNet2DConditionModel"}, "_class_name"),
        ("flux.1-dev", {"_class_name": 7}, "_class_name"),
        ("flux.1-dev", {"num_layers": "19"}, "num_layers"),
        ("flux.1-dev", {"num_layers": -1}, "num_layers"),
        ("flux.1-dev", {"num_layers": True}, "num_layers"),
        ("flux.1-dev", {"num_layers": 10**9}, "num_layers"),
        ("flux.1-dev", {"attention_head_dim": ...}, "attention_head_dim"),
        ("flux.1-dev", {"num_attention_heads": 10**400}, "num_attention_heads"),
        ("flux.1-dev", {"guidance_embeds": "yes"}, "guidance_embeds"),
        ("sd3.5-medium", {"dual_attention_layers": [99]}, "dual_attention_layers"),
        ("sd3.5-medium", {"dual_attention_layers": "0,1"}, "dual_attention_layers"),
        ("sd3.5-medium", {"qk_norm": "layer_norm"}, "qk_norm"),
        ("sd3.5-medium", {"caption_projection_dim": 1000}, "caption_projection_dim"),
        ("wan2.1-t2v-14b", {"patch_size": 2}, "patch_size"),
        ("wan2.1-t2v-14b", {"patch_size": [1, 2]}, "patch_size"),
        ("wan2.1-t2v-14b", {"patch_size": [1, 2, 3]}, "patch_size"),
        ("wan2.1-t2v-14b", {"qk_norm": None}, "qk_norm"),
        ("wan2.1-t2v-14b", {"pos_embed_seq_len": 514}, "pos_embed_seq_len"),
        ("qwen-image", {"zero_cond_t": True}, "zero_cond_t"),
        ("hunyuanvideo", {"mlp_ratio": float("nan")}, "mlp_ratio"),
        ("hunyuanvideo", {"mlp_ratio": 0}, "mlp_ratio"),
        ("hunyuanvideo", {"image_condition_type": "latent_concat"}, "image_condition_type"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_key(base: str, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ShapeUnreadable, match=key) as refused:
        _read(base, **changes)

    assert refused.value.key == key
    assert len(str(refused.value)) < 400


def test_a_config_that_is_no_table_is_refused() -> None:
    assert not is_diffusion([])
    with pytest.raises(ShapeUnreadable):
        read_diffusion_shape([])  # type: ignore[arg-type]
