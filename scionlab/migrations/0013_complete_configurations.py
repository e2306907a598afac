from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scionlab', '0012_keys_of_the_testbed'),
    ]

    operations = [
        migrations.AddField(
            model_name='host',
            name='configuration_format',
            field=models.PositiveSmallIntegerField(choices=[(1, 'topology.json alone'), (2, 'complete')], db_default=1, default=2, editable=False),
        ),
        migrations.AddField(
            model_name='host',
            name='scion_packages',
            field=models.CharField(choices=[('scionlab', "SCIONLab's packages"), ('upstream', "upstream's packages (scionproto)")], db_default='scionlab', default='scionlab', help_text='Which ones are installed: their units have different names, and look for other files.', max_length=8, verbose_name='SCION packages'),
        ),
        migrations.AddField(
            model_name='servicestate',
            name='completing_since',
            field=models.DateTimeField(blank=True, help_text='When an administrator asked that all hosts get complete configurations. Empty: nobody did.', null=True),
        ),
        migrations.AlterField(
            model_name='bandwidthchange',
            name='kind',
            field=models.CharField(choices=[('link', 'Link'), ('timed_limit', 'timed limit of a Link'), ('ap_default', 'default of an attachment point'), ('site_default', 'site default'), ('ap_total', 'total of an attachment point'), ('ap_observe', 'observe only, of an attachment point'), ('link_observe', 'observe only, of a Link'), ('host_limits_only', 'limits only, of a host'), ('host_take_over', 'take over of a host'), ('host_complete', 'complete configuration of a host, or of all'), ('certificate', 'certificate or keys of an AS'), ('trc', 'TRC of an ISD')], max_length=16),
        ),
    ]
