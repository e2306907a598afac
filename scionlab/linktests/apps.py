"""What the app adds to those below it."""

from django.apps import AppConfig


class LinktestsConfig(AppConfig):
    name = "scionlab.linktests"
    label = "linktests"

    def ready(self) -> None:
        from scionlab.enforcement.receipt import FACTS
        from scionlab.limits.pages.panels import LINK_PANELS
        from scionlab.linktests.armed import note_armed
        from scionlab.linktests.life import TestsLife
        from scionlab.linktests.models.link_test import tests_of
        from scionlab.linktests.pages.link_panel import TESTS as TESTS_PANEL
        from scionlab.testbed.life import LIVES
        from scionlab.testbed.models.link_ends import TESTS

        LIVES.append(TestsLife())
        TESTS.append(tests_of)
        FACTS.append(note_armed)
        LINK_PANELS.append(TESTS_PANEL)
