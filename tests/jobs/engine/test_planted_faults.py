"""Diagnosis on a real run with two planted faults, and on one without; `make proof-diagnosis` has them all."""

from pathlib import Path
from typing import Any

import pytest

from profiling.diagnosis.finding import finding_of, rules
from tests.jobs.engine.conftest import EndedRun
from tests.proofs.run_evidence import evidence_of

pytestmark = pytest.mark.engine

STEPS = 8


@pytest.mark.proof
@pytest.mark.slow("a run of its own, which is slow on purpose")
def test_planted_faults_are_found_and_a_run_without_them_is_clear(
    grpo: EndedRun, start_engine: Any, tmp_path: Path
) -> None:
    knobs = {"train.num_steps": STEPS, "eval.num_prompts": 0, "checkpoint.every_steps": 0}
    knobs["train.micro_batch_size"] = 4  # late before each: more than what else may put a rank aside
    spec = {"algorithm": "sft", "knobs": knobs}
    ended = start_engine(tmp_path, spec, program=("tests.jobs.engine.late_run",)).wait()
    assert ended.code == 0, ended.output
    found = evidence_of(ended)

    late = finding_of("straggler", rules()["straggler"], found)
    assert late.state == "fires", late.sentence()
    assert late.observation is not None
    assert (late.observation.role, late.observation.rank) == ("policy", 1)
    waits = finding_of("data_wait", rules()["data_wait"], found)
    assert waits.state == "fires", waits.sentence()
    assert finding_of("data_wait", rules()["data_wait"], evidence_of(grpo)).state == "clear"
