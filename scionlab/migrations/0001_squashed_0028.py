"""Tables of the service. Made of the 28 migrations before it, which no released version had."""

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.utils.timezone
import scionlab.models.account
import scionlab.models.host
import scionlab.models.link_test
import scionlab.models.slot_field
import scionlab.models.user
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import migrations, models

from scionlab.platform.reservations import LANES, LINKS, keep_apart, let_overlap


# Of PostgreSQL: narrow rows, in a partition for each day (docs/adr/0038).
USAGE = 'scionlab_usage5min'
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
# Rows that are written every minute while nothing else changes: with room in its page a row is replaced there, without a
# new entry in each index (docs/scale.md).
OFTEN_WRITTEN = ('scionlab_host', 'scionlab_hostreceipt', 'scionlab_linkenforcement')


def make_usage_table(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == 'postgresql':
        schema_editor.execute(USAGE_ON_POSTGRESQL)
    else:
        schema_editor.create_model(apps.get_model('scionlab', 'UsageSlot'))
        schema_editor.execute(f'CREATE INDEX usage_5min_begins ON {USAGE} (begins_at)')


def drop_usage_table(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(f'DROP TABLE {USAGE}')


def leave_room(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == 'postgresql':
        for table in OFTEN_WRITTEN:
            schema_editor.execute(f'ALTER TABLE {table} SET (fillfactor = 50)')


class Migration(migrations.Migration):

    initial = True
    # A database that has all of these has this one.
    replaces = [('scionlab', name) for name in (
        '0001_initial',
        '0002_bulk_changes_of_defaults',
        '0003_content_of_receipts',
        '0004_indices_of_hot_queries',
        '0005_tokens_made_by_tokens',
        '0006_forget_unproven_versions',
        '0007_isds_and_ases_begin_at_1',
        '0008_total_of_all_links',
        '0009_observe_only',
        '0010_what_receipts_say_of_drops',
        '0011_limits_only_and_take_over',
        '0012_keys_of_the_testbed',
        '0013_complete_configurations',
        '0014_keys_of_vpns',
        '0015_path_metadata',
        '0016_plain_words',
        '0017_link_tests',
        '0018_sending_tests',
        '0019_hours_and_load_of_test_policies',
        '0020_joint_tests',
        '0021_tests_over_tcp',
        '0022_gaps_between_receipts',
        '0023_exceptions',
        '0024_groups',
        '0025_webhook_and_saved_filters',
        '0026_what_a_receipt_says_of_links',
        '0027_usage_in_partitions',
        '0028_usage_is_moved',
    )]

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='AS',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('as_id', models.BigIntegerField(help_text='48-bit number, shown as ffaa:1:b6.', unique=True, verbose_name='AS number')),
                ('label', models.CharField(blank=True, max_length=100)),
                ('is_core', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'verbose_name': 'AS',
                'verbose_name_plural': 'ASes',
                'ordering': ['isd__isd_id', 'as_id'],
            },
        ),
        migrations.CreateModel(
            name='DeletedHost',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uid', models.CharField(max_length=32, unique=True, verbose_name='host id')),
                ('secret_sha256', models.CharField(max_length=64)),
                ('previous_secret_sha256', models.CharField(blank=True, max_length=64)),
                ('deleted_at', models.DateTimeField(db_index=True)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='SigningKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_id', models.CharField(editable=False, max_length=32, unique=True, verbose_name='key id')),
                ('public_key', models.CharField(editable=False, help_text='The 32 raw bytes in base64.', max_length=44)),
                ('private_encrypted', models.TextField(editable=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name='made')),
                ('not_after', models.DateTimeField(editable=False, verbose_name='valid until')),
                ('revoked_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='revoked')),
            ],
            options={
                'ordering': ['created_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='UsageProgress',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ap_isd_as', models.CharField(max_length=24, unique=True, verbose_name='attachment point')),
                ('ranked_until', scionlab.models.slot_field.SlotField(help_text='Earlier five-minute rows are included in the windows of their month.')),
                ('settled_before', models.DateField(help_text='Percentiles of earlier months are final.')),
            ],
            options={
                'verbose_name_plural': 'usage progress',
            },
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('email', models.EmailField(max_length=254, unique=True, verbose_name='email address')),
                ('full_name', models.CharField(blank=True, max_length=150)),
                ('is_staff', models.BooleanField(default=False, help_text="Can use the administrators' pages.", verbose_name='administrator')),
                ('is_active', models.BooleanField(default=True)),
                ('as_quota', models.PositiveSmallIntegerField(default=5, help_text='Maximum number of user ASes of this account.', verbose_name='AS quota')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now)),
                ('time_zone', models.CharField(default='UTC', help_text='Used for times on pages and in emails.', max_length=64, validators=[scionlab.models.user.validate_time_zone])),
                ('mail_opt_outs', models.JSONField(blank=True, default=list, validators=[scionlab.models.user.validate_mail_kinds])),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'ordering': ['email'],
            },
        ),
        migrations.CreateModel(
            name='AccountRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('purpose', models.CharField(choices=[('register', 'a new account'), ('email', 'a new email address'), ('password', 'a new password')], max_length=16)),
                ('email', models.EmailField(help_text='Address to confirm.', max_length=254, verbose_name='email address')),
                ('nonce', models.CharField(default=scionlab.models.account.new_nonce, editable=False, max_length=32)),
                ('network', models.CharField(blank=True, help_text='Network of the client, for rate limiting only.', max_length=45)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField(verbose_name='valid until')),
                ('answered_at', models.DateTimeField(blank=True, help_text='Time of processing by a worker.', null=True)),
                ('used_at', models.DateTimeField(blank=True, help_text='Time of use; a link works once.', null=True, verbose_name='used')),
                ('user', models.ForeignKey(blank=True, help_text='Account whose address changes.', null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='ApiRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=200)),
                ('fingerprint', models.CharField(help_text='SHA-256 of method, path and body.', max_length=64)),
                ('status', models.PositiveSmallIntegerField(default=0)),
                ('headers', models.JSONField(default=dict)),
                ('body', models.TextField(blank=True, help_text='Empty if the response contained a secret, which is shown only once.')),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('token_sha256', models.CharField(editable=False, max_length=64, unique=True)),
                ('may_write', models.BooleanField(default=True, help_text='Off: read-only.', verbose_name='write access')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name='made')),
                ('expires_at', models.DateTimeField(blank=True, help_text='Empty: until it is revoked.', null=True, verbose_name='valid until')),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='last used')),
                ('made_by', models.ForeignKey(blank=True, editable=False, help_text='The token that created this one; empty if it was created on a page or with a password.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='made', to='scionlab.apitoken')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='UserAS',
            fields=[
                ('as_ptr', models.OneToOneField(auto_created=True, on_delete=django.db.models.deletion.CASCADE, parent_link=True, primary_key=True, serialize=False, to='scionlab.as')),
                ('installation_type', models.CharField(choices=[('vm', 'Install inside a virtual machine'), ('dedicated', 'Install on a dedicated system (for experts)')], default='vm', max_length=16)),
                ('changed_at', models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                'verbose_name': 'user AS',
                'verbose_name_plural': 'user ASes',
            },
            bases=('scionlab.as',),
        ),
        migrations.CreateModel(
            name='BandwidthPolicy',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('default_bandwidth_kbit', models.PositiveBigIntegerField(default=1000, help_text='Initial value and maximum of every Link, unless its attachment point has a default of its own.', verbose_name='site default [kbit/s]')),
                ('cost_per_gb', models.DecimalField(blank=True, decimal_places=4, help_text='Cost of 1 GB (10^9 bytes) of egress. Empty: not set.', max_digits=10, null=True, validators=[django.core.validators.MinValueValidator(Decimal('0'))], verbose_name='cost per GB')),
                ('currency', models.CharField(default='CHF', max_length=3, validators=[django.core.validators.RegexValidator('^[A-Z]{3}\\Z', 'Three letters of ISO 4217, such as EUR.')])),
            ],
            options={
                'verbose_name': 'bandwidth policy',
                'verbose_name_plural': 'bandwidth policy',
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='bandwidth_policy_is_one_row'), models.CheckConstraint(condition=models.Q(('default_bandwidth_kbit__gte', 0), ('default_bandwidth_kbit__lte', 100000000)), name='bandwidth_policy_default_in_bounds')],
            },
        ),
        migrations.CreateModel(
            name='BulkChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('about', models.CharField(choices=[('links', 'limits of Links'), ('defaults', 'defaults of attachment points')], db_default='links', default='links', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('created_by_email', models.CharField(blank=True, max_length=254)),
                ('what', models.CharField(help_text='Description of the change.', max_length=200)),
                ('chosen', models.CharField(help_text='Description of the selection.', max_length=200)),
                ('operation', models.JSONField(help_text='How the new numbers are derived from the old ones.')),
                ('lines', models.JSONField(default=list)),
                ('applied_at', models.DateTimeField(blank=True, help_text='Empty: a preview that was not applied.', null=True)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('result', models.JSONField(blank=True, default=dict, help_text='Counts of what changed.')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='bulk_changes', to=settings.AUTH_USER_MODEL)),
                ('puts_back', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='put_back_by', to='scionlab.bulkchange')),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='Certificate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('as_id', models.BigIntegerField(help_text='A number, because the AS may be deleted.', verbose_name='AS number')),
                ('kind', models.CharField(choices=[('sensitive-voting', 'sensitive voter'), ('regular-voting', 'regular voter'), ('cp-root', 'root'), ('cp-ca', 'CA')], max_length=16)),
                ('content', models.BinaryField(help_text='DER.')),
                ('private_encrypted', models.TextField(blank=True)),
                ('not_before', models.DateTimeField()),
                ('not_after', models.DateTimeField(verbose_name='valid until')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('replaced_at', models.DateTimeField(help_text='Empty: this is the one in use.', null=True)),
                ('issuer', models.ForeignKey(help_text='Only of a CA.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='issued', to='scionlab.certificate')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='ASKeys',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('master0_encrypted', models.TextField()),
                ('master1_encrypted', models.TextField()),
                ('content', models.BinaryField(default=b'', help_text='The AS certificate in DER.')),
                ('private_encrypted', models.TextField(blank=True)),
                ('not_after', models.DateTimeField(null=True, verbose_name='valid until')),
                ('renew_at', models.DateTimeField(db_index=True, null=True)),
                ('AS', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='scionlab.as')),
                ('ca', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='chains', to='scionlab.certificate')),
            ],
            options={
                'verbose_name': 'keys of an AS',
                'verbose_name_plural': 'keys of ASes',
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='Host',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('label', models.CharField(blank=True, max_length=100)),
                ('uid', models.CharField(default=scionlab.models.host.new_uid, editable=False, max_length=32, unique=True, verbose_name='host id')),
                ('secret', models.CharField(default=scionlab.models.host.new_secret, max_length=64, verbose_name='host secret')),
                ('previous_secret', models.CharField(blank=True, default='', editable=False, max_length=64)),
                ('previous_secret_until', models.DateTimeField(blank=True, editable=False, null=True)),
                ('secret_limits_version', models.PositiveIntegerField(db_default=0, default=0, editable=False)),
                ('internal_ip', models.GenericIPAddressField(default='127.0.0.1', verbose_name='internal IP')),
                ('public_ipv4', models.GenericIPAddressField(blank=True, null=True, protocol='IPv4', verbose_name='public IPv4')),
                ('public_ipv6', models.GenericIPAddressField(blank=True, null=True, protocol='IPv6', verbose_name='public IPv6')),
                ('bind_ip', models.GenericIPAddressField(blank=True, help_text='Local address if the host is behind NAT.', null=True, verbose_name='bind IP')),
                ('limits_only', models.BooleanField(db_default=False, default=False, help_text='Another service manages the SCION files: the tarball contains only link_info.json.', verbose_name='limits only')),
                ('scion_packages', models.CharField(choices=[('scionlab', "SCIONLab's packages"), ('upstream', 'Upstream packages (scionproto)')], db_default='scionlab', default='scionlab', help_text='The installed packages: names of units and files differ between them.', max_length=8, verbose_name='SCION packages')),
                ('configuration_format', models.PositiveSmallIntegerField(choices=[(1, 'topology.json only'), (2, 'complete')], db_default=1, default=2, editable=False)),
                ('config_version', models.PositiveIntegerField(default=1, verbose_name='config version (H)')),
                ('limits_version', models.PositiveIntegerField(default=1, verbose_name='limits version (L)')),
                ('config_version_deployed', models.PositiveIntegerField(default=0, help_text='Reported by the client that installs SCION files on the host.', verbose_name='deployed version')),
                ('delivered_config_version', models.PositiveIntegerField(default=0, help_text='Newest configuration sent to the host, to any client.', verbose_name='delivered H')),
                ('delivered_limits_version', models.PositiveIntegerField(default=0, verbose_name='delivered L')),
                ('delivered_at', models.DateTimeField(blank=True, null=True)),
                ('last_seen_at', models.DateTimeField(blank=True, null=True, verbose_name='last seen')),
                ('ahead_generation', models.PositiveIntegerField(blank=True, editable=False, null=True)),
                ('ahead_config_version', models.PositiveIntegerField(blank=True, editable=False, null=True)),
                ('ahead_limits_version', models.PositiveIntegerField(blank=True, editable=False, null=True)),
                ('ahead_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('AS', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='hosts', to='scionlab.as', verbose_name='AS')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='EnrolmentToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token_sha256', models.CharField(editable=False, max_length=64, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name='made')),
                ('expires_at', models.DateTimeField(editable=False, verbose_name='valid until')),
                ('voided_at', models.DateTimeField(blank=True, help_text='Replaced by a newer token.', null=True, verbose_name='revoked at')),
                ('used_at', models.DateTimeField(blank=True, null=True, verbose_name='used')),
                ('used_from', models.GenericIPAddressField(blank=True, null=True, verbose_name='used from')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='enrolment_tokens', to='scionlab.host')),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='BorderRouter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveSmallIntegerField(default=1)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='border_routers', to='scionlab.host')),
            ],
            options={
                'ordering': ['host', 'number'],
            },
        ),
        migrations.CreateModel(
            name='AttachmentPoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('default_bandwidth_kbit', models.PositiveBigIntegerField(blank=True, help_text='Initial value and maximum of the Links here. Empty: the site default. 0 blocks all of them.', null=True, verbose_name='default of this attachment point [kbit/s]')),
                ('maximum_kbit', models.PositiveBigIntegerField(default=0, editable=False, verbose_name='applied maximum [kbit/s]')),
                ('total_kbit', models.PositiveBigIntegerField(blank=True, help_text='Maximum for all Links here together, in each direction. They share it in proportion to their limits; no Link gets more than its own limit. Empty: no total.', null=True, verbose_name='total of all links [kbit/s]')),
                ('observe_only', models.BooleanField(db_default=False, default=False, help_text='All Links here are measured but not limited.', verbose_name='observe only')),
                ('publishes_limits', models.BooleanField(db_default=False, default=False, help_text="The limits of the Links here are public, in SCION's path metadata.", verbose_name='publish limits')),
                ('path_metadata', models.TextField(blank=True, db_default='', default='', help_text="JSON in the form of SCION's staticInfoConfig.json. Empty: none.", verbose_name='path metadata of the operator')),
                ('uplink_kbit', models.PositiveBigIntegerField(blank=True, help_text='Capacity of the uplink in each direction. Empty: not set.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)], verbose_name='uplink [kbit/s]')),
                ('cost_per_gb', models.DecimalField(blank=True, decimal_places=4, help_text='Cost of 1 GB (10^9 bytes) of egress at this attachment point. Empty: the default cost.', max_digits=10, null=True, validators=[django.core.validators.MinValueValidator(Decimal('0'))], verbose_name='cost per GB')),
                ('AS', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='attachment_point', to='scionlab.as', verbose_name='AS')),
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='attachment_point', to='scionlab.host')),
            ],
            options={
                'ordering': ['AS'],
            },
        ),
        migrations.CreateModel(
            name='HostReceipt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('agent_version', models.CharField(blank=True, max_length=32)),
                ('generation', models.PositiveIntegerField(blank=True, null=True)),
                ('config_version', models.PositiveIntegerField(blank=True, null=True)),
                ('limits_version', models.PositiveIntegerField(blank=True, null=True)),
                ('limits_digest', models.CharField(blank=True, db_default='', help_text='SHA-256 of the link_info.json in force; empty from agents too old to report it.', max_length=64)),
                ('links_digest', models.CharField(blank=True, db_default='', editable=False, help_text='Digest of the Links in this receipt (enforcement.receipt_changes). Empty: to be read again.', max_length=64)),
                ('content', models.CharField(choices=[('proven', 'a document of this service, by its digest'), ('counted', 'identified by its versions: the agent is too old to prove content'), ('foreign', 'a document that this service did not issue')], db_default='counted', default='counted', max_length=16)),
                ('run', models.CharField(blank=True, db_default='', help_text='Identifies one run of the agent.', max_length=32)),
                ('number', models.PositiveBigIntegerField(blank=True, help_text='Sequence number of this receipt within the run.', null=True)),
                ('clock_skew_ms', models.IntegerField(blank=True, help_text='Clock of the agent minus clock of this service, as measured by the agent.', null=True)),
                ('observed_at', models.DateTimeField(help_text='By the clock of the agent.')),
                ('received_at', models.DateTimeField(help_text='By the clock of this service.')),
                ('problems', models.JSONField(blank=True, default=list)),
                ('devices', models.JSONField(blank=True, help_text='Names of the devices on which packets are classified. Empty: not known.', null=True)),
                ('says_total', models.BooleanField(db_default=False, default=False, help_text='Not set: the agent is too old to enforce a total.')),
                ('total_wanted_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('total_to_user_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('total_from_user_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('says_tests', models.BooleanField(db_default=False, default=False, help_text='Not set: the agent is too old to carry out tests of Links.')),
                ('sending_tests', models.CharField(blank=True, choices=[('on', 'on'), ('off', 'off'), ('stopped', 'stopped')], db_default='', help_text='Whether the operator lets tests send. Empty: the agent is too old for tests that send.', max_length=8)),
                ('says_tcp_tests', models.BooleanField(db_default=False, default=False, help_text='Not set: the agent is too old for tests over TCP.')),
                ('observe_only', models.BooleanField(blank=True, help_text='Nothing is limited. Empty: the agent is too old to observe only.', null=True)),
                ('gaps_since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False, help_text='From here on every gap between receipts is recorded.')),
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='receipt', to='scionlab.host')),
            ],
        ),
        migrations.CreateModel(
            name='InstalledFiles',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('owner', models.CharField(choices=[('ours', 'this service, or none'), ('other', 'another coordination service')], max_length=8)),
                ('seen_at', models.DateTimeField()),
                ('version', models.CharField(blank=True, help_text='Empty: not reported.', max_length=40)),
                ('url', models.CharField(blank=True, help_text='Empty: not reported.', max_length=200)),
                ('files', models.JSONField(blank=True, help_text='Paths in its manifest. Empty: not reported.', null=True)),
                ('units', models.JSONField(blank=True, help_text='systemd units in its manifest. Empty: not reported.', null=True)),
                ('taken_over_at', models.DateTimeField(blank=True, null=True)),
                ('fetched_at', models.DateTimeField(blank=True, help_text='When the stock client first got a full configuration from here.', null=True)),
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='installed_files', to='scionlab.host')),
                ('taken_over_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='Interface',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('interface_id', models.PositiveSmallIntegerField()),
                ('public_ip', models.GenericIPAddressField(verbose_name='public IP')),
                ('public_port', models.PositiveIntegerField(verbose_name='public port (UDP)')),
                ('bind_ip', models.GenericIPAddressField(blank=True, null=True, verbose_name='bind IP')),
                ('bind_port', models.PositiveIntegerField(blank=True, null=True)),
                ('AS', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='interfaces', to='scionlab.as', verbose_name='AS')),
                ('border_router', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='interfaces', to='scionlab.borderrouter')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='interfaces', to='scionlab.host')),
            ],
            options={
                'ordering': ['AS', 'interface_id'],
            },
        ),
        migrations.CreateModel(
            name='ISD',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('isd_id', models.PositiveIntegerField(unique=True, verbose_name='ISD')),
                ('label', models.CharField(blank=True, max_length=100)),
            ],
            options={
                'verbose_name': 'ISD',
                'ordering': ['isd_id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('isd_id__gte', 1), ('isd_id__lte', 65535)), name='isd_id_in_bounds')],
            },
        ),
        migrations.AddField(
            model_name='certificate',
            name='isd',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='certificates', to='scionlab.isd'),
        ),
        migrations.AddField(
            model_name='as',
            name='isd',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ases', to='scionlab.isd', verbose_name='ISD'),
        ),
        migrations.CreateModel(
            name='IssuedLimits',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('generation', models.PositiveIntegerField()),
                ('config_version', models.PositiveIntegerField()),
                ('limits_version', models.PositiveIntegerField()),
                ('digest', models.CharField(help_text='SHA-256 of the bytes, in hexadecimal.', max_length=64)),
                ('issued_at', models.DateTimeField(auto_now_add=True)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='issued_limits', to='scionlab.host')),
            ],
        ),
        migrations.CreateModel(
            name='JointTest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('singles-then-together', 'each link alone, then all together'), ('congest-one', 'all together, one congested at times'), ('congest-both', 'all together, all congested at times')], max_length=32)),
                ('parameters', models.JSONField()),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-begins_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='Link',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('type', models.CharField(choices=[('provider', 'provider'), ('core', 'core'), ('peer', 'peer')], default='provider', max_length=16)),
                ('active', models.BooleanField(default=True)),
                ('bandwidth_kbit', models.PositiveBigIntegerField(help_text='0 blocks this direction.', verbose_name='bandwidth requested to the user AS [kbit/s]')),
                ('from_user_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: the same as to the user AS.', null=True, verbose_name='bandwidth requested from the user AS [kbit/s]')),
                ('observe_only', models.BooleanField(db_default=False, default=False, help_text='The Link is measured but not limited.', verbose_name='observe only')),
                ('exception_kbit', models.PositiveBigIntegerField(blank=True, editable=False, null=True, verbose_name='maximum by an exception [kbit/s]')),
                ('mtu', models.PositiveIntegerField(default=1472, verbose_name='MTU [byte]')),
                ('wanted_config_version', models.PositiveIntegerField(default=0, editable=False)),
                ('wanted_limits_version', models.PositiveIntegerField(default=0, editable=False)),
                ('changed_at', models.DateTimeField(auto_now_add=True, verbose_name='last changed')),
                ('is_told', models.BooleanField(db_default=False, default=False, editable=False)),
                ('interface_a', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='link_as_a', to='scionlab.interface')),
                ('interface_b', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='link_as_b', to='scionlab.interface')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='BandwidthChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('kind', models.CharField(choices=[('link', 'Link'), ('timed_limit', 'temporary limit of a Link'), ('ap_default', 'default of an attachment point'), ('site_default', 'site default'), ('ap_total', 'total of an attachment point'), ('ap_observe', 'observe only, of an attachment point'), ('ap_metadata', 'path metadata of an attachment point'), ('link_observe', 'observe only, of a Link'), ('exception', 'exception from the maximum'), ('host_limits_only', 'limits only, of a host'), ('host_take_over', 'takeover of a host'), ('host_complete', 'complete configuration of a host, or of all'), ('certificate', 'certificate or keys of an AS'), ('trc', 'TRC of an ISD'), ('webhook', 'webhook')], max_length=16)),
                ('subject', models.CharField(max_length=200)),
                ('actor_email', models.CharField(blank=True, help_text='Empty: the service itself.', max_length=254)),
                ('address', models.GenericIPAddressField(blank=True, help_text='Address of the client.', null=True)),
                ('old_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: none.', null=True)),
                ('new_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: none.', null=True)),
                ('old_from_user_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: the same as to the user AS.', null=True)),
                ('new_from_user_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: the same as to the user AS.', null=True)),
                ('detail', models.CharField(blank=True, help_text='Description of a change without numbers.', max_length=200)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('actor', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('attachment_point', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='changes', to='scionlab.attachmentpoint')),
                ('link', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='changes', to='scionlab.link')),
            ],
            options={
                'ordering': ['-at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='LinkEnforcement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kbit', models.PositiveBigIntegerField(verbose_name='wanted, the lower of both directions [kbit/s]')),
                ('to_user_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: the same in both directions.', null=True)),
                ('from_user_kbit', models.PositiveBigIntegerField(blank=True, help_text='Empty: the same in both directions.', null=True)),
                ('observed_at', models.DateTimeField(blank=True, help_text='Time of reading the kernel, by the clock of the AP.', null=True)),
                ('state', models.CharField(choices=[('enforced', 'enforced'), ('observed', 'observed: nothing is limited'), ('error', 'error')], max_length=16)),
                ('problem', models.TextField(blank=True)),
                ('since', models.DateTimeField(help_text='Start of the current state: every receipt since reported the same.')),
                ('received_at', models.DateTimeField()),
                ('generation', models.PositiveIntegerField(blank=True, null=True)),
                ('config_version', models.PositiveIntegerField(blank=True, null=True)),
                ('limits_version', models.PositiveIntegerField(blank=True, null=True)),
                ('to_user_dev', models.CharField(blank=True, db_default='', help_text='Device of the queue, as the agent names it.', max_length=32)),
                ('to_user_rate_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_packets', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_drops', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_refused', models.PositiveBigIntegerField(blank=True, null=True)),
                ('to_user_dropped', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_dev', models.CharField(blank=True, db_default='', help_text='Device of the queue, as the agent names it.', max_length=32)),
                ('from_user_rate_kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_packets', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_drops', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_refused', models.PositiveBigIntegerField(blank=True, null=True)),
                ('from_user_dropped', models.PositiveBigIntegerField(blank=True, null=True)),
                ('link', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='enforcement', to='scionlab.link')),
            ],
        ),
        migrations.CreateModel(
            name='LinkTest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tool', models.CharField(choices=scionlab.models.link_test.tool_choices, db_column='kind', max_length=16)),
                ('lane', models.PositiveSmallIntegerField(blank=True, help_text='Which of its test ports it uses.', null=True)),
                ('parameters', models.JSONField(blank=True, null=True)),
                ('phases', models.JSONField(blank=True, null=True)),
                ('kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('max_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('offered_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('test_id', models.CharField(default=scionlab.models.link_test.new_test_id, editable=False, max_length=32, unique=True)),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('retired_at', models.DateTimeField(blank=True, help_text='Time of removal from the configuration after the end.', null=True)),
                ('armed_at', models.DateTimeField(blank=True, help_text='Time of the first receipt that confirms it: the attachment point has it.', null=True)),
                ('judged_at', models.DateTimeField(blank=True, null=True)),
                ('is_over_limit', models.BooleanField(db_default=False, default=False)),
                ('ap', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='scionlab.attachmentpoint')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('joint', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='scionlab.jointtest')),
                ('link', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tests', to='scionlab.link')),
            ],
            options={
                'ordering': ['begins_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='Mail',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='Identifies the event, so that it is sent once.', max_length=200, unique=True)),
                ('recipient', models.EmailField(max_length=254)),
                ('subject', models.CharField(max_length=200)),
                ('body', models.TextField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('not_before', models.DateTimeField(default=django.utils.timezone.now, verbose_name='not tried before')),
                ('last_error', models.CharField(blank=True, max_length=200)),
                ('kind', models.CharField(blank=True, choices=[('enforced', 'An attachment point has enforced a change of one of my limits'), ('clamped', 'A maximum was lowered below my limit, or raised again'), ('changed', 'Someone else changed one of my limits, or cancelled a temporary limit'), ('failed', 'One of my limits has failed for more than 10 minutes'), ('away', 'An attachment point of mine has sent no report for more than an hour, or reports again'), ('tested', 'A test that I scheduled has ended, or was not carried out')], max_length=16)),
                ('request', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to='scionlab.accountrequest')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='MaximumException',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('group', models.CharField(blank=True, db_default='', default='', max_length=60)),
                ('maximum_kbit', models.PositiveBigIntegerField(verbose_name='maximum [kbit/s]')),
                ('ends_at', models.DateTimeField()),
                ('reason', models.CharField(max_length=200)),
                ('state', models.CharField(choices=[('asked', 'requested'), ('approved', 'approved'), ('declined', 'declined')], max_length=8)),
                ('asked_at', models.DateTimeField(auto_now_add=True)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('answer', models.CharField(blank=True, max_length=200)),
                ('asked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('attachment_points', models.ManyToManyField(blank=True, related_name='group_exceptions', to='scionlab.attachmentpoint')),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('link', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to='scionlab.link')),
                ('members', models.ManyToManyField(blank=True, related_name='group_exceptions', to=settings.AUTH_USER_MODEL)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-pk'],
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
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='scionlab.host')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
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
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='report_gaps', to='scionlab.host')),
            ],
        ),
        migrations.CreateModel(
            name='SavedFilter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('view', models.CharField(max_length=32)),
                ('name', models.CharField(max_length=40)),
                ('query', models.CharField(max_length=1000)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='saved_filters', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='ServiceState',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('generation', models.PositiveIntegerField(default=1, help_text='Raised when every host must fetch its configuration again (manage.py raise_generation).', verbose_name='generation (G)')),
                ('completing_since', models.DateTimeField(blank=True, help_text='Start of the automatic completion of all configurations. Empty: off.', null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='service_state_is_one_row')],
            },
        ),
        migrations.CreateModel(
            name='TestPolicy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('applies_to', models.CharField(choices=[('everybody', 'everybody'), ('group', 'a group'), ('staff', 'administrators')], max_length=16)),
                ('tool', models.CharField(choices=scionlab.models.link_test.tool_choices, db_column='kind', default='watch', max_length=16)),
                ('max_seconds', models.PositiveIntegerField(validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(600)], verbose_name='longest test [s]')),
                ('runs_per_day', models.PositiveIntegerField(help_text='Started or scheduled within 24 hours. 0: none at all.', verbose_name='tests per day')),
                ('max_pending', models.PositiveIntegerField(help_text='Scheduled or running at the same time.', verbose_name='pending tests')),
                ('horizon_hours', models.PositiveIntegerField(help_text='How far ahead a test may be scheduled.', validators=[django.core.validators.MaxValueValidator(720)], verbose_name='horizon [h]')),
                ('limit_percent', models.PositiveSmallIntegerField(db_default=400, default=400, help_text='The highest rate that a test offers. A watch sends nothing.', validators=[django.core.validators.MinValueValidator(100), django.core.validators.MaxValueValidator(400)], verbose_name='share of the limit [%]')),
                ('megabytes_per_day', models.PositiveIntegerField(db_default=5000, default=5000, help_text='Sent by both ends, of tests started or scheduled within 24 hours. A watch sends nothing.', verbose_name='data per day [MB]')),
                ('max_load_percent', models.PositiveSmallIntegerField(blank=True, help_text='A test that sends begins only while the links there carry at most this share of the uplink, or of the total of all links where that is lower. Where neither is set, or the load is unknown, the rule does not apply. Empty: any load.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)], verbose_name='load of the attachment point [%]')),
                ('hours_begin', models.PositiveSmallIntegerField(blank=True, help_text='0 to 23. Tests run from this hour on. Empty: at any time.', null=True, validators=[django.core.validators.MaxValueValidator(23)], verbose_name='hours from')),
                ('hours_end', models.PositiveSmallIntegerField(blank=True, help_text='1 to 24. Tests end by this hour; of the next day where it is not later than the first.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(24)], verbose_name='hours until')),
                ('hours_zone', models.CharField(db_default='UTC', default='UTC', max_length=64, validators=[scionlab.models.user.validate_time_zone], verbose_name='time zone of the hours')),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='auth.group')),
            ],
            options={
                'verbose_name': 'policy of tests',
                'verbose_name_plural': 'policies of tests',
                'ordering': ['applies_to', 'group__name', 'tool'],
            },
        ),
        migrations.CreateModel(
            name='TestResult',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('side', models.CharField(choices=[('ap', 'attachment point'), ('user', 'user')], db_default='ap', default='ap', max_length=8)),
                ('agent_version', models.CharField(blank=True, max_length=32)),
                ('samples', models.JSONField(default=list)),
                ('report', models.JSONField(blank=True, null=True)),
                ('received_at', models.DateTimeField(help_text='Time of the newest upload.')),
                ('is_final', models.BooleanField(default=False)),
                ('test', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='scionlab.linktest')),
            ],
        ),
        migrations.CreateModel(
            name='TimedLimit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('constant', 'constant'), ('stair', 'stair'), ('square', 'square wave'), ('outage', 'outage')], max_length=16)),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('steps', models.JSONField()),
                ('step_count', models.PositiveSmallIntegerField()),
                ('highest_kbit', models.PositiveBigIntegerField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('retired_at', models.DateTimeField(blank=True, help_text='Time of removal from the configuration after the end.', null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('joint', models.ForeignKey(blank=True, help_text='Joint test for which it congests the Link.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='timed_limits', to='scionlab.jointtest')),
                ('link', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='timed_limits', to='scionlab.link')),
            ],
            options={
                'ordering': ['begins_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='TRC',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('base', models.PositiveIntegerField()),
                ('serial', models.PositiveIntegerField()),
                ('content', models.BinaryField(help_text='The .trc file: CMS in DER.')),
                ('not_before', models.DateTimeField()),
                ('not_after', models.DateTimeField(verbose_name='valid until')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('isd', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='trcs', to='scionlab.isd')),
            ],
            options={
                'verbose_name': 'TRC',
                'ordering': ['isd__isd_id', 'base', 'serial'],
            },
        ),
        migrations.CreateModel(
            name='UsageBatch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=32)),
                ('received_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(help_text='Time of the newest sample.')),
                ('rolled_up', models.BooleanField(default=False)),
                ('host', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage_batches', to='scionlab.host')),
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
                ('to_user_slots', models.PositiveIntegerField(help_text='Number of five-minute values of the percentile.')),
                ('from_user_slots', models.PositiveIntegerField()),
                ('computed_at', models.DateTimeField()),
                ('window', models.BinaryField(help_text='Window for later values of the month (`usage.rank`); empty: to be recomputed.', null=True)),
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
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('attachment_point', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage_series', to='scionlab.attachmentpoint')),
                ('host', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage_series', to='scionlab.host')),
                ('link', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage_series', to='scionlab.link')),
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
                ('batch', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='scionlab.usagebatch')),
                ('series', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='scionlab.usageseries')),
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
                ('to_user_bytes', models.PositiveBigIntegerField(default=0)),
                ('to_user_packets', models.PositiveBigIntegerField(default=0)),
                ('to_user_drops', models.PositiveBigIntegerField(default=0)),
                ('to_user_rated_bytes', models.PositiveBigIntegerField(default=0)),
                ('to_user_backlog_bytes', models.PositiveBigIntegerField(default=0)),
                ('to_user_limit_kbit', models.PositiveIntegerField(null=True)),
                ('to_user_covered_ms', models.PositiveIntegerField(default=0)),
                ('to_user_at_limit_ms', models.PositiveIntegerField(default=0)),
                ('from_user_bytes', models.PositiveBigIntegerField(default=0)),
                ('from_user_packets', models.PositiveBigIntegerField(default=0)),
                ('from_user_drops', models.PositiveBigIntegerField(default=0)),
                ('from_user_rated_bytes', models.PositiveBigIntegerField(default=0)),
                ('from_user_backlog_bytes', models.PositiveBigIntegerField(default=0)),
                ('from_user_limit_kbit', models.PositiveIntegerField(null=True)),
                ('from_user_covered_ms', models.PositiveIntegerField(default=0)),
                ('from_user_at_limit_ms', models.PositiveIntegerField(default=0)),
                ('series', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='days', to='scionlab.usageseries')),
            ],
        ),
        migrations.CreateModel(
            name='UsageCounter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('direction', models.CharField(choices=[('to_user', 'to the user AS'), ('from_user', 'from the user AS')], max_length=9)),
                ('segment', models.CharField(max_length=64)),
                ('at', models.DateTimeField()),
                ('bytes', models.PositiveBigIntegerField()),
                ('packets', models.PositiveBigIntegerField()),
                ('drops', models.PositiveBigIntegerField()),
                ('kbit', models.PositiveBigIntegerField(help_text='Rate over the newest interval; empty: none.', null=True)),
                ('limit_kbit', models.PositiveBigIntegerField()),
                ('backlog_bytes', models.PositiveBigIntegerField()),
                ('series', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='counters', to='scionlab.usageseries')),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name='UsageSlot',
                    fields=[
                        ('pk', models.CompositePrimaryKey('series_id', 'begins_at', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('begins_at', scionlab.models.slot_field.SlotField()),
                        ('to_user_kbit', models.PositiveIntegerField(null=True)),
                        ('from_user_kbit', models.PositiveIntegerField(null=True)),
                        ('packed', models.BinaryField()),
                        ('series', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='scionlab.usageseries')),
                    ],
                    options={
                        'db_table': 'scionlab_usage5min',
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
            name='VPN',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subnet', models.CharField(help_text='For example 10.10.1.0/24.', max_length=43)),
                ('server_ip', models.GenericIPAddressField(verbose_name="server's IP in the VPN")),
                ('server_port', models.PositiveIntegerField(default=1194)),
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='vpn', to='scionlab.host')),
            ],
            options={
                'verbose_name': 'VPN',
            },
        ),
        migrations.AddField(
            model_name='borderrouter',
            name='vpn',
            field=models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='border_routers', to='scionlab.vpn', verbose_name='VPN'),
        ),
        migrations.CreateModel(
            name='VPNClient',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ip', models.GenericIPAddressField(verbose_name='IP in the VPN')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='vpn_clients', to='scionlab.host')),
                ('vpn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='clients', to='scionlab.vpn')),
            ],
            options={
                'verbose_name': 'VPN client',
            },
        ),
        migrations.AddField(
            model_name='interface',
            name='vpn_client',
            field=models.ForeignKey(blank=True, help_text="Set for the user AS's end of a Link over the VPN; public_ip is then the address of the client in the VPN.", null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='interfaces', to='scionlab.vpnclient'),
        ),
        migrations.CreateModel(
            name='VPNClientKeys',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('common_name', models.CharField(editable=False, max_length=64, unique=True)),
                ('certificate', models.TextField(editable=False)),
                ('key_encrypted', models.TextField(editable=False)),
                ('client', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='scionlab.vpnclient')),
            ],
            options={
                'verbose_name': 'keys of a VPN client',
            },
        ),
        migrations.CreateModel(
            name='VPNServerKeys',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ca_certificate', models.TextField(editable=False)),
                ('ca_key_encrypted', models.TextField(editable=False)),
                ('certificate', models.TextField(editable=False)),
                ('key_encrypted', models.TextField(editable=False)),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name='made')),
                ('vpn', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='scionlab.vpn')),
            ],
            options={
                'verbose_name': 'keys of a VPN server',
            },
        ),
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=500, verbose_name='URL')),
                ('secret_encrypted', models.TextField(editable=False)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='webhook_is_one_row')],
            },
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='Identifies the event, so that it is sent once.', max_length=200, unique=True)),
                ('event', models.CharField(max_length=32)),
                ('body', models.TextField(help_text='JSON as it is sent.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('not_before', models.DateTimeField(blank=True, default=django.utils.timezone.now, help_text='Empty: given up.', null=True)),
                ('last_error', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'verbose_name_plural': 'webhook deliveries',
                'ordering': ['-pk'],
                'indexes': [models.Index(condition=models.Q(('sent_at', None)), fields=['not_before', 'id'], name='webhook_delivery_unsent'), models.Index(fields=['created_at'], name='webhook_delivery_created')],
            },
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('email'), name='user_email_once_whatever_case'),
        ),
        migrations.AddIndex(
            model_name='accountrequest',
            index=models.Index(fields=['created_at'], name='account_request_created_at'),
        ),
        migrations.AddIndex(
            model_name='accountrequest',
            index=models.Index(condition=models.Q(('answered_at', None)), fields=['id'], name='account_request_unanswered'),
        ),
        migrations.AddIndex(
            model_name='accountrequest',
            index=models.Index(fields=['expires_at'], name='account_request_expires_at'),
        ),
        migrations.AddConstraint(
            model_name='apirequest',
            constraint=models.UniqueConstraint(fields=('user', 'key'), name='idempotency_key_once_per_person'),
        ),
        migrations.AddConstraint(
            model_name='apitoken',
            constraint=models.UniqueConstraint(fields=('user', 'name'), name='api_token_name_once_per_user'),
        ),
        migrations.AddField(
            model_name='useras',
            name='changed_by',
            field=models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='useras',
            name='owner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='user_ases', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='maximumexception',
            name='user_as',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to='scionlab.useras'),
        ),
        migrations.AddField(
            model_name='jointtest',
            name='user_as',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='joint_tests', to='scionlab.useras'),
        ),
        migrations.AddConstraint(
            model_name='attachmentpoint',
            constraint=models.CheckConstraint(condition=models.Q(('default_bandwidth_kbit__isnull', True), models.Q(('default_bandwidth_kbit__gte', 0), ('default_bandwidth_kbit__lte', 100000000)), _connector='OR'), name='attachment_point_default_in_bounds'),
        ),
        migrations.AddConstraint(
            model_name='attachmentpoint',
            constraint=models.CheckConstraint(condition=models.Q(('total_kbit__isnull', True), models.Q(('total_kbit__gte', 1), ('total_kbit__lte', 100000000)), _connector='OR'), name='attachment_point_total_in_bounds'),
        ),
        migrations.AddConstraint(
            model_name='certificate',
            constraint=models.UniqueConstraint(condition=models.Q(('replaced_at', None)), fields=('isd', 'as_id', 'kind'), name='one_certificate_of_a_kind_in_use'),
        ),
        migrations.AddConstraint(
            model_name='as',
            constraint=models.CheckConstraint(condition=models.Q(('as_id__gte', 1), ('as_id__lte', 281474976710655)), name='as_id_in_bounds'),
        ),
        migrations.AddConstraint(
            model_name='issuedlimits',
            constraint=models.UniqueConstraint(fields=('host', 'generation', 'config_version', 'limits_version', 'digest'), name='issued_limits_once'),
        ),
        migrations.AddConstraint(
            model_name='link',
            constraint=models.CheckConstraint(condition=models.Q(('bandwidth_kbit__gte', 0), ('bandwidth_kbit__lte', 100000000)), name='link_bandwidth_in_bounds'),
        ),
        migrations.AddConstraint(
            model_name='link',
            constraint=models.CheckConstraint(condition=models.Q(('from_user_kbit', None), models.Q(('from_user_kbit__gte', 0), ('from_user_kbit__lte', 100000000)), _connector='OR'), name='link_from_user_in_bounds'),
        ),
        migrations.AddConstraint(
            model_name='link',
            constraint=models.CheckConstraint(condition=models.Q(('interface_a', models.F('interface_b')), _negated=True), name='link_has_two_different_ends'),
        ),
        migrations.AddIndex(
            model_name='bandwidthchange',
            index=models.Index(fields=['-at', '-id'], name='change_newest'),
        ),
        migrations.AddIndex(
            model_name='bandwidthchange',
            index=models.Index(condition=models.Q(('link__isnull', False)), fields=['link', '-at', '-id'], name='change_newest_of_link'),
        ),
        migrations.AddIndex(
            model_name='bandwidthchange',
            index=models.Index(condition=models.Q(('kind__in', ['ap_default', 'site_default'])), fields=['kind', 'attachment_point', '-at'], name='change_newest_of_default'),
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('begins_at'))), name='link_test_has_length'),
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lane', None), ('tool', 'watch')), models.Q(models.Q(('tool', 'watch'), _negated=True), ('ap__isnull', False), ('lane__isnull', False), ('lane__lt', 4)), _connector='OR'), name='link_test_that_sends_has_a_lane'),
        ),
        migrations.AddIndex(
            model_name='mail',
            index=models.Index(condition=models.Q(('sent_at', None)), fields=['not_before', 'id'], name='mail_unsent'),
        ),
        migrations.AddIndex(
            model_name='mail',
            index=models.Index(condition=models.Q(('sent_at__isnull', False)), fields=['sent_at'], name='mail_sent'),
        ),
        migrations.AddConstraint(
            model_name='notice',
            constraint=models.UniqueConstraint(fields=('user', 'host', 'kind'), name='notice_once_while_it_lasts'),
        ),
        migrations.AddConstraint(
            model_name='savedfilter',
            constraint=models.UniqueConstraint(fields=('user', 'view', 'name'), name='saved_filter_name_once'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('applies_to', 'group'), ('group__isnull', False)), models.Q(models.Q(('applies_to', 'group'), _negated=True), ('group__isnull', True)), _connector='OR'), name='test_policy_names_its_group'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('hours_begin', None), ('hours_end', None)), models.Q(('hours_begin__isnull', False), ('hours_begin__lt', 24), ('hours_end__isnull', False), ('hours_end__lte', 24)), _connector='OR'), name='test_policy_has_both_hours'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.UniqueConstraint(condition=models.Q(('group', None)), fields=('applies_to', 'tool'), name='test_policy_once'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.UniqueConstraint(fields=('group', 'tool'), name='test_policy_once_per_group'),
        ),
        migrations.AddConstraint(
            model_name='testresult',
            constraint=models.UniqueConstraint(fields=('test', 'side'), name='test_result_once_per_side'),
        ),
        migrations.AddIndex(
            model_name='timedlimit',
            index=models.Index(condition=models.Q(('cancelled_at', None), ('retired_at', None)), fields=['link', 'begins_at'], name='timed_limit_in_force'),
        ),
        migrations.AddConstraint(
            model_name='timedlimit',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('begins_at'))), name='timed_limit_has_length'),
        ),
        migrations.AddConstraint(
            model_name='trc',
            constraint=models.UniqueConstraint(fields=('isd', 'base', 'serial'), name='trc_is_made_once'),
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
            model_name='borderrouter',
            constraint=models.UniqueConstraint(fields=('host', 'number'), name='border_router_number_once_per_host'),
        ),
        migrations.AddConstraint(
            model_name='borderrouter',
            constraint=models.UniqueConstraint(fields=('host', 'vpn'), name='border_router_once_per_host_and_vpn'),
        ),
        migrations.AddConstraint(
            model_name='vpnclient',
            constraint=models.UniqueConstraint(fields=('vpn', 'ip'), name='vpn_client_ip_once_per_vpn'),
        ),
        migrations.AddConstraint(
            model_name='vpnclient',
            constraint=models.UniqueConstraint(fields=('vpn', 'host'), name='vpn_client_once_per_host'),
        ),
        migrations.AddConstraint(
            model_name='interface',
            constraint=models.UniqueConstraint(fields=('AS', 'interface_id'), name='interface_id_once_per_as'),
        ),
        migrations.AddConstraint(
            model_name='interface',
            constraint=models.UniqueConstraint(fields=('host', 'public_ip', 'public_port'), name='underlay_port_once_per_host_and_ip'),
        ),
        migrations.AddConstraint(
            model_name='interface',
            constraint=models.CheckConstraint(condition=models.Q(('interface_id__gte', 1), ('interface_id__lte', 4094)), name='interface_id_in_bounds'),
        ),
        migrations.AddConstraint(
            model_name='interface',
            constraint=models.CheckConstraint(condition=models.Q(('public_port__gte', 1024), ('public_port__lte', 65535)), name='public_port_in_bounds'),
        ),
        migrations.AddIndex(
            model_name='maximumexception',
            index=models.Index(fields=['ends_at'], name='maximum_exception_ends'),
        ),
        migrations.AddConstraint(
            model_name='maximumexception',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('group', ''), ('link', None), ('user__isnull', False), ('user_as', None)), models.Q(('group', ''), ('link', None), ('user', None), ('user_as__isnull', False)), models.Q(('group', ''), ('link__isnull', False), ('user', None), ('user_as', None)), models.Q(('link', None), ('user', None), ('user_as', None), models.Q(('group', ''), _negated=True)), _connector='OR'), name='maximum_exception_is_about_one'),
        ),
        migrations.AddConstraint(
            model_name='maximumexception',
            constraint=models.CheckConstraint(condition=models.Q(('maximum_kbit__gte', 1), ('maximum_kbit__lte', 100000000)), name='maximum_exception_in_bounds'),
        ),
        migrations.AddConstraint(
            model_name='jointtest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('begins_at'))), name='joint_test_has_length'),
        ),
        migrations.RunPython(keep_apart(LINKS), let_overlap(LINKS)),
        migrations.RunPython(keep_apart(LANES), let_overlap(LANES)),
        migrations.RunPython(leave_room, migrations.RunPython.noop),
    ]
