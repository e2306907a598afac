"""Django app configuration of the project."""

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.models.signals import post_migrate

from scionlab.platform.append_only import guard_audit
from scionlab.platform.metrics import work
from scionlab.platform.reservations import guard_reservations
from scionlab.polls.connections import check_connections


class ScionlabConfig(AppConfig):
    name = "scionlab"
    verbose_name = "SCIONLab bandwidth service"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        post_migrate.connect(guard_audit, sender=self)
        post_migrate.connect(guard_reservations, sender=self)
        work.connect()
        register(check_connections, Tags.database)
