"""vLLM on the policy's devices, where both take turns: one run is killed and goes on, and is compared with the layout
split.
"""

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.engine.conftest import GRPO, EndedRun

pytestmark = pytest.mark.engine
COLOCATED = GRPO | {
    "hardware": {"layout": "colocated", "policy_ranks": 1},
    "knobs": GRPO["knobs"] | {"rollout.engine": "vllm"},
}


@pytest.fixture(scope="module")
def killed(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """A run whose engine is killed after step 4, while it sleeps or waits for step 5."""
    running = start_engine(
        tmp_path_factory.mktemp("turns") / "a1", COLOCATED, program=("tests.jobs.engine.holding_run", "5")
    )
    running.wait_for_step(4)
    os.kill(writer_of(running.run_dir / "log" / "vllm-0.stdout"), signal.SIGKILL)
    running.hold_no_longer(5)
    return running.wait()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def resumed(start_engine: Any, killed: EndedRun) -> EndedRun:
    """The same run, gone on with from its checkpoint."""
    after = killed.run_dir.with_name("a2")
    after.mkdir()
    folder = killed.run_dir / "checkpoints" / "step-3"
    (after / "resume.json").write_text(json.dumps({"attempt": 1, "step": 3, "folder": str(folder)}))
    return start_engine(after, COLOCATED).wait()  # type: ignore[no-any-return]


def writer_of(log: Path) -> int:
    """Return the process whose standard output a file is."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "fd" / "1").readlink() == log:
                return int(folder.name)
    raise AssertionError(f"nobody writes {log}")


@pytest.mark.proof
@pytest.mark.slow("it starts a run and kills its engine")
def test_an_engine_that_dies_beside_the_policy_is_named(killed: EndedRun) -> None:
    assert killed.code == 1
    assert (killed.cause["side"], killed.cause["role"], killed.cause["rank"]) == ("cluster", "vllm", 0)
    assert {(e["role"], e["rank"]) for e in killed.of("span")} == {("driver", 0), ("policy", 0), ("vllm", 0)}


@pytest.mark.proof
@pytest.mark.slow("it waits for the run that goes on")
def test_it_goes_on_from_its_checkpoint_and_trains_to_the_end(resumed: EndedRun) -> None:
    assert resumed.code == 0, resumed.output
    assert sorted(resumed.series("sync/max_logprob_diff")) == [3, 4, 5, 6]
    assert max(resumed.series("sync/max_logprob_diff").values()) <= 1e-3
    assert all(value > 0 for value in resumed.series("sync/bytes").values())
    assert sorted(resumed.series("eval/accuracy")) == [6]


def test_samples_and_losses_are_those_of_engines_with_devices_of_their_own(
    killed: EndedRun, resumed: EndedRun, grpo: EndedRun
) -> None:
    for part, steps in ((killed, (1, 2, 3, 4)), (resumed, (4, 5, 6))):
        for step in steps:
            for name in ("reward/mean", "reward/std", "response/length_mean"):
                assert part.series(name)[step] == pytest.approx(grpo.series(name)[step], abs=1e-6), (name, step)
            for name in ("loss/policy", "kl/reference", "policy/entropy"):
                assert part.series(name)[step] == pytest.approx(grpo.series(name)[step], abs=1e-5), (name, step)
    assert resumed.series("eval/accuracy")[6] == grpo.series("eval/accuracy")[6]


def test_engine_and_policy_are_never_at_work_at_once(killed: EndedRun) -> None:
    busy = {"vllm": ("rollout", "eval"), "policy": ("update", "reference", "old_logprobs", "checkpoint")}
    spans = {
        role: [
            (e["start"], e["start"] + e["duration"])
            for e in killed.of("span")
            if e["role"] == role and e["phase"] in phases and e["depth"] == 0
        ]
        for role, phases in busy.items()
    }
    assert spans["vllm"]
    assert spans["policy"]
    assert not [
        (one, other) for one in spans["vllm"] for other in spans["policy"] if one[0] < other[1] and other[0] < one[1]
    ]
