"""Fetch what the workers recorded to the driver's node, beside the steps that follow.

In pieces, through Ray: nodes share no file system. A worker answers beside its calls of the training (CAPTURES), so a
piece costs training a few milliseconds at most.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from jobs.engine.actor import CAPTURES
from jobs.engine.report import Report
from jobs.engine.worker import Worker
from profiling.capture_request import Request

PIECE_BYTES = 4 << 20
POLL_SECONDS = 0.3
ANSWER_SECONDS = 1800.0  # a worker that holds Python's lock for long does not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A file on a worker's node, or one that is being written there."""

    worker: Worker
    path: str


class NotFetched(RuntimeError):
    """A worker's file is not here; the sentence says why."""


class Collector(threading.Thread):
    """Brings one capture's files into `folder`, announces each, and then says that the capture is being imported."""

    def __init__(
        self,
        *,
        request: Request,
        recorded: Sequence[Recorded],
        folder: Path,
        report: Report,
        problems: Mapping[str, str],
        overhead: Callable[[], Mapping[str, Any]],
    ) -> None:
        super().__init__(name=f"capture {request.capture}", daemon=True)
        self._request, self._recorded, self._folder, self._report = request, recorded, folder, report
        self._problems, self._overhead = dict(problems), overhead
        self._lock = threading.Lock()
        self._is_told = False
        self._given_up = threading.Event()

    def run(self) -> None:
        """Fetch all of them; what cannot be fetched is said, the others stay."""
        num_files = 0
        for recorded in self._recorded:
            name = recorded.worker.name
            try:
                self._fetch(recorded)
                num_files += 1
            except Exception as error:  # whatever it is, it is the capture's affair alone
                text = str(error) if isinstance(error, NotFetched) else f"{type(error).__name__}: {error}"
                self._problems[name] = text.strip().splitlines()[0]
        missing = " ".join(f"{name}: {problem}" for name, problem in sorted(self._problems.items()))
        if num_files:
            text = f"Not recorded: {missing}" if missing else ""
            self._tell("importing", text, num_files=num_files, missing=self._problems, overhead=dict(self._overhead()))
        else:
            self._tell("failed", missing)

    def give_up(self, why: str) -> None:
        """Say that the capture failed, unless its end was told before."""
        self._given_up.set()
        self._tell("failed", why)

    def _tell(self, state: str, text: str, **meta: Any) -> None:
        with self._lock:
            if self._is_told:
                return
            self._is_told = True
            request = self._request
            steps = {"first_step": request.first_step, "num_steps": request.num_steps}
            self._report.capture(request.capture, state, step=request.last_step, text=text, **steps, **meta)

    def _fetch(self, recorded: Recorded) -> None:
        worker, request = recorded.worker, self._request
        size, version = self._wait_until_written(recorded)
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._folder / Path(recorded.path).name.removeprefix(f"{request.capture}-")
        part = target.with_name(f"{target.name}.part")
        digest = hashlib.sha256()
        try:
            with part.open("wb") as file:
                for offset in range(0, size, PIECE_BYTES):
                    if self._given_up.is_set():
                        raise NotFetched("there was no time left.")
                    piece = ray.get(
                        worker.actor.read_recording.options(concurrency_group=CAPTURES).remote(
                            recorded.path, offset, PIECE_BYTES
                        ),
                        timeout=ANSWER_SECONDS,
                    )
                    digest.update(piece)
                    file.write(piece)
            if part.stat().st_size != size:
                raise NotFetched(f"{part.stat().st_size} of {size} bytes arrived.")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        worker.actor.remove_recording.options(concurrency_group=CAPTURES).remote(recorded.path)
        with self._lock:
            if self._is_told:
                return
            self._report.artifact(
                f"{request.capture}-{target.name}",
                artifact="trace",
                path=f"traces/{request.capture}/{target.name}",
                step=request.first_step,
                size=size,
                capture=request.capture,
                role=worker.role,
                rank=worker.rank,
                tool=request.tool,
                tool_version=version,
                first_step=request.first_step,
                num_steps=request.num_steps,
                sha256=digest.hexdigest(),
            )

    def _wait_until_written(self, recorded: Recorded) -> tuple[int, str]:
        while True:
            reference = recorded.worker.actor.recording_outcome.options(concurrency_group=CAPTURES).remote(
                recorded.path
            )
            size, problem, version = ray.get(reference, timeout=ANSWER_SECONDS)
            if problem:
                raise NotFetched(problem)
            if size >= 0:
                return int(size), str(version)
            if self._given_up.is_set():
                raise NotFetched("there was no time left.")
            time.sleep(POLL_SECONDS)
