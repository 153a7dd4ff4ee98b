import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0005_attempt_step_and_retry"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="capture",
            name="withdraw_asked_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="capture",
            name="withdraw_asked_by",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="capture_changes",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
