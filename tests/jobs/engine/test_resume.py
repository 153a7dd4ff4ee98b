"""Going on from a checkpoint: with the same ranks, with others, and where the nodes share no disk."""

import json
from typing import Any

import pytest

from .conftest import Ended

pytestmark = pytest.mark.engine
SFT: dict[str, Any] = {"algorithm": "sft", "knobs": {"train.batch_size": 32}}


@pytest.fixture(scope="module")
def layouts(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Six steps of SFT with a checkpoint after the third, and three steps from it in other layouts."""
    ended: Ended = start_engine(
        tmp_path_factory.mktemp("layouts"), SFT, program=("tests.jobs.engine.resuming", "few")
    ).wait()
    assert ended.code == 0, ended.output
    return json.loads((ended.run_dir / "found.json").read_text())  # type: ignore[no-any-return]


def test_losses_after_a_resume_are_those_of_the_run_that_went_on(layouts: list[dict[str, Any]]) -> None:
    for saved in layouts:
        for target, resumed in saved["resumed"].items():
            assert resumed["losses"] == pytest.approx(saved["losses"][3:], abs=1e-5), (saved["source"], target)
