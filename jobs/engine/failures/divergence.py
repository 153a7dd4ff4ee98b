"""Signs of divergence in the metrics of steps, and what a run does about each: nothing, a note, or the end.

The detectors are pure: they see one step's values after the other and say when their sign is there. They remember the
steps of this attempt alone.
"""

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.catalog.spec.runspec import RunSpec

_NOISE = 3.0  # standard errors that a fall must exceed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A sign of divergence that is there now: `since` is the first step of it, `text` a sentence about it."""

    guard: str
    since: int
    text: str


class Sustained:
    """A value beyond a limit for `steps` steps in a row; `since` is the first of them, 0 while it is not."""

    def __init__(self, *, limit: float, steps: int, is_upper: bool) -> None:
        self.limit, self._steps, self._is_upper = limit, steps, is_upper
        self._count = self.since = 0

    def see(self, step: int, value: float) -> bool:
        """Return whether the sign comes with this step, once for each time. What is no number is beyond the limit."""
        is_beyond = math.isnan(value) or (value > self.limit if self._is_upper else value < self.limit)
        self._count = self._count + 1 if is_beyond else 0
        self.since = 0 if not is_beyond else self.since or step
        return self._count == self._steps


class Collapse:
    """A mean over `window` steps that fell from its best by more than `drop` of the best's size, and more than noise.

    Noise is three standard errors of the best window's mean. `since` is the step after the best window, 0 while the
    mean has not fallen so far.
    """

    def __init__(self, *, window: int, drop: float) -> None:
        self._drop, self._values = drop, deque[float](maxlen=window)
        self._best = -math.inf
        self._best_step = 0
        self._noise = 0.0
        self.now = math.nan
        self.since = 0

    @property
    def best(self) -> float:
        """The highest mean so far; -inf before there is a whole window."""
        return self._best

    def see(self, step: int, value: float) -> bool:
        """Return whether the sign is there with this step, once for each time. What is no number counts for nothing."""
        if not math.isfinite(value):
            return False
        self._values.append(value)
        if len(self._values) < (self._values.maxlen or 0):
            return False
        self.now = statistics.fmean(self._values)
        if self.now > self._best:
            self._best, self._best_step = self.now, step
            self._noise = statistics.pstdev(self._values) / math.sqrt(len(self._values))
        fall = self._best - self.now
        was_there = bool(self.since)
        is_there = fall > max(self._drop * abs(self._best), _NOISE * self._noise)
        self.since = self._best_step + 1 if is_there else 0
        return is_there and not was_there


class DivergenceGuards:
    """The guards of a run, by its knobs `guard.*`. A guard whose metric the run does not have sees nothing."""

    def __init__(self, spec: RunSpec) -> None:
        self._policies: dict[str, str] = {}
        self._kl = self._entropy = self._reward = None
        if "guard.kl" not in spec.knobs:
            return
        self._policies = {
            "kl": str(spec.knob("guard.kl")),
            "entropy": str(spec.knob("guard.entropy")),
            "reward": str(spec.knob("guard.reward")),
        }
        steps = spec.int_knob("guard.steps")
        self._kl = Sustained(limit=spec.float_knob("guard.kl_limit"), steps=steps, is_upper=True)
        self._entropy = Sustained(limit=spec.float_knob("guard.entropy_limit"), steps=steps, is_upper=False)
        self._reward = Collapse(window=spec.int_knob("guard.reward_window"), drop=spec.float_knob("guard.reward_drop"))

    def policy_of(self, sign: Sign) -> str:
        """Return what is to be done about a sign: note, or stop."""
        return self._policies[sign.guard]

    def see(self, step: int, metrics: Mapping[str, float]) -> Sequence[Sign]:
        """Return the signs that come with this step and were not there before it; none of a guard that is off."""
        signs = []
        if self._is_seen("kl", metrics, "kl/reference"):
            assert self._kl is not None
            value = metrics["kl/reference"]
            if self._kl.see(step, value):
                text = f"The KL to the reference is above {self._kl.limit:g} nats per token since step {self._kl.since}"
                signs.append(Sign(guard="kl", since=self._kl.since, text=f"{text}, {value:.3g} at step {step}."))
        if self._is_seen("entropy", metrics, "policy/entropy"):
            assert self._entropy is not None
            value = metrics["policy/entropy"]
            if self._entropy.see(step, value):
                text = f"The policy's entropy is below {self._entropy.limit:g} nats since step {self._entropy.since}"
                signs.append(Sign(guard="entropy", since=self._entropy.since, text=f"{text}, {value:.3g} now."))
        if self._is_seen("reward", metrics, "reward/mean"):
            assert self._reward is not None
            if self._reward.see(step, metrics["reward/mean"]):
                text = f"The mean reward fell to {self._reward.now:.3g}, from {self._reward.best:.3g} up to step "
                signs.append(Sign(guard="reward", since=self._reward.since, text=f"{text}{self._reward.since - 1}."))
        return signs

    def suspected_since(self) -> int:
        """Return the first step of what may become a sign whose policy is to stop; 0 while there is none."""
        steps = [
            detector.since
            for name, detector in (("kl", self._kl), ("entropy", self._entropy), ("reward", self._reward))
            if detector is not None and detector.since and self._policies[name] == "stop"
        ]
        return min(steps, default=0)

    def _is_seen(self, guard: str, metrics: Mapping[str, float], name: str) -> bool:
        return self._policies.get(guard, "off") != "off" and name in metrics
