"""Five minutes of usage in a new table: narrow rows, on PostgreSQL in a partition for each day (docs/adr/0038).

The former table stays for one version, and the former version goes on using it.
"""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

import scionlab.models.slot_field

TABLE = 'scionlab_usage5min'
POSTGRESQL = f"""
CREATE TABLE {TABLE} (
    series_id integer NOT NULL,
    begins_at integer NOT NULL,
    to_user_kbit integer CHECK (to_user_kbit >= 0),
    from_user_kbit integer CHECK (from_user_kbit >= 0),
    packed bytea NOT NULL,
    PRIMARY KEY (series_id, begins_at)
) PARTITION BY RANGE (begins_at)
"""


def make_table(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == 'postgresql':
        schema_editor.execute(POSTGRESQL)
    else:
        schema_editor.create_model(apps.get_model('scionlab', 'UsageSlot'))
        schema_editor.execute(f'CREATE INDEX usage_5min_begins ON {TABLE} (begins_at)')


def drop_table(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(f'DROP TABLE {TABLE}')


def totals() -> list[tuple[str, Any]]:
    return [
        field
        for direction in ('to_user', 'from_user')
        for field in (
            (f'{direction}_bytes', models.PositiveBigIntegerField(default=0)),
            (f'{direction}_packets', models.PositiveBigIntegerField(default=0)),
            (f'{direction}_drops', models.PositiveBigIntegerField(default=0)),
            (f'{direction}_rated_bytes', models.PositiveBigIntegerField(default=0)),
            (f'{direction}_backlog_bytes', models.PositiveBigIntegerField(default=0)),
            (f'{direction}_limit_kbit', models.PositiveIntegerField(null=True)),
            (f'{direction}_covered_ms', models.PositiveIntegerField(default=0)),
            (f'{direction}_at_limit_ms', models.PositiveIntegerField(default=0)),
        )
    ]


class Migration(migrations.Migration):

    dependencies = [
        ('scionlab', '0026_what_a_receipt_says_of_links'),
    ]
    short_lock = 'it makes an empty table, and touches no row'

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel(name='UsageSlot'),
                migrations.CreateModel(
                    name='UsageFormerSlot',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('begins_at', models.DateTimeField()),
                        *totals(),
                        ('series', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='former_slots', to='scionlab.usageseries')),
                    ],
                    options={
                        'db_table': 'scionlab_usageslot',
                        'indexes': [models.Index(fields=['begins_at'], name='usage_slot_begins')],
                        'constraints': [models.UniqueConstraint(fields=('series', 'begins_at'), name='usage_slot_once')],
                    },
                ),
                migrations.CreateModel(
                    name='UsageSlot',
                    fields=[
                        ('pk', models.CompositePrimaryKey('series_id', 'begins_at', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('series', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='scionlab.usageseries')),
                        ('begins_at', scionlab.models.slot_field.SlotField()),
                        ('to_user_kbit', models.PositiveIntegerField(null=True)),
                        ('from_user_kbit', models.PositiveIntegerField(null=True)),
                        ('packed', models.BinaryField()),
                    ],
                    options={'db_table': TABLE},
                ),
            ],
        ),
        migrations.RunPython(make_table, drop_table),
        migrations.CreateModel(
            name='UsageUplink',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ap_isd_as', models.CharField(max_length=24, verbose_name='attachment point')),
                ('begins_at', scionlab.models.slot_field.SlotField()),
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
        migrations.CreateModel(
            name='UsageProgress',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ap_isd_as', models.CharField(max_length=24, unique=True, verbose_name='attachment point')),
                ('ranked_until', scionlab.models.slot_field.SlotField(help_text='Five minutes before are in the windows of their month.')),
                ('settled_before', models.DateField(help_text='Percentiles of months before are for good.')),
            ],
            options={'verbose_name_plural': 'usage progress'},
        ),
        migrations.AddField(
            model_name='usagemonth',
            name='window',
            field=models.BinaryField(help_text='What later values of the month need (`usage.rank`); empty: it must be read anew.', null=True),
        ),
    ]
