"""Stored specs that say no layout were run with every role on devices of its own, which is no longer the default."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def name_layout(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Write the layout into specs of before there was a choice."""
    for model in (apps.get_model("jobs", name) for name in ("Run", "Study")):
        for row in model.objects.only("spec").iterator(chunk_size=100):
            hardware = row.spec.get("hardware", {})
            if "layout" not in hardware:
                spec = {**row.spec, "hardware": {**hardware, "layout": "split"}}
                model.objects.filter(pk=row.pk).update(spec=spec)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0002_metric_names")]

    operations = [migrations.RunPython(name_layout, migrations.RunPython.noop)]
