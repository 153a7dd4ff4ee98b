"""Fetch what the workers recorded to the driver's node, beside the steps that follow.

In pieces, through Ray: nodes share no file system. A worker answers beside its calls of the training (CAPTURES), so a
piece costs training a few milliseconds at most.
"""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RaySystemError

from jobs.engine.reporting.report import Report
from jobs.engine.workers.actor import CAPTURES
from jobs.engine.workers.worker import GONE, Worker
from profiling.captures.files import Window, announcement, final_path, missing_text
from profiling.captures.request import Request

PIECE_BYTES = 4 << 20
POLL_SECONDS = 0.3
ANSWER_SECONDS = 1800.0  # a worker that holds Python's lock for long does not answer
REMOVAL_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFile:
    """A file on a worker's node, or one that is being written there."""

    worker: Worker
    path: str


class NotFetched(RuntimeError):
    """A worker's file is not here; the sentence says why."""


class Collector(threading.Thread):
    """Brings one capture's files into the run directory, announces each, and then says that it is being imported.

    Where workers are gone (`is_left`, or found here) it says nothing of the capture as a whole: the runner does, once
    it has looked what they have left.
    """

    def __init__(
        self,
        *,
        request: Request,
        recorded: Sequence[RecordedFile],
        run_dir: Path,
        report: Report,
        problems: Mapping[str, str],
        meta: Callable[[], Mapping[str, Any]],
        is_left: bool = False,
    ) -> None:
        super().__init__(name=f"capture {request.capture}", daemon=True)
        self._request, self._recorded, self._run_dir, self._report = request, recorded, run_dir, report
        self._problems, self._meta, self._is_left = dict(problems), meta, is_left
        self._window = Window(
            capture=request.capture, tool=request.tool, first_step=request.first_step, num_steps=request.num_steps
        )
        self._lock = threading.Lock()
        self._is_told = False
        self._given_up = threading.Event()
        self._removals: list[Any] = []

    def run(self) -> None:
        """Fetch all of them; what cannot be fetched is said, the others stay."""
        self._fetch_all()
        if self._removals and not self._given_up.is_set():
            # Before the run ends its workers; what is left then is whoever's who cleans up. The driver may have left
            # Ray meanwhile: then nobody waits for this any more.
            with contextlib.suppress(RaySystemError):
                ray.wait(self._removals, num_returns=len(self._removals), timeout=REMOVAL_SECONDS)

    def _fetch_all(self) -> None:
        num_files = 0
        for recorded in self._recorded:
            name = recorded.worker.name
            try:
                self._fetch(recorded)
                num_files += 1
            except GONE:
                self._is_left = True
            except Exception as error:  # whatever it is, it is the capture's affair alone
                text = str(error) if isinstance(error, NotFetched) else f"{type(error).__name__}: {error}"
                self._problems[name] = text.strip().splitlines()[0]
        if self._is_left:
            return
        missing = missing_text(self._problems)
        if num_files:
            text = f"Not recorded: {missing}" if missing else ""
            self._tell("importing", text, num_files=num_files, **(dict(self._meta()) | {"missing": self._problems}))
        else:
            self._tell("failed", missing)

    def leave(self) -> None:
        """There is no more time: fetch nothing more, and say nothing more. The runner goes on with what is there."""
        self._given_up.set()
        with self._lock:
            self._is_told = True

    def _tell(self, state: str, text: str, **meta: Any) -> None:
        with self._lock:
            if self._is_told:
                return
            self._is_told = True
            request = self._request
            steps = {"first_step": request.first_step, "num_steps": request.num_steps}
            self._report.capture(request.capture, state, step=request.last_step, text=text, **(steps | meta))

    def _fetch(self, recorded: RecordedFile) -> None:
        worker, request = recorded.worker, self._request
        size, version = self._wait_until_written(recorded)
        target = final_path(self._run_dir, request.capture, Path(recorded.path).name)
        target.parent.mkdir(parents=True, exist_ok=True)
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
        self._removals.append(worker.actor.remove_recording.options(concurrency_group=CAPTURES).remote(recorded.path))
        self._announce(recorded, target, size=size, version=version, sha256=digest.hexdigest())

    def _announce(self, recorded: RecordedFile, target: Path, *, size: int, version: str, sha256: str) -> None:
        worker = recorded.worker
        with self._lock:
            if self._is_told:
                return
            told = announcement(
                self._window,
                target,
                role=worker.role,
                rank=worker.rank,
                tool_version=version,
                size=size,
                sha256=sha256,
            )
            self._report.artifact(**told)

    def _wait_until_written(self, recorded: RecordedFile) -> tuple[int, str]:
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
