"""What fills: how full the disk, the database and Redis are, by kind and by project, and when they will be full.

The reconciler keeps a sample an hour for a week (`keep_sample`). Growth is the slope of the line through the samples of
one place; where there are too few, or it does not grow, there is no forecast, and a sentence says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import redis
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.models import DiskSample, Project
from jobs.storage.floor import Disk, read_disk
from jobs.storage.usage import KINDS, Bytes, use_by
from jobs.telemetry.streams import client

KEPT = timedelta(days=8)
LOOKED_BACK = timedelta(days=7)
LEAST_SPAN = timedelta(days=1)
"""Samples over less time say nothing of a day."""
LONGEST = 365
"""Days beyond which a forecast is no news."""
MOST_PROJECTS = 10

_CACHED, _CACHED_SECONDS = "pitwall.storage", 10  # pages look again every few seconds

PlaceName = Literal["disk", "database", "redis"]


LABELS: Mapping[str, Promise] = {
    "disk": gettext_lazy("Disk of the files"),
    "database": gettext_lazy("Database"),
    "redis": gettext_lazy("Redis"),
    "uploads": gettext_lazy("Data files"),
    "traces": gettext_lazy("Traces"),
    "files": gettext_lazy("Files of runs"),
    "series": gettext_lazy("Metrics and spans"),
    "logs": gettext_lazy("Logs"),
    "samples": gettext_lazy("Samples"),
}
"""What people call each place and kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How fast something grows and when it is full; None with `why` where that cannot be said."""

    growth_per_day: float | None
    days_left: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlace:
    """Something that fills: bytes used, and `room` left until it is full, None where it has no limit of its own."""

    name: PlaceName
    label: str
    used: int
    room: int | None
    forecast: Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class KindUse:
    """What all projects take by one kind, and how fast that grows."""

    name: str
    label: str
    bytes: int
    growth_per_day: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectUse:
    """What one project takes; `slug` and `name` are "" for a project that is not the viewer's to see."""

    slug: str
    name: str
    bytes: int
    kinds: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageState:
    """The disk with its floors, what fills and how fast, by place, by kind, and by project, the largest first."""

    disk: Disk
    level: str
    places: tuple[StoragePlace, ...]
    kinds: tuple[KindUse, ...]
    projects: tuple[ProjectUse, ...]
    sampled_at: datetime | None


def storage_state(*, seen: set[int] | None, now: datetime) -> StorageState:
    """Return how full everything is now. `seen` are the projects whose names may be told, None for all."""
    disk = read_disk()
    samples = list(DiskSample.objects.filter(hour__gt=now - LOOKED_BACK).order_by("hour"))
    by_project, in_database, (redis_bytes, redis_most) = _measured()
    places = [_place("disk", disk.used, max(disk.free - disk.keep, 0), samples)]
    places.append(_place("database", in_database, None, samples))
    if redis_bytes is not None:
        places.append(_place("redis", redis_bytes, redis_most and max(redis_most - redis_bytes, 0), samples))
    return StorageState(
        disk=disk,
        level=disk.level,
        places=tuple(places),
        kinds=_kinds(by_project, samples),
        projects=_projects(by_project, seen),
        sampled_at=samples[-1].hour if samples else None,
    )


def keep_sample(*, now: datetime) -> bool:
    """Keep how full everything is, once an hour, and forget what is older than a week; True if this call did it."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if DiskSample.objects.filter(hour=hour).exists():
        return False
    disk, in_redis = read_disk(), redis_memory()[0]
    values = {"disk": disk.used, "database": database_bytes(), **_totals(use_by("project"))}
    if in_redis is not None:
        values["redis"] = in_redis
    DiskSample.objects.get_or_create(hour=hour, defaults={"values": values})
    DiskSample.objects.filter(hour__lt=hour - KEPT).delete()
    return True


def forecast(samples: Sequence[tuple[datetime, float]], *, room: int | None) -> Forecast:
    """Return the growth of one place, of samples in the order of their times, and when `room` bytes are used up."""
    if len(samples) < 2 or samples[-1][0] - samples[0][0] < LEAST_SPAN:
        return Forecast(growth_per_day=None, days_left=None, why=_("a day of samples is needed"))
    growth = _slope(samples)
    if room is None:
        return Forecast(growth_per_day=growth, days_left=None, why=_("it has no limit of its own"))
    if growth <= 0:
        return Forecast(growth_per_day=growth, days_left=None, why=_("it does not grow"))
    days = room / growth
    if days > LONGEST:
        return Forecast(growth_per_day=growth, days_left=None, why=_("not within a year"))
    return Forecast(growth_per_day=growth, days_left=days, why="")


def database_bytes() -> int:
    """Return what the database takes on its disk."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
    path = str(connection.settings_dict["NAME"])
    files = [Path(path + ending) for ending in ("", "-wal", "-shm")]
    return sum(file.stat().st_size for file in files if file.is_file())


def redis_memory() -> tuple[int | None, int | None]:
    """Return the bytes that Redis takes, and the most that it may; None where it does not answer, or has no limit."""
    try:
        about = client(settings.REDIS_URL).info("memory")
    except redis.RedisError:
        return None, None
    return int(about["used_memory"]), int(about.get("maxmemory") or 0) or None


def _measured() -> tuple[dict[int, Bytes], int, tuple[int | None, int | None]]:
    """Return what projects take, the bytes of the database, and those of Redis with the most that there may be."""
    cached: tuple[dict[int, Bytes], int, tuple[int | None, int | None]] | None = cache.get(_CACHED)
    if cached is None:
        cached = use_by("project"), database_bytes(), redis_memory()
        cache.set(_CACHED, cached, _CACHED_SECONDS)
    return cached


def _slope(samples: Sequence[tuple[datetime, float]]) -> float:
    """Return the slope of the line of least squares, in bytes a day."""
    begin = samples[0][0]
    days = [(at - begin) / timedelta(days=1) for at, _value in samples]
    middle, mean = sum(days) / len(days), sum(value for _at, value in samples) / len(samples)
    spread = sum((day - middle) ** 2 for day in days)
    return sum((day - middle) * (value - mean) for day, (_at, value) in zip(days, samples, strict=True)) / spread


def _series(name: str, samples: Sequence[DiskSample]) -> list[tuple[datetime, float]]:
    return [(sample.hour, float(sample.values[name])) for sample in samples if name in sample.values]


def _place(name: PlaceName, used: int, room: int | None, samples: Sequence[DiskSample]) -> StoragePlace:
    label = str(LABELS[name])
    return StoragePlace(
        name=name, label=label, used=used, room=room, forecast=forecast(_series(name, samples), room=room)
    )


def _totals(by_project: Mapping[int, Bytes]) -> dict[str, int]:
    return {kind: sum(getattr(each, kind) for each in by_project.values()) for kind in KINDS}


def _kinds(by_project: Mapping[int, Bytes], samples: Sequence[DiskSample]) -> tuple[KindUse, ...]:
    rows = []
    for name, total in sorted(_totals(by_project).items(), key=lambda each: -each[1]):
        growth = forecast(_series(name, samples), room=None).growth_per_day
        rows.append(KindUse(name=name, label=str(LABELS[name]), bytes=total, growth_per_day=growth))
    return tuple(rows)


def _projects(by_project: Mapping[int, Bytes], seen: set[int] | None) -> tuple[ProjectUse, ...]:
    largest = sorted(by_project.items(), key=lambda each: -each[1].total)[:MOST_PROJECTS]
    named = Project.objects.in_bulk([pk for pk, _bytes in largest if seen is None or pk in seen])
    return tuple(
        ProjectUse(
            slug=named[pk].slug if pk in named else "",
            name=named[pk].name if pk in named else "",
            bytes=taken.total,
            kinds=taken.kinds if pk in named else {},
        )
        for pk, taken in largest
        if taken.total
    )
