"""The smallest change with which a run would have fitted: few knobs, little time, each candidate estimated anew.

    smallest(spec, models, fleet, ..., needed=lambda estimate: ..., limit=...) -> SmallestChange | None

Advice (jobs.planner.search.advice) asks what the plan needs of the devices; a run that died is asked what it needed
where it died, which may be one role's phase, a process on the CPU or the host, and by which the plan was off. Only
knobs change, never the hardware, so that a clone can have them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobs.catalog.rules.rule import changed, refused
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.planner.constant import Constants
from jobs.planner.estimate import estimate
from jobs.planner.job import Fleet, Job
from jobs.planner.read.context import Models, Workload, samples_per_update
from jobs.planner.read.spec import read_models
from jobs.planner.result import Estimate, JobInvalid
from jobs.planner.search.layouts import breach, differences
from jobs.planner.search.plan_changes import Situation, plan_changes
from jobs.planner.validity import misfit_of

MOST_CHANGES = 4
"""One after the other, each the one that helps most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestChange:
    """Knobs to change, the titles of the changes, and bytes where it died with them; seconds of a step before and
    after."""

    changes: Mapping[str, Value]
    parts: tuple[str, ...]
    needed: float
    seconds_before: float
    seconds_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What does not change: models, devices, what is known of the data, constants."""

    models: Models
    fleet: Fleet
    workload: Workload
    constants: Constants


def smallest(
    spec: RunSpec, ground: Ground, *, needed: Callable[[Estimate], float], limit: float
) -> SmallestChange | None:
    """Return the smallest change with which `needed` of the estimate is at most `limit`, None if none does.

    One change before several; of those that do, the one with least seconds. Raises: JobInvalid.
    """
    search = _Search(spec, ground, needed)
    before = estimate(search.read(spec), ground.constants)
    sofar: dict[str, Value] = {}
    parts: tuple[str, ...] = ()
    least = needed(before)
    for _ in range(MOST_CHANGES):
        tried = [each for each in search.tried(sofar, parts, before) if each.needed < least]
        enough = [each for each in tried if each.needed <= limit]
        for best in sorted(enough, key=lambda each: (len(each.changes), each.seconds_after)):
            if search.is_allowed(best):
                return best
        step = next((each for each in sorted(tried, key=lambda each: each.needed) if search.is_allowed(each)), None)
        if step is None:
            return None
        sofar, parts, least = dict(step.changes), step.parts, step.needed
    return None


class _Search:
    """Changes of one run."""

    def __init__(self, spec: RunSpec, ground: Ground, needed: Callable[[Estimate], float]) -> None:
        self._spec, self._ground, self._needed = spec, ground, needed
        self._samples = samples_per_update(spec)
        self._refusals = {problem.message for problem in refused(spec)}

    def read(self, spec: RunSpec) -> Job:
        """Return the job of a spec on this ground."""
        return read_models(spec, self._ground.models, self._ground.fleet, self._ground.workload, samples=self._samples)

    def tried(self, sofar: Mapping[str, Value], parts: tuple[str, ...], before: Estimate) -> list[SmallestChange]:
        """Return every change on top of others that the run takes and that can be estimated."""
        spec = changed(self._spec, sofar) if sofar else self._spec
        here = Situation(spec=spec, job=self.read(spec), fleet=self._ground.fleet)
        offers = []
        for plan_change in plan_changes():
            made = plan_change.make(here)
            if not made or any(name not in spec.knobs for name in made):
                continue
            changes = differences(self._spec, {**sofar, **made})
            if not changes or (after := self._estimated(changes)) is None:
                continue
            offers.append(
                SmallestChange(
                    changes=changes,
                    parts=(*parts, plan_change.title),
                    needed=self._needed(after),
                    seconds_before=before.time.step.middle,
                    seconds_after=after.time.step.middle,
                )
            )
        return offers

    def is_allowed(self, remedy: SmallestChange) -> bool:
        """Return whether no rule of the catalog refuses it."""
        return breach(self._spec, remedy.changes, allowed=self._refusals) is None

    def _estimated(self, changes: Mapping[str, Value]) -> Estimate | None:
        job = self.read(changed(self._spec, changes))
        if job.fleet.num_devices > self._ground.fleet.num_devices or misfit_of(job) is not None:
            return None
        try:
            return estimate(job, self._ground.constants)
        except JobInvalid:
            return None
