import django.db.models.deletion
import scionlab.platform.clock
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('testbed', '0001_initial'),
    ]

    operations = [
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
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now)),
                ('replaced_at', models.DateTimeField(help_text='Empty: this is the one in use.', null=True)),
                ('isd', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='certificates', to='testbed.isd')),
                ('issuer', models.ForeignKey(help_text='Only of a CA.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='issued', to='scion_config.certificate')),
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
                ('AS', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='testbed.as')),
                ('ca', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='chains', to='scion_config.certificate')),
            ],
            options={
                'verbose_name': 'keys of an AS',
                'verbose_name_plural': 'keys of ASes',
                'ordering': ['pk'],
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
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now)),
                ('isd', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='trcs', to='testbed.isd')),
            ],
            options={
                'verbose_name': 'TRC',
                'ordering': ['isd__isd_id', 'base', 'serial'],
            },
        ),
        migrations.AddConstraint(
            model_name='certificate',
            constraint=models.UniqueConstraint(condition=models.Q(('replaced_at', None)), fields=('isd', 'as_id', 'kind'), name='one_certificate_of_a_kind_in_use'),
        ),
        migrations.AddConstraint(
            model_name='trc',
            constraint=models.UniqueConstraint(fields=('isd', 'base', 'serial'), name='trc_is_made_once'),
        ),
    ]
