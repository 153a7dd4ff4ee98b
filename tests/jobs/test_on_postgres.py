"""What the database takes part in, on a real PostgreSQL, with its locks and its JSON: the same tests once more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import Postgres

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 280
SAME = (
    "jobs/ingest/test_process",
    "jobs/test_ingest_process::test_killed_in_the_middle_it_stores_every_batch_once",
    "jobs/ingest/test_compaction",
    "jobs/telemetry/test_series",
    "jobs/telemetry/test_clean_series",
    "jobs/telemetry/test_spans",
    "jobs/telemetry/test_logs",
    "jobs/telemetry/test_samples",
    "jobs/telemetry/test_lock",
    "jobs/captures/test_state",
    "jobs/runs/test_lifecycle",
    "jobs/runs/test_admission",
    "jobs/runs/test_launch",
    "jobs/runs/test_prompt_model",
    "jobs/runs/test_queries",
    "jobs/runs/test_resume",
    "jobs/runs/test_retry",
    "jobs/processes/test_reconcile",
    "jobs/test_reconcile_answers",
    "jobs/test_at_once",
    "jobs/sweeps/test_sweeps",
    "console/api/test_ingest_api",
    "console/api/test_series_api",
    "console/captures/test_captures_api",
    "console/hostile/test_input",
)


@pytest.mark.postgres
@pytest.mark.processes
@pytest.mark.slow("500 tests of the light part, on another database")
def test_the_same_tests_pass_on_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    environment = {**os.environ, "DATABASE_URL": postgres.url, "PITWALL_DATA_DIR": str(tmp_path)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    files = [f"tests/{file}.py{of}{test}" for file, of, test in (name.partition("::") for name in SAME)]
    # The cluster goes away with everything in it, so nobody needs to drop the database under open connections.
    argv = [sys.executable, "-m", "pytest", "-q", "--reuse-db", "-p", "no:cacheprovider", *files]

    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout.strip().splitlines()[-1]
