import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    short_lock = "border routers are a few thousands: reading them takes milliseconds"

    dependencies = [
        ('scionlab', '0013_complete_configurations'),
    ]

    operations = [
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
        migrations.AddField(
            model_name='borderrouter',
            name='vpn',
            field=models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='border_routers', to='scionlab.vpn', verbose_name='VPN'),
        ),
        migrations.AddConstraint(
            model_name='borderrouter',
            constraint=models.UniqueConstraint(fields=('host', 'vpn'), name='border_router_once_per_host_and_vpn'),
        ),
    ]
