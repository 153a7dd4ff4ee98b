"""How far a run is: step, phase, activity and newest values, read off its events. No database."""

from dataclasses import dataclass

from profiling.events import Event, Number, SpanEvent, StateEvent

MAX_LATEST_VALUES = 300  # names that a run's row carries; every series is on the charts anyway

MAX_STEPS = 1 << 31
_BRIEF = 20_000_000  # nanoseconds; a phase that is over sooner is never what runs now
_PHASE_OF_STATE = {"loading": "load", "evaluating": "eval", "saving": "checkpoint"}
_OVER = frozenset({"done", "failed"})


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """What the run's row says; `see` each event in order.

    A span arrives when its phase is over. What runs now is then the phase that followed it in the step before
    (`next_phase`, learned and kept by the caller); in the first step, where nobody knows, the phase is "". The driver
    of the built-in trainer tells its spans when a step is over, its first trainer each of its own at once.
    """

    step: int
    phase: str
    activity: str
    latest_values: dict[str, Number]
    next_phase: dict[str, str]
    previous_phase: str = ""
    is_training: bool = False  # the events show that the trainer works
    num_steps: int = 0  # told by a trainer whose spec leaves it to the data; 0: not told

    def see(self, event: Event) -> None:
        """Take in one event of the trainer's driver, or a span of its first trainer; others say nothing about the whole
        run."""
        if event["kind"] == "span":
            self._see_span(event)
            return
        if event["role"] != "driver":
            return
        if event["kind"] == "state":
            self._see_state(event)
        elif event["kind"] == "metric":
            self.is_training = True
            self.step = max(self.step, event["step"])
            values = {**self.latest_values, **event["values"]}
            self.latest_values = dict(list(values.items())[:MAX_LATEST_VALUES])
        elif event["kind"] == "note":
            num_steps = event.get("meta", {}).get("num_steps")
            if isinstance(num_steps, int) and 0 < num_steps < MAX_STEPS:
                self.num_steps = num_steps

    def _see_span(self, event: SpanEvent) -> None:
        if event.get("depth", 0) or event.get("is_told_later") or event["duration"] < _BRIEF:
            return
        ended = event["phase"]
        if event["role"] == "driver":
            if self.previous_phase:
                self.next_phase[self.previous_phase] = ended
            self.previous_phase = ended
            self.phase = self.next_phase.get(ended, "")
        elif event["role"] == "policy" and event["rank"] == 0 and event["step"] > self.step:
            self.phase = self.next_phase.get(ended, self.phase)

    def _see_state(self, event: StateEvent) -> None:
        state = event["state"]
        self.activity = event.get("text", "")[:200]
        self.is_training = self.is_training or state in ("training", "evaluating")
        if state in _PHASE_OF_STATE:
            self.phase = _PHASE_OF_STATE[state]
        elif state in _OVER or self.phase in ("load", "eval", "checkpoint"):
            self.phase = ""
