"""What lists of runs are searched by, in the database.

Triggers on `jobs_run` and the rows of runs that are there come after it (jobs.apps), as after every `migrate`.
"""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0011_statistics'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='RunKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=6)),
                ('name', models.CharField(max_length=200)),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='jobs.project')),
            ],
        ),
        migrations.CreateModel(
            name='RunLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('shelf', models.PositiveSmallIntegerField(default=0)),
                ('state', models.CharField(max_length=10)),
                ('author_id', models.BigIntegerField(null=True)),
                ('stale', models.PositiveSmallIntegerField(default=2)),
                ('indexed_at', models.DateTimeField(null=True)),
                ('text', models.TextField(default='')),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='jobs.project')),
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='line', to='jobs.run')),
            ],
        ),
        migrations.CreateModel(
            name='RunFact',
            fields=[
                ('pk', models.CompositePrimaryKey('line_id', 'key_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('number', models.FloatField(null=True)),
                ('text', models.CharField(max_length=200, null=True)),
                ('key', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='jobs.runkey')),
                ('line', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='jobs.runline')),
            ],
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60)),
                ('view', models.CharField(default='all', max_length=10)),
                ('query', models.CharField(blank=True, default='', max_length=1000)),
                ('sort', models.CharField(default='-started', max_length=200)),
                ('columns', models.JSONField(default=list)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='jobs.project')),
            ],
        ),
        migrations.AddConstraint(
            model_name='runkey',
            constraint=models.UniqueConstraint(fields=('project', 'kind', 'name'), name='one_run_key'),
        ),
        migrations.AddIndex(
            model_name='runline',
            index=models.Index(fields=['project', 'shelf', 'id'], name='run_line_place'),
        ),
        migrations.AddIndex(
            model_name='runline',
            index=models.Index(fields=['project', 'shelf', 'state', 'author_id'], name='run_line_counts'),
        ),
        migrations.AddIndex(
            model_name='runline',
            index=models.Index(condition=models.Q(('stale__gt', 0)), fields=['project', 'stale'], name='run_line_stale'),
        ),
        migrations.AddIndex(
            model_name='runfact',
            index=models.Index(condition=models.Q(('number__isnull', False)), fields=['key', 'number', 'line'], name='run_fact_number'),
        ),
        migrations.AddIndex(
            model_name='runfact',
            index=models.Index(condition=models.Q(('text__isnull', False)), fields=['key', 'text', 'line'], name='run_fact_text'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(fields=('project', 'owner', 'name'), name='one_own_view'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(condition=models.Q(('owner', None)), fields=('project', 'name'), name='one_shared_view'),
        ),
    ]
