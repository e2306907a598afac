"""What the service does to a testbed that runs: an AS is deleted, a new line of TRCs begins. Real SCION throughout, and
rows, tarballs and answers are all the service's.

core 17-ffaa:0:1101  192.0.2.2 ─┐          ┌─ 192.0.2.1  17-ffaa:0:1107 attachment point
anna 17-ffaa:1:1     192.0.2.11 ┴─ switch ─┴─ 192.0.2.12 17-ffaa:1:2    ben
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.http import HttpResponse
from django.test import Client

from lab.scion.host import Pings, ScionHost
from measuring.iproute import LabError
from measuring.netns import Lab
from scionlab.enforcement.generation import generation_raise
from scionlab.scion_config.isd import trc_reset
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, ISD, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.factories import UserFactory, attach, spec
from tests.scion.conftest import PREFIX
from tests.support.namespaces import a_lab
from tests.support.polling import basic, config_members

pytestmark = [pytest.mark.django_db, pytest.mark.kernel, pytest.mark.timeout(300)]

CORE, AP, ANNA, BEN = "17-ffaa:0:1101", "17-ffaa:0:1107", "17-ffaa:1:1", "17-ffaa:1:2"
ADDRESSES = {CORE: "192.0.2.2", AP: "192.0.2.1", ANNA: "192.0.2.11", BEN: "192.0.2.12"}
START_S = 60.0
GONE_S = 15.0  # three intervals in which control services send beacons


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


@pytest.fixture
def net(scion_programs: None, db: None, tmp_path: Path) -> Iterator[ServiceNet]:
    with a_lab(PREFIX) as lab:
        yield ServiceNet(lab, tmp_path)


def neighbours(net: ServiceNet) -> set[str]:
    """Of the attachment point, as its topology has them."""
    routers = net.ap.topology["border_routers"].values()
    return {interface["isd_as"] for router in routers for interface in router["interfaces"].values()}


def test_a_new_line_of_trcs_is_believed_and_then_a_deleted_as_forgotten(net: ServiceNet) -> None:
    """On one network: it takes half a minute to start."""
    new_line_is_believed_by_those_who_have_fetched_it(net)
    deleted_as_is_forgotten_by_its_attachment_point_and_the_others_keep_their_paths(net)


def new_line_is_believed_by_those_who_have_fetched_it(net: ServiceNet) -> None:
    isd = ISD.objects.get(isd_id=17)
    trc_reset(isd_id=isd.pk, base=2, actor=None)
    generation_raise()
    for isd_as in (CORE, AP):
        net.hosts[isd_as].update(net.pulled(isd_as))
    assert (net.core.config / "certs/ISD17-B2-S2.trc").exists()
    # Who has not fetched finds no new paths, and packets go on along those that were found.
    assert net.anna.until(lambda: net.anna.ping(net.core, 1).received, START_S, began=time.monotonic()) is not None
    with pinging(net.anna, net.core, seconds=10) as running:
        net.ben.forget_paths()
        time.sleep(GONE_S)
        assert net.ben.paths(CORE) == []
        found = running.result()
    assert (found.sent, found.received) == (100, 100)
    net.ben.update(net.pulled(BEN))
    assert time_until_answers(net.ben, CORE) is not None
    net.anna.update(net.pulled(ANNA))
    net.anna.forget_paths()
    assert time_until_answers(net.anna, CORE) is not None
    assert time_until_answers(net.anna, BEN) is not None
    for host in net.hosts.values():
        host.check()


def deleted_as_is_forgotten_by_its_attachment_point_and_the_others_keep_their_paths(net: ServiceNet) -> None:
    assert neighbours(net) == {CORE, ANNA, BEN}
    before = Host.objects.get(pk=net.rows[AP].pk).config_version
    with pinging(net.anna, net.core, seconds=12) as running:
        user_as_delete(user_as_id=net.ben_as.pk, actor=None)
        assert Host.objects.get(pk=net.rows[AP].pk).config_version == before + 1
        net.ap.update(net.pulled(AP))
        found = running.result()
    lost = found.sent - found.received
    assert found.sent == 120
    assert lost <= 60, "28 were seen, ten a second: the routers restart, and take their links up again"
    assert neighbours(net) == {CORE, ANNA}
    for here in (net.anna, net.core):
        assert here.ping(net.ben).received == 0, here.isd_as
        assert here.paths(BEN) != [], "a segment lives for 6 hours"
        assert here.paths(BEN, probe=True) == []
    answer = net.poll(BEN)
    assert (answer.status_code, answer.content) == (204, b"")

    # Who knows nothing any more learns the paths that are left; the deleted AS learns none.
    net.ben.forget_paths()
    net.anna.forget_paths()
    assert time_until_answers(net.anna, CORE) is not None
    time.sleep(GONE_S)
    assert net.ben.paths(CORE) == []
    net.ben.stop()
    for host in (net.core, net.ap, net.anna):
        host.check()
