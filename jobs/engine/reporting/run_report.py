"""Everything the run tells: events, sample files and TensorBoard, from the driver alone. Counts its own time."""

import contextlib
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from jobs.catalog.log_line import is_of_profiler
from jobs.catalog.metric import PEAKS, peak_name
from jobs.engine.data.text import TextModel
from jobs.engine.reporting.tensorboard_log import TensorboardLog
from jobs.engine.workers.actor import CallResult
from jobs.engine.workers.node_placement import RunNode, read_there
from jobs.engine.workers.worker import Worker
from profiling import events, profile
from profiling.captures.capture import State

_LINES_SECONDS = 1.0
_FETCH_SECONDS = 5.0
_JOIN_SECONDS = 2 * _FETCH_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSample:
    """One completion as people see it; fields as in profiling.events.sample, and its tokens, end token included, with
    their log-probabilities: both of the same length, or empty where nothing was drawn.
    """

    group: int
    index: int
    prompt: str
    completion: str
    expected: str
    reward: float
    rewards: Mapping[str, float]
    tokens: int
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()


class RunReport:
    """Write the run directory's `events.jsonl`, `samples/` and `tb/`. Safe to call from two threads."""

    def __init__(self, run_dir: Path, *, attempt: int) -> None:
        self._run_dir, self._attempt = run_dir, attempt
        (run_dir / "samples").mkdir(parents=True, exist_ok=True)
        self._log = events.EventLog(run_dir / "events.jsonl")
        self._tensorboard = TensorboardLog(run_dir / "tb")
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._here = threading.local()  # `is_telling` in the block whose time is counted
        self._readings: dict[tuple[str, int], Mapping[str, float]] = {}
        self.log_tail: dict[tuple[str, int], str] = {}
        self._num_lines: dict[tuple[str, int, str], int] = {}
        self.phase_seconds: dict[tuple[str, str], float] = {}
        self._queue: Any = None
        self._follower: threading.Thread | None = None
        self._done = threading.Event()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Count the time of a block: to make events and lines of what is told as well as to write them."""
        if getattr(self._here, "is_telling", False):  # the block around it is counted
            yield
            return
        self._here.is_telling = True
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._here.is_telling = False
            seconds = time.perf_counter() - begin
            with self._lock:
                self._seconds += seconds

    def _write(self, *written: events.Event) -> None:
        with self._telling(), self._lock:
            self._log.write(*written)

    def take_seconds(self) -> float:
        """Return the time spent reporting since the last call, by whatever thread."""
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
        return seconds

    def say(self, line: str) -> None:
        """Print a line to the driver's own log."""
        with self._telling():
            print(line, flush=True)

    def state(self, state: str, text: str = "", *, step: int = -1, cause: Mapping[str, Any] | None = None) -> None:
        """Tell what the run is doing now; where a text says it, the driver's log says it too."""
        if text and cause is None:  # a failure is told on stderr, with its cause
            self.say(f"{state}: {text}")
        self._write(events.state(state, attempt=self._attempt, step=step, text=text, cause=cause))

    def note(self, text: str, *, step: int = -1, **meta: Any) -> None:
        """Tell something worth remembering."""
        self.say(text)
        self._write(events.note(text, attempt=self._attempt, step=step, meta=meta))

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Tell the metrics of a step."""
        with self._telling():
            self._tensorboard.scalars({k: v if math.isfinite(v) else math.nan for k, v in values.items()}, step=step)
            self._write(events.metric(values, attempt=self._attempt, step=step))

    def samples(
        self,
        samples: Sequence[ShownSample],
        *,
        step: int,
        is_eval: bool,
        shown: int,
        text: TextModel,
        num_logprobs: int,
    ) -> None:
        """Keep all completions in the run directory and show the first `shown` of them, with the log-probabilities of
        their first `num_logprobs` tokens.
        """
        with self._telling():
            lines = [
                events.to_line(
                    self._sample(
                        sample,
                        step=step,
                        is_eval=is_eval,
                        logprobs=token_logprobs(sample, text, num_logprobs) if i < shown else [],
                    )
                )
                for i, sample in enumerate(samples)
            ]
            name = "eval" if is_eval else "step"
            with (self._run_dir / "samples" / f"{name}-{step:06d}.jsonl").open("wb") as file:
                file.writelines(lines)
            with self._lock:
                self._log.write_lines(lines[:shown])

    def _sample(
        self, sample: ShownSample, *, step: int, is_eval: bool, logprobs: Sequence[tuple[int, float]]
    ) -> events.Event:
        return events.sample(
            attempt=self._attempt,
            step=step,
            group=sample.group,
            index=sample.index,
            prompt=sample.prompt,
            completion=sample.completion,
            expected=sample.expected,
            reward=sample.reward,
            rewards=sample.rewards,
            tokens=sample.tokens,
            is_eval=is_eval,
            token_logprobs=logprobs,
        )

    def artifact(self, name: str, *, artifact: str, path: str, step: int, size: int, **meta: Any) -> None:
        """Tell that a file or folder of the run directory is ready."""
        self._write(
            events.artifact(name, artifact=artifact, path=path, attempt=self._attempt, step=step, size=size, meta=meta)
        )

    def capture(self, capture: str, state: State, *, step: int = -1, text: str = "", **meta: Any) -> None:
        """Tell that a capture has moved on (profiling.captures.capture)."""
        self.say(f"capture {capture}: {state}{f'. {text}' if text else ''}")
        self._write(events.capture(capture, state, attempt=self._attempt, step=step, text=text, meta=meta))

    def driver_spans(self, spans: Iterable[profile.Span]) -> None:
        """Tell the driver's own spans."""
        with self._telling():
            self._write(*(self._span(span, "driver", 0) for span in spans))

    def answer(self, worker: Worker, answer: CallResult) -> None:
        """Tell what a worker handed over with a result."""
        self._readings[worker.role, worker.rank] = answer.readings
        for span in answer.spans:
            if span.depth == 0:
                self.phase_seconds[worker.role, span.phase] = span.duration / 1e9
        with self._telling():
            span_events = [self._span(span, worker.role, worker.rank) for span in answer.spans]
            peaks = (self._peaks(span, worker.role, worker.rank) for span in answer.spans)
            self._write(*span_events, *(peak for peak in peaks if peak))
            for stream, lines in answer.lines.items():
                self.lines(worker.role, worker.rank, stream, lines)

    def _span(self, span: profile.Span, role: str, rank: int) -> events.Event:
        return events.span(
            span.phase,
            start=span.start,
            duration=span.duration,
            attempt=self._attempt,
            step=span.step,
            role=role,
            rank=rank,
            depth=span.depth,
            name=span.name,
            memory=span.memory,
        )

    def _peaks(self, span: profile.Span, role: str, rank: int) -> events.Event | None:
        """Return the reading of a phase's peaks; None for a detail, and where nothing was measured."""
        if span.depth or span.memory is None:
            return None
        peaks = {peak_name(kind, span.phase): float(getattr(span.memory, kind)) for kind in PEAKS}
        measured = {name: peak for name, peak in peaks.items() if peak >= 0}
        if not measured:
            return None
        end = span.start + span.duration
        return events.system(measured, attempt=self._attempt, step=span.step, role=role, rank=rank, t=end)

    def readings(self, *, step: int) -> None:
        """Tell the latest readings of every worker."""
        with self._telling():
            self._write(
                *(
                    events.system(values, attempt=self._attempt, step=step, role=role, rank=rank)
                    for (role, rank), values in sorted(self._readings.items())
                )
            )

    def lines(self, role: str, rank: int, stream: str, lines: list[str]) -> None:
        """Tell log lines of a worker."""
        if not lines:
            return
        with self._telling():
            self._num_lines[role, rank, stream] = self._num_lines.get((role, rank, stream), 0) + len(lines)
            telling = (line for line in reversed(lines) if line.strip() and not is_of_profiler(line))
            self.log_tail[role, rank] = next(telling, self.log_tail.get((role, rank), ""))
            self._write(events.log(lines, attempt=self._attempt, role=role, rank=rank, stream=stream))

    def fetch_last_lines(self, role: str, rank: int, *, node: RunNode | None = None) -> None:
        """Tell what a dead process wrote after its last hand-over, from its log files on `node`."""
        for stream in ("stdout", "stderr"):
            file = self._run_dir / "log" / f"{role}-{rank}.{stream}"
            num_told = self._num_lines.get((role, rank, stream), 0)
            if file.is_file():
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
                self.lines(role, rank, stream, lines[num_told:])
            elif node is not None and node.index:
                self.lines(role, rank, stream, read_there(node, file, skip_lines=num_told))

    def follow(self, queue: Any) -> None:
        """Fetch log lines from the queue actor once a second until `unfollow`."""
        self._queue = queue
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def _follow(self) -> None:
        while not self._done.wait(_LINES_SECONDS):
            self.fetch_lines()

    def fetch_lines(self) -> None:
        """Fetch what the queue holds now; a queue that is gone holds nothing."""
        if self._queue is None:
            return
        try:
            entries = ray.get(self._queue.take.remote(), timeout=_FETCH_SECONDS)
        except (
            Exception
        ):  # the reporter never takes the run down: whatever Ray says here, the lines are in the log files
            return
        for role, rank, stream, lines in entries:
            self.lines(role, rank, stream, lines)

    def unfollow(self) -> None:
        """Stop fetching. Before the driver leaves the cluster: a later fetch would make Ray join it again by itself."""
        self._done.set()
        if self._follower is not None:
            self._follower.join(_JOIN_SECONDS)
        self._queue = None

    def close(self) -> None:
        """Flush and close."""
        self.unfollow()
        self._tensorboard.close()
        with self._lock:
            self._log.close()


def token_logprobs(sample: ShownSample, text: TextModel, most: int) -> list[tuple[int, float]]:
    """Return of its first `most` tokens how many characters of the completion each wrote, and its log-probability.

    None where they cannot be told apart in the completion.
    """
    pieces = text.pieces(sample.token_ids[:most])
    if not sample.completion.startswith("".join(pieces)):
        return []
    return [(len(piece), round(logprob, 3)) for piece, logprob in zip(pieces, sample.logprobs[:most], strict=False)]


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
