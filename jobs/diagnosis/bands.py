"""The bands in which metrics usually are: those of the metric dictionary, and a project's own in their place.

Both may be of one algorithm: then they hold for its runs alone. A band of the dictionary is drawn and judges nothing:
what it stands for depends on the task. A band that a project has set itself is judged (jobs.diagnosis.health).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.algorithm import algorithms
from jobs.catalog.metric import metric, metrics
from jobs.models import Project

MOST_BANDS = 200
MAX_NAME_CHARS = 120
BY = "|"
"""Between algorithm and metric in the key of a project's own band for one algorithm."""


class BandRefused(ValueError):
    """A band makes no sense; `field` is the metric."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Least and most of a metric's usual range, both None where there is to be none; `source` says whose it is.

    `algorithm`: whose runs an own one is for, "" for all.
    """

    metric: str
    algorithm: str
    low: float | None
    high: float | None
    source: str
    is_own: bool


def bands_of(project: Project, algorithm: str = "") -> dict[str, Band]:
    """Return the bands of a project by metric, for runs of an algorithm or those that hold for all.

    The project's own come before those of the dictionary, and in both those of the algorithm before those of all.
    """
    bands = {}
    for name, info in metrics().items():
        ends, source = info.healthy_for(algorithm)
        if source:
            bands[name] = _band(name, ends, source=source)
    own = {key.rpartition(BY)[::2]: ends for key, ends in project.metric_bands.items()}
    wanted = ("", algorithm) if algorithm else ("",)
    for whose in wanted:
        for (of, name), ends in own.items():
            if of == whose:
                bands[name] = _band(name, ends, algorithm=of, is_own=True)
    return bands


def own_metrics(project: Project) -> set[str]:
    """Return the metrics that a project has a band of its own of, for any algorithm."""
    return {key.rpartition(BY)[2] for key in project.metric_bands}


def _band(name: str, ends: Sequence[float], *, source: str = "", algorithm: str = "", is_own: bool = False) -> Band:
    low, high = ends or (None, None)
    return Band(metric=name, algorithm=algorithm, low=low, high=high, source=source, is_own=is_own)


def set_bands(
    *, project: Project, raw: Mapping[str, object], user: AbstractBaseUser | None, algorithm: str = ""
) -> None:
    """Set a project's own bands: metric -> [least, most], [] for none at all, None for that of the dictionary again.

    `algorithm`: for its runs alone. Metrics that are not named stay as they are. Raises: BandRefused.
    """
    if algorithm and algorithm not in algorithms():
        text = _("%(given)r is not an algorithm. Use one of %(known)s, or none for all runs.")
        raise BandRefused("algorithm", text % {"given": algorithm[:40], "known": ", ".join(algorithms())})
    prefix = f"{algorithm}{BY}" if algorithm else ""
    changes = {f"{prefix}{name}": _checked(name, ends) for name, ends in raw.items()}
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        after = {**held.metric_bands, **changes}
        after = {name: ends for name, ends in after.items() if ends is not None}
        if len(after) > MOST_BANDS:
            text = _("A project has at most %(most)s bands of its own, these would be %(count)s.")
            raise BandRefused(next(iter(raw)), text % {"most": MOST_BANDS, "count": len(after)})
        if after != held.metric_bands:
            before = {name: held.metric_bands.get(name) for name in changes}
            held.metric_bands = after
            held.save(update_fields=["metric_bands"])
            record(
                actor=user,
                verb="bands.set",
                object_type="project",
                object_id=project.slug,
                before=before,
                after=changes,
            )
    project.metric_bands = held.metric_bands


def _given(ends: object) -> str:
    """Return a band that is none, as people would write it."""
    if not isinstance(ends, (list, tuple)):
        return repr(ends)[:60]
    return " – ".join(f"{end:g}" if isinstance(end, float) else str(end) for end in ends)[:60]


def _checked(name: str, ends: object) -> list[float] | None:
    if not 0 < len(name) <= MAX_NAME_CHARS or any(ord(c) < 33 or c == BY for c in name):
        text = _("%(given)r is not the name of a metric. Use one as charts call it, like kl/reference.")
        raise BandRefused(name[:MAX_NAME_CHARS], text % {"given": name[:40]})
    if ends is None:
        return None
    values = list(ends) if isinstance(ends, (list, tuple)) else [math.nan]
    are_numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in values)
    if values and not (are_numbers and len(values) == 2 and -math.inf < values[0] < values[1] < math.inf):
        text = _("The band of %(metric)s is %(given)s. Use two numbers, the smaller first, or none for no band.")
        raise BandRefused(name, text % {"metric": metric(name).label, "given": _given(ends)})
    return [float(end) for end in values]
