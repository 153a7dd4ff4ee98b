"""One capture of a run: begun and ended on its workers, and its files brought to the driver's node.

Files come in pieces, through Ray: nodes share no file system. A worker answers beside its calls of the training
(CAPTURES), so a piece costs training a few milliseconds at most.
"""

import contextlib
import hashlib
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RaySystemError

from jobs.engine.workers.actor import CAPTURES
from jobs.engine.workers.worker import GONE, Worker
from profiling.captures.files import CaptureWindow, announcement, final_path, missing_text
from profiling.captures.request import CaptureRequest
from profiling.captures.state import CaptureReport, TrackedCapture

TOOL_SECONDS = 150.0  # nsys writes its report before it lets go
FAILED_SECONDS = 20.0  # when the run has failed: for workers that live to end a recording, and again to bring its files
PIECE_BYTES = 4 << 20
POLL_SECONDS = 0.3
ANSWER_SECONDS = 1800.0  # a worker that holds Python's lock for long does not answer
REMOVAL_SECONDS = 15.0


@dataclass(slots=True)
class StepTimes:
    """The steps of the run: the one under way, or the last one, and how many seconds each took."""

    step: int = 0
    seconds: dict[int, float] = field(default_factory=dict)

    def of_capture(self, request: CaptureRequest) -> dict[str, Any]:
        """Return how long the recorded steps took, and how long others near them."""
        seconds = dict(self.seconds)  # the loop goes on with it
        recorded = [s for n, s in sorted(seconds.items()) if request.first_step <= n <= request.last_step]
        near = sorted(
            (n for n in seconds if n > 1 and not request.first_step <= n <= request.last_step),
            key=lambda n: min(abs(n - request.first_step), abs(n - request.last_step)),
        )[:6]
        others = sorted(seconds[n] for n in near)
        return {
            "step_seconds": [round(s, 4) for s in recorded],
            "neighbor_step_seconds": round(others[len(others) // 2], 4) if others else None,
        }


class NotFetched(RuntimeError):
    """A worker's file is not here; the sentence says why."""


class EngineCapture(TrackedCapture):
    """A capture on `workers`.

    `problems` says of a worker why it has no file, `ends_at` in monotonic seconds when a capture by time is to end.
    """

    def __init__(
        self,
        request: CaptureRequest,
        *,
        workers: Sequence[Worker],
        steps: StepTimes,
        report: CaptureReport,
        run_dir: Path,
    ) -> None:
        self._workers, self._steps, self._run_dir = list(workers), steps, run_dir
        self.problems: dict[str, str] = {}
        self.ends_at = math.inf
        self._start_seconds = self._stop_seconds = 0.0
        self._cut = ""  # why it was ended early
        self._fetcher: threading.Thread | None = None
        self._no_time_left = threading.Event()
        super().__init__(request, report=report, step=steps.step, workers=[w.name for w in workers], tool=request.tool)

    def start(self) -> None:
        """Begin on all workers: the capture is `starting`, and is `recording` then, or has failed."""
        begin = time.perf_counter()
        is_beside = self.request.seconds > 0
        tool, name, what = self.request.tool, self.request.capture, self.request.what
        references = [
            (w, _method(w.actor.start_recording, is_beside).remote(tool, name, is_beside=is_beside, what=what))
            for w in self._workers
        ]
        deadline = time.monotonic() + TOOL_SECONDS
        for worker, reference in references:
            try:
                problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except Exception as error:
                problem = _problem_of(worker, error)
                _method(worker.actor.stop_recording, is_beside).remote()  # if it begins after all, nobody would end it
            if problem:
                self.problems[worker.name] = problem
        self._workers = [w for w in self._workers if w.name not in self.problems]
        self._start_seconds = time.perf_counter() - begin
        step = max(1, self._steps.step)
        if not self._workers:
            self.move("fail", step=step, text=missing_text(self.problems))
            return
        if is_beside:  # the loop has gone on meanwhile
            self.request = self.request.starting_at(step)
        self.move(
            "record",
            step=step,
            text=self._not_recorded,
            workers=[w.name for w in self._workers],
            missing=dict(self.problems),
            tool=tool,
            first_step=self.request.first_step,
            num_steps=self.request.num_steps,
            seconds=self.request.seconds,
        )

    def stop(self, *, cut: str = "") -> None:
        """End the recording on all workers; from here on their files are fetched beside the steps.

        `cut` says why it ends early, in a run that has failed. What workers that are gone left is the runner's to find.
        Who comes second, while a worker does not let go, does nothing.
        """
        step = self._steps.step
        if not self.move("stop", step=step):
            return
        begin = time.perf_counter()
        is_beside = self.request.seconds > 0 or bool(cut)  # the call under way may never end
        references = [(w, _method(w.actor.stop_recording, is_beside).remote()) for w in self._workers]
        recorded: list[tuple[Worker, str]] = []
        is_left = bool(cut)
        deadline = time.monotonic() + (FAILED_SECONDS if cut else TOOL_SECONDS)
        for worker, reference in references:
            try:
                paths, problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except GONE:
                paths, problem, is_left = [], "", True
            except Exception as error:
                paths, problem = [], _problem_of(worker, error)
            if problem:
                self.problems[worker.name] = problem
            recorded += [(worker, path) for path in paths]
        self._stop_seconds = time.perf_counter() - begin
        if not recorded and not is_left:
            self.move("fail", step=step, text=missing_text(self.problems))
            return
        is_short = not self.request.seconds and step < self.request.last_step
        self._cut = cut or (f"The run ended after step {step}." if is_short else "")
        self.request = self.request.ending_at(step)
        self.move("write", step=step, **self._facts())
        self._fetcher = threading.Thread(
            target=self._fetch_all, args=(recorded, is_left), name=f"capture {self.request.capture}", daemon=True
        )
        self._fetcher.start()

    def wait(self, seconds: float) -> None:
        """Wait for its files for so long. Then nothing more is fetched or reported: the runner goes on from there."""
        if self._fetcher is not None:
            self._fetcher.join(seconds)
            with self.lock:
                self._no_time_left.set()

    @property
    def _not_recorded(self) -> str:
        return f"Not recorded: {missing_text(self.problems)}" if self.problems else ""

    def _facts(self) -> dict[str, Any]:
        stood_still = {"start_seconds": round(self._start_seconds, 3), "stop_seconds": round(self._stop_seconds, 3)}
        facts = {
            "first_step": self.request.first_step,
            "num_steps": self.request.num_steps,
            "missing": dict(self.problems),
            "overhead": stood_still | self._steps.of_capture(self.request),
        }
        return facts | ({"truncated": self._cut} if self._cut else {})

    def _fetch_all(self, recorded: Sequence[tuple[Worker, str]], is_left: bool) -> None:
        """Bring the files into the run directory, announce each, and report that the capture is being imported.

        Where workers are gone nothing is reported of the capture as a whole: the runner does, once it has looked what
        they have left.
        """
        removals: list[Any] = []
        for worker, path in recorded:
            try:
                self._fetch(worker, path)
                removals.append(worker.actor.remove_recording.options(concurrency_group=CAPTURES).remote(path))
            except GONE:
                is_left = True
            except Exception as error:  # whatever it is, it is the capture's affair alone
                text = str(error) if isinstance(error, NotFetched) else f"{type(error).__name__}: {error}"
                self.problems[worker.name] = text.strip().splitlines()[0]
        with self.lock:
            if self._no_time_left.is_set():
                return
            step, num_files = self.request.last_step, len(removals)
            if num_files and not is_left:
                self.move("collect", step=step, text=self._not_recorded, num_files=num_files, **self._facts())
            elif not is_left:
                self.move("fail", step=step, text=missing_text(self.problems))
        if removals:
            # Before the run ends its workers; what is left then is whoever's who cleans up. The driver may have left
            # Ray meanwhile: then nobody waits for this any more.
            with contextlib.suppress(RaySystemError):
                ray.wait(removals, num_returns=len(removals), timeout=REMOVAL_SECONDS)

    def _fetch(self, worker: Worker, path: str) -> None:
        """Bring one file and announce it. Raises: NotFetched; whatever Ray and the disk say."""
        size, version = self._wait_until_written(worker, path)
        target = final_path(self._run_dir, self.request.capture, Path(path).name)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        digest = hashlib.sha256()
        read = worker.actor.read_recording.options(concurrency_group=CAPTURES)
        try:
            with part.open("wb") as file:
                for offset in range(0, size, PIECE_BYTES):
                    self._check_time()
                    piece = ray.get(read.remote(path, offset, PIECE_BYTES), timeout=ANSWER_SECONDS)
                    digest.update(piece)
                    file.write(piece)
            if part.stat().st_size != size:
                raise NotFetched(f"{part.stat().st_size} of {size} bytes arrived.")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        announced = announcement(
            CaptureWindow.of(self.request),
            target,
            role=worker.role,
            rank=worker.rank,
            tool_version=version,
            size=size,
            sha256=digest.hexdigest(),
        )
        with self.lock:
            if not self._no_time_left.is_set():
                self.report.artifact(**announced)

    def _wait_until_written(self, worker: Worker, path: str) -> tuple[int, str]:
        """Return size and maker of a file once it is written. Raises: NotFetched."""
        outcome = worker.actor.recording_outcome.options(concurrency_group=CAPTURES)
        while True:
            size, problem, version = ray.get(outcome.remote(path), timeout=ANSWER_SECONDS)
            if problem:
                raise NotFetched(problem)
            if size >= 0:
                return int(size), str(version)
            self._check_time()
            time.sleep(POLL_SECONDS)

    def _check_time(self) -> None:
        if self._no_time_left.is_set():
            raise NotFetched("there was no time left.")


def _method(method: Any, is_beside: bool) -> Any:
    """Return the method of an actor as it is called between its other calls, or beside them."""
    return method.options(concurrency_group=CAPTURES) if is_beside else method


def _problem_of(worker: Worker, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{worker.role} rank {worker.rank} did not answer: {lines[0] if lines else type(error).__name__}"
