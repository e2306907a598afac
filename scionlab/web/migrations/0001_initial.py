import django.db.models.deletion
import scionlab.platform.clock
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ApiRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=200)),
                ('fingerprint', models.CharField(help_text='SHA-256 of method, path and body.', max_length=64)),
                ('status', models.PositiveSmallIntegerField(default=0)),
                ('headers', models.JSONField(default=dict)),
                ('body', models.TextField(blank=True, help_text='Empty if the response contained a secret, which is shown only once.')),
                ('created_at', models.DateTimeField(db_index=True, default=scionlab.platform.clock.database_now)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'key'), name='idempotency_key_once_per_person')],
            },
        ),
    ]
