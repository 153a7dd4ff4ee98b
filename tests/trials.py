"""The checks before a launch, answered in the test's process: each otherwise starts one, for two thirds of a second.

Real processes are tried in tests/jobs/preflight/, tests/jobs/runs/test_checks.py and by every journey.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.preflight.process import answer
from jobs.preflight import preview
from jobs.preflight.client import TrialFailed
from jobs.preflight.sandbox import Allowance


def trial_here(op: Mapping[str, object], *, timeout_seconds: float, allowance: Allowance) -> dict[str, Any]:
    """Return what the trial process would answer. Raises: TrialFailed."""
    assert allowance is not None
    told: dict[str, Any] = json.loads(_said(json.dumps(op)))
    if problem := told.get("problem"):
        raise TrialFailed(problem["field"], problem["message"])
    return told


_PREVIEWS: dict[str, str] = {}


def _said(op: str) -> str:
    """Return the answer as JSON. Of bundled data it is made once for all that it depends on: it takes half a second."""
    asked = json.loads(op)
    spec = asked.get("spec") or {}
    is_bundled = all(spec.get(part, {}).get("kind") == "bundled" for part in ("data", "model"))
    has_more = any(spec.get("data", {}).get(key) for key in ("eval_id", "eval_sets", "mixture"))  # files of the test's
    if asked["op"] != "preview" or not is_bundled or has_more:
        return json.dumps(answer(asked))
    depends_on = json.dumps([preview._data_depends_on(parse_spec(spec)), asked | {"spec": None}])
    if depends_on not in _PREVIEWS:
        _PREVIEWS[depends_on] = json.dumps(answer(asked))
    return _PREVIEWS[depends_on]


@pytest.fixture
def trials_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer trials in this process."""
    monkeypatch.setattr(preview, "run_trial", trial_here)
