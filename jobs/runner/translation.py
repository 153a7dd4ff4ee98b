"""What another trainer writes, turned into the run's events while it trains: the runner is then their only writer."""

import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.adapter import LogReader, adapter
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.models_left import ModelsLeft, announced, models_left
from jobs.runner.reporting.append_only import AppendFile, Reserve
from jobs.runner.reporting.shipped_report import ShippedReport
from profiling import events
from profiling.captures.capture import State
from profiling.events import to_line

POLL_SECONDS = 0.3
MAX_LAST_POLLS = 50
_OF_STEPS = ("metric", "span", "sample")


class Translation:
    """Carries a reader's events into `events.jsonl`, the write-ahead log that is shipped from.

    `models` are patterns of the folders in which the trainer leaves its model. `after_step` leaves out what is told of
    steps up to that one, which an earlier runner has written.
    """

    def __init__(
        self,
        reader: LogReader,
        *,
        spec: RunSpec,
        run_dir: Path,
        attempt: int,
        reserve: Reserve,
        say: Callable[[str], None],
        models: Sequence[str] = (),
        after_step: int = -1,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.spec = spec
        self._reader: LogReader | None = reader
        self._run_dir, self._attempt, self._say, self._clock_ns = run_dir, attempt, say, clock_ns
        self._after_step, self._models = after_step, models
        self._log = AppendFile(run_dir / "events.jsonl", reserve=reserve)
        self._unwritten = b""
        self._next_poll = 0.0
        self._is_training = after_step > 0

    def begin(self, text: str) -> None:
        """Say that the trainer is being started."""
        self._write(to_line(events.state("loading", attempt=self._attempt, text=text)))

    def poll_if_due(self, now: float) -> None:
        """Look for something new; `now` is monotonic seconds."""
        if now >= self._next_poll:
            self._next_poll = now + POLL_SECONDS
            self._poll()

    def capture(self, capture: str, state: State, *, step: int, text: str = "", **meta: Any) -> None:
        """Report that a capture has moved on; it is not the reader's, and goes to the same log."""
        self._write(to_line(events.capture(capture, state, attempt=self._attempt, step=step, text=text, meta=meta)))

    def artifact(self, name: str, *, artifact: str, path: str, step: int, size: int, **meta: Any) -> None:
        """Report that a file of a capture, or a checkpoint, is whole."""
        self._write(
            to_line(
                events.artifact(
                    name, artifact=artifact, path=path, attempt=self._attempt, step=step, size=size, meta=meta
                )
            )
        )

    def note(self, text: str, *, step: int, **meta: Any) -> None:
        """Report something for the run's history."""
        self._write(to_line(events.note(text, attempt=self._attempt, step=step, meta=meta)))

    def read_the_rest(self) -> None:
        """Take in what is left once the trainer has ended."""
        quiet = 0
        for _ in range(MAX_LAST_POLLS):
            quiet = 0 if self._poll() else quiet + 1
            if quiet == 2:
                break

    def left(self) -> ModelsLeft:
        """Return what there is of the trainer's model."""
        return models_left(self._run_dir, self._models)

    def finish(self, *, has_succeeded: bool) -> None:
        """Take in what is left, and announce the model that the trainer made."""
        self.read_the_rest()
        if has_succeeded:
            scores = is_in(self.spec.algorithm, "scalar")
            for event in announced(self.left(), self._run_dir, attempt=self._attempt, scores=scores):
                self._write(to_line(event))
        self._log.close()

    def _poll(self) -> int:
        if self._reader is None:
            return 0
        try:
            polled = self._reader.poll(now_ns=self._clock_ns())
        except Exception:  # training goes on whatever becomes of its curves
            self._say(f"The trainer's logs are not read any more.\n{traceback.format_exc()}")
            self._reader = None
            return 0
        new = [event for event in polled if not self._is_old(event)]
        for event in new:
            event["attempt"] = self._attempt
        data = b"".join(map(to_line, new))
        if not self._is_training and any(event["kind"] == "metric" for event in new):
            self._is_training = True
            data = to_line(events.state("training", attempt=self._attempt)) + data
        self._write(data)
        return len(polled)

    def _is_old(self, event: Mapping[str, Any]) -> bool:
        return event["kind"] in _OF_STEPS and int(event["step"]) <= self._after_step

    def _write(self, data: bytes) -> None:
        self._unwritten += data
        if self._unwritten:
            try:
                self._log.append(self._unwritten)
            except OSError:  # the disk is full: it is kept, and written once space is free
                return
            self._unwritten = b""


def translation_of(spec: RunSpec, job: RunnerJob, report: ShippedReport, *, after_step: int = -1) -> Translation | None:
    """Return who translates the trainer's logs; None for a trainer that writes events itself. Raises: OSError."""
    reader = adapter(spec.trainer.name).logs(spec=spec, run_dir=job.run_dir)
    if reader is None:
        return None
    return Translation(
        reader,
        spec=spec,
        run_dir=job.run_dir,
        attempt=job.attempt,
        reserve=report.reserve,
        say=report.say,
        models=trainers()[spec.trainer.name].models,
        after_step=after_step,
    )


def translation_of_the_rest(job: RunnerJob, report: ShippedReport, *, after_step: int) -> Translation | None:
    """Return who translates what a killed runner had not yet, from `spec.json`; None if there is nothing."""
    try:
        spec = parse_spec(json.loads((job.run_dir / "spec.json").read_text("utf-8")))
        return None if spec.is_native else translation_of(spec, job, report, after_step=after_step)
    except (OSError, ValueError, SpecInvalid):
        return None


def label_of(spec: RunSpec) -> str:
    """Return what people call the run's trainer: its label and version."""
    return f"{trainers()[spec.trainer.name].label} {spec.trainer.version}".rstrip()
