"""A run that makes no progress says where everybody stands, before the collectives give up.

No progress is: no step ended for max(5 min, 5 x the median step). Then every worker is asked for the stacks of its
threads beside the call under way (LOOKING); equal ones stand together in the driver's log, and a note tells of it. It
is told once until the next step has ended. Where torch's flight recorder is on, each worker's newest collectives are
written beside the logs, so that they come along in logs.zip.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import ray

from jobs.engine.reporting.run_report import RunReport
from jobs.engine.workers.actor import LOOKING
from jobs.engine.workers.worker_group import WorkerGroup
from profiling.hangs import hang_lines, hang_meta, patience
from profiling.stacks import grouped, stacks

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 10.0

T = TypeVar("T")
Stacks = Mapping[str, tuple[str, ...]]


class HangWatch:
    """Looks at the progress of a loop from a thread of its own; `workers`, `report` and `run_dir` are the loop's."""

    def __init__(
        self,
        *,
        workers: WorkerGroup,
        report: RunReport,
        run_dir: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers, self._report, self._run_dir, self._clock = workers, report, run_dir, clock
        self._seconds: list[float] = []
        self._since = clock()
        self._step = 0
        self._is_told = False
        self._is_over = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._watch, name="hang watch", daemon=True).start()

    def progress(self, step: int) -> None:
        """A step, an evaluation or a checkpoint has ended."""
        now = self._clock()
        if step != self._step:
            self._seconds.append(now - self._since)
            del self._seconds[:-50]
        if self._is_told:
            self._report.note(f"The run goes on after {now - self._since:.0f} s", step=step)
        self._step, self._since, self._is_told = step, now, False

    def end(self) -> None:
        """Nothing is expected any more."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # whoever watches must not end what it watches
                print(f"The hang watch could not look: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def look(self) -> None:
        """Tell where everybody stands if nothing has ended for too long; once."""
        waited = self._clock() - self._since
        if waited < patience(self._seconds) or self._is_told:
            return
        self._is_told = True
        by_worker, silent = self._ask()
        groups = grouped(by_worker)
        for line in hang_lines(groups, silent, waited):
            self._report.say(line)
        text = (
            f"No progress for {waited:.0f} s after step {self._step}: stacks of all processes are in the driver's log"
        )
        self._report.note(text, step=self._step, hang=hang_meta(groups, silent, waited))
        written = self._write_flights()
        if written:
            folder = written[0].parent.relative_to(self._run_dir)
            self._report.say(f"The newest collectives of {len(written)} workers are in {folder}, and in logs.zip.")

    def _write_flights(self) -> list[Path]:
        """Write the newest collectives of each worker that records them, and return the files."""
        references = {
            worker.name: worker.actor.flight.options(concurrency_group=LOOKING).remote()
            for worker in self._workers.all()
        }
        dumps: dict[str, bytes]
        dumps, _ = _answers(references)
        folder = self._run_dir / "log" / "flight" / f"after-step-{self._step}"
        written = []
        for name, dump in dumps.items():
            if dump:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{name}.fr.json"
                path.write_bytes(dump)
                written.append(path)
        return written

    def _ask(self) -> tuple[dict[str, Stacks], list[str]]:
        """Return the stacks of all processes, and who did not answer."""
        references = {
            worker.name: worker.actor.stacks.options(concurrency_group=LOOKING).remote()
            for worker in self._workers.all()
        }
        by_worker: dict[str, Stacks]
        by_worker, silent = _answers(references)
        return {"driver": stacks(without=[threading.get_ident()]), **by_worker}, silent


def _answers(references: Mapping[str, "ray.ObjectRef[T]"]) -> tuple[dict[str, T], list[str]]:
    """Return what workers answer within ANSWER_SECONDS together, by name, and who did not."""
    answers, silent = {}, []
    deadline = time.monotonic() + ANSWER_SECONDS
    for name, reference in references.items():
        try:
            answers[name] = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
        except Exception:  # dead, or stuck in native code with Python's lock in hand
            silent.append(name)
    return answers, silent
