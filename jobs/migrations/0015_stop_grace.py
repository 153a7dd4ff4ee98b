"""A stop that can be taken back: until a moment the runner is not told of it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0014_dashboards"),
    ]

    operations = [
        migrations.AddField(
            model_name="command",
            name="not_before",
            field=models.DateTimeField(null=True),
        ),
    ]
