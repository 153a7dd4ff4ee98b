"""What the console asks of a running trainer: lines in `commands.jsonl`, and SIGTERM, which means stop."""

import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

CAPTURE_VERBS = ("profile", "withdraw", "finish")


class CommandInbox:
    """Read new commands, between steps and meanwhile, from any thread. What they ask for stays until it is taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._checkpoint = False
        self._captures: list[tuple[str, Mapping[str, Any]]] = []
        self._changes: list[tuple[int, Mapping[str, object]]] = []
        self._pins: list[tuple[int, bool]] = []
        self._lock = threading.Lock()
        self.is_stopping = False

    def watch_signals(self) -> None:
        """Take SIGTERM as stop. Call it after ray.init, which installs a handler of its own."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.is_stopping = True

    def poll(self) -> None:
        """Read the lines added since the last call; a torn last line waits for its end."""
        with self._lock:
            try:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    data = file.read()
            except FileNotFoundError:
                return
            end = data.rfind(b"\n") + 1
            self._offset += end
            for line in data[:end].splitlines():
                self._obey(line)

    def _obey(self, line: bytes) -> None:
        try:
            command = json.loads(line)
            verb, payload = command["verb"], command.get("payload")
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if verb == "stop":
            self.is_stopping = True
        elif verb == "checkpoint":
            self._checkpoint = True
        elif verb == "set" and isinstance(payload, dict) and isinstance(payload.get("knobs"), dict):
            self._changes.append((int(command.get("number", 0)), payload["knobs"]))
        elif verb == "pin" and isinstance(payload, dict) and type(payload.get("step")) is int:
            self._pins.append((payload["step"], payload.get("is_pinned") is not False))
        elif verb in CAPTURE_VERBS and isinstance(payload, dict):
            self._captures.append((verb, payload))

    def take_checkpoint(self) -> bool:
        """Return whether a checkpoint was asked for since the last call."""
        with self._lock:
            is_wanted, self._checkpoint = self._checkpoint, False
        return is_wanted

    def take_changes(self) -> list[tuple[int, Mapping[str, object]]]:
        """Return number and knobs (id -> value) of each change that was asked for since the last call, in order."""
        with self._lock:
            changes, self._changes = self._changes, []
        return changes

    def take_pins(self) -> list[tuple[int, bool]]:
        """Return the steps whose checkpoints were pinned (True) or released since the last call, in order."""
        with self._lock:
            pins, self._pins = self._pins, []
        return pins

    def take_captures(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return verb and payload of what was asked of captures since the last call, in order."""
        with self._lock:
            requests, self._captures = self._captures, []
        return requests
