"""The whole: what needs every app."""

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from scionlab.delivery.polls.connections import check_connections
from scionlab.platform.append_only import guard_audit
from scionlab.platform.clock import measure_if_due
from scionlab.platform.metrics import work
from scionlab.platform.reservations import guard_reservations


class SiteConfig(AppConfig):
    name = "scionlab.site"
    label = "site"

    def ready(self) -> None:
        connection_created.connect(measure_if_due)
        post_migrate.connect(guard_audit, sender=self)
        post_migrate.connect(guard_reservations, sender=self)
        work.connect()
        register(check_connections, Tags.database)
