import datetime
import django.db.models.deletion
import scionlab.platform.clock
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('testbed', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='DefaultChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('created_by_email', models.CharField(blank=True, max_length=254)),
                ('what', models.CharField(help_text='Description of the change.', max_length=200)),
                ('chosen', models.CharField(help_text='Description of the selection.', max_length=200)),
                ('operation', models.JSONField(help_text='How the new numbers are derived from the old ones.')),
                ('lines', models.JSONField(default=list)),
                ('applied_at', models.DateTimeField(blank=True, help_text='Empty: a preview that was not applied.', null=True)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('result', models.JSONField(blank=True, default=dict, help_text='Counts of what changed.')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='default_changes', to=settings.AUTH_USER_MODEL)),
                ('puts_back', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='put_back_by', to='limits.defaultchange')),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='MaximumException',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('maximum_kbit', models.PositiveBigIntegerField(verbose_name='maximum [kbit/s]')),
                ('ends_at', models.DateTimeField()),
                ('reason', models.CharField(max_length=200)),
                ('state', models.CharField(choices=[('asked', 'requested'), ('approved', 'approved'), ('declined', 'declined')], max_length=8)),
                ('asked_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('answer', models.CharField(blank=True, max_length=200)),
                ('asked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('attachment_points', models.ManyToManyField(blank=True, related_name='group_exceptions', to='testbed.attachmentpoint')),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to='auth.group')),
                ('link', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to='testbed.link')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to=settings.AUTH_USER_MODEL)),
                ('user_as', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to='testbed.useras')),
            ],
            options={
                'ordering': ['-pk'],
                'indexes': [models.Index(fields=['ends_at'], name='maximum_exception_ends')],
                'constraints': [models.CheckConstraint(condition=models.Q(('ends_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('ends_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='maximum_exception_ends_at_readable'), models.CheckConstraint(condition=models.Q(models.Q(('group', None), ('link', None), ('user__isnull', False), ('user_as', None)), models.Q(('group', None), ('link', None), ('user', None), ('user_as__isnull', False)), models.Q(('group', None), ('link__isnull', False), ('user', None), ('user_as', None)), models.Q(('group__isnull', False), ('link', None), ('user', None), ('user_as', None)), _connector='OR'), name='maximum_exception_is_about_one'), models.CheckConstraint(condition=models.Q(('maximum_kbit__gte', 1), ('maximum_kbit__lte', 100000000)), name='maximum_exception_in_bounds')],
            },
        ),
    ]
