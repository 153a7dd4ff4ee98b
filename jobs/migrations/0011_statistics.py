from collections.abc import Iterator
from itertools import groupby
from typing import Any

import django.db.models.deletion
from django.db import migrations, models

_ROWS = 1000


def fill(apps: Any, _editor: object) -> None:
    """Write the statistics of what lies in chunks, one series after the other: every point of level 0 is read."""
    from jobs.telemetry.chunks import decode_all
    from jobs.telemetry.kept_statistics import statistics_row
    from jobs.telemetry.statistics import statistics_of

    kept = apps.get_model("jobs", "SeriesStatistics")
    made = []
    for (metric_id, attempt), blobs, through in _series(apps.get_model("jobs", "Chunk")):
        own = statistics_of(decode_all(blobs))
        if own is not None:
            made.append(statistics_row(metric_id, attempt, through, own, model=kept))
        if len(made) >= _ROWS:
            kept.objects.bulk_create(made)
            made = []
    kept.objects.bulk_create(made)


def _series(chunks: Any) -> Iterator[tuple[tuple[int, int], list[bytes], int]]:
    rows = chunks.objects.filter(level=0).exclude(metric__kind="span").order_by("metric_id", "attempt", "seq")
    columns = rows.values_list("metric_id", "attempt", "through_seq", "blob").iterator(chunk_size=_ROWS)
    for key, parts in groupby(columns, key=lambda row: (row[0], row[1])):
        own = list(parts)
        yield key, [part[3] for part in own], max(part[2] for part in own)


class Migration(migrations.Migration):
    """Keep last, least, greatest and mean of each series and attempt beside its chunks."""

    dependencies = [
        ("jobs", "0010_joined_runs"),
    ]

    operations = [
        migrations.CreateModel(
            name="SeriesStatistics",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("attempt", models.PositiveIntegerField()),
                ("through_seq", models.BigIntegerField()),
                ("n", models.BigIntegerField()),
                ("finite", models.BigIntegerField()),
                ("first_x", models.BigIntegerField()),
                ("last_x", models.BigIntegerField()),
                ("last_y", models.FloatField(null=True)),
                ("low_x", models.BigIntegerField(null=True)),
                ("low_y", models.FloatField(null=True)),
                ("high_x", models.BigIntegerField(null=True)),
                ("high_y", models.FloatField(null=True)),
                ("mean", models.FloatField(null=True)),
                ("metric", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="jobs.metric")),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("metric", "attempt"), name="one_statistics")],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
