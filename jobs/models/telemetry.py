"""What runs report: frames, series, logs and samples, written by jobs.ingest.process alone."""

from django.db import models

from jobs.models.runs import Run


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


class SeriesStatistics(models.Model):
    """What all chunked points of one series and attempt come to; written with the chunks, in the same transaction.

    x is a step (metric) or Unix ns (system). A null y is NaN, a null x means that no point was finite.
    """

    metric = models.ForeignKey(Metric, on_delete=models.CASCADE)
    attempt = models.PositiveIntegerField()
    through_seq = models.BigIntegerField()  # frames up to this one are in
    n = models.BigIntegerField()
    finite = models.BigIntegerField()
    first_x = models.BigIntegerField()
    last_x = models.BigIntegerField()
    last_y = models.FloatField(null=True)
    low_x = models.BigIntegerField(null=True)
    low_y = models.FloatField(null=True)
    high_x = models.BigIntegerField(null=True)
    high_y = models.FloatField(null=True)
    mean = models.FloatField(null=True)  # of the finite points

    class Meta:
        constraints = [models.UniqueConstraint(fields=["metric", "attempt"], name="one_statistics")]


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
        indexes = [  # the newest lines of a run, and of one of its processes, and those of a moment
            models.Index(fields=["run", "id"], name="log_order"),
            models.Index(fields=["run", "role", "rank", "id"], name="log_process"),
            models.Index(fields=["run", "at", "id"], name="log_time"),
        ]


class LogIndex(models.Model):
    """What a megabyte of a run's log has in it (jobs.telemetry.log_index): its chunks from the first to the last."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_index=False)
    first_chunk = models.BigIntegerField()
    last_chunk = models.BigIntegerField()
    has_error = models.BooleanField()
    has_warning = models.BooleanField()
    trigrams = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "first_chunk"], name="one_log_index")]


class Sample(models.Model):
    """One completion that the run kept.

    `prompt_key`: the first 16 hexadecimal digits of the prompt's MD5 (UTF-8), by which it is found at other steps.
    `token_logprobs`: JSON, [characters of the completion, log-probability] of each token from the first on, as far as
    the run told them; "" where it told none.
    """

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
    prompt_key = models.CharField(max_length=16, default="", db_default="")
    token_logprobs = models.TextField(default="", db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "attempt", "step", "is_eval", "group", "index"], name="one_sample")
        ]
        indexes = [
            # All that filters and charts of samples ask for, so that they read no texts.
            models.Index(
                fields=["run", "attempt", "step", "is_eval", "group", "index", "reward", "tokens"], name="sample_facts"
            ),
            models.Index(fields=["run", "prompt_key", "attempt", "step"], name="sample_prompt"),
        ]
