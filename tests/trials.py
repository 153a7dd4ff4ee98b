"""The checks before a launch, answered in the test's process: each otherwise starts one, for two thirds of a second.

Real processes are tried in tests/jobs/preflight/, tests/jobs/runs/test_checks.py and by every journey.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from jobs.engine.preflight.process import answer
from jobs.preflight import preview
from jobs.preflight.client import TrialFailed
from jobs.preflight.sandbox import Allowance


def trial_here(op: Mapping[str, object], *, timeout_seconds: float, allowance: Allowance) -> dict[str, Any]:
    """Return what the trial process would answer. Raises: TrialFailed."""
    assert allowance is not None
    told: dict[str, Any] = json.loads(json.dumps(answer(json.loads(json.dumps(op)))))
    if problem := told.get("problem"):
        raise TrialFailed(problem["field"], problem["message"])
    return told


@pytest.fixture
def trials_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer trials in this process."""
    monkeypatch.setattr(preview, "run_trial", trial_here)
