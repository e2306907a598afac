import datetime
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.lookups
from django.conf import settings
from typing import Any

from django.db import migrations, models



# Rows that are written every minute while nothing else changes: with room in its page a row is replaced there, without a
# new entry in each index (docs/performance.md).
def leave_room(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == 'postgresql':
        for table in ('enforcement_hostreceipt', 'enforcement_linkenforcement'):
            schema_editor.execute(f'ALTER TABLE {table} SET (fillfactor = 50)')


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('testbed', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='NoticeWatch',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('since', models.DateTimeField()),
                ('looked_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='notice_watch_is_one_row')],
            },
        ),
        migrations.CreateModel(
            name='ReportGap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('begins_at', models.DateTimeField(help_text='The receipt before, by the clock of this service.')),
                ('ends_at', models.DateTimeField(db_index=True, help_text='The receipt after, by the clock of this service.')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='report_gaps', to='testbed.host')),
            ],
        ),
        migrations.CreateModel(
            name='HostReceipt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('agent_version', models.CharField(blank=True, max_length=32)),
                ('generation', models.PositiveIntegerField(blank=True, null=True)),
                ('config_version', models.PositiveIntegerField(blank=True, null=True)),
                ('limits_version', models.PositiveIntegerField(blank=True, null=True)),
                ('limits_digest', models.CharField(blank=True, db_default='', help_text='SHA-256 of the link_info.json in force; empty if not reported.', max_length=64)),
                ('links_digest', models.CharField(blank=True, db_default='', editable=False, help_text='Digest of the Links in this receipt (enforcement.receipt_changes). Empty: to be read again.', max_length=64)),
                ('content', models.CharField(choices=[('proven', 'a document of this service, by its digest'), ('counted', 'identified by its versions: the agent reports no digest'), ('foreign', 'a document that this service did not issue')], db_default='counted', default='counted', max_length=16)),
                ('run', models.CharField(blank=True, db_default='', help_text='Identifies one run of the agent.', max_length=32)),
                ('number', models.PositiveBigIntegerField(blank=True, help_text='Sequence number of this receipt within the run.', null=True)),
                ('clock_skew_ms', models.IntegerField(blank=True, help_text='Clock of the agent minus clock of this service, as measured by the agent.', null=True)),
                ('observed_at', models.DateTimeField(help_text='By the clock of the agent.')),
                ('received_at', models.DateTimeField(help_text='By the clock of this service.')),
                ('problems', models.JSONField(blank=True, default=list)),
                ('devices', models.JSONField(blank=True, help_text='Names of the devices on which packets are classified. Empty: not known.', null=True)),
                ('says_total', models.BooleanField(db_default=False, default=False, help_text='Not set: the agent does not support a total.')),
                ('total_to_user_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('total_from_user_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('says_tests', models.BooleanField(db_default=False, default=False, help_text='Not set: the agent does not support tests of Links.')),
                ('sending_tests', models.CharField(blank=True, choices=[('on', 'on'), ('off', 'off'), ('stopped', 'stopped')], db_default='', help_text='Whether the operator lets tests send. Empty: the agent does not support tests that send.', max_length=8)),
                ('says_tcp_tests', models.BooleanField(db_default=False, default=False, help_text='Not set: the agent does not support tests over TCP.')),
                ('observe_only', models.BooleanField(blank=True, help_text='Nothing is limited. Empty: the agent does not support observing only.', null=True)),
                ('gaps_since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False, help_text='From here on every gap between receipts is recorded.')),
                ('refusal', models.CharField(blank=True, db_default='', help_text='Why the newest one was refused. Empty: it was stored.', max_length=300)),
                ('contradiction', models.CharField(blank=True, db_default='', help_text='Why it cannot be true. Empty: it can.', max_length=200)),
                ('address', models.GenericIPAddressField(blank=True, help_text='From which the agent sent it.', null=True)),
                ('former_runs', models.JSONField(default=list, editable=False, help_text='Newest last: run, its address, and when another began.')),
                ('rival_address', models.GenericIPAddressField(blank=True, null=True)),
                ('rival_at', models.DateTimeField(blank=True, help_text='Its newest receipt, which was not stored.', null=True)),
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='receipt', to='testbed.host')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('observed_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('observed_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='host_receipt_observed_at_readable'), models.CheckConstraint(condition=models.Q(('received_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('received_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='host_receipt_received_at_readable')],
            },
        ),
        migrations.CreateModel(
            name='LinkEnforcement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('to_user_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_packets', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_drops', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_refused', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_dropped', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_packets', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_drops', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_refused', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_dropped', models.PositiveBigIntegerField(blank=True, null=True)),
                ('kbit', models.PositiveBigIntegerField(verbose_name='wanted, the lower of both directions [kbit/s]')),
                ('to_user_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: the same in both directions.', null=True)),
                ('from_user_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: the same in both directions.', null=True)),
                ('state', models.CharField(choices=[('enforced', 'enforced'), ('observed', 'observed: nothing is limited'), ('error', 'error')], max_length=16)),
                ('problem', models.TextField(blank=True)),
                ('since', models.DateTimeField(help_text='Start of the current state: every receipt since reported the same.')),
                ('received_at', models.DateTimeField()),
                ('generation', models.PositiveIntegerField(blank=True, null=True)),
                ('config_version', models.PositiveIntegerField(blank=True, null=True)),
                ('limits_version', models.PositiveIntegerField(blank=True, null=True)),
                ('to_user_dev', models.CharField(blank=True, db_default='', help_text='Device of the queue, as the agent names it.', max_length=32)),
                ('to_user_rate_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_dev', models.CharField(blank=True, db_default='', help_text='Device of the queue, as the agent names it.', max_length=32)),
                ('from_user_rate_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('link', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='enforcement', to='testbed.link')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('received_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('received_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='link_enforcement_received_at_readable'), models.CheckConstraint(condition=models.Q(('since__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('since__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='link_enforcement_since_readable'), models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length('problem'), 2000), name='link_enforcement_problem_short')],
            },
        ),
        migrations.CreateModel(
            name='Notice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('enforced', 'An attachment point has enforced a change of one of my limits'), ('clamped', 'A maximum was lowered below my limit, or raised again'), ('changed', 'Someone else changed one of my limits, or cancelled a temporary limit'), ('failed', 'One of my limits has failed for more than 10 minutes'), ('away', 'An attachment point of mine has sent no report for more than an hour, or reports again'), ('tested', 'A test that I scheduled has ended, or was not carried out')], max_length=16)),
                ('began_at', models.DateTimeField()),
                ('value', models.PositiveBigIntegerField(blank=True, help_text='The notified maximum [kbit/s].', null=True)),
                ('links', models.JSONField(default=list)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='testbed.host')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.UniqueConstraint(fields=('user', 'host', 'kind'), name='notice_once_while_it_lasts')],
            },
        ),
        migrations.RunPython(leave_room, migrations.RunPython.noop),
    ]
