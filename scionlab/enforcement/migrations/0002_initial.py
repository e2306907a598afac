import datetime
import django.db.models.deletion
import django.db.models.functions.text
import django.db.models.lookups
from django.conf import settings
from typing import Any

from django.db import migrations, models



# Rows that are written every minute while nothing else changes: with room in its page a row is replaced there, without a
# new entry in each index (docs/scale.md).
def leave_room(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == 'postgresql':
        for table in ('enforcement_hostreceipt', 'enforcement_linkenforcement'):
            schema_editor.execute(f'ALTER TABLE {table} SET (fillfactor = 50)')


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('enforcement', '0001_initial'),
        ('testbed', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='hostreceipt',
            name='host',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='receipt', to='testbed.host'),
        ),
        migrations.AddField(
            model_name='linkenforcement',
            name='link',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='enforcement', to='testbed.link'),
        ),
        migrations.AddField(
            model_name='notice',
            name='host',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='testbed.host'),
        ),
        migrations.AddField(
            model_name='notice',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='noticewatch',
            constraint=models.CheckConstraint(condition=models.Q(('id', 1)), name='notice_watch_is_one_row'),
        ),
        migrations.AddField(
            model_name='reportgap',
            name='host',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='report_gaps', to='testbed.host'),
        ),
        migrations.AddConstraint(
            model_name='hostreceipt',
            constraint=models.CheckConstraint(condition=models.Q(('observed_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('observed_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='host_receipt_observed_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='hostreceipt',
            constraint=models.CheckConstraint(condition=models.Q(('received_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('received_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='host_receipt_received_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='linkenforcement',
            constraint=models.CheckConstraint(condition=models.Q(('observed_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('observed_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='link_enforcement_observed_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='linkenforcement',
            constraint=models.CheckConstraint(condition=models.Q(('received_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('received_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='link_enforcement_received_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='linkenforcement',
            constraint=models.CheckConstraint(condition=models.Q(('since__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('since__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='link_enforcement_since_readable'),
        ),
        migrations.AddConstraint(
            model_name='linkenforcement',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length('problem'), 2000), name='link_enforcement_problem_short'),
        ),
        migrations.AddConstraint(
            model_name='notice',
            constraint=models.UniqueConstraint(fields=('user', 'host', 'kind'), name='notice_once_while_it_lasts'),
        ),
        migrations.RunPython(leave_room, migrations.RunPython.noop),
    ]
