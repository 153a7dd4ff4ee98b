"""Rows of projects, runs and what they left behind: fields, constraints and simple properties only.

States are set by jobs.runs.lifecycle alone; frames, chunks, logs and samples are written by jobs.ingest.process alone.
"""

import secrets
from pathlib import Path

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

STATES = ("queued", "starting", "running", "stopping", "finished", "failed", "stopped")
ENDED = ("finished", "failed", "stopped")
LIVE = ("starting", "running", "stopping")


def new_run_id() -> str:
    """Return a short random id, as shown beside a run's name."""
    return f"r-{secrets.token_hex(4)}"


class Project(models.Model):
    """What runs belong to and people are members of."""

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)
    currency = models.CharField(max_length=3, default="USD")  # of all prices
    prices = models.JSONField(default=dict)  # accelerator id -> {"price": of a device hour, "on": ISO date}
    plan_constants = models.JSONField(default=dict)  # name of a constant of the planner -> the project's own value
    calibrations = models.JSONField(
        default=dict
    )  # accelerator id -> constants measured on finished runs (plan_settings)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """What a person may do in a project: viewers read, editors launch and stop, admins also manage members."""

    class Role(models.TextChoices):
        VIEWER = "viewer", _("Viewer")
        EDITOR = "editor", _("Editor")
        ADMIN = "admin", _("Admin")

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    role = models.CharField(max_length=10, choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="one_membership")]


class ApiToken(models.Model):
    """A token for the API and the command line; only its hash is kept.

    It may do what its person may, but never more than `role`, and with a `project` only there.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=120)
    sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=12)
    role = models.CharField(max_length=10, choices=Membership.Role.choices, default=Membership.Role.ADMIN)
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)  # None: all projects of its person
    expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)


class SigninLink(models.Model):
    """A link that signs one person in, once; only its hash is kept."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    sha256 = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class Upload(models.Model):
    """A data file given to the console; its content stands in the data directory under its hash."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    sha256 = models.CharField(max_length=64)
    file_name = models.CharField(max_length=255)
    size = models.BigIntegerField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "sha256"], name="one_upload")]


def new_study_id() -> str:
    """Return a short random id of a sweep."""
    return f"s-{secrets.token_hex(4)}"


def new_capture_id() -> str:
    """Return a short random id of a capture."""
    return f"c-{secrets.token_hex(4)}"


def new_trace_id() -> str:
    """Return a short random id of a trace."""
    return f"t-{secrets.token_hex(4)}"


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
    study_values = models.JSONField(default=dict)  # knob id -> value that the sweep gave this run
    capture_changes = models.PositiveIntegerField(default=0)  # grows with what pages cannot learn from frames
    tags = models.JSONField(default=list)
    note = models.TextField(default="", blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    started_at = models.DateTimeField(null=True)  # the first attempt began to run
    ended_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)

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


class Metric(models.Model):
    """The name of one series of a run; chunks point to it by number.

    `kind`: metric (x is the step), system (x is time), span (a lane of the timeline; `name` is empty).
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="metrics")
    kind = models.CharField(max_length=8, default="metric")
    name = models.CharField(max_length=120)
    role = models.CharField(max_length=20, default="driver")
    rank = models.IntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "kind", "name", "role", "rank"], name="one_metric")]


class Frame(models.Model):
    """A batch as it arrived, numbered per run: the log that browsers follow and chunks are made of."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    batch = models.BigIntegerField()
    at = models.DateTimeField()
    payload = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_frame")]


class Chunk(models.Model):
    """Sealed columns of one metric; level 0 holds points, 1 and 2 hold min, max and mean of 100 and 10,000 points."""

    metric = models.ForeignKey(Metric, on_delete=models.CASCADE)
    attempt = models.PositiveIntegerField()
    level = models.PositiveSmallIntegerField(default=0)
    seq = models.PositiveIntegerField()
    n = models.PositiveIntegerField()
    x0 = models.BigIntegerField()  # first and last step (metric) or Unix ns (system, span)
    x1 = models.BigIntegerField()
    through_seq = models.BigIntegerField()  # frames up to this one are in
    blob = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["metric", "attempt", "level", "seq"], name="one_chunk")]


class LogChunk(models.Model):
    """Consecutive log lines of one role, rank and stream."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    attempt = models.PositiveIntegerField()
    role = models.CharField(max_length=20)
    rank = models.IntegerField()
    stream = models.CharField(max_length=8)
    seq = models.BigIntegerField()  # of the frame it came with
    first_line = models.BigIntegerField()
    num_lines = models.PositiveIntegerField()
    at = models.DateTimeField()
    text = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "attempt", "role", "rank", "stream", "first_line"], name="one_log_chunk"
            )
        ]


class Sample(models.Model):
    """One completion that the run kept."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    attempt = models.PositiveIntegerField()
    step = models.IntegerField()
    group = models.IntegerField()
    index = models.IntegerField()
    is_eval = models.BooleanField(default=False)
    prompt = models.TextField()
    completion = models.TextField()
    expected = models.TextField(default="")
    reward = models.FloatField(null=True)
    rewards = models.JSONField(default=dict)
    tokens = models.IntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "attempt", "step", "is_eval", "group", "index"], name="one_sample")
        ]


class Capture(models.Model):
    """A recording of some steps by a profiler; its files are the artifacts that name it. States:
    profiling.captures.capture.STATES.
    """

    id = models.CharField(primary_key=True, max_length=16, default=new_capture_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="captures")
    attempt = models.PositiveIntegerField()
    what = models.CharField(max_length=16, default="")  # is to be seen (profiling.config.What); "" in older rows
    tool = models.CharField(
        max_length=10
    )  # a file of profiling.recorders; "" until it is selected, once workers are there
    first_step = models.IntegerField(default=0)  # 0: the next one
    num_steps = models.PositiveIntegerField(default=1)
    seconds = models.FloatField(default=0)  # recorded by time, from the moment it was asked for; 0: whole steps
    roles = models.JSONField(default=list)  # [] for all
    ranks = models.JSONField(default=list)
    state = models.CharField(max_length=10, default="armed")
    problem = models.CharField(max_length=500, default="")  # why it failed
    state_times = models.JSONField(default=dict)  # state -> ISO 8601, when it was reached
    withdraw_asked_at = models.DateTimeField(null=True)  # the trainer decides whether that was in time: state withdrawn
    withdraw_asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    meta = models.JSONField(default=dict)  # what the trainer told: steps recorded, overhead in seconds, files by name
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    @property
    def recorded_steps(self) -> tuple[int, int] | None:
        """The first and last step as the trainer told them, or else as asked for; None while neither is known."""
        first, count = self.meta.get("first_step"), self.meta.get("num_steps")
        if isinstance(first, int) and isinstance(count, int) and first > 0 and count > 0:
            return first, first + count - 1
        return (self.first_step, self.first_step + self.num_steps - 1) if self.first_step else None


class Artifact(models.Model):
    """A file the run made. Announced first; ready once all bytes are here and the checksum is right."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=20)  # model | checkpoint | tensorboard | trace | log
    step = models.IntegerField(default=-1)
    path = models.CharField(max_length=500)  # relative to the run directory on the cluster
    size = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, default="")
    received = models.BigIntegerField(default=0)  # bytes here so far
    is_ready = models.BooleanField(default=False)
    capture = models.ForeignKey(Capture, null=True, on_delete=models.CASCADE, related_name="files")
    meta = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "name"], name="one_artifact")]

    @property
    def stored_path(self) -> Path:
        """Where the console keeps the file's bytes, once they are all here."""
        return Path(settings.FILES_DIR) / "runs" / self.run_id / f"a{self.attempt}" / str(self.pk)

    def delete_bytes(self) -> None:
        """Remove what the file takes on disk, whole or in part."""
        for path in (self.stored_path, self.stored_path.with_suffix(".part"), self.stored_path.with_suffix(".lock")):
            path.unlink(missing_ok=True)


class Trace(models.Model):
    """What is looked at on one clock: a capture of a run, or files that somebody uploaded."""

    id = models.CharField(primary_key=True, max_length=16, default=new_trace_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="traces")
    capture = models.OneToOneField(Capture, null=True, on_delete=models.CASCADE, related_name="trace")
    name = models.CharField(max_length=200)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)


class Layer(models.Model):
    """One file of a trace and what it was imported to. States: uploading, queued, importing, ready, failed.

    Only jobs.traces.imports sets the state from queued on. `facts` are those of the store (profiling.trace.schema).
    """

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="layers")
    artifact = models.OneToOneField(Artifact, null=True, on_delete=models.CASCADE, related_name="layer")
    file_name = models.CharField(max_length=255)
    role = models.CharField(max_length=20, default="")
    rank = models.IntegerField(null=True)
    size = models.BigIntegerField(default=0)
    received = models.BigIntegerField(default=0)  # bytes here so far
    sha256 = models.CharField(max_length=64, default="")
    kind = models.CharField(max_length=20, default="")  # the reader that knows it
    state = models.CharField(max_length=10, default="queued", db_index=True)
    progress = models.FloatField(default=0)  # of the import, 0 to 1
    problem = models.CharField(max_length=500, default="")
    facts = models.JSONField(default=dict)
    claim = models.CharField(max_length=32, default="")  # of the process that imports it
    seen_at = models.DateTimeField(null=True)  # when that process last said that it is at it
    tries = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)


class Answer(models.Model):
    """A prompt tried on a trained model, and what it said."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE)
    prompt = models.TextField()
    text = models.TextField(default="")
    token_ids = models.JSONField(default=list)
    state = models.CharField(max_length=10, default="queued")  # queued | starting | finished | failed
    problem = models.CharField(max_length=500, default="")
    submission_id = models.CharField(max_length=80, unique=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)


class AuditEvent(models.Model):
    """Who did what, for good; rows are never changed."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    verb = models.CharField(max_length=40)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    ip = models.GenericIPAddressField(null=True)
