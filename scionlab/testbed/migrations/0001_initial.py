import datetime
import django.core.validators
import django.db.models.deletion
import scionlab.platform.clock
import scionlab.testbed.models.host
from decimal import Decimal
from django.conf import settings
from typing import Any

from django.db import migrations, models



# Rows that are written every minute while nothing else changes: with room in its page a row is replaced there, without a
# new entry in each index (docs/performance.md).
def leave_room(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == 'postgresql':
        for table in ('testbed_host',):
            schema_editor.execute(f'ALTER TABLE {table} SET (fillfactor = 50)')


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AS',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('as_id', models.BigIntegerField(help_text='48-bit number, shown as ffaa:1:b6.', unique=True, verbose_name='AS number')),
                ('label', models.CharField(blank=True, max_length=100)),
                ('is_core', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
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
            name='BandwidthPolicy',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('default_bandwidth_kbit', models.PositiveBigIntegerField(default=1000, help_text='Initial value and maximum of every Link, unless its attachment point has a default of its own. 0 blocks them all.', verbose_name='site default [kbit/s]')),
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
            name='Host',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('label', models.CharField(blank=True, max_length=100)),
                ('uid', models.CharField(default=scionlab.testbed.models.host.new_uid, editable=False, max_length=32, unique=True, verbose_name='host id')),
                ('secret', models.CharField(default=scionlab.testbed.models.host.new_secret, max_length=64, verbose_name='host secret')),
                ('previous_secret', models.CharField(blank=True, default='', editable=False, max_length=64)),
                ('previous_secret_until', models.DateTimeField(blank=True, editable=False, null=True)),
                ('secret_limits_version', models.PositiveIntegerField(db_default=0, default=0, editable=False)),
                ('internal_ip', models.GenericIPAddressField(default='127.0.0.1', verbose_name='internal IP')),
                ('public_ipv4', models.GenericIPAddressField(blank=True, null=True, protocol='IPv4', verbose_name='public IPv4')),
                ('public_ipv6', models.GenericIPAddressField(blank=True, null=True, protocol='IPv6', verbose_name='public IPv6')),
                ('bind_ip', models.GenericIPAddressField(blank=True, help_text='Local address if the host is behind NAT.', null=True, verbose_name='bind IP')),
                ('reports_from_elsewhere', models.BooleanField(db_default=False, default=False, help_text="The host is behind NAT or a proxy: its agent's requests come from an address that is not above.", verbose_name='reports from another address')),
                ('limits_only', models.BooleanField(db_default=False, default=scionlab.testbed.models.host.are_scion_files_of_another, help_text='Another service manages the SCION files: the tarball contains only link_info.json.', verbose_name='limits only')),
                ('scion_packages', models.CharField(choices=[('scionlab', "SCIONLab's packages"), ('upstream', 'Upstream packages (scionproto)')], db_default='scionlab', default='scionlab', help_text='The installed packages: names of units and files differ between them.', max_length=8, verbose_name='SCION packages')),
                ('config_version', models.PositiveIntegerField(default=1, verbose_name='config version (H)')),
                ('limits_version', models.PositiveIntegerField(default=1, verbose_name='limits version (L)')),
                ('content_stamp', models.BigIntegerField(db_default=0, default=0, editable=False)),
                ('config_version_deployed', models.PositiveIntegerField(default=0, help_text='Reported by the client that installs SCION files on the host.', verbose_name='deployed version')),
                ('delivered_config_version', models.PositiveIntegerField(default=0, help_text='Newest configuration sent to the host, to any client.', verbose_name='delivered H')),
                ('delivered_limits_version', models.PositiveIntegerField(default=0, verbose_name='delivered L')),
                ('delivered_at', models.DateTimeField(blank=True, null=True)),
                ('last_seen_at', models.DateTimeField(blank=True, null=True, verbose_name='last seen')),
                ('ahead_generation', models.PositiveIntegerField(blank=True, editable=False, null=True)),
                ('ahead_config_version', models.PositiveIntegerField(blank=True, editable=False, null=True)),
                ('ahead_limits_version', models.PositiveIntegerField(blank=True, editable=False, null=True)),
                ('ahead_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('restart_due_at', models.DateTimeField(blank=True, db_index=True, editable=False, null=True)),
                ('AS', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='hosts', to='testbed.as', verbose_name='AS')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='BorderRouter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveSmallIntegerField(default=1)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='border_routers', to='testbed.host')),
            ],
            options={
                'ordering': ['host', 'number'],
            },
        ),
        migrations.CreateModel(
            name='AttachmentPoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('default_bandwidth_kbit', models.PositiveBigIntegerField(blank=True, help_text='Initial value and maximum of the Links here. Empty: the site default. 0 blocks all of them.', null=True, verbose_name='default here [kbit/s]')),
                ('maximum_kbit', models.PositiveBigIntegerField(default=0, editable=False, verbose_name='applied maximum [kbit/s]')),
                ('total_kbit', models.PositiveBigIntegerField(blank=True, help_text='Maximum for all Links here together, in each direction. They share it in proportion to their limits; no Link gets more than its own limit. Empty: no total.', null=True, verbose_name='total of all links [kbit/s]')),
                ('observe_only', models.BooleanField(db_default=False, default=False, help_text='All Links here are measured but not limited.', verbose_name='observe only')),
                ('publishes_limits', models.BooleanField(db_default=False, default=False, help_text="The limits of the Links here are public, in SCION's path metadata.", verbose_name='publish limits')),
                ('path_metadata', models.TextField(blank=True, db_default='', default='', help_text="JSON in the form of SCION's staticInfoConfig.json. Empty: none.", verbose_name='path metadata of the operator')),
                ('uplink_kbit', models.PositiveBigIntegerField(blank=True, help_text='Capacity of the uplink in each direction. Empty: not set.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)], verbose_name='uplink [kbit/s]')),
                ('cost_per_gb', models.DecimalField(blank=True, decimal_places=4, help_text='Cost of 1 GB (10^9 bytes) of egress at this attachment point. Empty: the default cost.', max_digits=10, null=True, validators=[django.core.validators.MinValueValidator(Decimal('0'))], verbose_name='cost per GB')),
                ('AS', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='attachment_point', to='testbed.as', verbose_name='AS')),
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='attachment_point', to='testbed.host')),
            ],
            options={
                'ordering': ['AS'],
            },
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
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='installed_files', to='testbed.host')),
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
                ('AS', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='interfaces', to='testbed.as', verbose_name='AS')),
                ('border_router', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='interfaces', to='testbed.borderrouter')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='interfaces', to='testbed.host')),
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
            model_name='as',
            name='isd',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ases', to='testbed.isd', verbose_name='ISD'),
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
                ('changed_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False, verbose_name='last changed')),
                ('is_told', models.BooleanField(db_default=False, default=False, editable=False)),
                ('interface_a', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='link_as_a', to='testbed.interface')),
                ('interface_b', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='link_as_b', to='testbed.interface')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='BandwidthChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('kind', models.CharField(choices=[('link', 'Link'), ('timed_limit', 'temporary limit of a Link'), ('ap_default', 'default of an attachment point'), ('site_default', 'site default'), ('ap_total', 'total of an attachment point'), ('ap_observe', 'observe only, of an attachment point'), ('ap_metadata', 'path metadata of an attachment point'), ('exception', 'exception from the maximum'), ('as', 'infrastructure AS'), ('host_settings', 'addresses and settings of a host'), ('host_limits_only', 'limits only, of a host'), ('host_take_over', 'takeover of a host'), ('certificate', 'certificate or keys of an AS'), ('trc', 'TRC of an ISD'), ('link_active', 'activation of a Link'), ('link_observe', 'observe only, of a Link')], max_length=16)),
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
                ('attachment_point', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='changes', to='testbed.attachmentpoint')),
                ('link', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='changes', to='testbed.link')),
            ],
            options={
                'ordering': ['-at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='RestartBudget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('full_at', models.DateTimeField()),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='testbed.host')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='ServiceState',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('generation', models.PositiveIntegerField(default=1, help_text='Raised when every host must fetch its configuration again (manage.py raise_generation).', verbose_name='generation (G)')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='service_state_is_one_row')],
            },
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
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('retired_at', models.DateTimeField(blank=True, help_text='Time of removal from the configuration after the end.', null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('link', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='timed_limits', to='testbed.link')),
            ],
            options={
                'ordering': ['begins_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='VPN',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subnet', models.CharField(help_text='For example 10.10.1.0/24.', max_length=43)),
                ('server_ip', models.GenericIPAddressField(verbose_name="server's IP in the VPN")),
                ('server_port', models.PositiveIntegerField(default=1194)),
                ('host', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='vpn', to='testbed.host')),
            ],
            options={
                'verbose_name': 'VPN',
            },
        ),
        migrations.AddField(
            model_name='borderrouter',
            name='vpn',
            field=models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='border_routers', to='testbed.vpn', verbose_name='VPN'),
        ),
        migrations.CreateModel(
            name='VPNClient',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ip', models.GenericIPAddressField(verbose_name='IP in the VPN')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='vpn_clients', to='testbed.host')),
                ('vpn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='clients', to='testbed.vpn')),
            ],
            options={
                'verbose_name': 'VPN client',
            },
        ),
        migrations.AddField(
            model_name='interface',
            name='vpn_client',
            field=models.ForeignKey(blank=True, help_text="Set for the user AS's end of a Link over the VPN; public_ip is then the address of the client in the VPN.", null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='interfaces', to='testbed.vpnclient'),
        ),
        migrations.CreateModel(
            name='VPNClientKeys',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('common_name', models.CharField(editable=False, max_length=64, unique=True)),
                ('certificate', models.TextField(editable=False)),
                ('key_encrypted', models.TextField(editable=False)),
                ('client', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='testbed.vpnclient')),
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
                ('made_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False, verbose_name='made')),
                ('vpn', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='testbed.vpn')),
            ],
            options={
                'verbose_name': 'keys of a VPN server',
            },
        ),
        migrations.CreateModel(
            name='UserAS',
            fields=[
                ('as_ptr', models.OneToOneField(auto_created=True, on_delete=django.db.models.deletion.CASCADE, parent_link=True, primary_key=True, serialize=False, to='testbed.as')),
                ('installation_type', models.CharField(choices=[('vm', 'Install inside a virtual machine'), ('dedicated', 'Install on a dedicated system (for experts)')], default='vm', max_length=16)),
                ('changed_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('changed_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='user_ases', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'user AS',
                'verbose_name_plural': 'user ASes',
            },
            bases=('testbed.as',),
        ),
        migrations.CreateModel(
            name='HeldLinkEnd',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('link_id', models.BigIntegerField()),
                ('end', models.JSONField(null=True)),
                ('actor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='held_link_ends', to='testbed.host')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('host', 'link_id'), name='held_once_per_host_and_link')],
            },
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
            model_name='as',
            constraint=models.CheckConstraint(condition=models.Q(('as_id__gte', 1), ('as_id__lte', 281474976710655)), name='as_id_in_bounds'),
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
            model_name='restartbudget',
            constraint=models.UniqueConstraint(fields=('user', 'host'), name='restart_budget_once_per_user_and_host'),
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
            model_name='timedlimit',
            constraint=models.CheckConstraint(condition=models.Q(('begins_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('begins_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='timed_limit_begins_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='timedlimit',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('ends_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='timed_limit_ends_at_readable'),
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
        migrations.RunPython(leave_room, migrations.RunPython.noop),
    ]
