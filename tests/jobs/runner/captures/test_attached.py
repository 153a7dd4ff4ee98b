"""One capture in the trainer's processes where its run directory takes no files for a while."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.runner.captures.attachable import AttachableWorker, AttachableWorkers
from jobs.runner.captures.attached import START_SECONDS, AttachedCapture
from profiling.captures.capture import CaptureRequest, recordings

WORKER = AttachableWorker(pid=1, role="policy", rank=0, node="", device="cpu", problems={})
REQUEST = CaptureRequest(capture="c-1", tool="stacks", first_step=0, num_steps=1, roles=(), ranks=(), seconds=60)


class StandIn(AttachableWorkers):
    """A worker that lives; whether requests can be written, and what it has answered, is set by the test."""

    def __init__(self) -> None:
        self.is_full = False
        self.asked: list[str] = []
        self.answers: dict[int, Mapping[str, Any]] = {}

    def there(self) -> dict[str, AttachableWorker]:
        return {WORKER.name: WORKER}

    def is_there(self, worker: AttachableWorker) -> bool:
        return worker == WORKER

    def ask(self, worker: AttachableWorker, verb: str, **_what: Any) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        assert worker == WORKER
        self.asked.append(verb)
        return len(self.asked)

    def answer(self, worker: AttachableWorker, number: int) -> Mapping[str, Any] | None:
        assert worker == WORKER
        return self.answers.get(number)


class Reported:
    """Keeps the states and texts that are reported."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.texts: list[str] = []

    def capture(self, capture: str, state: str, *, step: int, text: str = "", **meta: Any) -> None:
        self.states.append(state)
        self.texts.append(text)

    def artifact(self, name: str, **about: Any) -> None: ...


def attached_capture(folder: Path, workers: AttachableWorkers, reported: Reported) -> AttachedCapture:
    return AttachedCapture(REQUEST, workers=workers, run_dir=folder, report=reported, step=1, label="the trainer")


def test_a_process_that_does_not_begin_on_a_full_disk_fails_its_capture_alone(tmp_path: Path) -> None:
    workers, reported = StandIn(), Reported()
    capture = attached_capture(tmp_path, workers, reported)
    capture.look(step=1, now=0.0)
    workers.is_full = True

    capture.look(step=1, now=START_SECONDS)

    assert capture.is_over
    assert reported.states == ["armed", "failed"]
    assert "did not begin" in reported.texts[-1]


def test_a_process_is_asked_to_end_again_until_that_can_be_written(tmp_path: Path) -> None:
    workers, reported = StandIn(), Reported()
    workers.answers[1] = {"number": 1, "problem": ""}
    capture = attached_capture(tmp_path, workers, reported)
    capture.look(step=1, now=0.0)
    capture.look(step=1, now=1.0)
    capture.end()
    workers.is_full = True
    for now in (2.0, 3.0):
        capture.look(step=1, now=now)
        assert not capture.is_over
    workers.is_full = False
    capture.look(step=1, now=4.0)
    assert workers.asked == ["start", "stop"]

    recordings(tmp_path).mkdir(parents=True)
    (recordings(tmp_path) / "c-1-policy-0.stacks.txt").write_text("main 1\n")
    workers.answers[2] = {"number": 2, "problem": "", "size": 7}
    capture.look(step=1, now=5.0)

    assert reported.states == ["armed", "recording", "stopping", "writing", "importing"]
