"""Conditions on the console and its cluster: the queue, the disk, nodes, Ray, and the console's own processes."""

import shutil
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.utils.translation import gettext as _

from jobs.alerts import worker_beat
from jobs.alerts.scene import Scene
from jobs.alerts.sighting import Sighting
from jobs.cluster.ray_api import ClusterState, cluster_state
from jobs.models import AlertIncident, AlertRule
from jobs.telemetry.streams import client, ingest_status

GIB = 1 << 30
DISK_EVERY = timedelta(seconds=60)
DISK_WINDOW = timedelta(hours=6)
DISK_LEAST = timedelta(minutes=30)  # of readings, before anything is said of the pace


@dataclass(slots=True, kw_only=True)
class Lasting:
    """Since when something is so, by key; what is not known stays as it was."""

    since: dict[str, datetime] = field(default_factory=dict)

    def see(self, key: str, is_so: bool, now: datetime) -> timedelta:
        """Return for how long it is so by now."""
        if not is_so:
            self.since.pop(key, None)
            return timedelta(-1)
        return now - self.since.setdefault(key, now)


@dataclass(slots=True, kw_only=True)
class SystemWatch:
    """Remembers nodes, free space and how long things last; a restart costs their patience once more."""

    lasting: Lasting = field(default_factory=Lasting)
    nodes: dict[str, float] = field(default_factory=dict)  # address -> most GPUs seen
    free: deque[tuple[datetime, int]] = field(default_factory=lambda: deque(maxlen=360))
    has_reached_ray: bool = False
    asked_worker_at: float = 0.0

    def look(self, scene: Scene) -> Iterator[Sighting]:
        """Yield what every rule of these kinds sees."""
        for rule in scene.rules_of("queue"):
            yield _queue(rule, scene)
        yield from self._disk(scene)
        rules = [*scene.rules_of("nodes"), *scene.rules_of("ray")]
        if rules:
            state = cluster_state()
            for rule in rules:
                yield from (self._nodes if rule.kind == "nodes" else self._ray)(rule, state, scene.now)
        for rule in scene.rules_of("console"):
            yield from self._parts(rule, scene)

    def _disk(self, scene: Scene) -> Iterator[Sighting]:
        rules = scene.rules_of("disk")
        if not rules:
            return
        usage = shutil.disk_usage(settings.DATA_DIR)
        if not self.free or scene.now - self.free[-1][0] >= DISK_EVERY:
            self.free.append((scene.now, usage.free))
        hours = hours_left([(at, free) for at, free in self.free if scene.now - at <= DISK_WINDOW])
        for rule in rules:
            is_soon = bool(rule.params["hours"]) and hours is not None and hours < rule.params["hours"]
            data: dict[str, object] = {"what": "disk", "total_gib": f"{usage.total / GIB:.1f}"}
            data |= {"free_gib": f"{usage.free / GIB:.1f}"} | ({"hours": f"{hours:.0f}"} if is_soon else {})
            is_on = usage.free < rule.params["free_gib"] * GIB or is_soon
            yield Sighting(rule=rule, object_id="console", is_on=is_on, data=data, value=usage.free / GIB)

    def _nodes(self, rule: AlertRule, state: ClusterState, now: datetime) -> Iterator[Sighting]:
        opened = AlertIncident.objects.filter(rule=rule, resolved_at=None).values_list("object_id", "data")
        if not state.is_reachable:  # silence says nothing about nodes, and has a rule of its own
            for object_id, _data in opened:
                yield Sighting(rule=rule, object_id=object_id, is_on=None)
            return
        here: dict[str, float] = {}
        for node in state.nodes:
            here[node.address] = here.get(node.address, 0.0) + node.gpus
        for address, gpus in here.items():
            self.nodes[address] = max(self.nodes.get(address, 0.0), gpus)
        for object_id, data in opened:  # known before this process began
            self.nodes[object_id] = max(self.nodes.get(object_id, 0.0), float(data.get("had") or 0.0))
        for address, had in self.nodes.items():
            has = here.get(address)
            is_less = has is None or has < had
            lasted = self.lasting.see(f"node {address}", is_less, now)
            is_on = is_less and lasted >= timedelta(minutes=rule.params["minutes"])
            if is_less and not is_on and address in dict(opened):
                yield Sighting(rule=rule, object_id=address, is_on=None)
                continue
            data = {"what": "node_gone" if has is None else "gpus_gone", "node": address, "had": f"{had:g}"}
            yield Sighting(rule=rule, object_id=address, is_on=is_on, data=data | {"has": f"{has or 0:g}"})

    def _ray(self, rule: AlertRule, state: ClusterState, now: datetime) -> Iterator[Sighting]:
        lasted = self.lasting.see("ray", not state.is_reachable, now)
        data = {"what": "ray", "said": state.problem}
        yield _lasting(rule, "ray", lasted, not state.is_reachable, data)

    def _parts(self, rule: AlertRule, scene: Scene) -> Iterator[Sighting]:
        moment = time.time()
        if moment - self.asked_worker_at >= worker_beat.EVERY_SECONDS:
            self.asked_worker_at = moment
            worker_beat.ask()
        try:
            with client() as connection:
                ingest = ingest_status(connection)
                worker = worker_beat.seen_at(connection)
        except redis.RedisError as error:
            said = {"ingest": _("Redis does not answer: %(error)s") % {"error": str(error)[:200]}, "worker": ""}
        else:
            trouble = "" if ingest.is_alive(now=moment) else _("It has not reported.")
            if ingest.trouble:
                trouble = ingest.trouble[:200]
            is_late = moment - worker > 2.5 * worker_beat.EVERY_SECONDS
            said = {"ingest": trouble, "worker": _("No worker took a task.") if is_late else ""}
        for part, text in said.items():
            lasted = self.lasting.see(part, bool(text), scene.now)
            yield _lasting(rule, part, lasted, bool(text), {"what": part, "said": text})


def _lasting(rule: AlertRule, object_id: str, lasted: timedelta, is_so: bool, data: dict[str, str]) -> Sighting:
    """Return the sighting of what must last; while it does not yet, an incident from before a restart stays."""
    is_on = True if lasted >= timedelta(minutes=rule.params["minutes"]) and is_so else (None if is_so else False)
    return Sighting(rule=rule, object_id=object_id, is_on=is_on, data=data)


def _queue(rule: AlertRule, scene: Scene) -> Sighting:
    first = min((attempt.created_at for attempt in scene.queued), default=scene.now)
    minutes = (scene.now - first).total_seconds() / 60
    is_late = bool(rule.params["minutes"]) and minutes >= rule.params["minutes"] and bool(scene.queued)
    data = {"what": "queue", "length": len(scene.queued), "minutes": float(int(minutes))}
    is_on = len(scene.queued) >= rule.params["length"] or is_late
    return Sighting(rule=rule, object_id="queue", is_on=is_on, data=data, value=float(len(scene.queued)))


def hours_left(readings: list[tuple[datetime, int]]) -> float | None:
    """Return in how many hours nothing is free at the pace of these readings; None if too few, or nothing fills."""
    if len(readings) < 2 or readings[-1][0] - readings[0][0] < DISK_LEAST:
        return None
    x = [(at - readings[0][0]).total_seconds() / 3600 for at, _free in readings]
    mean_x, mean_y = sum(x) / len(x), sum(free for _at, free in readings) / len(readings)
    slope = sum((a - mean_x) * (free - mean_y) for a, (_at, free) in zip(x, readings, strict=True))
    slope /= sum((a - mean_x) ** 2 for a in x)
    return max(0.0, readings[-1][1] / -slope) if slope < 0 else None
