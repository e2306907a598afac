"""What the app adds to those below it."""

from django.apps import AppConfig


class EnforcementConfig(AppConfig):
    name = "scionlab.enforcement"
    label = "enforcement"

    def ready(self) -> None:
        from scionlab.enforcement.life import ReceiptsLife
        from scionlab.testbed.life import LIVES

        LIVES.append(ReceiptsLife())
