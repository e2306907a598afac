from django.apps import AppConfig
from django.db.models.signals import post_migrate

from scionlab.platform.append_only import guard_audit


class TestbedConfig(AppConfig):
    name = "scionlab.testbed"
    label = "testbed"

    def ready(self) -> None:
        post_migrate.connect(guard_audit, sender=self)
