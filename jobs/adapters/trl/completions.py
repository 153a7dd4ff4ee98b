"""TRL's completions as sample events: `completions_<optimizer step>.parquet` with a response on each row.

Columns: step, prompt and completion (texts, or messages), one for each reward function by its name, NaN where it
returned None, what a reward function logged besides (ours logs the expected answer), and advantage. TRL writes it over
where it evaluates at that step, so that nobody can tell what such a file holds: those steps are left out.

Source: TRL 1.16.0 trainer/grpo_trainer.py, log. RLOO prints a few and writes none.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.logs.gathering import NOBODY
from jobs.adapters.logs.samples import MAX_SAMPLES, DumpedResponse, Dumps, number, sample_events, text_of
from jobs.adapters.trl.command import OUTPUT, arguments_of, reward_functions
from jobs.adapters.trl.units import optimizer_steps
from jobs.catalog.spec.runspec import RunSpec
from profiling.events import Event, note

EXPECTED = "expected"
"""The column that our reward functions log."""

_NO_REWARDS = ("step", "prompt", "completion", "advantage", "image", "images")


class TrlCompletions:
    """The reader of one run directory."""

    def __init__(self, *, spec: RunSpec, run_dir: Path) -> None:
        self._dumps = Dumps(folder=run_dir / OUTPUT / "completions", pattern="completions_*.parquet")
        self._steps_of_one = optimizer_steps(spec.values())
        self._eval_every = spec.int_knob("eval.every_steps") if "--eval_strategy" in arguments_of(spec) else 0
        self._functions = reward_functions(spec)
        self._has_said = False

    def events(self, *, now_ns: int) -> Iterator[Event]:
        """Yield the samples of the steps whose files have become whole since the last call."""
        for path in self._dumps.whole():
            digits = path.stem.rpartition("_")[2]
            if not digits.isdecimal() or len(digits) > 9:
                continue
            step = -(-int(digits) // self._steps_of_one)
            if self._eval_every and step % self._eval_every == 0:
                continue
            try:
                rows = read_rows(path)
            except ImportError:
                if not self._has_said:
                    self._has_said = True
                    text = "TRL's completions are not read: the runner's Python on this node has no pyarrow"
                    yield note(text, attempt=NOBODY, step=step)
                continue
            except (OSError, ValueError):  # cut, or no Parquet file
                continue
            yield from sample_events(
                (_completion(row, self._functions) for row in rows), step=step, is_eval=False, t=now_ns
            )


def read_rows(path: Path) -> Sequence[Mapping[str, Any]]:
    """Return the first rows of a Parquet file.

    Raises: ImportError without pyarrow, which only this reader needs; OSError, ValueError (pyarrow's errors are these).
    """
    from pyarrow import parquet

    first = next(parquet.ParquetFile(path).iter_batches(batch_size=MAX_SAMPLES), None)
    rows: list[Mapping[str, Any]] = [] if first is None else first.to_pylist()
    return rows


def _completion(row: Mapping[str, Any], functions: Sequence[str]) -> DumpedResponse:
    """Return a row as a response. Its reward is the sum of what `functions` said, of all numbers where none is there.

    TRL calls a function by its own name, which a file need not hold under the name that it is imported by.
    """
    numbers = {
        str(name): value
        for name, theirs in row.items()
        if name not in _NO_REWARDS and not isinstance(theirs, bool) and (value := number(theirs)) is not None
    }
    rewards = {name: value for name, value in numbers.items() if name in functions} or numbers
    scored = [value for value in rewards.values() if not math.isnan(value)]
    expected = row.get(EXPECTED)
    return DumpedResponse(
        prompt=text_of(row.get("prompt")),
        completion=text_of(row.get("completion")),
        expected="" if expected is None else str(expected),
        reward=sum(scored) if scored else None,
        parts={name: value for name, value in numbers.items() if not math.isnan(value)},
    )
