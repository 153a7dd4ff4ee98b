"""Hand the files of captures over while the trainer runs: somebody has asked for them and waits.

One file at a time, in small pieces with a pause after each, so that training and the shipping of events do not notice.
What is not over when the trainer ends goes on with everything else (ending.py), at the byte where it stopped.
"""

import threading
from pathlib import Path
from types import TracebackType

from jobs.runner.console_client.console import Console, ConsoleError
from jobs.runner.console_client.uploads import Upload, UploadFailed, hand_over, planned_captures
from jobs.runner.reporting.progress import Progress
from jobs.runner.reporting.report import Report

LOOK_SECONDS = 0.5
PIECE_BYTES = 1 << 20
PIECES_PER_SECOND = 32  # at most
JOIN_SECONDS = 5.0


class CaptureUploads:
    """A thread for the time that the trainer runs; a context manager."""

    def __init__(self, *, run_dir: Path, progress: Progress, console: Console, report: Report) -> None:
        self._run_dir, self._progress, self._console, self._report = run_dir, progress, console, report
        self._over: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capture uploads", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            for upload in planned_captures(self._run_dir, self._progress.artifacts):
                if upload.name not in self._over and not self._ending.is_set():
                    self._hand_over(upload)

    def _hand_over(self, upload: Upload) -> None:
        try:
            hand_over(upload, console=self._console, wait=self._pause, chunk_bytes=PIECE_BYTES)
        except UploadFailed as error:
            if self._ending.is_set():
                return
            self._report.capture_failed(str(upload.meta["capture"]), str(error))
        except (ConsoleError, OSError) as error:
            if self._ending.is_set():
                return
            self._report.say(f"{upload.name} waits until the run has ended. {error}")
        self._over.add(upload.name)

    def _pause(self, seconds: float) -> bool:
        return self._ending.wait(seconds or 1 / PIECES_PER_SECOND)
