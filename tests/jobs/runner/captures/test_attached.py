"""One capture by riders where its run directory takes no files for a while."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.runner.captures.announce import Teller
from jobs.runner.captures.attachable import Riders, Riding
from jobs.runner.captures.attached import START_SECONDS, Ridden
from profiling.captures.files import recordings
from profiling.captures.request import Request
from profiling.events import Event

WORKER = Riding(pid=1, role="policy", rank=0, node="", device="cpu", problems={})
REQUEST = Request(capture="c-1", tool="stacks", first_step=0, num_steps=1, roles=(), ranks=(), seconds=60)


class StandIn(Riders):
    """A worker that lives; whether requests can be written, and what it has answered, is set by the test."""

    def __init__(self) -> None:
        self.is_full = False
        self.asked: list[str] = []
        self.answers: dict[int, Mapping[str, Any]] = {}

    def there(self) -> dict[str, Riding]:
        return {WORKER.name: WORKER}

    def is_there(self, riding: Riding) -> bool:
        return riding == WORKER

    def ask(self, riding: Riding, verb: str, **_what: Any) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        assert riding == WORKER
        self.asked.append(verb)
        return len(self.asked)

    def told(self, riding: Riding, number: int) -> Mapping[str, Any] | None:
        assert riding == WORKER
        return self.answers.get(number)


def ridden(folder: Path, riders: Riders, told: list[Event]) -> Ridden:
    teller = Teller(attempt=1, write=told.append)
    return Ridden(REQUEST, riders=riders, run_dir=folder, teller=teller, step=1, label="the trainer")


def states(told: list[Event]) -> list[str]:
    return [event["state"] for event in told if event["kind"] == "capture"]


def test_a_process_that_does_not_begin_on_a_full_disk_fails_its_capture_alone(tmp_path: Path) -> None:
    riders, told = StandIn(), list[Event]()
    capture = ridden(tmp_path, riders, told)
    capture.look(step=1, now=0.0)
    riders.is_full = True

    capture.look(step=1, now=START_SECONDS)

    assert capture.is_over
    assert states(told) == ["armed", "failed"]
    assert "did not begin" in told[-1]["text"]


def test_a_process_is_asked_to_end_again_until_that_can_be_written(tmp_path: Path) -> None:
    riders, told = StandIn(), list[Event]()
    riders.answers[1] = {"number": 1, "problem": ""}
    capture = ridden(tmp_path, riders, told)
    capture.look(step=1, now=0.0)
    capture.look(step=1, now=1.0)
    capture.end()
    riders.is_full = True
    for now in (2.0, 3.0):
        capture.look(step=1, now=now)
        assert not capture.is_over
    riders.is_full = False
    capture.look(step=1, now=4.0)
    assert riders.asked == ["start", "stop"]

    recordings(tmp_path).mkdir(parents=True)
    (recordings(tmp_path) / "c-1-policy-0.stacks.txt").write_text("main 1\n")
    riders.answers[2] = {"number": 2, "problem": "", "size": 7}
    capture.look(step=1, now=5.0)

    assert states(told) == ["armed", "recording", "stopping", "writing", "importing"]
