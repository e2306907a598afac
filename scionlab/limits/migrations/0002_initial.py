import datetime
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('limits', '0001_initial'),
        ('testbed', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='maximumexception',
            name='attachment_points',
            field=models.ManyToManyField(blank=True, related_name='group_exceptions', to='testbed.attachmentpoint'),
        ),
        migrations.AddField(
            model_name='maximumexception',
            name='decided_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='maximumexception',
            name='link',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to='testbed.link'),
        ),
        migrations.AddField(
            model_name='maximumexception',
            name='members',
            field=models.ManyToManyField(blank=True, related_name='group_exceptions', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='maximumexception',
            name='user',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='maximumexception',
            name='user_as',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maximum_exceptions', to='testbed.useras'),
        ),
        migrations.AddIndex(
            model_name='maximumexception',
            index=models.Index(fields=['ends_at'], name='maximum_exception_ends'),
        ),
        migrations.AddConstraint(
            model_name='maximumexception',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__gte', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)), ('ends_at__lt', datetime.datetime(3000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), name='maximum_exception_ends_at_readable'),
        ),
        migrations.AddConstraint(
            model_name='maximumexception',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('group', ''), ('link', None), ('user__isnull', False), ('user_as', None)), models.Q(('group', ''), ('link', None), ('user', None), ('user_as__isnull', False)), models.Q(('group', ''), ('link__isnull', False), ('user', None), ('user_as', None)), models.Q(('link', None), ('user', None), ('user_as', None), models.Q(('group', ''), _negated=True)), _connector='OR'), name='maximum_exception_is_about_one'),
        ),
        migrations.AddConstraint(
            model_name='maximumexception',
            constraint=models.CheckConstraint(condition=models.Q(('maximum_kbit__gte', 1), ('maximum_kbit__lte', 100000000)), name='maximum_exception_in_bounds'),
        ),
    ]
