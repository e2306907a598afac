import datetime
import django.db.models.deletion
import scionlab.platform.clock
import scionlab.usage.slot_field
from typing import Any

from django.db import migrations, models



# Of PostgreSQL: narrow rows, in a partition for each day (docs/adr/0015).
USAGE = 'usage_usage5min'
USAGE_ON_POSTGRESQL = f"""
CREATE TABLE {USAGE} (
    series_id integer NOT NULL,
    begins_at integer NOT NULL,
    to_user_kbit integer CHECK (to_user_kbit >= 0),
    from_user_kbit integer CHECK (from_user_kbit >= 0),
    packed bytea NOT NULL,
    PRIMARY KEY (series_id, begins_at)
) PARTITION BY RANGE (begins_at)
"""


def make_usage_table(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == 'postgresql':
        schema_editor.execute(USAGE_ON_POSTGRESQL)
    else:
        schema_editor.create_model(apps.get_model('usage', 'UsageSlot'))
        schema_editor.execute(f'CREATE INDEX usage_5min_begins ON {USAGE} (begins_at)')


def drop_usage_table(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(f'DROP TABLE {USAGE}')


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('testbed', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageLock',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ap_isd_as', models.CharField(max_length=24, unique=True, verbose_name='attachment point')),
            ],
        ),
        migrations.CreateModel(
            name='UsageBatch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=32)),
                ('received_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(help_text='Time of the newest sample.')),
                ('rolled_up', models.BooleanField(default=False)),
                ('host', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage_batches', to='testbed.host')),
            ],
            options={
                'verbose_name_plural': 'usage batches',
            },
        ),
        migrations.CreateModel(
            name='UsageMonth',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('begins_on', models.DateField()),
                ('ap_isd_as', models.CharField(max_length=24, verbose_name='attachment point')),
                ('isd_as', models.CharField(blank=True, max_length=24, verbose_name='user AS')),
                ('owner_email', models.CharField(blank=True, max_length=254)),
                ('to_user_p95_kbit', models.PositiveBigIntegerField(null=True)),
                ('from_user_p95_kbit', models.PositiveBigIntegerField(null=True)),
                ('to_user_slots', models.PositiveIntegerField(default=0, help_text='Number of five-minute values of the percentile.')),
                ('from_user_slots', models.PositiveIntegerField(default=0)),
                ('computed_at', models.DateTimeField()),
                ('is_final', models.BooleanField(default=False)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('begins_on', 'ap_isd_as', 'isd_as', 'owner_email'), name='usage_month_once')],
            },
        ),
        migrations.CreateModel(
            name='UsageSeries',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('interface_id', models.PositiveSmallIntegerField()),
                ('ap_isd_as', models.CharField(max_length=24, verbose_name='attachment point')),
                ('isd_as', models.CharField(max_length=24, verbose_name='user AS')),
                ('owner_email', models.CharField(max_length=254)),
                ('first_config_version', models.PositiveIntegerField()),
                ('last_config_version', models.PositiveIntegerField()),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('attachment_point', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage_series', to='testbed.attachmentpoint')),
                ('host', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage_series', to='testbed.host')),
                ('link', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='usage_series', to='testbed.link')),
            ],
            options={
                'verbose_name_plural': 'usage series',
            },
        ),
        migrations.CreateModel(
            name='UsageSamples',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('begins_at', models.DateTimeField(help_text='Time of the first sample; the last one is at most 10 minutes later.')),
                ('packed', models.TextField()),
                ('batch', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='usage.usagebatch')),
                ('series', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='usage.usageseries')),
            ],
            options={
                'verbose_name_plural': 'usage samples',
            },
        ),
        migrations.CreateModel(
            name='UsageDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('begins_at', models.DateTimeField()),
                ('to_user_rated_bytes', models.PositiveBigIntegerField(default=0)),
                ('to_user_backlog_bytes', models.PositiveBigIntegerField(default=0)),
                ('to_user_limit_kbit', models.PositiveIntegerField(null=True)),
                ('to_user_covered_ms', models.PositiveIntegerField(default=0)),
                ('to_user_at_limit_ms', models.PositiveIntegerField(default=0)),
                ('from_user_rated_bytes', models.PositiveBigIntegerField(default=0)),
                ('from_user_backlog_bytes', models.PositiveBigIntegerField(default=0)),
                ('from_user_limit_kbit', models.PositiveIntegerField(null=True)),
                ('from_user_covered_ms', models.PositiveIntegerField(default=0)),
                ('from_user_at_limit_ms', models.PositiveIntegerField(default=0)),
                ('to_user_bytes', models.PositiveBigIntegerField(default=0)),
                ('to_user_packets', models.PositiveBigIntegerField(default=0)),
                ('to_user_drops', models.PositiveBigIntegerField(default=0)),
                ('from_user_bytes', models.PositiveBigIntegerField(default=0)),
                ('from_user_packets', models.PositiveBigIntegerField(default=0)),
                ('from_user_drops', models.PositiveBigIntegerField(default=0)),
                ('series', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='days', to='usage.usageseries')),
            ],
        ),
        migrations.CreateModel(
            name='UsageCounter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('direction', models.CharField(choices=[('to_user', 'to the user AS'), ('from_user', 'from the user AS')], max_length=9)),
                ('segment', models.CharField(max_length=64)),
                ('at', models.DateTimeField()),
                ('kbit', models.PositiveBigIntegerField(help_text='Rate over the newest interval; empty: none.', null=True)),
                ('limit_kbit', models.PositiveBigIntegerField()),
                ('backlog_bytes', models.PositiveBigIntegerField()),
                ('bytes', models.PositiveBigIntegerField(default=0)),
                ('packets', models.PositiveBigIntegerField(default=0)),
                ('drops', models.PositiveBigIntegerField(default=0)),
                ('series', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='counters', to='usage.usageseries')),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name='UsageSlot',
                    fields=[
                        ('pk', models.CompositePrimaryKey('series_id', 'begins_at', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('begins_at', scionlab.usage.slot_field.SlotField()),
                        ('to_user_kbit', models.PositiveIntegerField(null=True)),
                        ('from_user_kbit', models.PositiveIntegerField(null=True)),
                        ('packed', models.BinaryField()),
                        ('series', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='usage.usageseries')),
                    ],
                    options={
                        'db_table': 'usage_usage5min',
                    },
                ),
            ],
        ),
        migrations.RunPython(make_usage_table, drop_usage_table),
        migrations.CreateModel(
            name='UsageUplink',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ap_isd_as', models.CharField(max_length=24, verbose_name='attachment point')),
                ('begins_at', scionlab.usage.slot_field.SlotField()),
                ('to_user_kbit', models.PositiveBigIntegerField(null=True)),
                ('from_user_kbit', models.PositiveBigIntegerField(null=True)),
                ('to_user_drops', models.PositiveBigIntegerField(default=0)),
                ('from_user_drops', models.PositiveBigIntegerField(default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['begins_at'], name='usage_uplink_begins')],
                'constraints': [models.UniqueConstraint(fields=('ap_isd_as', 'begins_at'), name='usage_uplink_once')],
            },
        ),
        migrations.AddIndex(
            model_name='usagebatch',
            index=models.Index(condition=models.Q(('rolled_up', False)), fields=['host', 'id'], name='usage_batch_waiting'),
        ),
        migrations.AddIndex(
            model_name='usagebatch',
            index=models.Index(fields=['ends_at'], name='usage_batch_ends'),
        ),
        migrations.AddConstraint(
            model_name='usagebatch',
            constraint=models.UniqueConstraint(fields=('host', 'key'), name='usage_batch_once'),
        ),
        migrations.AddConstraint(
            model_name='usagebatch',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('ends_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='usage_batch_ends_at_readable'),
        ),
        migrations.AddIndex(
            model_name='usageseries',
            index=models.Index(fields=['ap_isd_as', 'isd_as'], name='usage_series_names'),
        ),
        migrations.AddConstraint(
            model_name='usageseries',
            constraint=models.UniqueConstraint(fields=('link', 'host', 'interface_id'), name='usage_series_once_per_link_and_end'),
        ),
        migrations.AddIndex(
            model_name='usagesamples',
            index=models.Index(fields=['series', 'begins_at'], name='usage_samples_of_series'),
        ),
        migrations.AddConstraint(
            model_name='usagesamples',
            constraint=models.CheckConstraint(condition=models.Q(('begins_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('begins_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='usage_samples_begins_at_readable'),
        ),
        migrations.AddIndex(
            model_name='usageday',
            index=models.Index(fields=['begins_at'], name='usage_day_begins'),
        ),
        migrations.AddConstraint(
            model_name='usageday',
            constraint=models.UniqueConstraint(fields=('series', 'begins_at'), name='usage_day_once'),
        ),
        migrations.AddIndex(
            model_name='usagecounter',
            index=models.Index(fields=['at'], name='usage_counter_at'),
        ),
        migrations.AddConstraint(
            model_name='usagecounter',
            constraint=models.UniqueConstraint(fields=('series', 'direction', 'segment'), name='usage_counter_once_per_segment'),
        ),
        migrations.AddConstraint(
            model_name='usagecounter',
            constraint=models.CheckConstraint(condition=models.Q(('at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='usage_counter_at_readable'),
        ),
    ]
