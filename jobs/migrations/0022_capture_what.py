"""What captures were asked to show."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A word of profiling.config.What; empty for captures that were asked for by their tool alone."""

    dependencies = [("jobs", "0021_capture_seconds")]

    operations = [migrations.AddField("capture", "what", models.CharField(default="", max_length=16))]
