"""What people think of samples; by what samples are filtered and found again, and the log-probabilities of tokens."""

from typing import Any

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import MD5, Left


def fill(apps: Any, _editor: object) -> None:
    """Give the samples that are there the keys of their prompts, as ingest does from now on."""
    apps.get_model("jobs", "Sample").objects.update(prompt_key=Left(MD5("prompt"), 16))


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0012_run_lists"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField("sample", "prompt_key", models.CharField(db_default="", default="", max_length=16)),
        migrations.AddField("sample", "token_logprobs", models.TextField(db_default="", default="")),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AddIndex(
            "sample",
            models.Index(
                fields=["run", "attempt", "step", "is_eval", "group", "index", "reward", "tokens"], name="sample_facts"
            ),
        ),
        migrations.AddIndex(
            "sample", models.Index(fields=["run", "prompt_key", "attempt", "step"], name="sample_prompt")
        ),
        migrations.CreateModel(
            name="SampleReview",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "verdict",
                    models.CharField(
                        blank=True, choices=[("up", "Up"), ("down", "Down"), ("", "None")], default="", max_length=4
                    ),
                ),
                ("note", models.CharField(blank=True, default="", max_length=2000)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "author",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "sample",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="reviews", to="jobs.sample"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("sample", "author"), name="one_sample_review")],
            },
        ),
    ]
