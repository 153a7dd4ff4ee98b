"""Models that are made of checkpoints on request."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0017_logs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Merge",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(default="queued", max_length=10)),
                ("problem", models.CharField(default="", max_length=500)),
                ("submission_id", models.CharField(max_length=80, unique=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(null=True)),
                ("attempt", models.PositiveIntegerField()),
                ("step", models.PositiveIntegerField()),
                (
                    "artifact",
                    models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to="jobs.artifact"),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("run", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="jobs.run")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ("queued", "starting"))),
                        fields=("run", "attempt", "step"),
                        name="one_merge_at_a_time",
                    )
                ],
            },
        ),
    ]
