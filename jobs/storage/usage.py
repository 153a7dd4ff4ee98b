"""What projects, people and runs take of the console, in bytes by kind.

Files are summed over their rows: of one that is still arriving, its announced size is taken already. What a run's rows
take in the database is counted now and then by the reconciler (`count_rows`), since that reads all of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db.models import BigIntegerField, Case, F, Func, Model, Q, Sum, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast, Coalesce
from django.db.models.sql.compiler import SQLCompiler

from jobs.models import Artifact, Chunk, Frame, Layer, LogChunk, Run, RunUsage, Sample, Upload

Owner = Literal["project", "created_by"]
"""Whose use is summed: a project's, or that of the person who brought or launched it."""

COUNT_AGAIN_AFTER = timedelta(minutes=10)
_MOST_RUNS = 10  # counted at a time: the reconciler has other things to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """What somebody takes, by kind. `files` are models, logs and recordings that runs handed over, `traces` uploaded
    ones and what was made of any; `series` are metrics and spans.
    """

    uploads: int = 0
    traces: int = 0
    files: int = 0
    series: int = 0
    logs: int = 0
    samples: int = 0

    @property
    def total(self) -> int:
        """All kinds together."""
        return sum(self.kinds.values())

    @property
    def kinds(self) -> dict[str, int]:
        """Each kind by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


KINDS = tuple(field.name for field in fields(Bytes))


class _Octets(Func):
    """Bytes of a text or a blob."""

    function = "OCTET_LENGTH"
    output_field = BigIntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: Any, **context: Any) -> tuple[str, Any]:
        """SQLite has OCTET_LENGTH from 3.43 on only."""
        return self.as_sql(compiler, connection, template="LENGTH(CAST(%(expressions)s AS BLOB))", **context)


_STORE = Coalesce(Cast(KeyTransform("bytes", "facts"), BigIntegerField()), 0, output_field=BigIntegerField())
_BROUGHT = Case(
    When(trace__capture__isnull=False, then=0),
    When(state="failed", then=F("received")),
    default=F("size"),
    output_field=BigIntegerField(),
)
"""Of a layer's file: those of captures are files of their runs."""
_HANDED_OVER = Case(When(type="checkpoint", then=0), default=F("size"), output_field=BigIntegerField())
"""Of a run's file: checkpoints stay on the cluster, and take nothing of the console."""
LOG_BYTES = _Octets("text")
SAMPLE_BYTES = _Octets("prompt") + _Octets("completion") + _Octets("expected") + _Octets("token_logprobs")


def use_by(owner: Owner, *, only: int | None = None) -> dict[int, Bytes]:
    """Return what each project (by its key), or each person, takes; with `only` that of one, if it takes anything."""
    sizes_of: dict[int, dict[str, int]] = defaultdict(dict)
    for kind, model, path, amount in (
        ("uploads", Upload, "", F("size")),
        ("traces", Layer, "trace__", _BROUGHT + _STORE),
        ("files", Artifact, "run__", _HANDED_OVER),
        ("series", RunUsage, "run__", F("series")),
        ("logs", RunUsage, "run__", F("logs")),
        ("samples", RunUsage, "run__", F("samples")),
    ):
        key = f"{path}{owner}_id"
        condition = {f"{key}__isnull": False} if only is None else {key: only}
        for whose, size in _sums(model, key, condition, amount):
            sizes_of[whose][kind] = size
    return {whose: Bytes(**sizes) for whose, sizes in sizes_of.items()}


def use_of(owner: Owner, pk: int) -> Bytes:
    """Return what one project or person takes."""
    return use_by(owner, only=pk).get(pk, Bytes())


def use_of_runs(run_ids: Iterable[str]) -> dict[str, Bytes]:
    """Return what each of these runs takes as of now, its rows counted anew."""
    ids = list(run_ids)
    files = dict(_sums(Artifact, "run_id", {"run_id__in": ids}, _HANDED_OVER))
    traces = dict(_sums(Layer, "trace__run_id", {"trace__run_id__in": ids}, _BROUGHT + _STORE))
    rows = _rows_of(ids)
    return {pk: Bytes(files=files.get(pk, 0), traces=traces.get(pk, 0), **rows[pk]) for pk in ids}


def count_rows(*, now: datetime) -> int:
    """Count what some runs take in the database that were not counted since they last reported; return how many.

    A run that goes on reporting is counted again after ten minutes.
    """
    stale = Q(usage=None) | (~Q(usage__seq=F("seq")) & Q(usage__counted_at__lt=now - COUNT_AGAIN_AFTER))
    due = dict(
        Run.objects.filter(stale, seq__gt=0).order_by("usage__counted_at", "pk").values_list("pk", "seq")[:_MOST_RUNS]
    )
    _keep(due, now)
    return len(due)


def count_again(run_ids: Iterable[str], *, now: datetime) -> None:
    """Count these runs anew, for whoever deleted rows of them."""
    _keep(dict(Run.objects.filter(pk__in=list(run_ids)).values_list("pk", "seq")), now)


def _keep(seqs: Mapping[str, int], now: datetime) -> None:
    for pk, sizes in _rows_of(list(seqs)).items():
        RunUsage.objects.update_or_create(run_id=pk, defaults={**sizes, "seq": seqs[pk], "counted_at": now})


def _rows_of(run_ids: list[str]) -> dict[str, dict[str, int]]:
    """Return what the rows of each run take: series, logs and samples."""
    by_run = {pk: {"series": 0, "logs": 0, "samples": 0} for pk in run_ids}
    for kind, model, key, amount in (
        ("series", Chunk, "metric__run_id", _Octets("blob")),
        ("series", Frame, "run_id", _Octets("payload")),
        ("logs", LogChunk, "run_id", LOG_BYTES),
        ("samples", Sample, "run_id", SAMPLE_BYTES),
    ):
        for pk, size in _sums(model, key, {f"{key}__in": run_ids}, amount) if run_ids else ():
            by_run[pk][kind] += size
    return by_run


def _sums(model: type[Model], key: str, condition: Mapping[str, object], amount: Any) -> list[tuple[Any, int]]:
    rows = model._default_manager.filter(**condition).order_by().values(key)
    summed = rows.annotate(of_all=Sum(amount, output_field=BigIntegerField()))
    return [(row[key], int(row["of_all"] or 0)) for row in summed]
