"""The dictionary of metrics: label, unit, definition, which direction is better, by canonical name.

Also what other trainers call it, and the range in which it usually is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeVar

from jobs.catalog.algorithm import expand
from jobs.catalog.tables import file_table
from profiling.phases import BY_KEY

Value = TypeVar("Value")

PEAKS = {
    "resident_peak": ("Peak memory", "Most memory that this role's process held resident in the phase {phase}."),
    "device_peak": (
        "Peak device memory",
        "Most device memory that this role's process had allocated in the phase {phase}.",
    ),
    "device_reserved_peak": (
        "Peak reserved device memory",
        "Most device memory that this role's process had reserved, in use or not, in the phase {phase}.",
    ),
}
"""The peaks of a phase: as a span's memory names them, their label and definition."""
OF_SAMPLES = {
    "pass": (
        "Held-out pass@{k}",
        "Chance that one of {k} responses to a held-out prompt is right, without bias.",
    ),
    "maj": ("Held-out maj@{k}", "Fraction of held-out prompts of which most of {k} responses give the right answer."),
}
"""What several responses to a held-out prompt say: label and definition."""
_ON_THE_DRIVER = ("data_wait", "reward", "advantages")  # phases in which no role that holds a model works


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """What a metric's number says.

    `names` are what a trainer calls it, the best first, by `trainer/algorithm` or `trainer`. `means` has, in the same
    way, names with `{set}` for each held-out set, of which it is the mean; of several of a set that of the most
    `{samples}` counts. `healthy` is the least and
    the most of its usual range, () where none is known, and `healthy_source` who says so and what to mind; `healthy_of`
    has the same for algorithms, by id or family, for which the range is another. `told_here` is False for what the
    built-in trainer does not tell. `former` are names that it had before: older runners, clients and saved addresses
    still use them.
    """

    name: str
    label: str
    unit: str
    better: Literal["higher", "lower", ""]
    definition: str
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    means: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    healthy: tuple[float, ...] = ()
    healthy_source: str = ""
    healthy_of: Mapping[str, tuple[tuple[float, ...], str]] = field(default_factory=dict)
    told_here: bool = True
    former: tuple[str, ...] = ()

    @property
    def sources(self) -> Mapping[str, tuple[str, ...]]:
        """What trainers call it, or what it is the mean of: both `names` and `means`."""
        return {key: (*self.names.get(key, ()), *self.means.get(key, ())) for key in {**self.names, **self.means}}

    def is_reported(self, *, trainer: str, algorithm: str) -> bool:
        """Return whether a trainer other than the built-in one tells it in runs of an algorithm."""
        return bool(self.sources.get(f"{trainer}/{algorithm}") or self.sources.get(trainer))

    def healthy_for(self, algorithm: str) -> tuple[tuple[float, ...], str]:
        """Return the usual range and its source for runs of an algorithm; "" for those of any."""
        for name, range_and_source in self.healthy_of.items():
            if algorithm and algorithm in expand([name]):
                return range_and_source
        return self.healthy, self.healthy_source


@cache
def metrics() -> Mapping[str, MetricInfo]:
    """Return the known metrics by canonical name; each phase's seconds and peaks of memory are made from the
    vocabulary of phases.
    """
    tables = file_table("metrics")
    for phase in BY_KEY.values():
        words = {"label": phase.label, "unit": "s", "better": "lower"}
        words["definition"] = f"Wall time of the phase {phase.label} in the step, on the driver."
        name = f"time/{phase.key}_seconds"
        tables[name] = words | tables.pop(name, {})  # after the metrics of the file, in the order of a step
    for kind, (label, definition) in PEAKS.items():
        for phase in BY_KEY.values():
            if phase.key not in _ON_THE_DRIVER:
                tables[peak_name(kind, phase.key)] = {
                    "label": f"{label}: {phase.label}",
                    "unit": "bytes",
                    "better": "",
                    "definition": definition.format(phase=phase.label),
                }
    return {name: _metric(name, table) for name, table in tables.items()}


def peak_name(kind: str, phase: str) -> str:
    """Return the metric of a phase's peak; `kind` is a key of PEAKS."""
    return f"{kind}/{phase}_bytes"


def metric(name: str) -> MetricInfo:
    """Return what is known of `name`, present or former, also of a named held-out set; an unknown one describes
    itself.
    """
    info = metrics().get(current_name(name)) or _of_an_evaluation(name)
    return info or MetricInfo(name=name, label=name, unit="", better="", definition="Reported by the trainer.")


def _of_an_evaluation(name: str) -> MetricInfo | None:
    """Return what is known of `eval/<what>` and, of a named set, `eval/<set>/<what>`: as many as there are numbers of
    samples and names of sets.
    """
    begin, *middle = name.split("/")
    if begin != "eval" or len(middle) not in (1, 2):
        return None
    what = middle.pop()
    info = metrics().get(f"eval/{what}") or _of_samples(what)
    if info is None:
        return None
    label = f"{info.label}: {middle[0]}" if middle else info.label
    return replace(info, name=name, label=label, names={}, means={}, former=())


def _of_samples(what: str) -> MetricInfo | None:
    kind, _, k = what.partition("_at_")
    if kind not in OF_SAMPLES or not k.isdigit():
        return None
    label, definition = (text.format(k=k) for text in OF_SAMPLES[kind])
    return MetricInfo(name=what, label=label, unit="share", better="higher", definition=definition)


def current_name(name: str) -> str:
    """Return the present name of a metric that had another one before; any other name as it is."""
    return _renamed().get(name, name)


def requested_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return present name -> the name in the request, which is the one that its client looks for in the answer."""
    return {current_name(name): name for name in names}


def with_former_names(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values by metric, and those of renamed metrics by each former name too."""
    former = {name: values[now] for name, now in _renamed().items() if now in values}
    return {**former, **values}


@cache
def _renamed() -> Mapping[str, str]:
    return {former: info.name for info in metrics().values() for former in info.former}


def _metric(name: str, table: Mapping[str, Any]) -> MetricInfo:
    names, means = (
        {trainer: tuple(theirs) for trainer, theirs in table.get(key, {}).items()} for key in ("names", "means")
    )
    of = {key: (tuple(one["range"]), one["source"]) for key, one in table.get("healthy_of", {}).items()}
    lists = {key: tuple(table.get(key, ())) for key in ("healthy", "former")}
    return MetricInfo(name=name, **{**table, "names": names, "means": means, "healthy_of": of, **lists})
