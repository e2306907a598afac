"""Watches and tests on the page of a Link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contract.link_tests import UDP
from scionlab.limits.pages.panels import LinkPage, LinkPanel
from scionlab.linktests.pages.link_tests import newest_of
from scionlab.linktests.pages.test_forms import WatchForm
from scionlab.linktests.test_status import reason_against
from scionlab.platform.notation.local_time import zone_of
from station.tools import TOOLS

TESTS_SHOWN = 5


def _tests(page: LinkPage) -> Mapping[str, Any]:
    agent = page.status.agent
    return {
        "watch_form": WatchForm(zone=zone_of(page.request.user), now=page.now),
        "tests": newest_of(page.link, now=page.now, count=TESTS_SHOWN),
        "tools": TOOLS.values(),
        "not_sending": reason_against(agent, kind=UDP) if agent is not None else "",
    }


TESTS: Final = LinkPanel("linktests/parts/link_tests.html", _tests)
