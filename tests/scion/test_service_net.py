"""What the service does to a testbed that runs: an AS is deleted, a new line of TRCs begins. Real SCION throughout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from measuring.iproute import available, cleanup_stale
from measuring.netns import Lab
from scionlab.enforcement.generation import generation_raise
from scionlab.scion_config.isd import trc_reset
from scionlab.testbed.models import ISD, Host
from scionlab.user_ases.user_as import user_as_delete
from tests.scion.conftest import PREFIX
from tests.scion.service_net import ANNA, AP, BEN, CORE, START_S, ServiceNet, pinging, time_until_answers

pytestmark = [pytest.mark.django_db, pytest.mark.kernel, pytest.mark.timeout(300)]

GONE_S = 15.0  # three intervals in which control services send beacons


@pytest.fixture
def net(scion_programs: None, db: None, tmp_path: Path) -> Iterator[ServiceNet]:
    if (reason := available()) is not None:
        pytest.skip(reason)
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
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
