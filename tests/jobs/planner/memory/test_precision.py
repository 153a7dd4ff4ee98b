"""What autocast and adapters keep, against saved tensors of Transformers' and PEFT's modules on the CPU."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Layout, Training
from jobs.planner.memory.activations import activations_of, kept_elements, saved_elements
from jobs.planner.shapes.model_shape import read_shape
from tests.jobs.planner.trainings import only_stage, training

K = shipped_constants()
HIDDEN, WIDTH, HEADS, KV_HEADS, VOCAB, TOKENS = 64, 224, 4, 2, 97, 56
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _model(layers: int, dtype: torch.dtype) -> nn.Module:
    from transformers import AutoModelForCausalLM, LlamaConfig  # takes a second to load

    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        num_hidden_layers=layers,
        vocab_size=VOCAB,
        attn_implementation="sdpa",
    )
    model: nn.Module = AutoModelForCausalLM.from_config(config).to(dtype)
    return model


def _saved_bytes(model: nn.Module, *, is_autocast: bool) -> float:
    """Return bytes per token of tensors that a forward pass keeps; weights and their casts apart."""
    shapes = {tuple(each.shape) for each in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes if len(shape) > 1}
    held = {each.untyped_storage().data_ptr() for each in model.parameters()}
    sizes: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held and (TOKENS in tensor.shape or tuple(tensor.shape) not in shapes):
            sizes.setdefault(storage.data_ptr(), (storage.nbytes(), tensor))
        return tensor

    ids = torch.randint(0, VOCAB, (1, TOKENS))
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_autocast),
    ):
        model(input_ids=ids, use_cache=False)
    return sum(size for size, _ in sizes.values()) / TOKENS


def _of_a_layer(dtype: torch.dtype, *, is_autocast: bool, targets: tuple[str, ...] = ()) -> float:
    found = []
    for layers in (1, 2):
        model = _model(layers, dtype)
        if targets:
            from peft import LoraConfig, get_peft_model

            adapted = get_peft_model(model, LoraConfig(r=2, target_modules=list(targets)))
            adapted.enable_input_require_grads()
            model = adapted
        found.append(_saved_bytes(model, is_autocast=is_autocast))
    return found[1] - found[0]


def _planned(**changes: object) -> Training:
    shape = read_shape(
        {
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": WIDTH,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "num_hidden_layers": 2,
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
        }
    )
    given = {
        "layout": Layout(),
        "family": "plain",
        "attention": "sdpa",
        "has_grouped_attention": True,
        "checkpointing": "none",
        **changes,
    }
    return replace(training(), model=shape, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "is_autocast", "targets", "changes"),
    [
        (torch.bfloat16, False, (), {}),
        (torch.float32, True, (), {"weight_bytes": 4.0}),
        (torch.bfloat16, True, ALL, {"method": "lora", "adapter_bytes": 4.0}),
        (torch.bfloat16, True, ("q_proj", "v_proj"), {"method": "lora", "adapter_bytes": 4.0}),
        (torch.float32, True, ALL, {"method": "lora", "weight_bytes": 4.0, "base_bytes": 4.0}),
    ],
)
def test_a_layer_keeps_what_hooks_count(
    dtype: torch.dtype, is_autocast: bool, targets: tuple[str, ...], changes: dict[str, object]
) -> None:
    t = _planned(**changes, **({"lora_targets": targets, "lora_rank": 2} if targets else {}))
    measured = _of_a_layer(dtype, is_autocast=is_autocast, targets=targets)
    planned = 2 * saved_elements(t.model.layers[0], t).total
    statistics = 4 * (2 + HEADS) + 2 * 2 * len(targets)  # fp32 of two norms and of attention; outputs of rank 2
    assert planned + statistics == pytest.approx(measured)


def test_under_autocast_a_checkpoint_is_in_fp32_and_fsdps_own_casts_leave_it_in_bf16() -> None:
    t = training(weight_bytes=4.0, layout=Layout(num_devices=8, shards=3))
    autocast = replace(t, mixed_precision="autocast")
    layer = t.model.layers[0]
    assert kept_elements(layer, autocast).total == 2 * kept_elements(layer, t).total == 2 * 4096
    assert saved_elements(layer, autocast).hidden == 13 * 4096
    assert saved_elements(layer, t).hidden == 8 * 4096
    held = [activations_of(each, only_stage(t), K, width=2.0).stored for each in (t, autocast)]
    assert held[1] > 1.9 * held[0]


def test_adapters_that_sharding_casts_share_what_goes_in() -> None:
    alone = _planned(method="lora", adapter_bytes=4.0)
    sharded = replace(alone, family="fsdp", layout=Layout(num_devices=8, shards=3))
    layer = alone.model.layers[0]
    copies = 5 - 2  # of the hidden state, and one of attention's output
    assert saved_elements(layer, alone).total - saved_elements(layer, sharded).total == (copies + 1) * HIDDEN
    dropped = replace(sharded, has_adapter_dropout=True)
    more = saved_elements(layer, dropped).total - saved_elements(layer, sharded).total
    assert more == (copies + 1) * HIDDEN + (6 * HIDDEN + WIDTH) / 2  # what is left of each, and a byte that says where


def test_a_base_that_fsdp_shards_passes_on_fp32_where_it_is_narrower_than_its_adapters() -> None:
    t = training(method="qlora", base_bytes=0.5, layout=Layout(num_devices=2, shards=3))
    layer = t.model.layers[0]
    assert kept_elements(layer, t).total == 2 * 4096
    narrow = replace(t, method="lora", base_bytes=2.0, adapter_bytes=4.0)
    assert kept_elements(layer, narrow).total == 2 * 4096
    alike = {"method": "lora", "base_bytes": 4.0, "adapter_bytes": 4.0}
    for changes in ({"kernels": "compiled"}, {"family": "deepspeed"}, alike):
        assert kept_elements(layer, replace(t, **changes)).total == 4096  # type: ignore[arg-type]


def test_dora_keeps_outputs_and_an_identity_matrix_of_each_input() -> None:
    lora = _planned(method="lora", lora_targets=("q_proj",))
    dora = replace(lora, is_dora=True)
    stage = only_stage(lora)
    more = activations_of(dora, stage, K, width=2.0).stored - activations_of(lora, stage, K, width=2.0).stored
    assert more == 2 * 2 * (2 * HIDDEN * lora.tokens + HIDDEN**2)  # layers, bytes


def test_old_bitsandbytes_in_a_loop_of_ones_own_holds_what_went_into_matrices_of_the_step_before() -> None:
    t = replace(_planned(method="qlora", lora_targets=("q_proj",)), keeps_last_inputs=True)
    before, layer = replace(t, keeps_last_inputs=False), t.model.layers[0]
    more = saved_elements(layer, t).total - saved_elements(layer, before).total
    assert more == 3 * HIDDEN + WIDTH  # before attention, its output, before the MLP, and the MLP's product
    plain = replace(t, method="lora")  # no matrix is packed
    assert saved_elements(layer, plain) == saved_elements(layer, replace(plain, keeps_last_inputs=False))


def test_joined_projections_stay_whole_and_old_code_keeps_inputs_of_frozen_matrices() -> None:
    t = _planned(method="lora", lora_targets=("q_proj", "v_proj"))
    layer, whole = t.model.layers[0], saved_elements(t.model.layers[0], _planned())
    assert saved_elements(layer, replace(t, keeps_frozen_inputs=True)) == whole
    joined = replace(t, has_joined_projections=True)
    assert saved_elements(layer, joined).total - saved_elements(layer, t).total == HIDDEN + HIDDEN // 2
