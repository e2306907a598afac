import django.core.validators
import django.db.models.deletion
import scionlab.models.link_test
from django.conf import settings
from django.db import migrations, models

from scionlab.platform.reservations import LINKS, keep_apart


class Migration(migrations.Migration):
    short_lock = "the constraint is on a table that is made here: nobody has rows in it"

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('scionlab', '0016_plain_words'),
    ]

    operations = [
        migrations.AddField(
            model_name='hostreceipt',
            name='says_tests',
            field=models.BooleanField(db_default=False, default=False, help_text='Not set: the agent is too old to carry out tests of Links.'),
        ),
        migrations.CreateModel(
            name='LinkTest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('watch', 'watch')], max_length=16)),
                ('test_id', models.CharField(default=scionlab.models.link_test.new_test_id, editable=False, max_length=32, unique=True)),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('retired_at', models.DateTimeField(blank=True, help_text='Time of removal from the configuration after the end.', null=True)),
                ('armed_at', models.DateTimeField(blank=True, help_text='Time of the first receipt that confirms it: the attachment point has it.', null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('link', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tests', to='scionlab.link')),
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
                ('kind', models.CharField(choices=[('watch', 'watch')], default='watch', max_length=16)),
                ('max_seconds', models.PositiveIntegerField(validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(600)], verbose_name='longest test [s]')),
                ('runs_per_day', models.PositiveIntegerField(help_text='Started or scheduled within 24 hours. 0: none at all.', verbose_name='tests per day')),
                ('max_pending', models.PositiveIntegerField(help_text='Scheduled or running at the same time.', verbose_name='pending tests')),
                ('horizon_hours', models.PositiveIntegerField(help_text='How far ahead a test may be scheduled.', validators=[django.core.validators.MaxValueValidator(720)], verbose_name='horizon [h]')),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='auth.group')),
            ],
            options={
                'verbose_name': 'policy of tests',
                'verbose_name_plural': 'policies of tests',
                'ordering': ['applies_to', 'group__name', 'kind'],
            },
        ),
        migrations.CreateModel(
            name='TestResult',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('agent_version', models.CharField(max_length=32)),
                ('samples', models.JSONField(default=list)),
                ('received_at', models.DateTimeField(help_text='Time of the newest upload.')),
                ('is_final', models.BooleanField(default=False)),
                ('test', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='result', to='scionlab.linktest')),
            ],
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gt', models.F('begins_at'))), name='link_test_has_length'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('applies_to', 'group'), ('group__isnull', False)), models.Q(models.Q(('applies_to', 'group'), _negated=True), ('group__isnull', True)), _connector='OR'), name='test_policy_names_its_group'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.UniqueConstraint(condition=models.Q(('group', None)), fields=('applies_to', 'kind'), name='test_policy_once'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.UniqueConstraint(fields=('group', 'kind'), name='test_policy_once_per_group'),
        ),
        migrations.RunPython(keep_apart(LINKS), migrations.RunPython.noop),
    ]
