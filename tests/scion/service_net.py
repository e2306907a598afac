"""A SCION network whose rows, tarballs and answers are all the service's: core AS, attachment point, two user ASes.

core 17-ffaa:0:1101  192.0.2.2 ─┐          ┌─ 192.0.2.1  17-ffaa:0:1107 attachment point
anna 17-ffaa:1:1     192.0.2.11 ┴─ switch ─┴─ 192.0.2.12 17-ffaa:1:2    ben
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from django.http import HttpResponse
from django.test import Client

from lab.scion.host import Pings, ScionHost
from measuring.iproute import LabError
from measuring.netns import Lab
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, Host, Link, UserAS
from tests.factories import UserFactory, attach, spec
from tests.support.polling import basic, config_members

CORE, AP, ANNA, BEN = "17-ffaa:0:1101", "17-ffaa:0:1107", "17-ffaa:1:1", "17-ffaa:1:2"
ADDRESSES = {CORE: "192.0.2.2", AP: "192.0.2.1", ANNA: "192.0.2.11", BEN: "192.0.2.12"}
START_S = 60.0


class ServiceNet:
    """Started, and everybody has a path to everybody that the tests look at. Raises `LabError`."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        values = {"isd": 17, "label": ""}
        core = infrastructure_as_create(as_text="ffaa:0:1101", is_core=True, public_ipv4=ADDRESSES[CORE], **values)
        near = infrastructure_as_create(as_text="ffaa:0:1107", is_core=False, public_ipv4=ADDRESSES[AP], **values)
        ap = attachment_point_create(as_=near)
        infrastructure_link_create(a=core, b=near, type=Link.Type.PROVIDER)
        self.anna_as, self.ben_as = (attach(UserFactory(), spec(ap, public_ip=ADDRESSES[one])) for one in (ANNA, BEN))
        self.rows: dict[str, Host] = {row.isd_as: _host_of(row) for row in (core, near, self.anna_as, self.ben_as)}
        switch = lab.switch("switch")
        self.hosts: dict[str, ScionHost] = {}
        for isd_as, name in ((CORE, "core"), (AP, "ap"), (ANNA, "anna"), (BEN, "ben")):
            namespace = lab.namespace(name)
            switch.plug(namespace.nic("eth0", f"{ADDRESSES[isd_as]}/24"))
            self.hosts[isd_as] = ScionHost(namespace, folder / name, self.pulled(isd_as))
        self.core, self.ap, self.anna, self.ben = self.hosts.values()
        for host in self.hosts.values():
            host.start()
        for here, to in ((self.anna, CORE), (self.ben, CORE), (self.anna, BEN), (self.core, BEN), (self.core, ANNA)):
            if time_until_answers(here, to) is None:
                raise LabError(f"{here.isd_as} has no path to {to}. It says: {here.said('control')[-2000:]}")

    def poll(self, isd_as: str) -> HttpResponse:
        """What the host is answered that has installed what it has."""
        row = self.rows[isd_as]
        url = f"/api/v4/host/{row.uid}/config"
        answer: HttpResponse = Client().get(url, headers=basic(row.uid, row.secret))
        return answer

    def pulled(self, isd_as: str) -> dict[str, bytes]:
        """Its tarball now."""
        answer = self.poll(isd_as)
        assert answer.status_code == 200
        return config_members(answer.content)


def _host_of(as_: AS | UserAS) -> Host:
    return Host.objects.get(AS=as_.pk)


def time_until_answers(here: ScionHost, to: str, deadline_s: float = START_S) -> float | None:
    """Seconds until there is a path that answers, None where there is none in time."""
    return here.until(lambda: here.paths(to, probe=True), deadline_s, began=time.monotonic())


@contextmanager
def pinging(here: ScionHost, there: ScionHost, *, seconds: int) -> Iterator[Future[Pings]]:
    """Ten echo requests a second meanwhile; it ends when all were sent."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(here.ping, there, count=10 * seconds, interval_ms=100)
