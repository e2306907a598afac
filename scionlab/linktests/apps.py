"""What the app adds to those below it."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class LinktestsConfig(AppConfig):
    name = "scionlab.linktests"
    label = "linktests"

    def ready(self) -> None:
        from datetime import timedelta

        from scionlab.enforcement.receipt import FACTS
        from scionlab.limits.measured import LAST_TESTS
        from scionlab.limits.pages.panels import LINK_PANELS
        from scionlab.linktests.armed import note_armed
        from scionlab.linktests.last_test import NewestTests
        from scionlab.linktests.life import TestsLife
        from scionlab.linktests.models import JointTest, LinkTest
        from scionlab.linktests.models.link_test import tests_of
        from scionlab.linktests.offer import TestsOffer
        from scionlab.linktests.pages.link_panel import TESTS as TESTS_PANEL
        from scionlab.linktests.reservations import guard_reservations
        from scionlab.platform.retention import KEPT, Kept
        from scionlab.testbed.cockpit import OFFERS
        from scionlab.testbed.life import LIVES
        from scionlab.testbed.models.link_ends import TESTS

        LIVES.append(TestsLife())
        TESTS.append(tests_of)
        LAST_TESTS.append(NewestTests())
        FACTS.append(note_armed)
        LINK_PANELS.append(TESTS_PANEL)
        OFFERS.append(TestsOffer())
        kept = timedelta(days=90)  # with their results
        KEPT.append(Kept(LinkTest, "ends_at", kept))
        KEPT.append(Kept(JointTest, "ends_at", kept))
        post_migrate.connect(guard_reservations, sender=self)
