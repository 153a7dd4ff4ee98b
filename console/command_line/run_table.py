"""What a run came to, as a few lines of text: steps, reward, held-out results, seconds per phase."""

import math
import statistics
from collections.abc import Iterable

from console.command_line.api_json import PointsJson, RunResultJson
from jobs.catalog.metric import metric, metrics

WINDOW = 20  # steps at either end, at most, that a mean is taken over
_ENDS = ("reward/mean", "loss/sft", "teacher/gap", "eval/accuracy", "eval/reward", "eval/loss", "time/step_seconds")


def wanted() -> list[str]:
    """Return the metrics that the table reads."""
    return [*_ENDS, *(name for name in metrics() if _is_phase(name))]


def run_table(header: RunResultJson, series: Iterable[PointsJson]) -> str:
    """Return the table of a run from its header and its driver's series; what was not measured shows as a dash."""
    points = {s["name"]: [v for v in map(_number, s["y"]) if v is not None] for s in series}
    rows = [
        ("run", f"{header['id']}  {header['name']}"),
        ("state", _state(header)),
        ("steps", f"{header['step']} of {header['num_steps']}"),
        ("took", _seconds(header.get("elapsed_seconds"))),
    ]
    for name in _ENDS:
        values = points.get(name, [])
        if values:
            rows.append((metric(name).label, _ends(name, values)))
    phases = [(metric(n).label, v) for n, v in points.items() if _is_phase(n) and any(v)]
    for label, values in sorted(phases, key=lambda item: -sum(item[1])):
        share = f"{statistics.fmean(values):.3f} s a step, {sum(values):.1f} s in all"
        rows.append((f"  {label}", share))
    width = max(len(label) for label, _text in rows)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


def _is_phase(name: str) -> bool:
    return name.startswith("time/") and name not in ("time/step_seconds", "time/event_seconds")


def _state(header: RunResultJson) -> str:
    cause = header.get("cause") or {}
    text = f"{header['state']}: {cause['text']}" if cause.get("text") else header["state"]
    return f"{text}\n       {cause['log_line']}" if cause.get("log_line") else text


def _ends(name: str, values: list[float]) -> str:
    """Say where the metric began and ended: evaluations by their first and last, steps by means over either end."""
    if name.startswith("eval/"):
        return f"{values[0]:.3f} -> {values[-1]:.3f}"
    if name == "time/step_seconds":
        return f"median {statistics.median(values):.3f} s"
    window = min(WINDOW, max(1, len(values) // 2))  # the two ends never share a step, else a short run looks flat
    first, last = statistics.fmean(values[:window]), statistics.fmean(values[-window:])
    steps = "step" if window == 1 else f"{window} steps"
    return f"{first:.3f} -> {last:.3f}  (means of the first and last {steps})"


def _number(value: float | str | None) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _seconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.0f} s"
