import django.db.models.deletion
import django.db.models.functions.text
import scionlab.accounts.models.user
import scionlab.platform.clock
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('email', models.EmailField(max_length=254, unique=True, verbose_name='email address')),
                ('full_name', models.CharField(blank=True, max_length=150)),
                ('is_staff', models.BooleanField(default=False, help_text="Can use the administrators' pages.", verbose_name='administrator')),
                ('is_active', models.BooleanField(default=True)),
                ('as_quota', models.PositiveSmallIntegerField(default=5, help_text='Maximum number of user ASes of this account.', verbose_name='AS quota')),
                ('date_joined', models.DateTimeField(default=scionlab.platform.clock.database_now)),
                ('time_zone', models.CharField(default='UTC', help_text='Used for times on pages and in emails.', max_length=64, validators=[scionlab.accounts.models.user.validate_time_zone])),
                ('mail_opt_outs', models.JSONField(blank=True, default=list, validators=[scionlab.accounts.models.user.validate_mail_kinds])),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'ordering': ['email'],
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('token_sha256', models.CharField(editable=False, max_length=64, unique=True)),
                ('may_write', models.BooleanField(default=True, help_text='Off: read-only.', verbose_name='write access')),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False, verbose_name='made')),
                ('expires_at', models.DateTimeField(blank=True, help_text='Empty: until it is revoked.', null=True, verbose_name='valid until')),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='last used')),
                ('made_by', models.ForeignKey(blank=True, editable=False, help_text='The token that created this one; empty if it was created on a page or with a password.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='made', to='accounts.apitoken')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='Mail',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='Identifies the event, so that it is sent once.', max_length=200, unique=True)),
                ('recipient', models.EmailField(max_length=254)),
                ('subject', models.CharField(max_length=200)),
                ('body', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(default=scionlab.platform.clock.database_now, editable=False)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('not_before', models.DateTimeField(default=scionlab.platform.clock.database_now, verbose_name='not tried before')),
                ('last_error', models.CharField(blank=True, max_length=200)),
                ('kind', models.CharField(blank=True, choices=[('enforced', 'An attachment point has enforced a change of one of my limits'), ('clamped', 'A maximum was lowered below my limit, or raised again'), ('changed', 'Someone else changed one of my limits, or cancelled a temporary limit'), ('failed', 'One of my limits has failed for more than 10 minutes'), ('away', 'An attachment point of mine has sent no report for more than an hour, or reports again'), ('tested', 'A test that I scheduled has ended, or was not carried out')], max_length=16)),
                ('purpose', models.CharField(blank=True, choices=[('register', 'a new account'), ('email', 'a new email address'), ('password', 'a new password')], max_length=16)),
                ('network', models.CharField(blank=True, help_text='Of the client that asked, for rate limiting only.', max_length=45)),
                ('used_at', models.DateTimeField(blank=True, help_text='Time of use of the link, which works once.', null=True)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('email'), name='user_email_once_whatever_case'),
        ),
        migrations.AddConstraint(
            model_name='apitoken',
            constraint=models.UniqueConstraint(fields=('user', 'name'), name='api_token_name_once_per_user'),
        ),
        migrations.AddIndex(
            model_name='mail',
            index=models.Index(condition=models.Q(('sent_at', None)), fields=['not_before', 'id'], name='mail_unsent'),
        ),
        migrations.AddIndex(
            model_name='mail',
            index=models.Index(condition=models.Q(('sent_at__isnull', False)), fields=['sent_at'], name='mail_sent'),
        ),
        migrations.AddIndex(
            model_name='mail',
            index=models.Index(condition=models.Q(('purpose', ''), _negated=True), fields=['created_at'], name='mail_asked'),
        ),
    ]
