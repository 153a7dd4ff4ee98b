"""Diagnosis on a real run with two planted faults, and on one without; `make proof-diagnosis` has them all."""

import pytest

from profiling.finding import judged, rules
from tests.jobs.engine.conftest import Ended
from tests.proofs.diagnosis import Case, planted_head
from tests.proofs.run_evidence import evidence_of

pytestmark = pytest.mark.engine

CASE = Case(
    rule="straggler",
    text="policy 1 is late and each batch comes late",
    planted="straggler slow_data",
    spec={"knobs": {"train.num_steps": 18}, "profile": {"nsys_ready": "off"}},
)


def test_planted_faults_are_found_and_a_run_without_them_is_clear(grpo: Ended) -> None:
    with planted_head() as runs:
        found = evidence_of(runs.with_fault("both", CASE))

    late = judged("straggler", rules()["straggler"], found)
    assert late.state == "fires", late.sentence()
    assert late.seen is not None
    assert (late.seen.role, late.seen.rank) == ("policy", 1)
    waits = judged("data_wait", rules()["data_wait"], found)
    assert waits.state == "fires", waits.sentence()
    assert judged("data_wait", rules()["data_wait"], evidence_of(grpo)).state == "clear"
