"""Audit rows say by which token, from where and in which project, outlive what they name, and cannot be changed."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Coalesce

from jobs.accounts.append_only import guard, unguard


def fill(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Write into rows of before what can still be known: their person's name, and the project of what they are of."""
    events = apps.get_model("jobs", "AuditEvent").objects
    users = apps.get_model(settings.AUTH_USER_MODEL).objects.filter(pk=OuterRef("actor_id")).values("username")
    events.exclude(actor=None).update(actor_name=Coalesce(Subquery(users[:1]), models.Value("")))
    for kind, model in (("run", "Run"), ("study", "Study"), ("trace", "Trace")):
        home = apps.get_model("jobs", model).objects.filter(pk=OuterRef("object_id")).values("project_id")
        events.filter(object_type=kind).update(project_id=Subquery(home[:1]))
    captures = apps.get_model("jobs", "Capture").objects.filter(pk=OuterRef("object_id")).values("run__project_id")
    events.filter(object_type="capture").update(project_id=Subquery(captures[:1]))
    projects = apps.get_model("jobs", "Project").objects
    events.filter(object_type="project").update(
        project_id=Subquery(projects.filter(slug=OuterRef("object_id")).values("id")[:1])
    )
    slug = projects.filter(pk=OuterRef("project_id")).values("slug")
    events.exclude(project=None).update(project_slug=Coalesce(Subquery(slug[:1]), models.Value("")))


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_accounts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditSweep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("before", models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name="auditevent",
            name="actor_name",
            field=models.CharField(default="", max_length=150),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="object_label",
            field=models.CharField(default="", max_length=200),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="project",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="jobs.project",
            ),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="project_slug",
            field=models.CharField(default="", max_length=60),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="token",
            field=models.CharField(default="", max_length=140),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="token_id",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="user_agent",
            field=models.CharField(default="", max_length=200),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="way",
            field=models.CharField(default="", max_length=10),
        ),
        migrations.AlterField(
            model_name="auditevent",
            name="actor",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["at", "id"], name="audit_at"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["project", "at", "id"], name="audit_project"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["actor_name", "at", "id"], name="audit_actor"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["verb", "at", "id"], name="audit_verb"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["object_type", "object_id", "at", "id"], name="audit_object"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["token_id", "at", "id"], name="audit_token"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["ip", "at", "id"], name="audit_ip"),
        ),
        migrations.RunPython(guard, unguard),
    ]
