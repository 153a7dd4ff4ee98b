"""The command `nsys` as the recorder uses it, with a stand-in."""

from pathlib import Path

import pytest

from profiling.launch_nsys import SESSION
from profiling.recorders import nsys
from profiling.recorders.nsys import PLUGIN, NsysRecorder
from profiling.recorders.recorder import RecorderFailed


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *, times: int, end: str = "kill -9 $$") -> None:
    """Put a command into nsys' place that ends so many times like that before it comes through."""
    script = folder / "nsys"
    script.write_text(
        f"#!/bin/sh\nn=$(ls {folder} | grep -c try)\n[ $n -ge {times} ] && exit 0\n: > {folder}/try$n\n{end}\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(nsys, "find_nsys", lambda: str(script))
    monkeypatch.setattr(nsys, "_KILLED_SECONDS", 0.0)
    monkeypatch.setattr(nsys, "_LOOK_SECONDS", 0.0)
    monkeypatch.setenv(SESSION, "s")


def test_a_command_that_was_killed_is_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, times=1)
    assert NsysRecorder()._ask("stop", seconds=60) == ""


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_a_command_that_lost_its_connection_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    stand_in(tmp_path, monkeypatch, times=2, end="echo End of file; exit 1")
    assert NsysRecorder()._ask(verb, seconds=60) == ""


def test_one_that_is_always_refused_says_what_nsys_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, times=9, end="echo End of file; exit 1")
    with pytest.raises(RecorderFailed, match=r"^nsys stop failed: End of file$"):
        NsysRecorder()._ask("stop", seconds=60)


def test_one_that_is_always_killed_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, times=9)
    with pytest.raises(RecorderFailed, match="nsys stop failed: exit code -9"):
        NsysRecorder()._ask("stop", seconds=60)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "nsys came to no end with its report."),
        (b"a report of which the end", "The report of nsys breaks off."),
        (b"a whole report with hunter22 in it [END]", ""),
    ],
)
def test_what_a_dead_process_left_is_whole_or_not_and_has_no_secrets(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "c1-policy-0.nsys-rep"
    path.write_bytes(content)

    assert PLUGIN.problem_of_left(path, {b"hunter22"}) == problem
    assert b"hunter22" not in path.read_bytes()
