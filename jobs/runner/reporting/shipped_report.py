"""Everything the runner says about an attempt: its lines, its readings, the terminal event, and the shipping of it
all."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from jobs.runner.console_client.console import Console
from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.reporting.append_only import AppendFile, Reserve
from jobs.runner.reporting.event_files import EventSource, Source, TextSource
from jobs.runner.reporting.outbox import Outbox
from jobs.runner.reporting.secrets import SecretHiding
from jobs.runner.reporting.shipper import LAST_SOURCE, CommandLog, Shipper
from profiling.captures.capture import State
from profiling.events import ArtifactEvent, Event, StateEvent, capture, log, note, system, to_line
from profiling.events import artifact as announced
from profiling.redaction import own_secrets


class ShippedReport:
    """The files that are shipped, in a run directory that exists, and the thread that ships them."""

    def __init__(self, job: RunnerJob, console: Console, *, knows_secrets: bool = True) -> None:
        """Open the files. Without `knows_secrets` what programs have said is held back: it may hold a secret."""
        run_dir = job.run_dir
        self._attempt = job.attempt
        self.knows_secrets = knows_secrets
        self.reserve = reserve = Reserve(run_dir / ".reserve")
        self._own = AppendFile(run_dir / "runner.jsonl", reserve=reserve)
        self._last = AppendFile(run_dir / "last_word.jsonl", reserve=reserve)
        self.commands = CommandLog(run_dir=run_dir, reserve=reserve)
        self._hiding = SecretHiding(own_secrets())
        sources = _sources(job, knows_secrets=knows_secrets)
        self.outbox = Outbox(run_dir=run_dir, sources=sources, attempt=job.attempt, reserve=reserve)
        self._shipper = Shipper(console=console, outbox=self.outbox, commands=self.commands, say=self.say)

    def start(self) -> None:
        """Begin to ship."""
        self._shipper.start()

    @property
    def is_fenced(self) -> bool:
        """True if the console takes nothing more of this attempt."""
        return self._shipper.is_fenced.is_set()

    @property
    def has_terminal_event(self) -> bool:
        """True if the attempt's end is written down already."""
        return self._last.path.stat().st_size > 0

    def say(self, text: str) -> None:
        """Say something to people: in the run's logs and in the Ray job's."""
        lines = text.rstrip().splitlines()
        print(*lines, sep="\n", flush=True)
        self._write(log(lines, attempt=self._attempt, role="runner", stream="stderr"))

    def note(self, text: str, meta: Mapping[str, object]) -> None:
        """Tell something worth remembering, unless the end is written down already."""
        if not self.has_terminal_event:
            self._write({**note(text, attempt=self._attempt, meta=meta), "role": "runner"})

    def readings(self, values: Mapping[str, float], *, step: int, role: str = "runner", rank: int = 0) -> None:
        """Report readings: of this node, or of another one (role `node`, its index as rank)."""
        if values:
            self._write(system(values, attempt=self._attempt, step=step, role=role, rank=rank))

    def capture_failed(self, name: str, text: str) -> None:
        """Report that a capture's file cannot be handed over."""
        self.say(text)
        self.capture(name, "failed", text=text)

    def capture(self, name: str, state: State, *, step: int = -1, text: str = "", **meta: object) -> None:
        """Report that a capture has moved on, after the trainer's last report of it."""
        self._write(capture(name, state, attempt=self._attempt, step=step, text=text, meta=meta))

    def artifact(self, name: str, *, artifact: str, path: str, step: int, size: int, **meta: object) -> ArtifactEvent:
        """Report that a file of the run directory is ready, and return the event."""
        event = announced(name, artifact=artifact, path=path, attempt=self._attempt, step=step, size=size, meta=meta)
        self._write(event)
        return event

    def terminal_event(
        self, state: str, *, cause: Mapping[str, object], cleanup: Mapping[str, object], step: int
    ) -> None:
        """Write down how it ended; everything else has been written before, and nothing comes after."""
        word: StateEvent = {
            "kind": "state",
            "attempt": self._attempt,
            "step": step,
            "role": "runner",
            "rank": 0,
            "t": time.time_ns(),
            "state": state,
            "cause": dict(cause),
            "text": str(cause.get("text", "")),
            "meta": dict(cleanup),
        }
        self.outbox.no_more_writers()
        self._last.append(self._line(word))
        self._shipper.hurry()

    def wait_until_done(self, *, poll_seconds: float = 0.5, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the terminal event is in the console's database, however long it takes; False if fenced or given
        up."""
        while not self._shipper.is_done.wait(poll_seconds):
            if self._shipper.is_fenced.is_set() or give_up():
                return False
        return True

    def close(self) -> None:
        """End the shipping and close the files."""
        if self._shipper.is_alive() and self._shipper is not threading.current_thread():
            self._shipper.close()
        self.outbox.close()
        self._own.close()
        self._last.close()

    def _write(self, event: Event) -> None:
        with contextlib.suppress(OSError):  # no space even for this: the run matters more than what is said of it
            self._own.append(self._line(event))

    def _line(self, event: Event) -> bytes:
        """Return the event as it is written down: a cause repeats what the trainer said, secrets or not."""
        return self._hiding.event(to_line(event).rstrip()) + b"\n"


def _sources(job: RunnerJob, *, knows_secrets: bool = True) -> tuple[Source, ...]:
    log_dir = job.run_dir / "log"
    hiding = SecretHiding(own_secrets())
    secrets = hiding if knows_secrets else SecretHiding(None)
    events = partial(EventSource, attempt=job.attempt, secrets=secrets)
    lines = partial(TextSource, attempt=job.attempt, secrets=secrets, role="driver")
    return (
        events(name="events", path=job.run_dir / "events.jsonl"),
        lines(name="stdout", path=log_dir / "driver-0.stdout", stream="stdout"),
        lines(name="stderr", path=log_dir / "driver-0.stderr", stream="stderr"),
        events(name="runner", path=job.run_dir / "runner.jsonl"),
        EventSource(
            name=LAST_SOURCE, path=job.run_dir / "last_word.jsonl", attempt=job.attempt, secrets=hiding
        ),  # our own word
    )
