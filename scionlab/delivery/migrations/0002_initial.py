import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('delivery', '0001_initial'),
        ('testbed', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='enrolmenttoken',
            name='host',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='enrolment_tokens', to='testbed.host'),
        ),
        migrations.AddField(
            model_name='issuedlimits',
            name='host',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='issued_limits', to='testbed.host'),
        ),
        migrations.AddConstraint(
            model_name='issuedlimits',
            constraint=models.UniqueConstraint(fields=('host', 'generation', 'config_version', 'limits_version', 'digest'), name='issued_limits_once'),
        ),
    ]
