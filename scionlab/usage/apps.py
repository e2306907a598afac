"""What the app adds to those below it."""

from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "scionlab.usage"
    label = "usage"

    def ready(self) -> None:
        from scionlab.limits.measured import TRAFFIC
        from scionlab.limits.pages.change_lines import DRAWN
        from scionlab.limits.pages.panels import LINK_PANELS
        from scionlab.testbed.cockpit import OFFERS
        from scionlab.testbed.life import LIVES
        from scionlab.usage.cockpit.offer import TrafficOffer
        from scionlab.usage.life import SeriesLife
        from scionlab.usage.measured import MeasuredTraffic
        from scionlab.usage.pages.change_lines import drawn_lines
        from scionlab.usage.pages.dials import sums_of
        from scionlab.usage.pages.link_panels import NOW, USAGE
        from scionlab.usage.pages.usage_panel import sparks_of
        from scionlab.user_ases.pages.panels import AS_LINES, LINK_PARTS, LinesOfASes, PartOfLinks

        LIVES.append(SeriesLife())
        TRAFFIC.append(MeasuredTraffic())
        LINK_PANELS.extend([NOW, USAGE])
        DRAWN.append(drawn_lines)
        AS_LINES.append(LinesOfASes("usage/parts/now_line.html", sums_of))
        LINK_PARTS.append(PartOfLinks("usage/parts/spark.html", sparks_of))
        OFFERS.append(TrafficOffer())
