import django.core.validators
import scionlab.models.user
from django.db import migrations, models


class Migration(migrations.Migration):
    short_lock = "policies of tests are a few dozens"

    dependencies = [
        ('scionlab', '0018_sending_tests'),
    ]

    operations = [
        migrations.AddField(
            model_name='testpolicy',
            name='hours_begin',
            field=models.PositiveSmallIntegerField(blank=True, help_text='0 to 23. Tests run from this hour on. Empty: at any time.', null=True, validators=[django.core.validators.MaxValueValidator(23)], verbose_name='hours from'),
        ),
        migrations.AddField(
            model_name='testpolicy',
            name='hours_end',
            field=models.PositiveSmallIntegerField(blank=True, help_text='1 to 24. Tests end by this hour; of the next day where it is not later than the first.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(24)], verbose_name='hours until'),
        ),
        migrations.AddField(
            model_name='testpolicy',
            name='hours_zone',
            field=models.CharField(db_default='UTC', default='UTC', max_length=64, validators=[scionlab.models.user.validate_time_zone], verbose_name='time zone of the hours'),
        ),
        migrations.AddField(
            model_name='testpolicy',
            name='max_load_percent',
            field=models.PositiveSmallIntegerField(blank=True, help_text='A test that sends begins only while the links there carry at most this share of the uplink, or of the total of all links where that is lower. Where neither is set, or the load is unknown, the rule does not apply. Empty: any load.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)], verbose_name='load of the attachment point [%]'),
        ),
        migrations.AddConstraint(
            model_name='testpolicy',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('hours_begin', None), ('hours_end', None)), models.Q(('hours_begin__isnull', False), ('hours_begin__lt', 24), ('hours_end__isnull', False), ('hours_end__lte', 24)), _connector='OR'), name='test_policy_has_both_hours'),
        ),
    ]
