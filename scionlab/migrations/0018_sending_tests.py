import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import scionlab.models.link_test
from scionlab.platform.reservations import LANES, keep_apart, let_overlap


class Migration(migrations.Migration):
    short_lock = "results of tests are kept for 90 days: a few thousand rows"
    contract = "the columns of `tool` keep the name `kind`, which old code reads and writes"

    dependencies = [
        ('scionlab', '0017_link_tests'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint(model_name='testpolicy', name='test_policy_once'),
                migrations.RemoveConstraint(model_name='testpolicy', name='test_policy_once_per_group'),
                migrations.AlterField(
                    model_name='linktest',
                    name='kind',
                    field=models.CharField(choices=scionlab.models.link_test.tool_choices, db_column='kind', max_length=16),
                ),
                migrations.RenameField(model_name='linktest', old_name='kind', new_name='tool'),
                migrations.AlterField(
                    model_name='testpolicy',
                    name='kind',
                    field=models.CharField(choices=scionlab.models.link_test.tool_choices, db_column='kind', default='watch', max_length=16),
                ),
                migrations.RenameField(model_name='testpolicy', old_name='kind', new_name='tool'),
                migrations.AlterModelOptions(
                    name='testpolicy',
                    options={'ordering': ['applies_to', 'group__name', 'tool'], 'verbose_name': 'policy of tests', 'verbose_name_plural': 'policies of tests'},
                ),
                migrations.AddConstraint(
                    model_name='testpolicy',
                    constraint=models.UniqueConstraint(condition=models.Q(('group', None)), fields=('applies_to', 'tool'), name='test_policy_once'),
                ),
                migrations.AddConstraint(
                    model_name='testpolicy',
                    constraint=models.UniqueConstraint(fields=('group', 'tool'), name='test_policy_once_per_group'),
                ),
            ],
        ),
        migrations.AddField(
            model_name='host',
            name='secret_limits_version',
            field=models.PositiveIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            model_name='hostreceipt',
            name='sending_tests',
            field=models.CharField(blank=True, choices=[('on', 'on'), ('off', 'off'), ('stopped', 'stopped')], db_default='', help_text='Whether the operator lets tests send. Empty: the agent is too old for tests that send.', max_length=8),
        ),
        migrations.AddField(
            model_name='testpolicy',
            name='limit_percent',
            field=models.PositiveSmallIntegerField(db_default=400, default=400, help_text='The highest rate that a test offers. A watch sends nothing.', validators=[django.core.validators.MinValueValidator(100), django.core.validators.MaxValueValidator(400)], verbose_name='share of the limit [%]'),
        ),
        migrations.AddField(
            model_name='testpolicy',
            name='megabytes_per_day',
            field=models.PositiveIntegerField(db_default=5000, default=5000, help_text='Sent by both ends, of tests started or scheduled within 24 hours. A watch sends nothing.', verbose_name='data per day [MB]'),
        ),
        migrations.AddField(
            model_name='linktest',
            name='ap',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='scionlab.attachmentpoint'),
        ),
        migrations.AddField(
            model_name='linktest',
            name='lane',
            field=models.PositiveSmallIntegerField(blank=True, help_text='Which of its test ports it uses.', null=True),
        ),
        migrations.AddField(
            model_name='linktest',
            name='parameters',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='linktest',
            name='phases',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='linktest',
            name='kbit',
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='linktest',
            name='max_bytes',
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='linktest',
            name='offered_bytes',
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='linktest',
            name='judged_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='linktest',
            name='is_over_limit',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddConstraint(
            model_name='linktest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lane', None), ('tool', 'watch')), models.Q(models.Q(('tool', 'watch'), _negated=True), ('ap__isnull', False), ('lane__isnull', False), ('lane__lt', 4)), _connector='OR'), name='link_test_that_sends_has_a_lane'),
        ),
        migrations.AddField(
            model_name='testresult',
            name='side',
            field=models.CharField(choices=[('ap', 'attachment point'), ('user', 'user')], db_default='ap', default='ap', max_length=8),
        ),
        migrations.AddField(
            model_name='testresult',
            name='report',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='testresult',
            name='agent_version',
            field=models.CharField(blank=True, max_length=32),
        ),
        migrations.AlterField(
            model_name='testresult',
            name='test',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='scionlab.linktest'),
        ),
        migrations.AddConstraint(
            model_name='testresult',
            constraint=models.UniqueConstraint(fields=('test', 'side'), name='test_result_once_per_side'),
        ),
        migrations.AlterField(
            model_name='mail',
            name='kind',
            field=models.CharField(blank=True, choices=[('enforced', 'An attachment point has enforced a change of one of my limits'), ('clamped', 'A maximum was lowered below my limit, or raised again'), ('changed', 'Someone else changed one of my limits, or cancelled a temporary limit'), ('failed', 'One of my limits has failed for more than 10 minutes'), ('away', 'An attachment point of mine has sent no report for more than an hour, or reports again'), ('tested', 'A test that I scheduled has ended, or was not carried out')], max_length=16),
        ),
        migrations.AlterField(
            model_name='notice',
            name='kind',
            field=models.CharField(choices=[('enforced', 'An attachment point has enforced a change of one of my limits'), ('clamped', 'A maximum was lowered below my limit, or raised again'), ('changed', 'Someone else changed one of my limits, or cancelled a temporary limit'), ('failed', 'One of my limits has failed for more than 10 minutes'), ('away', 'An attachment point of mine has sent no report for more than an hour, or reports again'), ('tested', 'A test that I scheduled has ended, or was not carried out')], max_length=16),
        ),
        migrations.RunPython(keep_apart(LANES), let_overlap(LANES)),
    ]
