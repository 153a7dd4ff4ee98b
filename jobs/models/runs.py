"""Sweeps, runs, their attempts, and what is asked of them.

States are set by jobs.runs.lifecycle alone.
"""

import secrets

from django.conf import settings
from django.db import models
from django.utils import timezone

from jobs.models.projects import Project

STATES = ("queued", "starting", "running", "stopping", "finished", "failed", "stopped")
ENDED = ("finished", "failed", "stopped")
LIVE = ("starting", "running", "stopping")


def new_study_id() -> str:
    """Return a short random id of a sweep."""
    return f"s-{secrets.token_hex(4)}"


def new_run_id() -> str:
    """Return a short random id, as shown beside a run's name."""
    return f"r-{secrets.token_hex(4)}"


class Study(models.Model):
    """A sweep: runs of one spec that differ in up to three knobs, so many at once.

    `knobs` is a list of {"id", "values": [...]} or {"id", "low", "high", "scale": "linear" | "log"}.
    """

    id = models.CharField(primary_key=True, max_length=16, default=new_study_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    name = models.CharField(max_length=120)
    spec = models.JSONField()
    knobs = models.JSONField()
    method = models.CharField(max_length=10)  # grid | random
    seed = models.BigIntegerField(default=0)
    num_runs = models.PositiveIntegerField()
    max_concurrent = models.PositiveIntegerField(default=1)
    is_stop_requested = models.BooleanField(default=False)
    idempotency_key = models.CharField(max_length=80, null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "idempotency_key"], name="one_study_per_request")]


class Run(models.Model):
    """One RunSpec and what became of it. `state` and `cause` mirror the latest attempt."""

    id = models.CharField(primary_key=True, max_length=16, default=new_run_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    name = models.CharField(max_length=120)
    spec = models.JSONField()
    state = models.CharField(max_length=10, default="queued", db_index=True)
    cause = models.JSONField(default=dict)
    is_stop_requested = models.BooleanField(default=False)
    idempotency_key = models.CharField(max_length=80, null=True)
    latest_attempt = models.PositiveIntegerField(default=1)
    seq = models.BigIntegerField(default=0)  # of the newest frame; frames are numbered without gaps
    folded_seq = models.BigIntegerField(default=0)  # frames up to this one are in chunks
    step = models.IntegerField(default=0)  # steps completed
    num_steps = models.IntegerField(default=0)
    phase = models.CharField(max_length=30, default="")  # what the trainer does now: a key of profiling.phases or ""
    activity = models.CharField(max_length=200, default="")  # what it says it is doing ("Loading vLLM weights")
    wait_reason = models.CharField(max_length=300, default="")  # why a queued run waits
    latest_values = models.JSONField(default=dict)  # metric name -> newest value, of role driver
    color = models.PositiveSmallIntegerField(default=0)  # index of the run colours
    study = models.ForeignKey(Study, null=True, on_delete=models.SET_NULL, related_name="runs")
    parent = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="clones")  # it is a clone of
    study_values = models.JSONField(default=dict)  # knob id -> value that the sweep gave this run
    capture_changes = models.PositiveIntegerField(default=0)  # grows with what pages cannot learn from frames
    health_step = models.IntegerField(default=0)  # judged through this step (jobs.diagnosis.health),
    health_attempt = models.PositiveIntegerField(default=0)  # of this attempt,
    health_at = models.DateTimeField(null=True)  # at this moment
    tags = models.JSONField(default=list)
    note = models.TextField(default="", blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    started_at = models.DateTimeField(null=True)  # the first attempt began to run
    ended_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)
    trashed_at = models.DateTimeField(null=True)  # in the trash: lists do not show it (jobs.retention)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "idempotency_key"], name="one_run_per_request")]


class Attempt(models.Model):
    """One start of a run on the cluster; `submission_id` is stored before Ray is called and is the idempotency key."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=10, default="queued", db_index=True)
    version = models.PositiveIntegerField(default=0)  # counts changes of state, for compare-and-set
    cause = models.JSONField(default=dict)
    submission_id = models.CharField(max_length=80, unique=True)
    resume_attempt = models.PositiveIntegerField(null=True)  # whose checkpoint it starts from; None: from the start
    resume_step = models.IntegerField(default=0)  # the step of that checkpoint: what came after it is a dead branch
    overrides = models.JSONField(default=dict)  # sections of the spec that this attempt changes: {"hardware": {...}}
    is_automatic = models.BooleanField(default=False)  # started by the retry policy
    not_before = models.DateTimeField(null=True)  # a retry waits until then
    step = models.IntegerField(default=0)  # steps completed, of the whole run
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)  # who began it
    num_cpus = models.FloatField(default=0)  # what it asks of the cluster
    num_gpus = models.FloatField(default=0)
    ran_on = models.JSONField(default=dict)  # the cluster's nodes when its job was handed over (jobs.cluster.nodes)
    durable_batch = models.BigIntegerField(default=0)  # highest batch of the runner that is in the database
    run_dir = models.CharField(max_length=500, default="")  # on the cluster
    runner_key = models.CharField(max_length=64, default="")  # SHA-256 of the key of whoever was handed its secrets
    cleanup = models.JSONField(default=dict)  # the runner's clean-up report: what is left of it
    created_at = models.DateTimeField(default=timezone.now)
    submitted_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    last_contact_at = models.DateTimeField(null=True)
    missing_at = models.DateTimeField(null=True)  # since when Ray does not know the job
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="one_attempt_number")]

    @property
    def lost_checkpoint(self) -> tuple[int, int] | None:
        """Attempt and step of the checkpoint that it was to start from and did not find, or found damaged.

        Its runner or trainer says so by `field` in a cause of side cluster. Such an attempt has trained nothing.
        """
        is_lost = self.cause.get("side") == "cluster" and self.cause.get("field") == "resume"
        return (self.resume_attempt, self.resume_step) if is_lost and self.resume_attempt else None


class Command(models.Model):
    """Something people asked of a running attempt; it travels in the answer of the next ingest POST."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="commands")
    verb = models.CharField(max_length=30)  # stop | checkpoint | set | pin | profile | withdraw | finish
    payload = models.JSONField(default=dict)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)
    not_before = models.DateTimeField(null=True)  # until then it can be taken back, and the runner is not told
    delivered_at = models.DateTimeField(null=True)  # the runner has acknowledged it
    answer = models.JSONField(default=dict)


class RunEvent(models.Model):
    """A line of the run's history: every change of state, and what people and the trainer did."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    attempt = models.PositiveIntegerField(default=1)
    at = models.DateTimeField(db_index=True)
    verb = models.CharField(max_length=30)
    text = models.CharField(max_length=500)
    step = models.IntegerField(null=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    data = models.JSONField(default=dict)
