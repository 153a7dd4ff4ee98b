"""Write what lists look for: `RunLine`, `RunKey` and `RunFact`, of runs whose rows have changed since.

Triggers mark such runs (jobs.runs.find.triggers). They are written anew by whoever lists runs, and by the reconciler
every second. The values of a run that goes on may be `SETTLE` old, so that a page that many look at does not write at
every look.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import F, Q
from django.utils import timezone

from jobs.models import Project, Run, RunFact, RunKey, RunLine
from jobs.runs.find.facts import Fact, Key, RunValues, facts_of, text_of

SETTLE = timedelta(seconds=5)
AT_ONCE = 200  # runs that are written in one transaction

_SET_TEXT = "UPDATE jobs_runline SET text = %s WHERE id = %s"
_DELETE = "DELETE FROM jobs_runfact WHERE line_id = %s AND key_id = %s"
_UPSERT = (
    "INSERT INTO jobs_runfact (line_id, key_id, number, text) VALUES (%s, %s, %s, %s) "
    "ON CONFLICT (line_id, key_id) DO UPDATE SET number = excluded.number, text = excluded.text"
)


def catch_up(
    *, project: Project | None = None, now: datetime | None = None, most: int = AT_ONCE, settle: timedelta = SETTLE
) -> int:
    """Write anew what is out of date, of one project or of all, the oldest first; return how many runs were written.

    Runs that go on are left until what was written of them is `settle` old.
    """
    at = now or timezone.now()
    due = Q(stale=2) | Q(stale=1, indexed_at=None) | Q(stale=1, indexed_at__lte=at - settle)
    rows = RunLine.objects.filter(due, stale__gt=0)
    if project is not None:
        rows = rows.filter(project=project)
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[:most])
    for start in range(0, len(ids), AT_ONCE):
        _write(ids[start : start + AT_ONCE], at)
    return len(ids)


def catch_up_all() -> int:
    """Write anew everything that is out of date, in batches; return how many runs that were."""
    total = 0
    while done := catch_up(settle=timedelta(0)):
        total += done
    return total


def _write(ids: Collection[int], now: datetime) -> None:
    with transaction.atomic():
        # Another process may be at some of them. What changes a run from here on marks it again.
        rows = RunLine.objects.select_for_update(skip_locked=connection.features.has_select_for_update_skip_locked)
        lines = list(rows.filter(pk__in=ids).order_by("pk").only("pk", "run_id", "project_id", "text"))
        line_ids = [line.pk for line in lines]
        RunLine.objects.filter(pk__in=line_ids).update(stale=0, indexed_at=now)
        values = _values([line.run_id for line in lines])
        wanted = {line.pk: facts_of(values[line.run_id], now=now) for line in lines if line.run_id in values}
        texts = {line.pk: text_of(values[line.run_id]) for line in lines if line.run_id in values}
        _many(_SET_TEXT, [(texts[line.pk], line.pk) for line in lines if texts.get(line.pk, line.text) != line.text])
        keys = _keys(lines, wanted)
        by_id = {
            line.pk: {keys[line.project_id, key]: fact for key, fact in wanted.get(line.pk, {}).items()}
            for line in lines
        }
        _write_facts(by_id)


def _values(run_ids: Sequence[str]) -> dict[str, RunValues]:
    fields = [name for name in RunValues.__dataclass_fields__ if name != "author"]
    rows = Run.objects.filter(pk__in=run_ids).annotate(author=F("created_by__username"))
    return {row["id"]: RunValues(**{**row, "author": row["author"] or ""}) for row in rows.values(*fields, "author")}


def _keys(lines: Iterable[RunLine], wanted: Mapping[int, Mapping[Key, Fact]]) -> dict[tuple[int, Key], int]:
    """Return the id of each key that is needed, by its project; new ones are made."""
    needed = {(line.project_id, key) for line in lines for key in wanted.get(line.pk, {})}
    by_name = _known({project_id for project_id, _key in needed})
    fresh = needed - by_name.keys()
    if fresh:
        rows = [RunKey(project_id=project_id, kind=kind, name=name) for project_id, (kind, name) in sorted(fresh)]
        RunKey.objects.bulk_create(rows, ignore_conflicts=True, batch_size=500)
        by_name = _known({project_id for project_id, _key in needed})
    return by_name


def _known(project_ids: Collection[int]) -> dict[tuple[int, Key], int]:
    rows = RunKey.objects.filter(project__in=project_ids).values_list("project_id", "kind", "name", "pk")
    return {(project_id, (kind, name)): pk for project_id, kind, name, pk in rows}


def _write_facts(wanted: Mapping[int, Mapping[int, Fact]]) -> None:
    """Change the rows of these lines into what is wanted, and touch none that is so already."""
    held: dict[int, dict[int, Fact]] = {line_id: {} for line_id in wanted}
    rows = RunFact.objects.filter(line__in=wanted).values_list("line_id", "key_id", "number", "text")
    for line_id, key_id, number, text in rows:
        held[line_id][key_id] = (number, text)
    gone = [(line_id, key_id) for line_id, facts in wanted.items() for key_id in held[line_id].keys() - facts.keys()]
    _many(_DELETE, gone)
    changed = [
        (line_id, key_id, *fact)
        for line_id, facts in wanted.items()
        for key_id, fact in facts.items()
        if held[line_id].get(key_id) != fact
    ]
    _many(_UPSERT, changed)


def _many(sql: str, rows: Sequence[tuple[int | float | str | None, ...]]) -> None:
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(sql, rows)
