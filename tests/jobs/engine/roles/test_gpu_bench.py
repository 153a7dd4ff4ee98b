"""`make gpu-bench` in its CPU form: the same passes over a tiny model; only a GPU's numbers say anything."""

import math
from dataclasses import replace

import pytest

from tests.bench.gpu_policy import CASES, SHAPES, SMALL, Case, equality, measure, training_flops


@pytest.mark.parametrize("case", SMALL)
def test_each_way_to_train_is_measured_phase_by_phase(case: Case) -> None:
    found = measure(case, "cpu", turns=1, peak_flops=1e12)

    assert found["parameters"] == 107_072
    for phase in ("score", "backward", "optimizer"):
        assert found[phase]["seconds"] > 0
    assert 0 < found["update_mfu"] < found["backward"]["mfu"]


def test_in_bfloat16_the_gradient_is_the_same_however_it_is_computed() -> None:
    apart = equality("cpu", "tiny")

    assert apart["whole_logits"] < 1e-3
    assert apart["pieces"] < 0.01
    assert apart["packed"] < 0.01
    assert 0 < apart["float32"] < 0.02


def test_operations_by_hand() -> None:
    """6 a parameter and token, of the output layer where it counts; 6 L D T for the attention of each token."""
    case = replace(CASES[0], shape="1.5B", num_sequences=1, length=1000, answer=400)
    shape = SHAPES["1.5B"]
    layer = 1536 * 1536 * 2 + 2 * 1536 * 256 + 3 * 1536 * 8960

    by_hand = 6 * (28 * layer * 1000 + 151936 * 1536 * 400) + 6 * 28 * 1536 * 1000 * 1000

    ragged = replace(case, num_sequences=2, is_ragged=True)
    assert (ragged.lengths(), ragged.counted()) == ([1000, 62], [500, 31])
    assert training_flops(ragged) < training_flops(replace(case, num_sequences=2)) * 0.6
    assert shape.hidden_size == 1536
    assert math.isclose(training_flops(case), by_hand)
