"""What an image tower takes at an engine's start: cases worked out by hand, and what leaves it out."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.constant import shipped_constants
from jobs.planner.job import Engine
from jobs.planner.result import JobInvalid
from jobs.planner.serving.engine_memory import EngineMemory, engine_memory, validate_engine
from jobs.planner.serving.engine_weights import weight_bytes
from jobs.planner.serving.image_profile import doubt_of_images, image_bytes
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import ModelShape, read_shape

H100 = find_accelerator("h100-sxm")
GIB = 2**30
_TEXT = {
    "hidden_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "vocab_size": 32_000,
    "max_position_embeddings": 32_768,
}
_QWEN3_TOWER = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "depth": 27,
    "num_heads": 16,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "out_hidden_size": 2048,
    "deepstack_visual_indexes": [8, 16, 24],
}
_CLIP = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}


def seeing(kind: str, text: str, vision: dict[str, Any], **outer: Any) -> ModelShape:
    return read_shape(
        {"model_type": kind, "text_config": {"model_type": text, **_TEXT}, "vision_config": vision, **outer}
    )


def qwen3_vl(**changes: Any) -> Engine:
    return Engine(model=seeing("qwen3_vl", "qwen3_vl_text", _QWEN3_TOWER), **changes)


def taken(engine: Engine) -> EngineMemory:
    return engine_memory(engine, H100, shipped_constants())


def test_the_greatest_image_of_qwen3_vl_by_hand() -> None:
    served = qwen3_vl()
    # 16,777,216 pixels in patches of 16 x 16, of two frames of three colors each; four patches become a token.
    assert served.model.image is not None
    assert (served.model.image.patches, served.model.image.tokens) == (65_536, 16_384)
    assert served.model.image.values == 3 * 2 * 16 * 16 == 1536
    # Attention: input, norm and output, queries, keys and values, the former two twice more, the result; positions.
    assert served.model.image.patch_elements(1) == (3 + 8 + 1) * 1152
    passing, kept = image_bytes(served, max_num_seqs=256, batched_tokens=8192, longest=32_768)
    assert passing == 65_536 * (12 * 1152 + 1536) * 2 == 1.875 * GIB
    # A token leaves with what three deeper layers add to it.
    assert kept == (16_384 * 4 * 2048 + 65_536 * 1536) * 2
    # Among four ranks the MLP's two widths hold more than attention does, and of both a part is whole on each.
    divided, _ = image_bytes(replace(served, tensor=4), max_num_seqs=256, batched_tokens=8192, longest=32_768)
    assert divided == 65_536 * (1152 + 3 * 1152 + max(8 * 1152, 2 * 4304) // 4 + 1536) * 2


def test_the_peak_is_the_towers_or_the_decoders_beside_what_the_tower_leaves() -> None:
    blind = qwen3_vl(images_per_prompt=0, max_num_seqs=256, version="0.24", is_compiled=True)
    seen = replace(blind, images_per_prompt=None)
    peaks = [taken(each).memory.terms["activations"] + taken(each).memory.terms["logits"] for each in (blind, seen)]
    assert peaks[0] < peaks[1] == 1.875 * GIB
    many = [replace(each, max_num_seqs=8192) for each in (blind, seen)]
    kept = (16_384 * 4 * 2048 + 65_536 * 1536) * 2
    old, new = (taken(each).memory.terms for each in many)
    assert new["activations"] - old["activations"] == kept
    assert new["logits"] == old["logits"] > 1.875 * GIB


def test_as_many_images_as_a_step_and_its_sequences_may_have() -> None:
    served = Engine(model=shape_of("gemma-3-4b"))
    one, kept = image_bytes(served, max_num_seqs=1, batched_tokens=100, longest=100)
    # 896 pixels a side in patches of 14, 256 tokens of 2,560; SigLIP's MLP: two widths and three hidden states.
    assert one == 64 * 64 * (3 * 1152 + 2 * 4304 + 3 * 14 * 14) * 2
    assert kept == (256 * 2560 + 64 * 64 * 3 * 14 * 14) * 2

    def images(seqs: int, batched: int, longest: int, limit: int | None = None) -> float:
        of = replace(served, images_per_prompt=limit)
        return image_bytes(of, max_num_seqs=seqs, batched_tokens=batched, longest=longest)[0] / one

    assert images(1024, 8192, 32_768) == 8192 // 256 == 32
    assert images(3, 8192, 1024) == 3 * (1024 // 256)
    assert images(3, 8192, 32_768, limit=2) == 3 * 2


def test_a_tower_is_left_out_where_nothing_is_seen() -> None:
    served = qwen3_vl()
    told = replace(served, images_per_prompt=0)
    assert image_bytes(told, max_num_seqs=1, batched_tokens=1, longest=1) == (0, 0)
    assert weight_bytes(served, 0) - weight_bytes(told, 0) == served.model.tower * 2
    for other in (replace(served, name="sglang"), Engine(model=shape_of("qwen2.5-7b"))):
        assert image_bytes(other, max_num_seqs=1, batched_tokens=1, longest=1) == (0, 0)
    with pytest.raises(JobInvalid, match="images_per_prompt"):
        validate_engine(replace(served, images_per_prompt=-1))


def test_only_the_first_stage_of_a_pipeline_sees() -> None:
    # The last stage, which draws tokens, is the one that holds most, and is as it is without images.
    told = qwen3_vl(pipeline=2, max_num_seqs=32_768, images_per_prompt=0)
    alone, seen = (taken(each).memory.terms for each in (told, replace(told, images_per_prompt=None)))
    assert alone["logits"] > 1.875 * GIB
    assert [alone[term] for term in ("logits", "activations")] == [seen[term] for term in ("logits", "activations")]


@pytest.mark.parametrize(
    ("model", "patches", "tokens", "elements"),
    [
        (seeing("qwen2_5_vl", "qwen2_5_vl_text", {"hidden_size": 1280, "intermediate_size": 3420, "depth": 32}),
         12_845_056 // 14**2, 16_384, 3 * 1280 + 3 * 3420),
        (seeing("llava", "llama", {**_CLIP, "image_size": 336, "patch_size": 14}), 577, 576, 3 * 1024 + 2 * 4096),
        (seeing("llava_next", "mistral", {**_CLIP, "image_size": 336, "patch_size": 14},
                image_grid_pinpoints=[[336, 672], [672, 672], [1008, 336]]),
         5 * 577, 5 * 576 + 2 * 24, 3 * 1024 + 2 * 4096),
        (seeing("mistral3", "mistral", {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096,
                                        "num_hidden_layers": 24, "image_size": 1540, "patch_size": 14}),
         110 * 110, 55 * 55, 3 * 1024 + 3 * 4096),
        (shape_of("llama-4-scout"), 17 * 577, 17 * 144, 3 * 1408 + 2 * 5632),
    ],
)  # fmt: skip
def test_the_greatest_image_of_other_kinds_by_hand(model: ModelShape, patches: int, tokens: int, elements: int) -> None:
    assert model.image is not None
    assert (model.image.patches, model.image.tokens) == (patches, tokens)
    assert model.image.patch_elements(1) == max(elements, model.image.peaks[0][0] + model.image.peaks[0][1])


def test_a_tower_that_is_not_known_is_told() -> None:
    vision = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27}
    served = Engine(model=seeing("gemma4", "gemma4_text", vision))
    assert served.model.image is None
    assert [str(each) for each in doubt_of_images(served)] == [
        "What vLLM's start takes to see the greatest image is not known of this model: its cache may be 1 to 3 GiB"
        " smaller than planned, unless it is started for text alone."
    ]
    for known in (qwen3_vl(), replace(served, images_per_prompt=0), Engine(model=shape_of("qwen2.5-7b"))):
        assert doubt_of_images(known) == ()
