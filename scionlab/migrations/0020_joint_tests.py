import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scionlab', '0019_hours_and_load_of_test_policies'),
    ]

    operations = [
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
                ('user_as', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='joint_tests', to='scionlab.useras')),
            ],
            options={
                'ordering': ['-begins_at', '-pk'],
            },
        ),
        migrations.AddField(
            model_name='linktest',
            name='joint',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='scionlab.jointtest'),
        ),
        migrations.AddField(
            model_name='timedlimit',
            name='joint',
            field=models.ForeignKey(blank=True, help_text='Whose congestion it is.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='timed_limits', to='scionlab.jointtest'),
        ),
        migrations.AddConstraint(
            model_name='jointtest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('begins_at'))), name='joint_test_has_length'),
        ),
    ]
