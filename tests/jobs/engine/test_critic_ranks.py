"""What ranks, ZeRO stages, micro-batches, packing and layouts may not change of what a critic learns."""

import json
from typing import Any

import pytest

from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def found(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three steps of each variant."""
    folder = tmp_path_factory.mktemp("critics")
    ended: EndedRun = start_engine(folder, {}, program=("tests.jobs.engine.critic_ranks",)).wait()
    assert ended.code == 0, ended.output
    return json.loads((ended.run_dir / "found.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.slow("the first test waits for the ranks that all of them read")
@pytest.mark.parametrize("variant", ["2", "3", "micro", "packed 3", "one rank", "beside"])
def test_a_critic_learns_what_one_plain_replica_learns(found: dict[str, Any], variant: str) -> None:
    """In float32 to 1e-5, the norm of the gradient to 1e-4 of itself."""
    for told, plain in zip(found[variant], found["0"], strict=True):
        assert told["loss/value"] == pytest.approx(plain["loss/value"], abs=1e-5)
        assert told["value/mean"] == pytest.approx(plain["value/mean"], abs=1e-5)
        assert told["value/grad_norm"] == pytest.approx(plain["value/grad_norm"], rel=1e-4)


def test_it_learns(found: dict[str, Any]) -> None:
    losses = [told["loss/value"] for told in found["0"]]

    assert found["0"][0]["value/mean"] == 0.0
    assert losses[2] < 0.9 * losses[0]


@pytest.mark.parametrize("variant", ["2", "3"])
def test_in_bfloat16_it_stays_close_to_float32(found: dict[str, Any], variant: str) -> None:
    told, exact = found[f"bfloat16 {variant}"], found["0"]

    assert told[0]["value/grad_norm"] == pytest.approx(exact[0]["value/grad_norm"], rel=3e-3)
    assert [t["loss/value"] for t in told] == pytest.approx([t["loss/value"] for t in exact], abs=2e-3)
    assert [t["loss/value"] for t in told] != [t["loss/value"] for t in exact]
