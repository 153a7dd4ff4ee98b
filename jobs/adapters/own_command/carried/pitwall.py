"""Report metrics of your own training code to Pitwall: one file, no dependencies, nothing to set up.

    import pitwall
    pitwall.log(step=12, loss=0.31)
    pitwall.log({"reward/mean": 0.5, "time/step_seconds": 2.1}, step=12)

Where no run of Pitwall is, it does nothing: the same code runs anywhere.
"""

import json
import math
import os
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["is_run", "log", "run_dir"]


def run_dir() -> "str | None":
    """Return the run directory on this node, where checkpoints may be put; None outside of a run."""
    return os.environ.get("PITWALL_RUN_DIR") or None


def is_run() -> bool:
    """Return True within a run of Pitwall."""
    return run_dir() is not None


def log(values: "Mapping[str, Any] | None" = None, /, *, step: int, **more: Any) -> None:
    """Report values of a step: a mapping of names and numbers, or keywords, or both; several calls for a step add up.

    Numbers are what float() takes, tensors of one element too; NaN and infinities are kept. Any process and thread may
    call it. Raises: TypeError for a step that is no whole number from 0, and for a value that is no number. A disk that
    takes nothing is passed over: no training ends for want of a curve.
    """
    if isinstance(step, bool) or int(step) != step or step < 0:
        raise TypeError(f"step is {step!r}; give a whole number from 0.")
    data: dict[str, float | str] = {}
    for name, value in {**(values or {}), **more}.items():
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is {value!r}; give a number.") from error
        data[str(name)] = number if math.isfinite(number) else str(number)
    folder = run_dir()
    if folder is None or not data:
        return
    line = json.dumps({"step": int(step), "t": time.time_ns(), "data": data}) + "\n"
    try:
        file = os.open(os.path.join(folder, "metrics.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)  # noqa: PTH118
        try:
            os.write(file, line.encode())  # one write, so that lines of several processes stay whole
        finally:
            os.close(file)
    except OSError:
        pass
