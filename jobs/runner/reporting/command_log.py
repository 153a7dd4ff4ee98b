"""Commands on their way to the trainer: each is written down once, and answered until the console knows it."""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.runner.console_client.console import CommandAnswer, CommandSent
from jobs.runner.reporting.append_only import AppendFile, Reserve

VERBS = ("stop", "checkpoint", "profile", "withdraw", "finish")
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
