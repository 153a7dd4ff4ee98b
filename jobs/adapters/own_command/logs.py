"""What a command of somebody's own writes, as events: pitwall.log, TensorBoard files, and lines by their patterns."""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.adapters.logs.gathering import NOBODY, Steps
from jobs.adapters.logs.lines import GrowingFile
from jobs.adapters.logs.tensorboard import TensorBoardReader
from jobs.adapters.own_command.command import METRICS, board_folder
from jobs.adapters.own_command.patterns import read_patterns, values_in
from jobs.catalog.spec.runspec import RunSpec
from profiling.events import Event, note

OUTPUTS = ("log/driver-0.stdout", "log/driver-0.stderr")
FETCHED = "source.json"


class OwnCommandLogs:
    """The reader of one run directory."""

    def __init__(self, *, spec: RunSpec, run_dir: Path) -> None:
        name, algorithm = spec.trainer.name, spec.algorithm
        self._metrics = GrowingFile(path=run_dir / METRICS)
        self._outputs = [GrowingFile(path=run_dir / name) for name in OUTPUTS]
        self._steps = Steps(trainer=name, algorithm=algorithm)
        self._board = TensorBoardReader(folder=board_folder(spec, run_dir), trainer=name, algorithm=algorithm)
        self._patterns: tuple[re.Pattern[str], ...] = ()
        with contextlib.suppress(ValueError):  # which the launch has refused already
            self._patterns = read_patterns(str(spec.knob("own_command.patterns") or ""))
        self._fetched = run_dir / FETCHED
        self._has_told = False

    def poll(self, *, now_ns: int) -> Sequence[Event]:
        """Return the events of what was written since the last call."""
        for line in self._metrics.lines():
            self._take(line)
        for output in self._outputs:
            if not self._patterns:
                break
            for line in output.lines():
                values = values_in(line.decode("utf-8", "replace"), self._patterns)
                if values is not None:
                    self._steps.add(values[0], values[1], t=now_ns)
        return [*self._source(), *self._steps.events(), *self._board.poll(now_ns=now_ns)]

    def _take(self, line: bytes) -> None:
        """Take in a line of pitwall.log; one that is none is passed over."""
        try:
            said = json.loads(line)
            step, at = int(said["step"]), int(said["t"])
            values = {str(name)[:120]: float(value) for name, value in said["data"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return
        if 0 <= step < 1 << 31 and 0 < at < 1 << 63:
            self._steps.add(step, {name: value for name, value in values.items() if name}, t=at)

    def _source(self) -> Iterator[Event]:
        """Yield once which commit of a repository was fetched."""
        if self._has_told or not self._fetched.exists():
            return
        self._has_told = True
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(self._fetched.read_text("utf-8"))
            tree = {"name": "repository", **{name: str(said[name])[:300] for name in ("commit", "remote", "folder")}}
            text = f"{tree['remote']} at {tree['commit'][:12]}"
            yield note(text, attempt=NOBODY, step=-1, meta={"environment": {"sources": [tree]}})
