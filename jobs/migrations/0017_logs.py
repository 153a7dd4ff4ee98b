import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0016_environment"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogIndex",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("first_chunk", models.BigIntegerField()),
                ("last_chunk", models.BigIntegerField()),
                ("has_error", models.BooleanField()),
                ("has_warning", models.BooleanField()),
                ("trigrams", models.BinaryField()),
            ],
        ),
        migrations.AddField(
            model_name="project",
            name="log_rules",
            field=models.JSONField(default=list),
        ),
        migrations.AddIndex(
            model_name="logchunk",
            index=models.Index(fields=["run", "id"], name="log_order"),
        ),
        migrations.AddIndex(
            model_name="logchunk",
            index=models.Index(fields=["run", "role", "rank", "id"], name="log_process"),
        ),
        migrations.AddIndex(
            model_name="logchunk",
            index=models.Index(fields=["run", "at", "id"], name="log_time"),
        ),
        migrations.AddField(
            model_name="logindex",
            name="run",
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to="jobs.run"),
        ),
        migrations.AddConstraint(
            model_name="logindex",
            constraint=models.UniqueConstraint(fields=("run", "first_chunk"), name="one_log_index"),
        ),
    ]
