"""Which charts the overview of a run shows: of what its algorithm learns, then rollout, stability and speed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, get_args

from jobs.catalog.algorithm import expand
from jobs.catalog.metric import metric
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.tables import file_table
from jobs.catalog.trainer import BUILT_IN
from profiling.phases import PHASES

Topic = Literal["learn", "rollout", "stability", "speed"]
Look = Literal["", "dashed", "points"]
TOPICS: Mapping[Topic, str] = {"learn": "Learning", "rollout": "Rollout", "stability": "Stability", "speed": "Speed"}
"""In the order in which they stand: what each is called."""
PLACES: Mapping[Topic, int] = {"learn": 1, "rollout": 2, "stability": 4, "speed": 1}
"""How many charts of each topic come before any topic gets more."""
MOST = 8
KNOB = re.compile(r"{([\w.]+)}")
"""A knob's place in a hint."""
_NO_STEP = ("load", "export")  # phases of the whole run


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewLine:
    """A metric in a chart. `label`: "" for the metric's own. `token`: a CSS variable where the line has its own color.
    `always`: reported though no name of the trainer's is known.
    """

    metric: str
    label: str = ""
    look: Look = ""
    token: str = ""
    always: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewChart:
    """A chart of the overview, as overview.toml has it; an empty key asks for nothing. Without `lines` it has one for
    each phase, stacked.
    """

    key: str
    topic: Topic
    of: tuple[str, ...]
    title: str
    hint: str
    lines: tuple[OverviewLine, ...]
    hint_at_zero: str = ""
    limit_knob: str = ""
    trainer: str = ""
    needs: str = ""
    with_knob: str = ""
    without_knob: str = ""
    unless: str = ""

    @property
    def is_stacked(self) -> bool:
        """True for the phases of a step."""
        return self.lines[0].token != ""


@cache
def overview_charts() -> tuple[OverviewChart, ...]:
    """Return all charts in the order of the file. Raises: ValueError, naming the chart, for a key that none has."""
    return tuple(_chart(key, table) for key, table in file_table("overview").items())


def charts_of(spec: RunSpec) -> tuple[OverviewChart, ...]:
    """Return the charts of a run's overview in the order of topics, at most MOST, each with the lines it reports."""
    fitting: dict[str, OverviewChart] = {}
    for chart in overview_charts():
        lines = tuple(line for line in chart.lines if _reports(spec, line))
        if lines and chart.unless not in fitting and _is_for(chart, spec):
            fitting[chart.key] = replace(chart, lines=lines)
    by_topic = {topic: [chart for chart in fitting.values() if chart.topic == topic] for topic in TOPICS}
    shown = {topic: charts[: PLACES[topic]] for topic, charts in by_topic.items()}
    for topic, charts in by_topic.items():
        free = MOST - sum(map(len, shown.values()))
        shown[topic] = charts[: len(shown[topic]) + free]
    return tuple(chart for topic in TOPICS for chart in shown[topic])


def _is_for(chart: OverviewChart, spec: RunSpec) -> bool:
    if spec.algorithm not in expand(chart.of):
        return False
    if chart.trainer and (chart.trainer == BUILT_IN) != spec.is_native:
        return False
    if chart.needs and not spec.needs(chart.needs):
        return False
    is_on = not chart.with_knob or bool(_value(spec, chart.with_knob))
    return is_on and not (chart.without_knob and _value(spec, chart.without_knob))


def _reports(spec: RunSpec, line: OverviewLine) -> bool:
    info = metric(line.metric)
    if spec.is_native:
        return info.told_here
    return line.always or info.is_reported(trainer=spec.trainer.name, algorithm=spec.algorithm)


def _value(spec: RunSpec, knob_id: str) -> Any:
    return spec.knobs[knob_id].value if knob_id in spec.knobs else None


def _chart(key: str, table: Mapping[str, Any]) -> OverviewChart:
    keys = {field.name for field in fields(OverviewChart)} - {"key"}
    if strange := sorted(set(table) - keys):
        text = f"{key}: a chart of the overview has no key {strange[0]!r}. Known: {', '.join(sorted(keys))}."
        raise ValueError(text)
    if table["topic"] not in get_args(Topic):
        raise ValueError(f"{key}: the topic is {table['topic']!r}. Use one of {', '.join(get_args(Topic))}.")
    lines = _phase_lines() if table["lines"] == "phases" else tuple(OverviewLine(**line) for line in table["lines"])
    return OverviewChart(key=key, **{**table, "of": tuple(table["of"]), "lines": lines})


def _phase_lines() -> tuple[OverviewLine, ...]:
    return tuple(
        OverviewLine(metric=f"time/{phase.key}_seconds", label=phase.label, token=phase.token)
        for phase in PHASES
        if phase.key not in _NO_STEP
    )
