from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0006_withdraw_captures")]

    operations = [
        migrations.AddField("project", "currency", models.CharField(default="USD", max_length=3)),
        migrations.AddField("project", "prices", models.JSONField(default=dict)),
        migrations.AddField("project", "plan_constants", models.JSONField(default=dict)),
    ]
