"""The storage tests once more, all of them, on a real PostgreSQL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import Postgres

ROOT = Path(__file__).resolve().parents[2]
STORAGE_TESTS = [
    "tests/jobs/ingest/test_process.py",
    "tests/jobs/test_ingest_process.py",
    "tests/jobs/ingest/test_compaction.py",
    "tests/jobs/telemetry/test_series.py",
    "tests/jobs/telemetry/test_clean_series.py",
    "tests/jobs/telemetry/test_spans.py",
    "tests/jobs/telemetry/test_logs.py",
    "tests/jobs/telemetry/test_samples.py",
    "tests/jobs/captures/test_state.py",
    "tests/console/api/test_ingest_api.py",
    "tests/console/api/test_series_api.py",
    "tests/console/captures/test_captures_api.py",
]


@pytest.mark.postgres
def test_the_storage_tests_pass_on_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    environment = {**os.environ, "DATABASE_URL": postgres.url, "PITWALL_DATA_DIR": str(tmp_path)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    # The cluster goes away with everything in it, so nobody needs to drop the database under open connections.
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "--reuse-db", "-p", "no:cacheprovider", *STORAGE_TESTS]

    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    summary = done.stdout.strip().splitlines()[-1]
    assert " passed" in summary
