"""Captures by time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A length in seconds; 0 for captures of whole steps, as all were."""

    dependencies = [("jobs", "0020_traces")]

    operations = [migrations.AddField("capture", "seconds", models.FloatField(default=0))]
