"""What ranks, ZeRO stages, micro-batches, packing and layouts may not change of what a critic learns, and a policy from
preferences; `make proof-exactness` runs every variant, and holds whole runs against each other.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.engine.rank_variants import ADAPTERS_3, BESIDE, CRITICS_OF_ONE, CRITICS_OF_TWO, PREFERENCES, RESUMED

pytestmark = pytest.mark.engine
Steps = list[dict[str, float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the ranks write."""
    return tmp_path_factory.mktemp("critics")


@pytest.fixture(scope="module")
def found(folder: Path, warm_environment: dict[str, str]) -> dict[str, Steps]:
    """What all ranks together say of the steps of each variant."""
    return _run(folder, warm_environment, world_size=2) | _run(folder, warm_environment, world_size=1)


def _run(folder: Path, warm: dict[str, str], *, world_size: int) -> dict[str, Steps]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    command = [sys.executable, "-m", "tests.jobs.engine.critic_ranks", str(folder)]
    logs = [folder / f"{rank}-of-{world_size}.log" for rank in range(world_size)]
    running = []
    for rank, log in enumerate(logs):
        with log.open("wb") as out:
            whole = [*command, str(rank), str(world_size), str(port)]
            running.append(subprocess.Popen(whole, env=os.environ | warm, stdout=out, stderr=subprocess.STDOUT))
    try:
        for process, log in zip(running, logs, strict=True):
            assert process.wait(600) == 0, log.read_text(errors="replace")
    finally:
        for process in running:
            process.kill()
    ranks = [json.loads((folder / f"rank-{k}-of-{world_size}.json").read_text()) for k in range(world_size)]
    return {
        variant: [_together(told) for told in zip(*(r[variant] for r in ranks), strict=True)] for variant in ranks[0]
    }


def _together(told: tuple[dict[str, object], ...]) -> dict[str, float]:
    """Add up the shares of one step; the norm is the same on each rank."""
    sums: dict[str, float] = {}
    for of_rank in told:
        shares = of_rank["shares"]
        assert isinstance(shares, dict)
        for name, value in shares.items():
            sums[name] = sums.get(name, 0.0) + value
    norms = {of_rank["norm"] for of_rank in told}
    assert len(norms) == 1
    (norm,) = norms
    assert isinstance(norm, float)
    return sums | {"norm": norm}


def _run_of(*variants: str) -> list[str]:
    return [variant for variant in variants if variant in CRITICS_OF_TWO | CRITICS_OF_ONE]


@pytest.mark.slow("the first test waits for the ranks that all of them read")
@pytest.mark.parametrize("variant", _run_of("2", "3", "micro", "packed", "one rank", BESIDE))
def test_a_critic_learns_what_one_plain_replica_learns(found: dict[str, Steps], variant: str) -> None:
    """In float32 to 1e-5, the norm of the gradient to 1e-4 of itself."""
    for told, plain in zip(found[variant], found["0"], strict=True):
        assert told["loss/value"] == pytest.approx(plain["loss/value"], abs=1e-5)
        assert told["value/mean"] == pytest.approx(plain["value/mean"], abs=1e-5)
        assert told["norm"] == pytest.approx(plain["norm"], rel=1e-4)


@pytest.mark.parametrize("variant", PREFERENCES[2])
@pytest.mark.parametrize(("algorithm", "loss"), [("dpo", "loss/pairs"), ("kto", "loss/labels")])
def test_two_ranks_learn_from_preferences_what_one_learns(
    found: dict[str, Steps], algorithm: str, loss: str, variant: str
) -> None:
    """In float32 to 1e-5, the norm of the gradient to 1e-4 of itself."""
    one = found[f"{algorithm} 0"]

    assert one[2][loss] < one[0][loss]
    for told, plain in zip(found[f"{algorithm} {variant}"], one, strict=True):
        assert told.keys() == plain.keys() >= {loss}
        assert told["norm"] == pytest.approx(plain["norm"], rel=1e-4)
        for name in told.keys() - {"norm", "pairs/accuracy", "labels/accuracy"}:  # of numbers equal up to rounding
            assert told[name] == pytest.approx(plain[name], abs=1e-5, rel=1e-5), name


def test_it_learns(found: dict[str, Steps]) -> None:
    losses = [told["loss/value"] for told in found["0"]]

    assert found["0"][0]["value/mean"] == 0.0
    assert losses[2] < 0.9 * losses[0]


@pytest.mark.parametrize("variant", _run_of("bfloat16 2", "bfloat16 3"))
def test_in_bfloat16_it_stays_close_to_float32(found: dict[str, Steps], variant: str) -> None:
    told, exact = found[variant], found["0"]

    assert told[0]["norm"] == pytest.approx(exact[0]["norm"], rel=3e-3)
    assert [t["loss/value"] for t in told] == pytest.approx([t["loss/value"] for t in exact], abs=2e-3)
    assert [t["loss/value"] for t in told] != [t["loss/value"] for t in exact]


@pytest.mark.parametrize("variant", _run_of("adapters 2", ADAPTERS_3))
def test_with_adapters_it_learns_what_one_plain_replica_learns(found: dict[str, Steps], variant: str) -> None:
    for told, plain in zip(found[variant], found["adapters, one rank"], strict=True):
        assert told["loss/value"] == pytest.approx(plain["loss/value"], abs=1e-5)
        assert told["value/mean"] == pytest.approx(plain["value/mean"], abs=1e-5)
        assert told["norm"] == pytest.approx(plain["norm"], rel=1e-3)
    assert found[variant][2]["loss/value"] < found[variant][0]["loss/value"]


def test_adapters_and_the_head_alone_are_trained_and_kept(found: dict[str, Steps], folder: Path) -> None:
    """Another number of ranks in another stage goes on from what was kept."""
    names, optimizer_bytes = json.loads((folder / "trained.json").read_text())

    assert [name for name in names if ".lora_A." not in name and ".lora_B." not in name] == ["score.weight"]
    assert optimizer_bytes < 12 * 657_024 / 10  # of all its weights it would be more than five times as much
    assert found[RESUMED][0]["loss/value"] == pytest.approx(found["went on"][0]["loss/value"], abs=1e-5)
    assert found[RESUMED][0]["norm"] == pytest.approx(found["went on"][0]["norm"], rel=1e-3)
