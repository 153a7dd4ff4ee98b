"""A role that traces processes of its own, and is in the middle of a call when that is to begin or end."""

import threading
from pathlib import Path

import pytest

from jobs.engine.workers import role_trace as module
from jobs.engine.workers.role_trace import RoleTrace


class Role:
    """Writes one file when it is told to end."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def start_trace(self) -> None:
        self.said.append("start")

    def stop_trace(self, stem: Path) -> list[Path]:
        self.said.append("stop")
        path = stem.with_name(f"{stem.name}-worker0.pt.trace.json.gz")
        path.write_text("trace")
        return [path]


@pytest.fixture
def calls() -> threading.Lock:
    return threading.Lock()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(module, "END_IDLE_SECONDS", 0.01)


def test_it_is_begun_and_ended_between_calls(calls: threading.Lock, tmp_path: Path) -> None:
    role, trace = Role(), RoleTrace(calls)

    assert trace.start(role, tmp_path / "c1-vllm-0") == ""
    assert trace.is_recording
    paths, problem = trace.stop()

    assert ([path.name for path in paths], problem) == (["c1-vllm-0-worker0.pt.trace.json.gz"], "")
    assert role.said == ["start", "stop"]


def test_a_call_that_goes_on_keeps_it_from_beginning(calls: threading.Lock, tmp_path: Path) -> None:
    role, trace = Role(), RoleTrace(calls)
    with calls:
        problem = trace.start(role, tmp_path / "c1-vllm-0")

    assert problem == "It is in the middle of a call that takes more than 0 s. Record whole steps."
    assert (trace.is_recording, role.said) == (False, [])


@pytest.mark.parametrize("next_one", ["call", "trace"])
def test_a_call_that_goes_on_costs_the_trace_which_ends_with_it(
    calls: threading.Lock, tmp_path: Path, next_one: str
) -> None:
    role, trace = Role(), RoleTrace(calls)
    trace.start(role, tmp_path / "c1-vllm-0")
    with calls:
        paths, problem = trace.stop()
        assert role.said == ["start"]
        if next_one == "call":
            trace.between_calls()  # as the actor does before it lets the lock go

    assert (paths, "its trace is dropped" in problem) == ([], True)
    assert trace.start(role, tmp_path / "c2-vllm-0") == ""
    assert role.said == ["start", "stop", "start"]
    assert list(tmp_path.iterdir()) == []
