"""What the app adds to those below it."""

from django.apps import AppConfig


class LimitsConfig(AppConfig):
    name = "scionlab.limits"
    label = "limits"

    def ready(self) -> None:
        from scionlab.limits.timed_limit import TimedLimitsLife
        from scionlab.testbed.life import LIVES

        LIVES.append(TimedLimitsLife())
