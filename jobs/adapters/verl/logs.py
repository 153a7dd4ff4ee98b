"""What verl writes, as events: its JSON lines; where they are on another node, the lines that it prints; its dumps.

The file logger of reinforcement learning lives in a Ray actor, which may sit on any node; the printed lines reach the
driver's log from everywhere. One of the two is read: the file if it is here `WAIT_SECONDS` after the first line.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.logs.engine_metrics import EngineMetrics
from jobs.adapters.logs.gathering import Step, Steps
from jobs.adapters.logs.lines import GrowingFile
from jobs.adapters.logs.step_count import BAR, StepCount
from jobs.adapters.verl.dumps import VerlDumps
from jobs.adapters.verl.settings import METRICS
from jobs.catalog.algorithm import is_in
from jobs.catalog.log_line import read_line, uncolored
from jobs.catalog.spec.runspec import RunSpec
from profiling.events import Event

TRAINER = "verl"
STDOUT = "log/driver-0.stdout"
WAIT_SECONDS = 5.0
STATS = "logging.engine_stats"
_LINE = re.compile(r"(?:^|\) |\](?:: ?| )?)step:(\d{1,9}) - (\S+:.*)$")
"""A step, at the beginning of what was said or behind a bar that was being drawn."""

_SERVERS = re.compile(r"(?:LLMServerManager|AgentLoopManager): (\[['\"\w.:, -]+\])")
"""What verl 0.9 and 0.7 print once their rollout servers listen."""

_SERVER = re.compile(r"[\w.-]+:\d{1,5}")
_UNIT = re.compile(r"(.+)\((1e-?\d{1,2})\)")
_GIBIBYTES = re.compile(r"perf/max_memory_(?:allocated|reserved)_gb")
"""What verl tells in units of 2^30 bytes, and the dictionary in bytes."""

_ROUNDED = "0.000"
"""What early releases print of anything below 0.0005: they round all numbers to three decimals."""

_SMALL = frozenset({"actor/lr", "critic/lr", "actor/kl_loss", "actor/reward_kl_penalty"})
"""What is that small where all is well, so that `_ROUNDED` does not tell it from 0: a learning rate, a divergence."""

_EPOCHS = re.compile(r"Epoch \d+/(?P<epochs>\d+)" + BAR)
_STEPS = re.compile("Training Progress" + BAR)


class VerlLogs:
    """The reader of one run directory."""

    def __init__(self, *, spec: RunSpec, run_dir: Path) -> None:
        self._file = GrowingFile(path=run_dir / METRICS)
        self._stdout = GrowingFile(path=run_dir / STDOUT)
        self._steps = Steps(trainer=TRAINER, algorithm=spec.algorithm, has_timers=is_in(spec.algorithm, "rl"))
        self._printed: list[tuple[Step, int]] = []  # while it is not decided, with the time when each was read
        self._planned = StepCount(spec=spec, run_dir=run_dir, count=planned_steps)
        self._dumps = VerlDumps(run_dir=run_dir)
        self._engines = EngineMetrics() if spec.values().get(STATS) else None
        self._servers = GrowingFile(path=run_dir / STDOUT)
        self._has_file = False
        self._is_printed_only = False

    def poll(self, *, now_ns: int) -> Sequence[Event]:
        """Return the events of what was written since the last call."""
        engines = self._engine_metrics(self._engines) if self._engines else ()
        return [*self._planned.events(), *self._dumps.events(now_ns=now_ns), *self._values(now_ns), *engines]

    def _engine_metrics(self, engines: EngineMetrics) -> Sequence[Event]:
        """Return what the rollout servers measure, whose addresses verl prints once."""
        if not engines.is_watching:
            with contextlib.suppress(OSError):
                for line in self._servers.lines():
                    if addresses := printed_servers(line.decode("utf-8", "replace")):
                        engines.watch(addresses)
                        break
        return engines.events()

    def _values(self, now_ns: int) -> Iterator[Event]:
        self._has_file = self._has_file or (not self._is_printed_only and self._file.path.exists())
        if self._has_file:
            self._printed.clear()
            for step, values in self._new(self._file, json_step):
                self._steps.add(step, values, t=now_ns)
            return self._steps.events()
        self._printed += [(step, now_ns) for step in self._new(self._stdout, printed_step)]
        if self._printed and (self._is_printed_only or now_ns - self._printed[0][1] >= WAIT_SECONDS * 1e9):
            self._is_printed_only = True
            for (step, values), t in self._printed:
                self._steps.add(step, values, t=t)
            self._printed.clear()
        return self._steps.events()

    @staticmethod
    def _new(file: GrowingFile, read: Any) -> Iterator[Step]:
        with contextlib.suppress(OSError):
            for line in file.lines():
                if (step := read(line.decode("utf-8", "replace"))) is not None:
                    yield step


def json_step(line: str) -> Step | None:
    """Return step and values of one line of the file logger, which writes null for what is not finite."""
    try:
        raw = json.loads(line)
        step, data = int(raw["step"]), raw["data"].items()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    metrics = {}
    for name, value in data:
        if value is None:
            metrics[name] = math.nan
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):  # an integer of hundreds of digits
                metrics[name] = float(value) * _factor(name)
    return (step, metrics) if metrics else None


def printed_step(line: str) -> Step | None:
    """Return step and values of a line that verl prints, None of any other.

    (TaskRunner pid=812) step:3 - actor/pg_loss:0.1 - actor/entropy:nan
    (TaskRunner pid=812) step:3 - actor/pg_loss:0.100 - actor/lr:0.000      a learning rate that is not told
    """
    match = _LINE.search(read_line(line).said) if "step:" in line else None
    if match is None:
        return None
    metrics = {}
    for part in match[2].split(" - "):
        name, _, text = part.partition(":")
        number = _text_number(text)
        if name and number is not None and not (text == _ROUNDED and name in _SMALL):
            name, factor = _of_first_releases(name)
            metrics[name] = number * factor * _factor(name)
    return (int(match[1]), metrics) if metrics else None


def printed_servers(line: str) -> tuple[str, ...]:
    """Return the addresses of the rollout servers in a line that verl prints, none of any other.

    (TaskRunner pid=812) LLMServerManager: ['10.0.0.7:41233', '10.0.0.8:38111']
    """
    match = _SERVERS.search(uncolored(line))
    return tuple(_SERVER.findall(match[1])) if match else ()


def _of_first_releases(name: str) -> tuple[str, float]:
    """Return today's name of a value, and what to multiply it by: timing/gen, actor/lr(1e-4) were verl 0.1's."""
    factor = 1.0
    if match := _UNIT.fullmatch(name):
        name, factor = match[1], float(match[2])
    return (f"timing_s/{name.removeprefix('timing/')}" if name.startswith("timing/") else name), factor


def _factor(name: str) -> float:
    """Return what to multiply a value by, so that it has the unit of the dictionary."""
    return float(1 << 30) if _GIBIBYTES.fullmatch(name) else 1.0


def _text_number(text: str) -> float | None:
    inner = re.fullmatch(r"[\w.]+\(([^,]*)(?:,.*)?\)", text.strip())  # tensor(0.5, device='cuda:0')
    try:
        return float(inner[1] if inner else text)
    except ValueError:
        return None


def planned_steps(text: str, spec: RunSpec, origin: int = 0) -> int | None:  # noqa: ARG001 (its bars have all steps)
    """Return how many steps the progress bars in `text` promise; None if they do not say (yet).

    Epoch 1/4:   6%|▋         | 1/16 [00:03<00:49,  3.32s/it]           supervised: epochs, and steps of one
    Training Progress:   1%|          | 1/120 [00:09<18:20, ...]        reinforcement learning: steps
    """
    if match := _STEPS.search(text):
        return int(match["total"])
    if match := _EPOCHS.search(text):
        return int(match["epochs"]) * int(match["total"])
    return None
