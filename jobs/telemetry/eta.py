"""How much longer a run takes, as an interval from its own recent steps."""

from collections import OrderedDict
from statistics import quantiles
from threading import Lock

from jobs.models import Frame, Run
from jobs.telemetry.frames import FrameMessage, decode_frame

STEP_TIME = "time/step_seconds"
_FRAMES_READ = 60
_STEPS_USED = 20
_KEPT = 512
_SPREAD = (0.85, 1.3)  # around a single step time, when only one is known

_cache: OrderedDict[tuple[str, int, int], list[float]] = OrderedDict()
_lock = Lock()


def interval(run: Run, *, times: list[float], silence: float = 0.0) -> tuple[float, float] | None:
    """Return the seconds left, low and high: steps left times the 10th and 90th percentile of recent step times.

    Of a run that the console has not heard from for `silence` seconds they are counted from then: training goes on.
    None when nothing is left, nothing is known, or the run is not to train on.
    """
    left = run.num_steps - run.step
    if run.state != "running" or left <= 0 or run.step <= 0 or not times:
        return None
    if len(times) == 1:
        low, high = times[0] * _SPREAD[0], times[0] * _SPREAD[1]
    else:
        low, *_, high = quantiles(times, n=10, method="inclusive")
    most = left * high - silence
    return (max(left * low - silence, 0.0), most) if most > 0 else None


def latest_time(run: Run) -> list[float]:
    """Return the newest step time alone, for lists: no query."""
    value = run.latest_values.get(STEP_TIME)
    return [float(value)] if isinstance(value, (int, float)) and value > 0 else []


def recent_times(run: Run) -> list[float]:
    """Return the step times of the latest attempt's newest frames, read once per step and kept."""
    key = (run.pk, run.latest_attempt, run.step)
    with _lock:
        if key in _cache:
            return _cache[key]
    newest = Frame.objects.filter(run=run).order_by("-seq").values_list("attempt", "payload")[:_FRAMES_READ]
    payloads = [payload for attempt, payload in newest if attempt == run.latest_attempt]
    step_times = [time for payload in payloads for time in _step_times(decode_frame(payload))][:_STEPS_USED]
    times = step_times or latest_time(run)
    with _lock:
        _cache[key] = times
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return times


def _step_times(frame: FrameMessage) -> list[float]:
    columns = [lane["values"].get(STEP_TIME, ()) for lane in frame["metrics"] if lane["role"] == "driver"]
    return [v for column in reversed(columns) for v in reversed(column) if isinstance(v, (int, float)) and v > 0]
