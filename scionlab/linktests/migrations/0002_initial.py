import datetime
import django.db.models.deletion
from django.conf import settings
from scionlab.linktests.reservations import LANES, LINKS, keep_apart, let_overlap
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('linktests', '0001_initial'),
        ('testbed', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='jointtest',
            name='user_as',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='joint_tests', to='testbed.useras'),
        ),
        migrations.AddField(
            model_name='linktest',
            name='ap',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='testbed.attachmentpoint'),
        ),
        migrations.AddField(
            model_name='linktest',
            name='created_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='linktest',
            name='joint',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='linktests.jointtest'),
        ),
        migrations.AddField(
            model_name='linktest',
            name='link',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tests', to='testbed.link'),
        ),
        migrations.AddField(
            model_name='testpolicy',
            name='group',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='auth.group'),
        ),
        migrations.AddField(
            model_name='testresult',
            name='test',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='linktests.linktest'),
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
