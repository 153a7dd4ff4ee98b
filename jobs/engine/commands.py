"""What the console asks of a running trainer: lines in `commands.jsonl`, and SIGTERM, which means stop."""

import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any


class Commands:
    """Read new commands, between steps and meanwhile, from any thread. What they ask for stays until it is taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._checkpoint = False
        self._profiles: list[Mapping[str, Any]] = []
        self._withdrawals: list[str] = []
        self._endings: list[str] = []
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
        elif verb == "profile" and isinstance(payload, dict):
            self._profiles.append(payload)
        elif verb == "withdraw" and isinstance(payload, dict):
            self._withdrawals.append(str(payload.get("capture")))
        elif verb == "finish" and isinstance(payload, dict):
            self._endings.append(str(payload.get("capture")))

    def take_checkpoint(self) -> bool:
        """Return whether a checkpoint was asked for since the last call."""
        with self._lock:
            asked, self._checkpoint = self._checkpoint, False
        return asked

    def take_profiles(self) -> list[Mapping[str, Any]]:
        """Return the payloads of the `profile` commands that came since the last call."""
        with self._lock:
            asked, self._profiles = self._profiles, []
        return asked

    def take_profiles_for_now(self) -> list[Mapping[str, Any]]:
        """Return the payloads of those that record by time, from now on, and leave the others."""
        with self._lock:
            asked = [payload for payload in self._profiles if payload.get("seconds")]
            self._profiles = [payload for payload in self._profiles if not payload.get("seconds")]
        return asked

    def take_endings(self) -> list[str]:
        """Return the ids of the captures that people ended since the last call."""
        with self._lock:
            ended, self._endings = self._endings, []
        return ended

    def take_withdrawals(self) -> list[str]:
        """Return the ids of the captures that were withdrawn since the last call."""
        with self._lock:
            withdrawn, self._withdrawals = self._withdrawals, []
        return withdrawn
