from django.db import migrations, models


class Migration(migrations.Migration):
    """Keep which finished runs joined the calibrations of a project."""

    dependencies = [
        ("jobs", "0009_health"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="joined_runs",
            field=models.JSONField(default=dict),
        ),
    ]
