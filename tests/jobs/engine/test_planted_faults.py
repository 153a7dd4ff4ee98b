"""Diagnosis on a real run with two planted faults, and on one without; `make proof-diagnosis` has them all."""

import pytest

from profiling.diagnosis.finding import finding_of, rules
from tests.jobs.engine.conftest import EndedRun
from tests.proofs.diagnosis import Case, planted_head
from tests.proofs.run_evidence import evidence_of

pytestmark = pytest.mark.engine

CASE = Case(
    rule="straggler",
    text="policy 1 is late and each batch comes late",
    planted="straggler slow_data",
    spec={"knobs": {"train.num_steps": 18}, "profile": {"nsys_ready": "off"}},
)


@pytest.mark.slow("a Ray head whose processes carry the faults")
def test_planted_faults_are_found_and_a_run_without_them_is_clear(grpo: EndedRun) -> None:
    with planted_head() as runs:
        found = evidence_of(runs.with_fault("both", CASE))

    late = finding_of("straggler", rules()["straggler"], found)
    assert late.state == "fires", late.sentence()
    assert late.observation is not None
    assert (late.observation.role, late.observation.rank) == ("policy", 1)
    waits = finding_of("data_wait", rules()["data_wait"], found)
    assert waits.state == "fires", waits.sentence()
    assert finding_of("data_wait", rules()["data_wait"], evidence_of(grpo)).state == "clear"
