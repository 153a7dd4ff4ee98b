"""The exchange with the console: batches of events one way, commands the other, in one POST and its answer.

One POST is in flight, every 100 ms while there is something, a heartbeat every second otherwise. The thread follows
`expect` wherever the console points, so a console that lost its Redis, or an answer that was lost on the way, is
nothing special. It stops for good when the console fences the attempt, or when the terminal event is durable.

A command is written down once, for the trainer to read, and answered until the console knows it.
"""

import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jobs.runner.console_client.backoff import Backoff
from jobs.runner.console_client.console import (
    Acknowledgement,
    AttemptFenced,
    CommandAnswer,
    CommandSent,
    Console,
    ConsoleUnreachable,
    RequestRejected,
)
from jobs.runner.reporting.append_only import AppendFile, Reserve
from jobs.runner.reporting.outbox import BatchUnknown, Outbox, OutboxBatch

PERIOD_SECONDS = 0.1  # between POSTs
LOOK_SECONDS = 0.025  # between looks while there is nothing to ship: what comes after a pause leaves at once
HEARTBEAT_SECONDS = 1.0
STALLED_SECONDS = 2.0  # without anything becoming durable: a heartbeat between batches shows the console what it lost
REFUSED_FOR_SECONDS = 600.0  # then the console does not know this run any more, and never will
LAST_SOURCE = "last_word"  # as attempts on a disk have it

VERBS = ("stop", "checkpoint", "set", "pin", "profile", "withdraw", "finish")
OWN_NUMBER = 0  # of a stop that came as a signal instead of a command


class CommandLog:
    """`commands.jsonl` and what is still to be answered. Used from the shipping and the supervising thread."""

    def __init__(self, *, run_dir: Path, reserve: Reserve) -> None:
        path = run_dir / "commands.jsonl"
        self._file = AppendFile(path, reserve=reserve)
        self._lock = threading.Lock()
        self._taken = {int(json.loads(line)["number"]) for line in path.read_bytes().splitlines()}
        self._answers: dict[int, Mapping[str, object]] = {}
        self._is_closed = False
        self._fresh: list[tuple[str, Mapping[str, object]]] = []
        self.refused: Mapping[str, str] = {}  # verb -> why the run's trainer cannot be asked for it
        self.stop_wanted = threading.Event()

    def take(self, commands: Sequence[CommandSent]) -> None:
        """Hand new commands to the trainer. One that comes again is answered again, not done again."""
        with self._lock:
            for command in commands:
                number, verb = int(command["number"]), str(command["verb"])
                self._answers[number] = self._do(number, verb, command.get("payload") or {})

    def stop(self) -> None:
        """Ask the trainer to stop, without a command of the console."""
        with self._lock:
            self._do(OWN_NUMBER, "stop", {})

    def trainer_has_ended(self) -> None:
        """From now on commands are answered with an error."""
        with self._lock:
            self._is_closed = True

    def fresh(self) -> list[tuple[str, Mapping[str, object]]]:
        """Return verb and payload of what was taken since the last call, for a trainer that reads no commands."""
        with self._lock:
            commands, self._fresh = self._fresh, []
        return commands

    def answers(self) -> list[CommandAnswer]:
        """Return what to put into the next POST."""
        with self._lock:
            return [{"number": number, "answer": dict(answer)} for number, answer in self._answers.items()]

    def delivered(self, answers: Sequence[CommandAnswer]) -> None:
        """Forget the answers that the console has."""
        with self._lock:
            for answer in answers:
                self._answers.pop(int(answer["number"]), None)

    def _do(self, number: int, verb: str, payload: Mapping[str, object]) -> Mapping[str, object]:
        if verb not in VERBS:
            return {"error": "unknown verb"}
        if why := self.refused.get(verb):
            return {"error": why}
        if number not in self._taken:
            if self._is_closed:
                return {"error": "the trainer has ended"}
            line = json.dumps({"number": number, "verb": verb, "payload": dict(payload)})
            self._file.append(line.encode() + b"\n")
            self._taken.add(number)
            self._fresh.append((verb, dict(payload)))
        if verb == "stop":
            self.stop_wanted.set()
        return {"accepted": True}


class Shipper(threading.Thread):
    """Ships one attempt's outbox. `is_done` is set once the terminal event is in the console's database."""

    def __init__(
        self,
        *,
        console: Console,
        outbox: Outbox,
        commands: CommandLog,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="shipper", daemon=True)
        self._console = console
        self._outbox = outbox
        self._commands = commands
        self._say = say
        self._clock = clock
        self._expect = 1
        self._has_asked = False  # a heartbeat comes first: what the console has decides which batch is next
        self._posted_at = self._moved_at = -1e9
        self._durable = 0
        self._trouble_said_at: float | None = None
        self._refused_since: float | None = None
        self._terminal_event = outbox.number_of_last_cut_with(LAST_SOURCE)  # number of the batch that ends with it
        self._wake = threading.Event()
        self._closing = threading.Event()
        self.is_done = threading.Event()
        self.is_fenced = threading.Event()

    @property
    def is_over(self) -> bool:
        """True if nothing more will be shipped."""
        return self.is_done.is_set() or self.is_fenced.is_set()

    def hurry(self) -> None:
        """Look for something to ship now."""
        self._wake.set()

    def close(self) -> None:
        """End the thread, whatever is left to ship."""
        self._closing.set()
        self._wake.set()
        self.join(timeout=40)

    def run(self) -> None:
        """Ship until it is over or closed."""
        backoff = Backoff()
        while not self._closing.is_set() and not self.is_over:
            began = self._clock()
            pause = self._turn(backoff)
            self._wake.wait(max(0.0, pause - (self._clock() - began)) if pause else 0)
            self._wake.clear()

    def _turn(self, backoff: Backoff) -> float:
        """Send one POST if it is time; return the seconds from its start to the next turn."""
        batch: OutboxBatch | None = None
        try:
            must_ask = not self._has_asked or self._is_stalled()
            batch = None if must_ask else self._next_batch()
            if batch is None and not must_ask and not self._is_heartbeat_due():
                return LOOK_SECONDS
            self._exchange(batch)
        except AttemptFenced as error:
            self._on_fenced(str(error), error.durable_through)
            return 0
        except RequestRejected as error:
            return self._on_refused(error, batch, backoff)
        except (ConsoleUnreachable, BatchUnknown, OSError) as error:
            self._say_once(str(error))
            return backoff.wait_seconds()
        except Exception:  # a fault of ours must not end the shipping; training does not notice either way
            self._say_once(traceback.format_exc())
            return backoff.wait_seconds()
        backoff.reset()
        self._refused_since = self._trouble_said_at = None
        is_behind = self._expect < self._outbox.next_number or self._is_full(batch)
        return 0 if is_behind else PERIOD_SECONDS

    def _next_batch(self) -> OutboxBatch | None:
        if self._expect > self._outbox.next_number:
            self._outbox.skip_to(self._expect)
        batch = self._outbox.batch(self._expect)
        if batch is not None and self._terminal_event is None:
            self._terminal_event = self._outbox.number_of_last_cut_with(LAST_SOURCE)
        return batch

    def _is_heartbeat_due(self) -> bool:
        is_waiting_for_the_end = self._terminal_event is not None
        period = PERIOD_SECONDS if is_waiting_for_the_end else HEARTBEAT_SECONDS
        return self._clock() - self._posted_at >= period

    def _is_stalled(self) -> bool:
        """True if batches are on their way, but none has arrived in the database for a while."""
        now = self._clock()
        if self._expect - 1 <= self._durable or now - self._moved_at < STALLED_SECONDS:
            return False
        self._moved_at = now  # one heartbeat, then batches again
        return True

    def _exchange(self, batch: OutboxBatch | None) -> None:
        answers = self._commands.answers()
        self._posted_at = self._clock()
        number, events = (batch.number, batch.events) if batch else (0, ())
        answer = self._console.post_events(number, events, answers)
        self._commands.delivered(answers)
        self._commands.take(answer.commands)
        self._follow(answer)

    def _follow(self, answer: Acknowledgement) -> None:
        self._has_asked = True
        if answer.durable_through != self._durable or self._expect - 1 <= self._durable:
            self._moved_at = self._clock()
        self._durable = answer.durable_through
        self._outbox.forget(answer.durable_through)
        self._expect = max(answer.expect, answer.durable_through + 1)
        if self._terminal_event is not None and answer.durable_through >= self._terminal_event:
            self.is_done.set()

    def _is_full(self, batch: OutboxBatch | None) -> bool:
        return batch is not None and (len(batch.events) >= 500 or sum(map(len, batch.events)) > 250_000)

    def _on_fenced(self, text: str, durable_through: int) -> None:
        """A run ends when its terminal event is in the database: to be fenced after that is how the runner learns of
        it."""
        if self._terminal_event is not None and durable_through >= self._terminal_event:
            self.is_done.set()
        else:
            self._say(f"This attempt may not report any more, so it ends here. {text}")
            self.is_fenced.set()

    def _on_refused(self, error: RequestRejected, batch: OutboxBatch | None, backoff: Backoff) -> float:
        self._say_once(str(error))
        if batch is not None and error.status in (400, 413, 422):
            self._outbox.refuse(batch, str(error), error.events)
            self._trouble_said_at = None
            return PERIOD_SECONDS
        self._refused_since = self._refused_since or self._clock()
        if self._clock() - self._refused_since > REFUSED_FOR_SECONDS:
            self._on_fenced(str(error), 0)
        return backoff.wait_seconds()

    def _say_once(self, text: str) -> None:
        """Say what is wrong at once, then every minute."""
        if self._trouble_said_at is None or self._clock() - self._trouble_said_at > 60:
            self._say(text)
            self._trouble_said_at = self._clock()
