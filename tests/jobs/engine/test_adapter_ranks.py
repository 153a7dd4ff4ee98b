"""Policy ranks that train adapters: what ZeRO and the number of ranks may not change, and what they hold.

`make proof-exactness` runs every case with one rank and with two.
"""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from console.embedded.ports import free_block
from tests.jobs.engine.conftest import HOUSE
from tests.jobs.engine.rank_variants import ADAPTER_CASES

pytestmark = pytest.mark.engine
WHOLE_ELEMENTS = 657_024
FOUR_BITS = "4 bits ZeRO-2"
RUN = [f"{case} x{ranks}" for ranks, cases in ADAPTER_CASES.items() for case in cases]


def _run_of(*cases: str) -> list[str]:
    return [case for case in cases if case in RUN]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, warm_environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What was measured, by case and number of ranks."""
    run_dir = tmp_path_factory.mktemp("adapters")
    for ranks in (2, 1):
        (port,) = free_block(1, seed=str(run_dir))
        program = [sys.executable, "-m", "tests.jobs.engine.adapter_ranks", str(run_dir)]
        processes = [
            subprocess.Popen(
                [*program, str(rank), str(ranks), str(port)],
                cwd=HOUSE,
                env=os.environ | warm_environment,
                stderr=subprocess.PIPE,
            )
            for rank in range(ranks)
        ]
        for process in processes:
            _, errors = process.communicate(timeout=1200)
            assert process.returncode == 0, errors.decode()[-3000:]
    return {path.stem: torch.load(path, weights_only=False) for path in run_dir.glob("*.pt")}


@pytest.mark.slow("the first test waits for the ranks that all of them read")
@pytest.mark.parametrize("case", _run_of("ZeRO-0 x2", "ZeRO-2 x2", "ZeRO-3 x2", "ZeRO-0 x1", "ZeRO-3 x1"))
def test_losses_gradients_and_merged_weights_are_those_of_one_rank_without_zero(
    found: dict[str, dict[str, Any]], case: str
) -> None:
    here, one = found[case], found["ZeRO-2 x1"]

    for (shares, norm), (shares_of_one, norm_of_one) in zip(here["told"], one["told"], strict=True):
        # shares of a rank are parts of the whole, so only those of one rank compare; the norm is of all ranks
        if case.endswith("x1"):
            assert shares == pytest.approx(shares_of_one, abs=1e-5)
        assert norm == pytest.approx(norm_of_one, rel=1e-3)
    assert list(here["weights"]) == list(one["weights"]) == here["metadata"]["names"]
    assert len({norm for _, norm in here["told"]}) == 3
    for name, weight in here["weights"].items():
        torch.testing.assert_close(weight, one["weights"][name], atol=1e-4, rtol=0)
    torch.testing.assert_close(here["policy"], one["policy"], atol=1e-3, rtol=0)


@pytest.mark.parametrize("case", [case for case in RUN if not case.startswith(("resumed", FOUR_BITS))])
def test_without_its_adapters_the_policy_is_the_reference(found: dict[str, dict[str, Any]], case: str) -> None:
    here = found[case]
    bound = 0.05 if case.startswith("bfloat16") else 1e-5

    torch.testing.assert_close(here["reference"], here["base"], atol=bound, rtol=0)
    assert (here["policy"] - here["base"]).abs().max() > 0.05


@pytest.mark.parametrize("case", [case for case in ("DoRA ZeRO-2", FOUR_BITS) if case in ADAPTER_CASES[2]])
def test_with_magnitudes_and_beside_4_bits_two_ranks_learn_what_one_learns(
    found: dict[str, dict[str, Any]], case: str
) -> None:
    two, one, plain = (found[name] for name in (f"{case} x2", f"{case} x1", "ZeRO-2 x1"))

    assert [norm for _, norm in two["told"]] == pytest.approx([norm for _, norm in one["told"]], rel=1e-3)
    torch.testing.assert_close(two["weights"], one["weights"], atol=1e-4, rtol=0)
    assert (two["share"].num_trained > plain["share"].num_trained) is case.startswith("DoRA")


@pytest.mark.skipif(FOUR_BITS not in ADAPTER_CASES[2], reason="bitsandbytes is not installed")
def test_a_base_in_4_bits_takes_less_and_is_rounded(found: dict[str, dict[str, Any]]) -> None:
    two, one, plain = (found[case] for case in (f"{FOUR_BITS} x2", f"{FOUR_BITS} x1", "ZeRO-2 x1"))

    torch.testing.assert_close(two["policy"], one["policy"], atol=1e-3, rtol=0)
    assert two["metadata"] == plain["metadata"]
    assert 1e-3 < (two["reference"] - two["base"]).abs().mean() < 0.5  # the reference is rounded, too
    assert two["share"].num_all == plain["share"].num_all
    assert two["readings"]["parameter_bytes"] < 0.6 * plain["readings"]["parameter_bytes"]


@pytest.mark.parametrize("case", _run_of("ZeRO-2 x2", "ZeRO-3 x2", "bfloat16 ZeRO-2 x2"))
def test_gradients_and_optimizer_are_of_adapters_alone(found: dict[str, dict[str, Any]], case: str) -> None:
    held, share = found[case]["readings"], found[case]["share"]
    element = 2 if case.startswith("bfloat16") else 4

    assert share.num_trained < 0.1 * WHOLE_ELEMENTS
    assert share.num_all == WHOLE_ELEMENTS + share.num_trained
    assert share.num_bytes == element * share.num_trained
    assert held["gradient_bytes"] <= 4.1 * share.num_trained
    assert held["optimizer_bytes"] <= 12.1 * share.num_trained / 2


def test_checkpoints_hold_adapters_alone(found: dict[str, dict[str, Any]]) -> None:
    first = found["ZeRO-3 x2"]

    assert all(".lora_A." in name or ".lora_B." in name for name in first["state"]["names"])
    assert sum(part.size for part in first["parts"]) < 4 * 3 * first["share"].num_trained  # half of it, and headers
    assert set(first["adapters"][0]) == {
        f"base_model.model.{name}".replace(".default.", ".") for name in first["state"]["names"]
    }


@pytest.mark.parametrize("ranks", [ranks for ranks in ADAPTER_CASES if "resumed" in ADAPTER_CASES[ranks]])
def test_another_number_of_ranks_and_another_stage_go_on_from_them(
    found: dict[str, dict[str, Any]], ranks: int
) -> None:
    first, resumed = found["ZeRO-3 x2"], found[f"resumed x{ranks}"]

    torch.testing.assert_close(resumed["after resume"], first["policy"], atol=1e-5, rtol=0)
    assert resumed["next"][1] == pytest.approx(first["next"][1], rel=1e-3)
