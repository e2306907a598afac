"""What tells two saves with the same numbers apart, one of which a restored database lost."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scionlab', '0001_squashed_0028'),
    ]

    operations = [
        migrations.AddField(
            model_name='host',
            name='content_stamp',
            field=models.BigIntegerField(db_default=0, default=0, editable=False),
        ),
    ]
