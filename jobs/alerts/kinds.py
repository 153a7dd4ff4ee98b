"""The kinds of alert rules: what each looks at, which parameters it takes, and the rules that come with the console."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.catalog.rules.symptom import symptoms
from jobs.catalog.value import is_storable
from profiling import plugins
from profiling.diagnosis.finding import FOLDER as DIAGNOSIS

Severity = Literal["info", "warning", "critical"]
SEVERITIES: Mapping[str, Promise] = {
    "info": gettext_lazy("info"),
    "warning": gettext_lazy("warning"),
    "critical": gettext_lazy("critical"),
}
MAX_MINUTES = 7 * 24 * 60
_METRIC = re.compile(r"[A-Za-z0-9_./@:+ -]{1,120}")


class AlertRefused(ValueError):
    """What a person asked for is not done; `field` names what is wrong, the message says what is allowed."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleParam:
    """One parameter of a kind: a number from `low` to `high`, a word of `choices`, several of them, or a name."""

    name: str
    type: Literal["number", "count", "choice", "choices", "metric", "names"]
    label: Promise
    default: Any
    low: float = 0
    high: float = 0
    choices: Mapping[str, Promise] = field(default_factory=dict)
    help: Promise | str = ""

    def check(self, value: Any) -> Any:
        """Return the value as it is kept. Raises: AlertRefused."""
        return _CHECKS[self.type](self, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleKind:
    """What a rule of this kind looks at. `is_console`: the console and its cluster, not the runs of a project.

    `clear_seconds` is how long the condition must be away before its incident resolves.
    """

    id: str
    label: Promise
    params: tuple[RuleParam, ...]
    severity: Severity = "warning"
    is_console: bool = False
    clear_seconds: float = 60.0

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, those that are missing at their defaults. Raises: AlertRefused."""
        unknown = sorted(set(values) - {param.name for param in self.params})
        if unknown:
            names = ", ".join(param.name for param in self.params) or _("none")
            text = _("A rule of the kind %(kind)s has no parameter %(name)s. It has: %(names)s.")
            raise AlertRefused(f"params.{unknown[0]}", text % {"kind": self.id, "name": unknown[0], "names": names})
        return {param.name: param.check(values.get(param.name, param.default)) for param in self.params}


def _refuse(param: RuleParam, value: object, allowed: str) -> AlertRefused:
    text = _("%(label)s is %(value)s. Use %(allowed)s.")
    shown = repr(value)[:100]
    return AlertRefused(f"params.{param.name}", text % {"label": param.label, "value": shown, "allowed": allowed})


def _number(param: RuleParam, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    is_count = param.type == "count"
    if not param.low <= number <= param.high or (is_count and number != int(number)):
        text = _("a whole number from %(low)s to %(high)s") if is_count else _("a number from %(low)s to %(high)s")
        raise _refuse(param, value, text % {"low": f"{param.low:g}", "high": f"{param.high:g}"})
    return int(number) if is_count else number


def _choice(param: RuleParam, value: Any) -> str:
    if not isinstance(value, str) or value not in param.choices:
        raise _refuse(param, value, ", ".join(param.choices))
    return value


def _choices(param: RuleParam, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one in param.choices for one in value):
        raise _refuse(param, value, _("some of %(choices)s") % {"choices": ", ".join(param.choices)})
    return [one for one in param.choices if one in value]


def _metric(param: RuleParam, value: Any) -> str:
    if not isinstance(value, str) or not _METRIC.fullmatch(value.strip()):
        raise _refuse(param, value, _("the name of a metric, such as reward/mean"))
    return value.strip()


def _names(param: RuleParam, value: Any) -> list[str]:
    valid_ids = symptoms() if param.name == "symptoms" else plugins.names(DIAGNOSIS)
    if not isinstance(value, list) or len(value) > 100 or not all(isinstance(one, str) for one in value):
        raise _refuse(param, value, _("a list of ids; an empty one stands for all"))
    for one in value:
        if one not in valid_ids:
            raise _refuse(param, one, _("ids that the Guide lists; none stands for all"))
    return value


_CHECKS = {
    "number": _number,
    "count": _number,
    "choice": _choice,
    "choices": _choices,
    "metric": _metric,
    "names": _names,
}


def _minutes(default: float, label: Promise, *, low: float = 1.0) -> RuleParam:
    return RuleParam(name="minutes", type="number", label=label, default=default, low=low, high=MAX_MINUTES)


_FOR_MINUTES = gettext_lazy("For so many minutes")
_STATES = {
    "failed": gettext_lazy("failed"),
    "stopped": gettext_lazy("stopped"),
    "finished": gettext_lazy("finished"),
    "retried": gettext_lazy("started again by itself"),
}
_SIDES = {
    "trainer": gettext_lazy("trainer"),
    "cluster": gettext_lazy("cluster"),
    "pitwall": gettext_lazy("console"),
    "user": gettext_lazy("person"),
}

_ALL = (
    RuleKind(
        id="run_state",
        label=gettext_lazy("A run ends or starts again"),
        severity="critical",
        clear_seconds=0,
        params=(
            RuleParam(
                name="states", type="choices", label=gettext_lazy("When it"), default=["failed"], choices=_STATES
            ),
            RuleParam(
                name="sides",
                type="choices",
                label=gettext_lazy("Only if the cause is on the side of"),
                default=[],
                choices=_SIDES,
                help=gettext_lazy("none stands for all"),
            ),
        ),
    ),
    RuleKind(
        id="lost_contact",
        label=gettext_lazy("A run lost contact"),
        severity="critical",
        clear_seconds=30,
        params=(_minutes(1, _FOR_MINUTES, low=0.25),),
    ),
    RuleKind(
        id="waiting",
        label=gettext_lazy("A run waits in the queue"),
        clear_seconds=0,
        params=(_minutes(30, gettext_lazy("Longer than so many minutes")),),
    ),
    RuleKind(
        id="no_progress",
        label=gettext_lazy("A run makes no step"),
        clear_seconds=0,
        params=(_minutes(30, _FOR_MINUTES),),
    ),
    RuleKind(
        id="threshold",
        label=gettext_lazy("A metric passes a threshold"),
        clear_seconds=0,
        params=(
            RuleParam(name="metric", type="metric", label=gettext_lazy("Metric"), default="kl/mean"),
            RuleParam(
                name="direction",
                type="choice",
                label=gettext_lazy("Is"),
                default="above",
                choices={
                    "above": gettext_lazy("above"),
                    "below": gettext_lazy("below"),
                    "not_finite": gettext_lazy("not a finite number"),
                },
            ),
            RuleParam(name="value", type="number", label=gettext_lazy("Value"), default=0, low=-1e300, high=1e300),
            RuleParam(
                name="steps",
                type="count",
                label=gettext_lazy("For so many reports in a row"),
                default=3,
                low=1,
                high=500,
                help=gettext_lazy("steps, or readings of a machine"),
            ),
            RuleParam(
                name="minutes",
                type="number",
                label=gettext_lazy("And for so many minutes"),
                default=0,
                low=0,
                high=24 * 60,
            ),
        ),
    ),
    RuleKind(
        id="absence",
        label=gettext_lazy("A metric is not reported"),
        clear_seconds=0,
        params=(
            RuleParam(name="metric", type="metric", label=gettext_lazy("Metric"), default="reward/mean"),
            _minutes(15, _FOR_MINUTES),
        ),
    ),
    RuleKind(
        id="symptom",
        label=gettext_lazy("A run shows a symptom"),
        clear_seconds=150,
        params=(
            RuleParam(
                name="symptoms",
                type="names",
                label=gettext_lazy("Symptoms"),
                default=[],
                help=gettext_lazy("ids of the Guide; none stands for all"),
            ),
        ),
    ),
    RuleKind(
        id="diagnosis",
        label=gettext_lazy("A rule of diagnosis fires"),
        clear_seconds=150,
        params=(
            RuleParam(
                name="rules",
                type="names",
                label=gettext_lazy("Rules of diagnosis"),
                default=[],
                help=gettext_lazy("ids of the Guide; none stands for all"),
            ),
        ),
    ),
    RuleKind(
        id="queue",
        label=gettext_lazy("The queue is long"),
        is_console=True,
        params=(
            RuleParam(
                name="length",
                type="count",
                label=gettext_lazy("So many runs wait"),
                default=20,
                low=1,
                high=100_000,
            ),
            _minutes(0, gettext_lazy("Or the first has waited for so many minutes (0: any time)"), low=0),
        ),
    ),
    RuleKind(
        id="disk",
        label=gettext_lazy("The console's disk is filling up"),
        severity="critical",
        is_console=True,
        params=(
            RuleParam(
                name="free_gib",
                type="number",
                label=gettext_lazy("Less than so many GiB are free"),
                default=5,
                low=0,
                high=1e6,
            ),
            RuleParam(
                name="hours",
                type="number",
                label=gettext_lazy("Or it is full within so many hours, at the pace of the last six (0: not asked)"),
                default=0,
                low=0,
                high=24 * 30,
            ),
        ),
    ),
    RuleKind(
        id="nodes",
        label=gettext_lazy("A node or its GPUs are gone"),
        severity="critical",
        is_console=True,
        params=(_minutes(1, _FOR_MINUTES, low=0),),
    ),
    RuleKind(
        id="ray",
        label=gettext_lazy("Ray does not answer"),
        severity="critical",
        is_console=True,
        params=(_minutes(3, _FOR_MINUTES),),
    ),
    RuleKind(
        id="console",
        label=gettext_lazy("A process of the console is away or behind"),
        severity="critical",
        is_console=True,
        params=(_minutes(2, _FOR_MINUTES),),
    ),
)
KINDS: Mapping[str, RuleKind] = {kind.id: kind for kind in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A rule that comes with the console; `is_on`: from the start."""

    id: str
    kind: str
    name: Promise
    params: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity | None = None
    is_on: bool = False


_PRESETS = (
    Preset(id="run_failed", kind="run_state", name=gettext_lazy("A run failed"), is_on=True),
    Preset(id="lost_contact", kind="lost_contact", name=gettext_lazy("A run lost contact"), is_on=True),
    Preset(
        id="run_finished",
        kind="run_state",
        name=gettext_lazy("A run finished"),
        params={"states": ["finished"]},
        severity="info",
    ),
    Preset(
        id="run_retried",
        kind="run_state",
        name=gettext_lazy("A run started again by itself"),
        params={"states": ["retried"]},
        severity="info",
    ),
    Preset(id="waits_long", kind="waiting", name=gettext_lazy("A run has waited for 30 minutes")),
    Preset(id="no_progress", kind="no_progress", name=gettext_lazy("No step for 30 minutes")),
    Preset(
        id="loss_not_finite",
        kind="threshold",
        name=gettext_lazy("The policy loss is not a number"),
        params={"metric": "loss/policy", "direction": "not_finite", "steps": 1},
        severity="critical",
    ),
    Preset(id="any_symptom", kind="symptom", name=gettext_lazy("A run shows a symptom")),
    Preset(id="disk_low", kind="disk", name=gettext_lazy("The console's disk is low"), is_on=True),
    Preset(id="ray_away", kind="ray", name=gettext_lazy("Ray does not answer"), is_on=True),
    Preset(id="node_gone", kind="nodes", name=gettext_lazy("A node is gone"), is_on=True),
    Preset(id="console_parts", kind="console", name=gettext_lazy("A process of the console is away"), is_on=True),
    Preset(id="queue_long", kind="queue", name=gettext_lazy("The queue is long")),
)
PRESETS: Mapping[str, Preset] = {preset.id: preset for preset in _PRESETS}


def checked_name(name: str) -> str:
    """Return the name of a rule or channel, stripped. Raises: AlertRefused."""
    name = name.strip()
    if not 1 <= len(name) <= 80 or any(ord(c) < 32 for c in name) or not is_storable(name):
        raise AlertRefused(
            "name", _("%(given)r is not a name. Use 1 to 80 characters on one line.") % {"given": name[:100]}
        )
    return name
