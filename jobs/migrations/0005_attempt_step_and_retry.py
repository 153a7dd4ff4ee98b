import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def copy_from_run(apps, schema_editor):
    """Until now a run had one attempt: what its row says is that attempt's."""
    attempts, runs = apps.get_model("jobs", "Attempt"), apps.get_model("jobs", "Run")
    mine = runs.objects.filter(pk=OuterRef("run_id"))
    attempts.objects.update(
        step=Subquery(mine.values("step")[:1]), created_by_id=Subquery(mine.values("created_by_id")[:1])
    )


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_resume_captures_studies"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="created_by",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="not_before",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="attempt",
            name="step",
            field=models.IntegerField(default=0),
        ),
        migrations.RunPython(copy_from_run, migrations.RunPython.noop),
    ]
