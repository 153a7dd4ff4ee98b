"""What lists of runs are searched and sorted by: a slim row per run, a row per value, and the views people keep.

`jobs.runs.find.index` writes the first three, from `Run` alone: they can be thrown away and made again.
"""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.projects import Project
from jobs.models.runs import Run

LISTED, ARCHIVED, TRASHED = 0, 1, 2
"""Where a run stands: in the list, in the archive, in the trash."""


class RunKey(models.Model):
    """A name that runs of a project have a value of. `kind`: field, knob, metric or tag."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, db_index=False)
    kind = models.CharField(max_length=6)
    name = models.CharField(max_length=200)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "kind", "name"], name="one_run_key")]


class RunLine(models.Model):
    """A run as lists look for it, without the wide columns of its row.

    Triggers keep `shelf`, `state` and `author_id` as the run's row has them, and set `stale` where the rest is to be
    written anew (jobs.runs.find.triggers): 1, the values of a run that goes on, 2, anything else.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="line")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, db_index=False)
    shelf = models.PositiveSmallIntegerField(default=LISTED)
    state = models.CharField(max_length=10)
    author_id = models.BigIntegerField(null=True)
    stale = models.PositiveSmallIntegerField(default=2)
    indexed_at = models.DateTimeField(null=True)
    text = models.TextField(default="")  # what words are looked for in: id, name, model, author, tags, note; lower case

    class Meta:
        indexes = [
            models.Index(fields=["project", "shelf", "id"], name="run_line_place"),
            models.Index(fields=["project", "shelf", "state", "author_id"], name="run_line_counts"),
            models.Index(fields=["project", "stale"], condition=Q(stale__gt=0), name="run_line_stale"),
        ]


class RunFact(models.Model):
    """A run's value of a key: a number, or a text in lower case. A tag is a key whose value is 1."""

    pk = models.CompositePrimaryKey("line_id", "key_id")
    line = models.ForeignKey(RunLine, on_delete=models.CASCADE, db_index=False)
    key = models.ForeignKey(RunKey, on_delete=models.CASCADE, db_index=False)
    number = models.FloatField(null=True)
    text = models.CharField(max_length=200, null=True)

    class Meta:
        indexes = [
            models.Index(fields=["key", "number", "line"], condition=Q(number__isnull=False), name="run_fact_number"),
            models.Index(fields=["key", "text", "line"], condition=Q(text__isnull=False), name="run_fact_text"),
        ]


class SavedView(models.Model):
    """A filter, an order and columns of the list of runs under a name; `owner` None: the whole project's."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    view = models.CharField(max_length=10, default="all")  # which runs at all: all, running, failed, mine, archived
    query = models.CharField(max_length=1000, default="", blank=True)
    sort = models.CharField(max_length=200, default="-started")
    columns = models.JSONField(default=list)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "owner", "name"], name="one_own_view"),
            models.UniqueConstraint(fields=["project", "name"], condition=Q(owner=None), name="one_shared_view"),
        ]
