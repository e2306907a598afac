"""What the app adds to those below it."""

from django.apps import AppConfig


class LinktestsConfig(AppConfig):
    name = "scionlab.linktests"
    label = "linktests"

    def ready(self) -> None:
        from scionlab.linktests.life import TestsLife
        from scionlab.linktests.models.link_test import tests_of
        from scionlab.testbed.life import LIVES
        from scionlab.testbed.models.link_ends import TESTS

        LIVES.append(TestsLife())
        TESTS.append(tests_of)
