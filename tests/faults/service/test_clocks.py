"""Two web tiers on one database, one of them with a clock that is an hour ahead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lab.service import REPOSITORY
from tests.faults.service.site import Answer, Site

# The clocks that Python code of the service can ask, an hour ahead from the start of the process on.
AHEAD = """
import datetime, time
import django.utils.timezone

class Ahead:
    def __init__(self, clock, by):
        self.clock, self.by = clock, by

    def __call__(self):
        return self.clock() + self.by

time.time = Ahead(time.time, 3600)
django.utils.timezone.now = Ahead(django.utils.timezone.now, datetime.timedelta(hours=1))
"""


LATER = """
WITH receipt AS (UPDATE enforcement_hostreceipt SET received_at = received_at - interval '200 s' WHERE host_id = %s)
UPDATE enforcement_linkenforcement SET received_at = received_at - interval '200 s'
"""


@pytest.fixture
def ahead(site: Site, tmp_path: Path) -> Iterator[int]:
    """The port of the tier whose clock is an hour ahead; the site's own is right."""
    (tmp_path / "sitecustomize.py").write_text(AHEAD)
    with site.web_tier(PYTHONPATH=f"{tmp_path}:{REPOSITORY}") as port:
        yield port


def test_a_dead_attachment_point_is_told_as_silent_by_every_tier(site: Site, ahead: int) -> None:
    """The last receipt came through the tier that is ahead, 200 s ago."""
    version, limits = site.versions()
    assert site.poll(version=version, limits=limits, port=ahead).status == 304
    assert site.report(version=version, limits=limits, links={"1": 1000}, port=ahead).status == 200
    site.postgres.ask(LATER, site.facts["ap_hosts"][0])
    for port in (site.port, ahead):
        found = site.api("GET", f"/api/v1/links/{site.facts['links'][0]}/", port=port)
        assert (port == ahead, found.json["status"]["state"]) == (port == ahead, "no_report")


def limit_for_ten_minutes(site: Site, port: int, begins_at: datetime) -> Answer:
    sent = {"kind": "constant", "limits": 500, "begins_at": begins_at.isoformat(),
            "ends_at": (begins_at + timedelta(minutes=10)).isoformat()}  # fmt: skip
    return site.api("POST", f"/api/v1/links/{site.facts['links'][0]}/timed-limits/", sent, port=port)


def test_overlapping_temporary_limits_are_refused_by_every_tier(site: Site, ahead: int) -> None:
    """The tier that is ahead does not retire the first one, which has not begun, when it stores the second."""
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
    assert limit_for_ten_minutes(site, site.port, soon).status == 201
    assert limit_for_ten_minutes(site, ahead, soon + timedelta(hours=2)).status == 201
    for port in (site.port, ahead):
        refused = limit_for_ten_minutes(site, port, soon + timedelta(minutes=5))
        assert (port == ahead, refused.status, refused.json.get("code")) == (port == ahead, 400, "timed_overlap")


def test_readiness_and_cockpit_name_the_machine_whose_clock_differs(site: Site, ahead: int) -> None:
    pages = [site.request("GET", "/readyz", headers={}, port=port).text for port in (ahead, site.port)]
    for page in (*pages, site.get("/cockpit/", as_staff=True).text):
        found = re.search(r"is (\d+) s ahead of the database", page)
        assert found is not None, page
        assert abs(int(found[1]) - 3600) <= 1, "known within the way to the database and back"
    assert all("s, at most 1 s is allowed; synchronize it (NTP)" in page for page in pages)
