"""Captures on the driver's side: armed, recorded, collected or failed; training is spared any trouble.

Ray is stood for by calls that are answered at once, so that workers can fail where a test wants it.
"""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from ray.exceptions import RayActorError

from jobs.engine import captures as captures_module
from jobs.engine.captures import EngineCaptures
from jobs.engine.workers.worker import Worker

TRACE = b"events" * 2_000_000  # more than one piece


class Method:
    """`actor.method.remote(...)`, answered when it is asked for."""

    def __init__(self, name: str, said: list[str], body: Any) -> None:
        self._name, self._said, self._body = name, said, body

    def remote(self, *arguments: Any, **_: Any) -> Any:
        self._said.append(self._name)
        return lambda: self._body(*arguments)

    def options(self, **_: Any) -> "Method":
        return self


class FakeActor:
    """A worker that records as it is told."""

    def __init__(self, name: str, **answers: Any) -> None:
        self.name, self.said, self.capture = name, [], ""
        self.answers = answers
        for method in ("start_recording", "stop_recording", "recording_outcome", "read_recording", "remove_recording"):
            body = partial(self.answer, method)
            setattr(self, method, Method(method, self.said, body))
        self.profilers = Method(
            "profilers",
            self.said,
            lambda: self.answers.get("profilers", {"torch": "", "nsys": "nsys is not installed."}),
        )

    def answer(self, method: str, *arguments: Any) -> Any:
        if method in self.answers:
            found = self.answers[method]
            if isinstance(found, Exception):
                raise found
            return found() if callable(found) else found
        match method:
            case "start_recording":
                self.capture = arguments[1]
                return ""
            case "stop_recording":
                return [f"/there/{self.capture}-{self.name}.pt.trace.json.gz"], ""
            case "recording_outcome":
                return len(TRACE), "", "torch 2.99 (kineto)"
            case "read_recording":
                _, offset, size = arguments
                return TRACE[offset : offset + size]
        return None


class FakeReport:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.captures: list[tuple[str, str, str, dict[str, Any]]] = []
        self.artifacts: list[tuple[str, dict[str, Any]]] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []

    def capture(self, capture: str, state: str, *, step: int, text: str = "", **meta: Any) -> None:
        self.captures.append((capture, state, text, meta))

    def artifact(self, name: str, **about: Any) -> None:
        self.artifacts.append((name, about))

    def note(self, text: str, *, step: int, **meta: Any) -> None:
        self.notes.append((text, meta))

    def say(self, line: str) -> None: ...

    def states(self, capture: str) -> list[str]:
        return [state for name, state, _, _ in self.captures if name == capture]

    def text(self, capture: str) -> str:
        return [text for name, _, text, _ in self.captures if name == capture][-1]


class Stage:
    """Captures with their surroundings."""

    made: ClassVar[list["Stage"]] = []

    def __init__(self, run_dir: Path, **actors: FakeActor) -> None:
        self.actors = {"policy_0": FakeActor("policy-0"), "policy_1": FakeActor("policy-1")} | actors
        here: Any = SimpleNamespace(name="node-a")
        workers = [Worker(self.actors[f"policy_{i}"], role="policy", rank=i, node=here) for i in range(2)]
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.report = FakeReport()
        self.run_dir = run_dir
        group: Any = SimpleNamespace(all=lambda: workers, by_role={"policy": workers, "vllm": []})
        commands: Any = SimpleNamespace(take_captures=self._take)
        report: Any = self.report
        self.captures = EngineCaptures(workers=group, report=report, commands=commands, run_dir=run_dir)
        self.made.append(self)

    def _take(self) -> list[tuple[str, dict[str, Any]]]:
        taken, self.commands = self.commands, []
        return taken

    def ask(self, capture: str, **change: Any) -> None:
        payload = {"capture": capture, "tool": "torch", "first_step": 0, "num_steps": 2, "roles": [], "ranks": []}
        self.commands.append(("profile", payload | change))

    def withdraw(self, *captures: str) -> None:
        self.commands += [("withdraw", {"capture": capture}) for capture in captures]

    def end(self, *captures: str) -> None:
        self.commands += [("finish", {"capture": capture}) for capture in captures]

    def steps(self, *steps: int) -> None:
        for step in steps:
            self.captures.before_step(step)
            self.captures.after_step(step, seconds=float(step))


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def wait(references: list[Any], *, num_returns: int, timeout: float) -> None:
        del num_returns, timeout
        for reference in references:
            reference()

    ray = SimpleNamespace(get=lambda reference, timeout: reference(), wait=wait)
    monkeypatch.setattr(captures_module, "ray", ray)
    monkeypatch.setattr(captures_module, "POLL_SECONDS", 0.01)
    yield
    for capture in [capture for stage in Stage.made for capture in stage.captures._captures]:
        capture.wait(0)  # it gives up
    Stage.made.clear()
    for thread in [one for one in threading.enumerate() if one.name.startswith("capture ")]:
        thread.join(60)  # none of them may meet the real Ray
        assert not thread.is_alive()


def test_files_are_fetched_whole_announced_and_removed_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=2)

    stage.steps(1, 2, 3, 4)
    stage.captures.finish(4)

    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing", "importing"]
    assert [name for name, _ in stage.report.artifacts] == [f"a-policy-{i}.pt.trace.json.gz" for i in range(2)]
    for _, about in stage.report.artifacts:
        assert (tmp_path / about["path"]).read_bytes() == TRACE
        assert (about["size"], about["sha256"]) == (len(TRACE), hashlib.sha256(TRACE).hexdigest())
        assert (about["capture"], about["tool"], about["first_step"], about["num_steps"]) == ("a", "torch", 2, 2)
        assert about["tool_version"] == "torch 2.99 (kineto)"
    assert all(actor.said[-1] == "remove_recording" for actor in stage.actors.values())
    assert list(tmp_path.rglob("*.part")) == []


def test_what_it_cost_is_told_beside_the_steps_around(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=3)

    stage.steps(1, 2, 3, 4)
    stage.captures.finish(4)

    overhead = stage.report.captures[-1][3]["overhead"]
    assert overhead["step_seconds"] == [3.0, 4.0]
    assert overhead["neighbor_step_seconds"] == 2.0  # step 1, which starts everything, does not count
    assert overhead["start_seconds"] >= 0


def test_the_next_step_is_meant_by_0_and_waits_for_a_capture_under_way(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a")
    stage.steps(5)
    stage.ask("b", num_steps=1)
    stage.steps(6, 7)
    stage.captures.finish(7)

    assert sorted(about["first_step"] for _, about in stage.report.artifacts) == [5, 5, 7, 7]


def test_steps_that_are_past_or_taken_are_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=4, num_steps=3)
    stage.ask("b", first_step=5)
    stage.steps(4, 5)
    stage.ask("c", first_step=2)
    stage.steps(6)

    assert stage.report.text("b") == "Capture a records steps 4 to 6. Ask for steps from 7 on."
    assert stage.report.text("c") == "The run is at step 6; steps 2 to 3 are past."
    assert {stage.report.states(name)[-1] for name in "bc"} == {"failed"}


def test_a_command_without_an_id_is_told_as_a_note(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("../x")
    stage.steps(1)

    assert "is not the id of a capture" in stage.report.notes[0][0]
    assert stage.report.captures == []


def test_workers_that_cannot_record_are_named_and_the_others_do(tmp_path: Path) -> None:
    stage = Stage(tmp_path, policy_1=FakeActor("policy-1", start_recording="nsys is not installed on node n."))
    stage.ask("a")

    stage.steps(1, 2)
    stage.captures.finish(2)

    assert stage.report.states("a")[-1] == "importing"
    assert stage.report.text("a") == "Not recorded: policy-1: nsys is not installed on node n."
    assert [name for name, _ in stage.report.artifacts] == ["a-policy-0.pt.trace.json.gz"]
    assert "stop_recording" not in stage.actors["policy_1"].said


def test_a_capture_that_no_worker_can_record_has_failed(tmp_path: Path) -> None:
    absent = {
        f"policy_{i}": FakeActor(f"policy-{i}", start_recording="nsys is not installed on node n.") for i in range(2)
    }
    stage = Stage(tmp_path, **absent)
    stage.ask("a")
    stage.steps(1)

    assert stage.report.states("a") == ["armed", "failed"]
    assert stage.report.text("a") == "policy-0, policy-1: nsys is not installed on node n."


@pytest.mark.parametrize(
    ("method", "answer", "why"),
    [
        ("start_recording", RuntimeError("the actor died\nof something"), "rank 0 did not answer: the actor died"),
        ("stop_recording", TimeoutError(), "policy rank 0 did not answer: TimeoutError"),
        ("stop_recording", ([], "nsys stop failed: no session"), "policy-0: nsys stop failed: no session"),
        ("recording_outcome", (-1, "The trace was not written: disk full", ""), "policy-0: The trace was not written"),
        ("read_recording", OSError("gone"), "policy-0: OSError: gone"),
        ("read_recording", b"", "policy-0: 0 of 12000000 bytes arrived."),
    ],
)
def test_trouble_with_a_worker_stays_with_the_capture(tmp_path: Path, method: str, answer: Any, why: str) -> None:
    stage = Stage(tmp_path, policy_0=FakeActor("policy-0", **{method: answer}))
    stage.ask("a", ranks=[0])

    stage.steps(1, 2)
    stage.captures.finish(2)

    assert stage.report.states("a")[-1] == "failed"
    assert why in stage.report.text("a")


def test_the_end_of_the_run_keeps_what_was_recorded_and_names_what_was_not(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=2, num_steps=10)
    stage.ask("b", first_step=50)
    stage.captures.before_step(2)
    stage.ask("c", first_step=60)

    stage.captures.finish(2)

    assert stage.report.states("a")[-1] == "importing"
    told = [meta for name, _, _, meta in stage.report.captures if name == "a"][-1]
    assert told["num_steps"] == stage.report.artifacts[0][1]["num_steps"] == 1
    assert stage.report.text("b") == "The run ended after step 2, before steps 50 to 51."
    assert stage.report.states("c") == ["armed", "failed"]


def test_a_failed_run_brings_what_its_workers_have_and_leaves_the_terminal_event_to_the_runner(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", num_steps=5)
    stage.ask("b", first_step=9)
    stage.steps(1)

    stage.captures.abandon("policy rank 1 died")

    assert stage.report.text("b") == "The run failed: policy rank 1 died"
    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing"]
    assert len(stage.report.artifacts) == 2
    told = stage.report.captures[-1][3]
    assert (told["first_step"], told["num_steps"]) == (1, 1)
    assert told["truncated"] == "The run failed: policy rank 1 died"


def test_a_run_that_fails_while_a_recording_is_being_ended_does_not_end_it_twice(tmp_path: Path) -> None:
    def fails_meanwhile() -> tuple[list[str], str]:
        stage.captures.abandon("policy rank 1 died")  # the loop's thread, while another one waits for this worker
        return ["/there/a-policy-1.pt.trace.json.gz"], ""

    stage = Stage(tmp_path, policy_1=FakeActor("policy-1", stop_recording=fails_meanwhile))
    stage.ask("a", num_steps=1)

    stage.steps(1)
    stage.captures.finish(1)

    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing", "importing"]
    assert len(stage.report.artifacts) == 2


@pytest.mark.parametrize("method", ["stop_recording", "recording_outcome", "read_recording"])
def test_what_a_dead_worker_left_is_the_runners_to_find(tmp_path: Path, method: str) -> None:
    stage = Stage(tmp_path, policy_1=FakeActor("policy-1", **{method: RayActorError()}))
    stage.ask("a", num_steps=1)

    stage.steps(1)
    stage.captures.finish(1)

    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing"]
    assert stage.report.captures[-1][3]["missing"] == {}
    assert [about["rank"] for _, about in stage.report.artifacts] == [0]


def test_a_recording_that_never_began_has_failed_with_its_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=3)
    stage.steps(1)

    stage.captures.abandon("the disk is full")

    assert stage.report.states("a") == ["armed", "failed"]


def test_files_that_do_not_come_in_time_are_left_to_the_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures_module, "FINISH_SECONDS", 0.2)
    stage = Stage(tmp_path, policy_1=FakeActor("policy-1", recording_outcome=(-1, "", "")))
    stage.ask("a", num_steps=1)

    stage.steps(1)
    stage.captures.finish(1)

    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing"]


def test_the_loop_goes_on_while_a_worker_is_slow_to_begin(tmp_path: Path) -> None:
    begun, may_begin = threading.Event(), threading.Event()

    def slowly() -> str:
        begun.set()
        may_begin.wait(30)
        return ""

    stage = Stage(tmp_path, policy_0=FakeActor("policy-0", start_recording=slowly))
    stage.captures.before_step(1)
    stage.ask("a", seconds=60)
    watcher = threading.Thread(target=stage.captures._act)
    watcher.start()
    begun.wait(30)

    stage.captures.after_step(1, seconds=1.0)
    stage.captures.before_step(2)  # hangs here if the loop has to wait for the worker
    assert stage.report.states("a") == ["armed"]

    may_begin.set()
    watcher.join(30)
    assert stage.report.states("a") == ["armed", "recording"]


def test_what_workers_can_record_is_told_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, policy_1=FakeActor("policy-1", profilers={"torch": "", "nsys": ""}))

    stage.captures.report_profilers()

    ((text, meta),) = stage.report.notes
    assert text == "Ready to record: torch on 2 of 2 workers, nsys on 1"
    assert meta["profilers"]["policy-0"] == {"torch": "", "nsys": "nsys is not installed."}
    assert meta["places"] == {"policy-0": "node-a", "policy-1": "node-a"}


def test_what_is_withdrawn_before_its_first_step_is_not_recorded(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=3)
    stage.steps(1)
    stage.ask("b")
    stage.withdraw("a", "b", "unknown")  # b comes and goes between the same two steps

    stage.steps(2, 3, 4)
    stage.captures.finish(4)

    assert stage.report.states("a") == stage.report.states("b") == ["armed", "withdrawn"]
    assert stage.report.artifacts == []
    assert all(actor.said == [] for actor in stage.actors.values())


def test_what_is_withdrawn_too_late_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a")
    stage.steps(1)
    stage.withdraw("a")

    stage.steps(2)
    stage.captures.finish(2)

    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing", "importing"]


def test_what_is_withdrawn_while_the_run_ends_is_withdrawn(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=9)
    stage.steps(1)
    stage.withdraw("a")

    stage.captures.finish(1)

    assert stage.report.states("a") == ["armed", "withdrawn"]
