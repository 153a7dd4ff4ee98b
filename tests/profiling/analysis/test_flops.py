"""FLOPs and MFU of cases that were computed by hand, and against torch's own counter."""

import pytest

from profiling.analysis.flops import FlopsModel, counted, forward_flops, operator_flops, training_flops, use


def test_training_a_model_counts_three_passes() -> None:
    # 1,000 tokens through 7e9 parameters: 2 * 7e9 each; without attention 6 N D in all.
    found = training_flops(FlopsModel(parameters=7e9), tokens=1000, context=0)
    assert found.model == 6 * 7e9 * 1000
    assert found.executed == found.model
    assert found.formula == "3 × 1,000 tokens × (2 × 7 G parameters) = 42 TFLOP"


def test_attention_sees_half_of_the_document_and_recomputation_is_no_use() -> None:
    model = FlopsModel(parameters=1e6, layers=2, width=64)
    forward = 10 * (2e6 + 4 * 2 * 64 * (99 + 1) / 2)
    assert forward_flops(model, tokens=10, context=99) == forward
    found = training_flops(model, tokens=10, context=99, recompute="full")
    assert (found.model, found.executed) == (3 * forward, 4 * forward)
    assert "4 × 2 layers × 64 × (99 + 1) / 2" in found.formula
    with pytest.raises(ValueError, match="recompute: 'some' is not one of none, selective, full"):
        training_flops(model, tokens=1, context=1, recompute="some")


def test_the_share_of_the_peak_says_how_it_was_computed() -> None:
    # 8 devices of 989 TFLOP/s for 2 s could do 1.5824e16.
    found = use(6.3296e15, seconds=2, devices=8, peak=989e12)
    assert found is not None
    assert found.share == pytest.approx(0.4)
    assert found.formula == "6.33 PFLOP / (2 s × 8 × 989 TFLOP/s) = 40 %"
    assert use(1e15, seconds=0, devices=8, peak=1e12) is None
    assert use(1e15, seconds=1, devices=8, peak=0) is None


@pytest.mark.parametrize(
    ("name", "dims", "flops"),
    [
        ("aten::mm", [[3, 4], [4, 5]], 2 * 3 * 4 * 5),
        ("aten::addmm", [[5], [3, 4], [4, 5], [], []], 2 * 3 * 4 * 5),
        ("aten::bmm", [[7, 3, 4], [7, 4, 5]], 7 * 2 * 3 * 4 * 5),
        ("aten::baddbmm", [[7, 3, 5], [7, 3, 4], [7, 4, 5]], 7 * 2 * 3 * 4 * 5),
        ("aten::linear", [[3, 4], [5, 4]], None),  # the mm in it counts
        ("aten::mm", [[3, 4], [5, 5]], None),
        ("aten::mm", [], None),
        ("aten::mm", [[3, "4"], [4, 5]], None),
        ("aten::mm", [[1 << 60, 4], [4, 5]], None),
        (
            "aten::_scaled_dot_product_flash_attention",
            [[2, 8, 16, 32], [2, 8, 24, 32], [2, 8, 24, 32]],
            2 * 8 * 16 * 24 * 128,
        ),
    ],
)
def test_products_and_attention_by_their_sizes(name, dims, flops) -> None:
    assert operator_flops(name, dims) == flops


def test_causal_attention_is_half_of_it_and_its_backward_five_products_for_two() -> None:
    dims = [[2, 8, 16, 32]] * 3
    whole = 2 * 8 * 16 * 16 * 128
    assert operator_flops("aten::_scaled_dot_product_flash_attention", dims, is_causal=True) == whole / 2
    backward = "aten::_scaled_dot_product_flash_attention_backward"
    assert operator_flops(backward, [[2, 8, 16, 32], *dims]) == 2.5 * whole


def test_calls_without_shapes_are_told_and_not_guessed() -> None:
    found = counted(
        [
            ("aten::mm", {"Input Dims": [[3, 4], [4, 5]]}, 10),
            ("aten::mm", {}, 4),
            ("aten::bmm", {"Input Dims": [[1, 3, 4], [1, 4, 5]]}, 1),
        ]
    )
    assert found.flops == 10 * 120 + 120
    assert found.by_operator == (("aten::mm", 1200.0), ("aten::bmm", 120.0))
    assert (found.with_shapes, found.without_shapes) == (11, 4)


def test_sizes_are_counted_as_torch_counts_them() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    a, b, c = torch.ones(6, 4), torch.ones(4, 5), torch.ones(5)
    with FlopCounterMode(display=False) as mode:
        torch.addmm(c, a, b)
        torch.bmm(torch.ones(3, 6, 4), torch.ones(3, 4, 5))
    ours = operator_flops("aten::addmm", [[5], [6, 4], [4, 5]]) + operator_flops("aten::bmm", [[3, 6, 4], [3, 4, 5]])
    assert ours == mode.get_total_flops()
