"""What is said of a job that ended without its runner's terminal event."""

from typing import Any

import pytest

from jobs.cluster.ray_api import JobInfo
from jobs.runs.exit_cause import exit_cause_of
from tests.jobs.catalog.test_log_line import OF_PROFILER

LOG = "Job entrypoint command failed with exit code {code}, last available logs (truncated to 20,000 chars):\n{line}\n"


def died(code: int, line: str) -> dict[str, Any]:
    message = LOG.format(code=code, line=line)
    return exit_cause_of(JobInfo(submission_id="run-r-1-a1", status="FAILED", message=message, exit_code=code))


def test_a_node_without_the_interpreter_is_told_from_a_fault_of_ours(settings: Any) -> None:
    settings.RUNNER_PYTHON = "/nowhere/python"

    cause = died(127, "/bin/sh: 1: /nowhere/python: not found")

    assert cause["side"] == "cluster"
    assert "no interpreter /nowhere/python" in cause["text"]
    assert "PITWALL_RUNNER_PYTHON" in cause["text"]


def test_a_node_that_takes_no_run_directory_is_told_with_what_to_do() -> None:
    cause = died(1, "The run directory /data/r-1/a1 cannot be used: [Errno 13] Permission denied: '/data/r-1'")

    assert cause["side"] == "cluster"
    assert "Permission denied: '/data/r-1'. Set PITWALL_RUN_ROOT" in cause["text"]


def test_a_full_disk_is_told_as_one_and_not_as_a_wrong_folder() -> None:
    cause = died(1, "The run directory /data/r-1/a1 cannot be used: [Errno 28] No space left on device")

    assert cause["side"] == "cluster"
    assert cause["text"].endswith("the disk of the run directories is full. Free space there")


@pytest.mark.parametrize("after", ["", *OF_PROFILER])
def test_other_ends_name_the_exit_code(after: str) -> None:
    cause = died(3, f"something else\n{after}")

    assert cause["side"] == "pitwall"
    assert "exit code 3" in cause["text"]
    assert cause["log_line"] == "something else"
