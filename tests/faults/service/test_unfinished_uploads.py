"""Uploads without an account that never end, in front of the real service: they change no receipt of a large attachment
point. What nginx alone does with them: test_nginx.py."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest

from tests.faults.service.nginx import Nginx, bodies_on_disk, unfinished
from tests.faults.service.site import Site

pytestmark = pytest.mark.xdist_group("faults of the service")

LINKS = 4000
MAKE = f"""
import django; django.setup()
import json
from lab.bench.service_data import attach
from scionlab.testbed.models import AS, AttachmentPoint, Host, ISD
from scionlab.accounts.models import User
isd = ISD.objects.first()
ap_as = AS.objects.create(isd=isd, as_id=0xFFAA_0000_2000)
ap_host = Host.objects.create(AS=ap_as, public_ipv4="192.0.2.200")
AttachmentPoint.objects.create(AS=ap_as, host=ap_host, maximum_kbit=1000)
ases = AS.objects.bulk_create([AS(isd=isd, as_id=0xFFAA_0001_4000 + n) for n in range({LINKS})])
attach(ap_host, ases, Host.objects.bulk_create([Host(AS=one) for one in ases]), [User.objects.first().pk] * {LINKS})
print(json.dumps([ap_host.pk, ap_host.uid, ap_host.secret]))
"""
REMOVE = """
import django; django.setup()
from scionlab.testbed.models import AS, AttachmentPoint, Link
Link.objects.filter(interface_a__AS__as_id=0xFFAA_0000_2000).delete()
AttachmentPoint.objects.filter(AS__as_id=0xFFAA_0000_2000).delete()
AS.objects.filter(as_id__gte=0xFFAA_0001_4000, as_id__lt=0xFFAA_0001_6000).delete()
AS.objects.filter(as_id=0xFFAA_0000_2000).delete()
"""


@pytest.fixture
def large(site: Site) -> Iterator[int]:
    """The number of an attachment point of the site that has 4,000 links."""
    parts = ("ap_hosts", "uids", "secrets")
    made = json.loads(site.python(MAKE).splitlines()[-1])
    for name, value in zip(parts, made, strict=True):
        site.facts[name].append(value)
    try:
        yield len(site.facts["uids"]) - 1
    finally:
        for name in parts:
            site.facts[name].pop()
        site.python(REMOVE)


def stored(site: Site, host: int, counted: int) -> int:
    """The links of which a receipt with this counter is stored."""
    sql = (
        "SELECT count(*) FROM enforcement_linkenforcement e JOIN testbed_link l ON l.id = e.link_id"
        " JOIN testbed_interface i ON i.id = l.interface_a_id WHERE i.host_id = %s AND e.to_user_packets = %s"
    )
    ((count,),) = site.postgres.ask(sql, site.facts["ap_hosts"][host], counted)
    assert isinstance(count, int)
    return count


def test_200_unfinished_uploads_change_no_receipt_of_4000_links(site: Site, large: int) -> None:
    front = Nginx(site.port)
    uid = site.facts["uids"][large]
    version, limits = site.versions(large)

    def report(counted: int) -> int:
        links = dict.fromkeys(map(str, range(1, LINKS + 1)), 1000)
        answer = site.report(version=version, limits=limits, links=links, host=large, port=front.port, counted=counted)
        assert answer.json == {"stored": True}
        return answer.status

    with contextlib.ExitStack() as lines:
        front.start()
        lines.callback(front.stop)
        assert (report(1), stored(site, large, 1)) == (200, LINKS)
        # At a page, as large as it takes and larger, and at the door of receipts itself, without its credentials.
        uploads = [("/ases/", 16_000_000), ("/ases/", 131_072), (f"/api/v4/host/{uid}/enforcement", 8_000_000)]
        for number in range(200):
            path, length = uploads[number % 3]
            address = f"203.0.113.{number % 4 + 10}"
            line = unfinished(front, path, length=length, sent=min(length - 100, 200_000), address=address)
            lines.callback(line.close)
        time.sleep(1)  # nginx reads what has come
        assert bodies_on_disk(front) == 0
        assert (report(2), stored(site, large, 2)) == (200, LINKS)
        assert site.request("GET", "/livez", headers={}, port=site.port).status == 200
