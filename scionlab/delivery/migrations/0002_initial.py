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
    ]
