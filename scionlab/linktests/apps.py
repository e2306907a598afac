"""What the app adds to those below it."""

from django.apps import AppConfig


class LinktestsConfig(AppConfig):
    name = "scionlab.linktests"
    label = "linktests"

    def ready(self) -> None:
        from datetime import timedelta

        from scionlab.enforcement.receipt import FACTS
        from scionlab.limits.measured import LAST_TESTS
        from scionlab.limits.pages.panels import LINK_PANELS
        from scionlab.linktests.models import JointTest, LinkTest, tests_of
        from scionlab.linktests.offer import NewestTests, TestsLife, TestsOffer, note_armed
        from scionlab.linktests.pages.link_tests import TESTS_PANEL
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
