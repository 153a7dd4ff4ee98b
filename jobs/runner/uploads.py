"""Hand files over to the console: in chunks, resumable, checksummed.

Uploads wait until the trainer has ended (finish.py): they never compete with training, and nothing changes under them.
Only the files of captures go while it runs, because somebody waits for them: one at a time, in small pieces with a
pause after each, so that training and the shipping of events do not notice. What is not over when the trainer ends goes
on with everything else, at the byte where it stopped.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from jobs.runner.console_client.backoff import Backoff
from jobs.runner.console_client.console import (
    ChecksumMismatch,
    Console,
    ConsoleError,
    ConsoleFull,
    ConsoleUnreachable,
    FileState,
    OffsetMismatch,
    RequestRejected,
)
from jobs.runner.console_client.zip_image import NO_MASK, FilesChanged, NoTimeLeft, ZipImage, no_end, zip_image
from jobs.runner.reporting.shipped_report import ShippedReport
from jobs.runner.reporting.trainer_progress import TrainerProgress
from profiling.events import ArtifactEvent
from profiling.redaction import Mask, own_secrets

LOOK_SECONDS = 0.5
PIECE_BYTES = 1 << 20  # of a capture's file, and at most so many of them a second
PIECES_PER_SECOND = 32
JOIN_SECONDS = 5.0
CHUNK_BYTES = 8 << 20
MAX_FRESH_STARTS = 3
MAX_TRIES_FULL = 24  # two minutes of 5 s

SPEC_NAME = "pitwall_spec.json"  # beside a model: what it was made with, its system prompt among it
MASKED_TYPES = ("log", "tensorboard")  # what programs have printed and written down of their options
SHIPPED_TYPES = ("model", "adapter", "tensorboard", "trace")  # checkpoints stay on the cluster


class FileImage:
    """The bytes of one file that does not change any more. Raises: OSError if it is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = path.stat().st_size
        with path.open("rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at `offset`. Raises: FilesChanged if the file has shrunk; OSError if it is gone."""
        with self._path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) < min(size, self.size - offset):
            raise FilesChanged(f"{self._path.name} changed while it was handed over.")
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipUpload:
    """A file or folder of the run directory that goes to the console as a zip; `extra`: name in the zip -> path.

    With `is_plain` it is a file that goes as it is. `give_up` is asked many times while a folder is packed.
    """

    name: str
    folder: Path
    type: str
    path: str  # relative to the run directory
    step: int = -1
    meta: Mapping[str, object] = field(default_factory=dict)
    extra: Mapping[str, Path] = field(default_factory=dict)
    is_plain: bool = False
    give_up: Callable[[], bool] = no_end

    def image(self) -> ZipImage | FileImage:
        """Return the bytes that go. Raises: OSError; NoTimeLeft."""
        if self.is_plain:
            return FileImage(self.folder)
        mask = Mask(own_secrets()) if self.type in MASKED_TYPES else NO_MASK
        return zip_image(self.folder, extra=self.extra, mask=mask, give_up=self.give_up)


class UploadFailed(Exception):
    """The file is not with the console; the sentence says why, and that it is still in the run directory."""


def planned(run_dir: Path, artifacts: Mapping[str, ArtifactEvent]) -> Iterator[ZipUpload]:
    """Yield what is to be handed over: announced models, adapters and traces, TensorBoard's files, and the logs."""
    yield from planned_captures(run_dir, artifacts)
    for name, event in sorted(artifacts.items()):
        folder = run_dir / event.get("path", "")
        if capture_of(event):
            continue
        if event.get("artifact") not in SHIPPED_TYPES or not _is_inside(folder, run_dir):
            continue
        kind, step, meta = str(event["artifact"]), int(event.get("step", -1)), event.get("meta", {})
        spec = {SPEC_NAME: run_dir / "spec.json"} if kind == "model" and (run_dir / "spec.json").exists() else {}
        file_name = f"{name.removesuffix('.zip')}.zip"
        yield ZipUpload(name=file_name, folder=folder, type=kind, path=event["path"], step=step, meta=meta, extra=spec)
    if (run_dir / "tb").is_dir() and not any(event.get("artifact") == "tensorboard" for event in artifacts.values()):
        yield ZipUpload(name="tensorboard.zip", folder=run_dir / "tb", type="tensorboard", path="tb")
    if (run_dir / "log").is_dir():
        yield ZipUpload(name="logs.zip", folder=run_dir / "log", type="log", path="log")


def planned_captures(run_dir: Path, artifacts: Mapping[str, ArtifactEvent]) -> Iterator[ZipUpload]:
    """Yield the announced files of captures, which go one by one and as they are, in the order of announcement."""
    for name, event in list(artifacts.items()):
        path = run_dir / event.get("path", "")
        if event.get("artifact") == "trace" and capture_of(event) and _is_inside(path, run_dir):
            step, meta = int(event.get("step", -1)), event.get("meta", {})
            yield ZipUpload(
                name=name, folder=path, type="trace", path=event["path"], step=step, meta=meta, is_plain=True
            )


def capture_of(about: Mapping[str, object]) -> str:
    """Return the capture that an announcement or an upload belongs to, "" if none."""
    meta = about.get("meta")
    return str(meta.get("capture") or "") if isinstance(meta, Mapping) else ""


def hand_over(
    upload: ZipUpload, *, console: Console, wait: Callable[[float], bool], chunk_bytes: int = CHUNK_BYTES
) -> FileState:
    """Give one file to the console and return its state there; goes on for as long as the console is away.

    `wait(seconds)` pauses, and returns True if there is no time left. Raises: UploadFailed; Fenced.
    """
    backoff = Backoff()
    num_fresh = num_full = 0
    image: ZipImage | FileImage | None = None
    received = -1
    while True:
        try:
            if received < 0:
                state = console.file_state(upload.name)
                if state.is_ready:
                    return state
                received = state.received
            if image is None:
                image = upload.image()
            received = min(received, image.size)
            if wait(0):
                raise NoTimeLeft("There was no time left.")
            state = _send_one(upload, image, received, console, chunk_bytes)
            backoff.reset()
            if state.is_ready:
                return state
            received, num_full = state.received, 0
        except NoTimeLeft as error:
            raise _failed(upload, str(error)) from error
        except OffsetMismatch as error:
            received = error.received
            if received > (image.size if image else 0):
                raise _failed(upload, "The console has more bytes than there are.") from error
        except (ChecksumMismatch, OSError) as error:
            num_fresh += 1
            if num_fresh > MAX_FRESH_STARTS or isinstance(error, FileNotFoundError):
                raise _failed(upload, str(error)) from error
            image, received = None, 0
        except RequestRejected as error:
            if error.status == 404 and received < 0:
                received = 0  # nobody has announced it yet
                continue
            raise _failed(upload, str(error)) from error
        except ConsoleUnreachable as error:
            num_full += isinstance(error, ConsoleFull)
            if num_full > MAX_TRIES_FULL or wait(backoff.wait_seconds()):
                raise _failed(upload, str(error)) from error
            received = -1


class CaptureUploads:
    """A thread for the time that the trainer runs; a context manager."""

    def __init__(self, *, run_dir: Path, progress: TrainerProgress, console: Console, report: ShippedReport) -> None:
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

    def _hand_over(self, upload: ZipUpload) -> None:
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


def _send_one(
    upload: ZipUpload, image: ZipImage | FileImage, offset: int, console: Console, chunk_bytes: int
) -> FileState:
    about = {
        "size": str(image.size),
        "sha256": image.sha256,
        "type": upload.type,
        "step": str(upload.step),
        "path": upload.path,
        "meta": json.dumps(dict(upload.meta)),
    }
    return console.put_file(upload.name, image.read(offset, chunk_bytes), offset=offset, about=about)


def _failed(upload: ZipUpload, why: str) -> UploadFailed:
    return UploadFailed(f"{upload.name} could not be handed over; {upload.path} stays in the run directory. {why}")


def _is_inside(folder: Path, run_dir: Path) -> bool:
    return folder.resolve().is_relative_to(run_dir.resolve())
