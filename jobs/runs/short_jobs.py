"""Short Ray jobs that people ask for: a row, a job once there is room for it, and what came of it.

The row is the truth: its state changes by compare-and-set, and what Ray has to do is done outside of transactions and
may be done twice. Whatever gets lost in between, `reconcile` makes up for.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from django.db import transaction

from jobs.cluster import ray_api as cluster
from jobs.cluster.ray_api import JOB_ENDED, ClusterState, ClusterUnreachable, JobInfo, JobRefused
from jobs.models import UNDER_WAY, ShortJob
from jobs.runs import admission
from jobs.runs.exit_cause import exit_cause_of
from jobs.telemetry.notify import run_changed

LEAVE_TIME = timedelta(seconds=10)  # for a job to end by itself once it is over here
END_WINDOW = timedelta(minutes=30)  # how long after that it is still looked for
Job = TypeVar("Job", bound=ShortJob)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """Where a job runs, and with what: GPUs, other resources of Ray's, and what its runtime_env gets besides."""

    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    runtime: Mapping[str, str] = field(default_factory=dict)


class JobKind(ABC, Generic[Job]):
    """One kind of short job. A job takes one CPU while it is starting, and the GPUs of its place."""

    model: type[Job]
    module: ClassVar[str]
    """What Ray runs."""
    patience: ClassVar[timedelta]
    """From asking to the end, waiting for room included."""
    most_at_once: ClassVar[int | None] = None
    """How many are under way on the cluster at a time; None for as many as there is room for."""
    is_after_runs: ClassVar[bool] = False
    """Whether runs that wait for CPUs come first."""

    @abstractmethod
    def place(self, job: Job, state: ClusterState) -> JobPlace:
        """Return where the job runs."""

    @abstractmethod
    def environment(self, job: Job, state: ClusterState) -> Mapping[str, str]:
        """Return what the job is told."""

    @abstractmethod
    def metadata(self, job: Job) -> Mapping[str, str]:
        """Return what Ray shows of the job."""

    @abstractmethod
    def why_late(self, job: Job) -> str:
        """Return why a job is given up whose time is over."""

    @abstractmethod
    def why_dead(self, why: str) -> str:
        """Return what is said of a job that ended without a word of its own."""

    def clear(self, job: Job) -> None:
        """Remove what a job left that was not finished; inside the transaction that ends it."""

    def tell(self, job: Job) -> None:
        """Tell the run's history what became of a job; inside the transaction that ends it."""

    def bury(self, job: Job, problem: str, now: datetime) -> None:
        """Settle a job that ended, or is given up, without a word of its own."""
        self.settle(job.pk, state="failed", problem=problem, now=now)

    def submit(self, job_id: int, *, now: datetime) -> None:
        """Start the job if there is room now; else it stays queued and the reconciler tries again."""
        state = cluster.read_state()
        job = self.model._default_manager.filter(pk=job_id, state="queued").first()
        if state.is_reachable and job is not None:
            self._start(job, state, now)

    def settle(self, job_id: int, *, state: str, now: datetime, problem: str = "", **fields: Any) -> bool:
        """End a job that is under way; the first word holds, later ones return False."""
        with transaction.atomic():
            rows = self.model._default_manager.filter(pk=job_id, state__in=UNDER_WAY)
            if not rows.update(state=state, problem=problem[:500], ended_at=now, **fields):
                return False
            job = self.model._default_manager.get(pk=job_id)
            if state != "finished":
                self.clear(job)
            self.tell(job)
            transaction.on_commit(partial(run_changed, job.run_id))
        return True

    def has_jobs(self, *, now: datetime) -> bool:
        """Return True if a job may be on Ray, so that its jobs are worth asking for."""
        return self.model._default_manager.filter(state="starting").exists() or self._unwanted(now).exists()

    def reconcile(self, *, jobs: Mapping[str, JobInfo], state: ClusterState, now: datetime) -> None:
        """Start what waits and can start, settle what died or took too long, end what is not wanted any more.

        Raises: ClusterUnreachable.
        """
        self.give_up_late(now=now)
        for job in self._rows("starting"):
            info = jobs.get(job.submission_id)
            if info is None:
                # Whoever claimed it died before Ray had it; if not, Ray knows its name.
                self._hand_over(job, state, now)
            elif info.status in JOB_ENDED:
                # Its own word is posted before it exits; without one here it will not come.
                cause = exit_cause_of(info)
                self.bury(job, self.why_dead(f"{cause['text']}. {cause['log_line']}".strip()), now)
        for job in self._rows("queued"):
            if not self._start(job, state, now):
                break  # all of a kind ask for the same
        for job in self._unwanted(now):
            info = jobs.get(job.submission_id)
            if info is not None and info.status not in JOB_ENDED:
                self.end_job(job)

    def give_up_late(self, *, now: datetime) -> None:
        """Settle what has taken too long, with a sentence that says for what."""
        for job in self.model._default_manager.filter(state__in=UNDER_WAY, created_at__lt=now - self.patience):
            self.bury(job, self.why_late(job), now)

    def end_job(self, job: Job) -> None:
        """Have Ray end the job, if it has it. Raises: ClusterUnreachable."""
        cluster.stop_job(job.submission_id)

    def _rows(self, state: str) -> list[Job]:
        return list(self.model._default_manager.filter(state=state).order_by("pk"))

    def _unwanted(self, now: datetime) -> Any:
        """Return the jobs that are over here, without having finished, and may not be over on Ray."""
        lately = {"ended_at__gt": now - END_WINDOW, "ended_at__lte": now - LEAVE_TIME}
        return self.model._default_manager.filter(state__in=("failed", "canceled"), **lately)

    def _start(self, job: Job, state: ClusterState, now: datetime) -> bool:
        """Start a job, unless somebody else has by now; return False if there is no room."""
        most, gpus = self.most_at_once, self.place(job, state).gpus
        if most is not None and self.model._default_manager.filter(state="starting").count() >= most:
            return False
        if admission.why_job_waits(state, gpus=gpus, now=now, is_after_runs=self.is_after_runs):
            return False
        if self.model._default_manager.filter(pk=job.pk, state="queued").update(state="starting"):
            transaction.on_commit(partial(run_changed, job.run_id))
            self._hand_over(job, state, now)
        return True

    def _hand_over(self, job: Job, state: ClusterState, now: datetime) -> None:
        place = self.place(job, state)
        try:
            cluster.submit_job(
                submission_id=job.submission_id,
                module=self.module,
                environment=self.environment(job, state),
                metadata=self.metadata(job),
                entrypoint_gpus=place.gpus,
                resources=place.resources,
                runtime=place.runtime,
            )
        except ClusterUnreachable:
            # Ray may or may not have it: the same name is submitted again, which Ray takes for the same job.
            self.model._default_manager.filter(pk=job.pk, state="starting").update(state="queued")
        except JobRefused as error:
            self.settle(job.pk, state="failed", problem=str(error), now=now)
