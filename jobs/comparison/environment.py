"""Read what is recorded of the conditions of runs: readings of nodes, what attempts ran on, recordings. Few queries."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from django.db.models import Q

from jobs.catalog.trainer import BUILT_IN
from jobs.cluster.nodes import devices_text
from jobs.comparison.conditions import Load, RunConditions, heaviest, load_of
from jobs.models import Attempt, Capture, Run, RunEvent
from jobs.telemetry.chunks import Floats, Ints
from jobs.telemetry.clean_series import read_clean_of
from jobs.telemetry.series import Series, SeriesRequest, SeriesWindow

READINGS = ("cpu_percent", "cpu_cores", "run_cpu_cores")
_REQUEST = SeriesRequest(num_points=2000, smoothing=None, window=SeriesWindow())
_DIGEST = 10  # characters of a digest that are shown


def conditions_of(runs: Sequence[Run]) -> dict[str, RunConditions]:
    """Return run id -> what is recorded of its conditions, over all of its attempts."""
    ids = [run.pk for run in runs]
    environments: dict[str, list[Mapping[str, Any]]] = {run_id: [] for run_id in ids}
    data_of: dict[str, list[str]] = {run_id: [] for run_id in ids}
    for run_id, meta in _notes(ids):
        if isinstance(environment := meta.get("environment"), Mapping):
            environments[run_id].append(environment)
            if isinstance(digest := environment.get("data"), str) and digest:
                data_of[run_id].append(f"file {digest[:_DIGEST]}" if " " not in digest else digest)
        if isinstance(facts := meta.get("data"), Mapping) and "sha256" in facts:
            data_of[run_id].append(f"{facts.get('num_examples', 0):,} examples {str(facts['sha256'])[:_DIGEST]}")
        elif isinstance(facts, Mapping) and facts.get("revision"):
            data_of[run_id].append(f"{facts.get('hub', '')} {str(facts['revision'])[:_DIGEST]}")
    attempts: dict[str, list[Attempt]] = {run_id: [] for run_id in ids}
    for attempt in Attempt.objects.filter(run__in=ids).order_by("number"):
        attempts[attempt.run_id].append(attempt)
    captures: dict[str, list[tuple[int, int]]] = {run_id: [] for run_id in ids}
    for capture in Capture.objects.filter(run__in=ids).exclude(state__in=("armed", "withdrawn")):
        if (steps := capture.recorded_steps) is not None:
            captures[capture.run_id].append(steps)
    ready = _ready_at(ids)
    readings = read_clean_of(run_ids=ids, names=READINGS, request=_REQUEST)
    return {
        run.pk: _conditions(
            environments[run.pk],
            attempts[run.pk],
            captures=captures[run.pk],
            data=data_of[run.pk],
            load=_load(readings[run.pk].series, ready.get(run.pk)),
            run=run,
        )
        for run in runs
    }


def _notes(ids: Sequence[str]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield run id and meta of the notes that say what attempts ran on and which data they read, the oldest first."""
    has_facts = Q(data__has_key="environment") | Q(data__has_key="data")
    rows = RunEvent.objects.filter(has_facts, run__in=ids, verb="note").order_by("pk")
    yield from rows.values_list("run_id", "data")


def _conditions(
    environments: Sequence[Mapping[str, Any]],
    attempts: Sequence[Attempt],
    *,
    captures: Iterable[tuple[int, int]],
    data: Iterable[str],
    load: Load | None,
    run: Run,
) -> RunConditions:
    lists = [one["packages"] for one in environments if isinstance(one.get("packages"), Mapping)]
    packages: Mapping[str, Any] = lists[-1] if lists else {}
    devices = _texts([one.get("devices") for one in environments]) or _texts([devices_text(one) for one in attempts])
    return RunConditions(
        load=load,
        devices=devices,
        cpu=_texts([one.get("cpu") for one in environments]),
        node=_texts([one.get("node") for one in environments]),
        driver=_texts([one.get("driver") for one in environments]),
        python=_texts([one.get("python") for one in environments]),
        packages={str(name): str(version) for name, version in packages.items()},
        image=_texts([one.get("image") for one in environments]),
        sources=_texts([source_text(tree) for one in environments for tree in _list(one, "sources")]),
        code=_texts([one.get("code") for one in environments]),
        captures=tuple(sorted(captures)),
        data=tuple(sorted(set(data))),
        has_gpus=any(attempt.num_gpus for attempt in attempts),
        uses_own_code=run.spec.get("trainer", {}).get("name", BUILT_IN) == BUILT_IN,
    )


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    """Return the texts among these, each once; a list is one text that says how many of each it has."""
    texts = [_counted(value) if isinstance(value, list) else value for value in values]
    return tuple(sorted({text for text in texts if isinstance(text, str) and text}))


def source_text(tree: Mapping[str, Any]) -> str:
    """Return a repository as one text: "mine 1a2b3c4d5e", and of what was changed and not committed a digest."""
    changes = f" + {str(tree['changes'])[:_DIGEST]}" if tree.get("changes") else ""
    return f"{tree.get('name', '')} {str(tree.get('commit', ''))[:_DIGEST]}{changes}"


def _list(environment: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return a list of objects as a runner told it."""
    value = environment.get(name)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _counted(names: Sequence[object]) -> str:
    return " + ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))


def _ready_at(ids: Sequence[str]) -> dict[str, datetime]:
    """Return run id -> when its newest attempt had loaded: what was read before tells nothing of its steps."""
    rows = RunEvent.objects.filter(run__in=ids, verb="trainer_ready").order_by("pk")
    return dict(rows.values_list("run_id", "at"))


def _load(readings: Iterable[Series], ready: datetime | None) -> Load | None:
    since = int(ready.timestamp() * 1e9) if ready is not None else 0
    lanes: dict[tuple[str, int], dict[str, Series]] = {}
    for series in readings:
        if series.kind == "system":
            lanes.setdefault((series.role, series.rank), {})[series.name] = series
    return heaviest(_lane_load(lane, since) for lane in lanes.values() if set(lane) == set(READINGS))


def _lane_load(lane: Mapping[str, Series], since: int) -> Load | None:
    """Return the load of one node: readings of one moment belong together."""
    moments: Ints = lane[READINGS[0]].x
    for name in READINGS[1:]:
        moments = np.intersect1d(moments, lane[name].x)
    moments = moments[moments >= since]
    percent, cores, own = (_at(lane[name], moments) for name in READINGS)
    return load_of(percent=percent, cores=cores, own=own)


def _at(series: Series, moments: Ints) -> Floats:
    return series.y[np.searchsorted(series.x, moments)]
