"""What a line of a log says, whatever was put before it on its way."""

import logging
import subprocess
import sys

import pytest

from jobs.catalog.log_line import is_of_profiler, read_line, uncolored

FAILED = "MemoryError: Unable to allocate 16.0 GiB"
BEFORE = [
    "",
    "(pid=812) ",
    "(PolicyActor pid=812, ip=10.0.0.5) ",
    "\x1b[36m(TaskRunner pid=812)\x1b[0m ",
    "\x1b[36m(WorkerDict pid=812, ip=10.0.0.5)\x1b[0m [rank1]: ",
    "[rank1]: ",
    "[default1]:[rank1]: ",
    "(EngineCore_0 pid=812) ERROR 11-20 12:00:00 [core.py:700] ",
    "(pid=9, ip=10.0.0.5) \x1b[1;31mERROR 11-20 12:00:00 [v1/engine/core.py:700]\x1b[0;0m ",
    "2026-11-20 12:00:00,123\tERROR worker.py:42 -- ",
    "2026-11-20T12:00:00.123Z ",
    "2026-11-20 12:00:00 ",
    "2026-11-20 12:00:00.123 | ERROR    | trainer:fit:42 - ",
    "[2026-11-20 12:00:00,123][trainer][ERROR] - ",
    "[2026-11-20 12:00:00,123] ",
    "E1120 12:00:00.123000 812 torch/x.py:42] ",
    "ERROR: ",
    "  | ",
]


OF_PROFILER = [
    "ERROR: External init callback must run in same thread as registerClient (-994326848 != 1474609856)",
    "USDT:2026-11-30 06:03:37 17747:17809 SyncActivityProfilerHandler.cpp:52] profiler_start",
    "USDT:2026-11-30 06:03:40 17747:17809 SyncActivityProfilerHandler.cpp:59] profiler_stop",
]
"""What torch 2.13 wrote of a capture of a demo run on CPU that went well."""


@pytest.mark.parametrize("before", ["", "\x1b[36m(PolicyActor pid=812)\x1b[0m "])
def test_what_the_profiler_writes_of_a_capture_is_known(before: str) -> None:
    assert all(is_of_profiler(before + line) for line in OF_PROFILER)
    assert not any(is_of_profiler(line) for line in (FAILED, "ERROR: the trace could not be written: disk full"))


@pytest.mark.parametrize("before", BEFORE)
def test_what_was_put_before_a_line_does_not_count(before: str) -> None:
    assert read_line(before + FAILED).said == FAILED


@pytest.mark.parametrize("before", BEFORE)
def test_a_line_that_came_often_says_the_same(before: str) -> None:
    line = f"{before}{FAILED} [repeated 7x across cluster] (Ray deduplicates logs by default.)"

    assert read_line(line).said == FAILED


def test_whose_line_it_is_is_kept() -> None:
    line = read_line("\x1b[36m(PolicyActor pid=812, ip=10.0.0.5)\x1b[0m [rank1]: 2026-11-20 12:00:00 down")

    assert (line.label, line.rank, line.text, line.said) == ("PolicyActor", 1, "2026-11-20 12:00:00 down", "down")


@pytest.mark.parametrize(
    "line",
    [
        "step:3 - actor/pg_loss:0.1",
        "    raise MemoryError",
        "train_sft.py: error: the following arguments are required: --data.dataset",
        "(a remark) MemoryError",
        "WARNING MemoryError was survived",
        "INFO 11-20 12:00:00 [core.py:700] MemoryError was survived",
        "2026 samples",
        "",
    ],
)
def test_an_ordinary_line_is_itself(line: str) -> None:
    assert read_line(line).said == line


def test_a_warning_with_a_time_stays_one() -> None:
    assert read_line("2026-11-20 12:00:00,123 WARNING x.py:1 -- MemoryError").said == "WARNING x.py:1 -- MemoryError"


def test_what_python_s_own_logging_writes_is_read() -> None:
    record = logging.LogRecord("trainer", logging.ERROR, "x.py", 1, FAILED, None, None)

    assert read_line(logging.Formatter("%(asctime)s %(levelname)s %(message)s").format(record)).said == FAILED


def test_what_python_prints_of_one_exception_in_a_group_is_read() -> None:
    body = f"raise ExceptionGroup('ranks', [{FAILED.replace(': ', '(')!r} and MemoryError('16 GiB')])"
    printed = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False).stderr

    assert "MemoryError: 16 GiB" in [read_line(line).said for line in printed.splitlines()]


def test_an_endless_line_is_read_at_once() -> None:
    assert read_line("(" * 100_000).said == "(" * 100_000
    assert len(uncolored("\x1b[" * 100_000)) == 200_000
