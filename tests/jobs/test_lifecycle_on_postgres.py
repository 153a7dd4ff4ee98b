"""Lifecycle, queue, launching, queries and hostile input on PostgreSQL: the same tests, with its locks and its JSON."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import Postgres

ROOT = Path(__file__).resolve().parents[2]
SAME = (
    "runs/test_lifecycle",
    "runs/test_admission",
    "runs/test_launch",
    "processes/test_reconcile",
    "test_reconcile_answers",
    "runs/test_prompt_model",
    "runs/test_queries",
    "telemetry/test_lock",
    "runs/test_resume",
    "runs/test_retry",
    "test_at_once",
    "sweeps/test_sweeps",
)


@pytest.mark.postgres
def test_the_same_tests_pass_on_postgresql(postgres: Postgres) -> None:
    files = [*(f"tests/jobs/{name}.py" for name in SAME), "tests/console/hostile/test_input.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--create-db", *files]

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": postgres.url},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
