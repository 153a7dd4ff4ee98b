"""Stored series, frames and newest values get the present names of renamed metrics."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

RENAMED = {
    "groups/without_signal_share": "groups/zero_variance_fraction",
    "response/truncated_share": "response/truncated_fraction",
    "prompt/truncated_share": "prompt/truncated_fraction",
    "groups/kept_share": "groups/kept_fraction",
    "correction/effective_sample_share": "correction/effective_sample_fraction",
    "response/aborted_share": "response/aborted_fraction",
}


def rename(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Rename the metrics where they are stored. Chunks point to a metric by number, so they stay as they are."""
    metric, frame, run = (apps.get_model("jobs", name) for name in ("Metric", "Frame", "Run"))
    for former, present in RENAMED.items():
        metric.objects.filter(kind="metric", name=former).update(name=present)
    for row in frame.objects.only("payload").iterator(chunk_size=100):
        payload = bytes(row.payload)
        for former, present in RENAMED.items():
            payload = payload.replace(f'"{former}":'.encode(), f'"{present}":'.encode())
        if payload != row.payload:
            frame.objects.filter(pk=row.pk).update(payload=payload)
    for row in run.objects.only("latest_values").iterator(chunk_size=100):
        values = {RENAMED.get(name, name): value for name, value in row.latest_values.items()}
        if values != row.latest_values:
            run.objects.filter(pk=row.pk).update(latest_values=values)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [migrations.RunPython(rename, migrations.RunPython.noop)]
