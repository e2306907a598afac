"""The whole: what needs every app."""

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.backends.signals import connection_created

from scionlab.delivery.polls.connections import check_connections
from scionlab.platform.clock import measure_if_due
from scionlab.platform.metrics import work


class SiteConfig(AppConfig):
    name = "scionlab.site"
    label = "site"

    def ready(self) -> None:
        connection_created.connect(measure_if_due)
        work.connect()
        register(check_connections, Tags.database)
