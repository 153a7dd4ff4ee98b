"""What the console asks of a running trainer: lines in `commands.jsonl`, and SIGTERM, which means stop."""

import json
import signal
from pathlib import Path
from types import FrameType


class Commands:
    """Read new commands between steps. `stop` and `checkpoint` stay set until they are taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._checkpoint = False
        self.is_stopping = False

    def watch_signals(self) -> None:
        """Take SIGTERM as stop. Call it after ray.init, which installs a handler of its own."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.is_stopping = True

    def poll(self) -> None:
        """Read the lines added since the last call; a torn last line waits for its end."""
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
            verb = json.loads(line)["verb"]
        except (ValueError, KeyError, TypeError):
            return
        if verb == "stop":
            self.is_stopping = True
        elif verb == "checkpoint":
            self._checkpoint = True

    def take_checkpoint(self) -> bool:
        """Return whether a checkpoint was asked for since the last call."""
        asked, self._checkpoint = self._checkpoint, False
        return asked
