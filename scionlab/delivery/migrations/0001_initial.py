import django.db.models.deletion
import scionlab.platform.clock
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('testbed', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SigningKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_id', models.CharField(editable=False, max_length=32, unique=True, verbose_name='key id')),
                ('public_key', models.CharField(editable=False, help_text='The 32 raw bytes in base64.', max_length=44)),
                ('private_encrypted', models.TextField(editable=False)),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False, verbose_name='made')),
                ('not_after', models.DateTimeField(editable=False, verbose_name='valid until')),
                ('revoked_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='revoked')),
            ],
            options={
                'ordering': ['created_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='EnrolmentToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token_sha256', models.CharField(editable=False, max_length=64, unique=True)),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False, verbose_name='made')),
                ('expires_at', models.DateTimeField(editable=False, verbose_name='valid until')),
                ('voided_at', models.DateTimeField(blank=True, help_text='By a newer token, a revoked signing key or a raised generation.', null=True, verbose_name='revoked at')),
                ('used_at', models.DateTimeField(blank=True, null=True, verbose_name='used')),
                ('used_from', models.GenericIPAddressField(blank=True, null=True, verbose_name='used from')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='enrolment_tokens', to='testbed.host')),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='IssuedLimits',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('generation', models.PositiveIntegerField()),
                ('config_version', models.PositiveIntegerField()),
                ('limits_version', models.PositiveIntegerField()),
                ('digest', models.CharField(help_text='SHA-256 of the bytes, in hexadecimal.', max_length=64)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='issued_limits', to='testbed.host')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('host', 'generation', 'config_version', 'limits_version', 'digest'), name='issued_limits_once')],
            },
        ),
    ]
