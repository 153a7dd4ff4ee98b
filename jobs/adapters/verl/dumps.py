"""verl's dumps of rollouts and evaluations, as sample events: `<step>.jsonl` with a response on each line.

{"input": "...", "output": "...", "gts": "72", "score": 1.0, "step": 3, "acc": true, "uid": "17_0_0"}

Sources: verl trainer/ppo/ray_trainer.py and trainer/ppo/v1/trainer_base.py, _write_generations (0.7.0: without uid).
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.logs.samples import DumpedResponse, Dumps, number, sample_events
from jobs.adapters.verl.settings import RUN_PATHS
from profiling.events import Event

ROLLOUTS, EVALUATIONS = RUN_PATHS["trainer.rollout_data_dir"], RUN_PATHS["trainer.validation_data_dir"]
_NO_PARTS = ("input", "output", "gts", "score", "step", "uid", "request_id")


class VerlDumps:
    """The reader of both folders of a run directory."""

    def __init__(self, *, run_dir: Path) -> None:
        self._folders = (
            (Dumps(folder=run_dir / ROLLOUTS, pattern="*.jsonl"), False),
            (Dumps(folder=run_dir / EVALUATIONS, pattern="*.jsonl"), True),
        )

    def events(self, *, now_ns: int) -> Iterator[Event]:
        """Yield the samples of the steps whose files have become whole since the last call."""
        for dumps, is_eval in self._folders:
            for path in dumps.whole():
                if path.stem.isdecimal() and len(path.stem) < 10:
                    yield from sample_events(responses(path), step=int(path.stem), is_eval=is_eval, t=now_ns)


def responses(path: Path) -> Sequence[DumpedResponse]:
    """Return the responses of one file; lines that cannot be read are left out, as are files."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return ()
    return [response for line in lines if (response := _response(line)) is not None]


def _response(line: bytes) -> DumpedResponse | None:
    try:
        row: Any = json.loads(line)
        prompt, completion = row["input"], row["output"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(prompt, str) or not isinstance(completion, str):
        return None
    expected = row.get("gts")
    others = ((str(name), number(value)) for name, value in row.items() if name not in _NO_PARTS)
    return DumpedResponse(
        prompt=prompt,
        completion=completion,
        expected=expected if isinstance(expected, str) else "" if expected is None else json.dumps(expected),
        reward=number(row.get("score")),
        parts={name: value for name, value in others if value is not None},
        group=_group(row.get("uid")),
    )


def _group(uid: object) -> str:
    """Return what the responses to one prompt share: of `<sample>_<rollout>_<output>` the sample."""
    text = uid if isinstance(uid, str) else ""
    parts = text.rsplit("_", 2)
    return parts[0] if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal() else text
