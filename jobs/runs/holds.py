"""What keeps a queued run from starting whatever is free: quotas of its project and of who began it, lost data.

Quotas hold a run back and let others pass; it starts once they have room. A run without its data never will.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.contrib.auth import get_user_model
from django.utils.translation import gettext as _

from jobs.models import LIVE, Project, Run, RunEvent, Upload
from jobs.runs import lifecycle
from jobs.storage import quotas
from jobs.storage.quotas import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """How many runs of `owner` are live, and may be; `key` stands for the owner."""

    key: tuple[str, int]
    owner: str
    live: int
    most: int

    def reason(self, live: int) -> str:
        """Say why a run waits while so many are live."""
        words = {"owner": self.owner, "live": live, "most": self.most}
        if self.key[0] == "project":
            return _("Waits for its quota: project %(owner)s runs %(live)s of %(most)s at once") % words
        return _("Waits for its quota: %(owner)s runs %(live)s of %(most)s at once") % words


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What stands against a run: `reason` now, "" for nothing; `at_once` may, as others start before it."""

    reason: str = ""
    at_once: tuple[AtOnce, ...] = ()


@dataclass(slots=True)
class QuotaHolds:
    """The holds of one look at the queue: each owner is asked about once."""

    now: datetime
    _owners: dict[tuple[str, int], tuple[Owner, dict[quotas.Name, quotas.QuotaUse]] | None] = field(
        default_factory=dict
    )

    def of(self, *, project_id: int, person_id: int | None, gpus: float) -> Hold:
        """Return what the quotas of the project, and of the person, have against a run on so many GPUs."""
        at_once = []
        for key in (("project", project_id), *((("person", person_id),) if person_id else ())):
            limits = self._limited(key)
            if limits is None:
                continue
            owner, uses = limits
            for name in ("storage_bytes", *(("gpu_hours",) if gpus else ())):
                if name in uses and uses[name].share >= 1:
                    return Hold(reason=_used_up(owner, uses[name], self.now))
            if "live_runs" in uses:
                use = uses["live_runs"]
                name = owner.name if isinstance(owner, Project) else owner.get_username()
                at_once.append(AtOnce(key=key, owner=name, live=int(use.used), most=int(use.most or 0)))
        return Hold(at_once=tuple(at_once))

    def _limited(self, key: tuple[str, int]) -> tuple[Owner, dict[quotas.Name, quotas.QuotaUse]] | None:
        if key not in self._owners:
            model = Project if key[0] == "project" else get_user_model()
            owner = model._default_manager.filter(pk=key[1], quota__isnull=False).first()
            self._owners[key] = (owner, quotas.limited_uses(owner, _ASKED, now=self.now)) if owner else None
        return self._owners[key]


_ASKED: tuple[quotas.Name, ...] = ("storage_bytes", "gpu_hours", "live_runs")


def lacking_data(named: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return those of these data files, by project and `upload:…`, that are not there any more."""
    wanted = {(project, name) for project, name in named if name.startswith("upload:")}
    digests = {name.removeprefix("upload:") for _project, name in wanted}
    there = Upload.objects.filter(sha256__in=digests).values_list("project_id", "sha256") if digests else ()
    return wanted - {(project, f"upload:{sha256}") for project, sha256 in there}


def stop_used_up(*, now: datetime) -> list[str]:
    """Ask live runs on GPUs to stop whose GPU hours are used up, where the quota says so; return which."""
    stopped = []
    for quota in quotas.stopping().select_related("project", "user"):
        owner = quota.project or quota.user
        if owner is None:
            continue
        use = quotas.limited_uses(owner, ("gpu_hours",), now=now)["gpu_hours"]
        if use.share < 1:
            continue
        live = quotas.attempts_of(owner).filter(state__in=LIVE, num_gpus__gt=0, run__is_stop_requested=False)
        for run_id in list(live.values_list("run_id", flat=True)):
            if lifecycle.request_stop(run_id=run_id, user=None, now=now):
                _say_why_stopped(run_id, quotas.reached(owner, use), now)
                stopped.append(run_id)
    return stopped


def _say_why_stopped(run_id: str, why: str, now: datetime) -> None:
    number = Run.objects.values_list("latest_attempt", flat=True).get(pk=run_id)
    text = f"Stopped for its quota: {why}"  # English, like every word of the history
    RunEvent.objects.create(run_id=run_id, attempt=number, at=now, verb="quota", text=text[:500])


def _used_up(owner: Owner, use: quotas.QuotaUse, now: datetime) -> str:
    text = _("Waits for its quota: %(why)s") % {"why": quotas.reached(owner, use)}
    if use.name == "gpu_hours":
        text += " " + _("They begin anew on %(day)s, UTC.") % {"day": quotas.next_month(now).strftime("%Y-%m-%d")}
    return text
