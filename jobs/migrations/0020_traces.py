import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import jobs.models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0008_ran_on_and_calibrations"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.CreateModel(
            name="Trace",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=jobs.models.new_trace_id,
                        editable=False,
                        max_length=16,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                (
                    "capture",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="trace",
                        to="jobs.capture",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("project", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="jobs.project")),
                (
                    "run",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="traces", to="jobs.run"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Layer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("file_name", models.CharField(max_length=255)),
                ("role", models.CharField(default="", max_length=20)),
                ("rank", models.IntegerField(null=True)),
                ("size", models.BigIntegerField(default=0)),
                ("received", models.BigIntegerField(default=0)),
                ("sha256", models.CharField(default="", max_length=64)),
                ("kind", models.CharField(default="", max_length=20)),
                ("state", models.CharField(db_index=True, default="queued", max_length=10)),
                ("progress", models.FloatField(default=0)),
                ("problem", models.CharField(default="", max_length=500)),
                ("facts", models.JSONField(default=dict)),
                ("claim", models.CharField(default="", max_length=32)),
                ("seen_at", models.DateTimeField(null=True)),
                ("tries", models.PositiveSmallIntegerField(default=0)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "artifact",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="layer",
                        to="jobs.artifact",
                    ),
                ),
                (
                    "trace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="layers", to="jobs.trace"
                    ),
                ),
            ],
        ),
    ]
