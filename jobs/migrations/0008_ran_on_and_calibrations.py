from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0007_plan_settings")]

    operations = [
        migrations.AddField("attempt", "ran_on", models.JSONField(default=dict)),
        migrations.AddField("project", "calibrations", models.JSONField(default=dict)),
    ]
