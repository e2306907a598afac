import datetime
import django.core.validators
import django.db.models.deletion
import scionlab.accounts.models.user
import scionlab.linktests.models
import scionlab.platform.clock
from django.conf import settings
from scionlab.linktests.reservations import LANES, LINKS, keep_apart, let_overlap
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
            name='JointTest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('user_as', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='joint_tests', to='testbed.useras')),
            ],
            options={
                'ordering': ['-begins_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='LinkTest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tool', models.CharField(choices=scionlab.linktests.models.tool_choices, db_column='kind', max_length=16)),
                ('lane', models.PositiveSmallIntegerField(blank=True, help_text='Which of its test ports it uses.', null=True)),
                ('parameters', models.JSONField(blank=True, null=True)),
                ('phases', models.JSONField(blank=True, null=True)),
                ('kbit', models.PositiveBigIntegerField(blank=True, null=True)),
                ('max_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('offered_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('test_id', models.CharField(default=scionlab.linktests.models.new_test_id, editable=False, max_length=32, unique=True)),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('retired_at', models.DateTimeField(blank=True, help_text='Time of removal from the configuration after the end.', null=True)),
                ('armed_at', models.DateTimeField(blank=True, help_text='Time of the first receipt that confirms it: the attachment point has it.', null=True)),
                ('judged_at', models.DateTimeField(blank=True, null=True)),
                ('is_over_limit', models.BooleanField(db_default=False, default=False)),
                ('ap', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='testbed.attachmentpoint')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('joint', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='linktests.jointtest')),
                ('link', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tests', to='testbed.link')),
            ],
            options={
                'ordering': ['begins_at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='TestPolicy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('applies_to', models.CharField(choices=[('everybody', 'everybody'), ('group', 'a group'), ('staff', 'administrators')], max_length=16)),
                ('tool', models.CharField(choices=scionlab.linktests.models.tool_choices, db_column='kind', default='watch', max_length=16)),
                ('max_seconds', models.PositiveIntegerField(validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(600)], verbose_name='longest test [s]')),
                ('runs_per_day', models.PositiveIntegerField(help_text='Started or scheduled within 24 hours. 0: none at all.', verbose_name='tests per day')),
                ('max_pending', models.PositiveIntegerField(help_text='Scheduled or running at the same time.', verbose_name='pending tests')),
                ('horizon_hours', models.PositiveIntegerField(help_text='How far ahead a test may be scheduled.', validators=[django.core.validators.MaxValueValidator(720)], verbose_name='horizon [h]')),
                ('limit_percent', models.PositiveSmallIntegerField(db_default=400, default=400, help_text='The highest rate that a test offers. A watch sends nothing.', validators=[django.core.validators.MinValueValidator(100), django.core.validators.MaxValueValidator(400)], verbose_name='share of the limit [%]')),
                ('megabytes_per_day', models.PositiveIntegerField(db_default=5000, default=5000, help_text='Sent by both ends, of tests started or scheduled within 24 hours. A watch sends nothing.', verbose_name='data per day [MB]')),
                ('max_load_percent', models.PositiveSmallIntegerField(blank=True, help_text='A test that sends begins only while the links there carry at most this share of the uplink, or of the total of all links where that is lower. Where neither is set, or the load is unknown, the rule does not apply. Empty: any load.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)], verbose_name='load of the attachment point [%]')),
                ('hours_begin', models.PositiveSmallIntegerField(blank=True, help_text='0 to 23. Tests run from this hour on. Empty: at any time.', null=True, validators=[django.core.validators.MaxValueValidator(23)], verbose_name='hours from')),
                ('hours_end', models.PositiveSmallIntegerField(blank=True, help_text='1 to 24. Tests end by this hour; of the next day where it is not later than the first.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(24)], verbose_name='hours until')),
                ('hours_zone', models.CharField(db_default='UTC', default='UTC', max_length=64, validators=[scionlab.accounts.models.user.validate_time_zone], verbose_name='time zone of the hours')),
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
                ('samples', models.JSONField(default=list)),
                ('report', models.JSONField(blank=True, null=True)),
                ('received_at', models.DateTimeField(help_text='Time of the newest upload.')),
                ('is_final', models.BooleanField(default=False)),
                ('test', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='linktests.linktest')),
            ],
        ),
        migrations.AddConstraint(
            model_name='jointtest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('begins_at'))), name='joint_test_has_length'),
        ),
        migrations.AddConstraint(
            model_name='jointtest',
            constraint=models.CheckConstraint(condition=models.Q(('begins_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('begins_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='joint_test_begins_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='jointtest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('ends_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='joint_test_ends_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('begins_at'))), name='link_test_has_length'),
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lane', None), ('tool', 'watch')), models.Q(models.Q(('tool', 'watch'), _negated=True), ('ap__isnull', False), ('lane__isnull', False), ('lane__lt', 4)), _connector='OR'), name='link_test_that_sends_has_a_lane'),
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(('begins_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('begins_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='link_test_begins_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('ends_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='link_test_ends_at_readable'),
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
        migrations.RunPython(keep_apart(LINKS), let_overlap(LINKS)),
        migrations.RunPython(keep_apart(LANES), let_overlap(LANES)),
    ]
