"""Limits as path metadata: real SCION on the configurations of the service shows them, and nothing restarts for one.

core 192.0.2.2 ── switch ── 192.0.2.1 attachment point (interface 1 to the core, 2 to the user AS), 192.0.2.11 user
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bandwidth_config import Limits
from contract.scion_files import FOLDER, PATH_METADATA_PATH
from lab.scion.host import ScionHost
from lab.scion.net import CORE, START_S
from scionlab.delivery.render import config_for
from scionlab.limits.defaults import ap_update
from scionlab.limits.update import link_update
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AttachmentPoint, Host, Link
from scionlab.testbed.versions.counters import hosts_bump
from tests.factories import UserFactory, attach, spec
from tests.scion.conftest import PREFIX
from tests.support.namespaces import a_lab
from tests.support.polling import config_members

pytestmark = [pytest.mark.django_db, pytest.mark.kernel, pytest.mark.timeout(300)]

METADATA = PATH_METADATA_PATH.removeprefix(f"{FOLDER}/")
NO_METADATA = "Static info settings disabled"  # what a control service logs of a file that is not there, or not valid
# Each kind, with the largest values that we take; interface 4094 leads nowhere.
ENTRIES = {
    "Latency": {"2": {"Inter": "12ms", "Intra": {"1": "250us"}}, "4094": {"Inter": "4294967295us"}},
    "Bandwidth": {
        "2": {"Inter": 7, "Intra": {"1": 2_000_000}},
        "4094": {"Inter": 2**64 - 1, "Intra": {"1": 2**64 - 1}},
    },
    "Geo": {"2": {"Latitude": 47.5, "Longitude": -180, "Address": "Zürich"}},
    "LinkType": {"2": "opennet", "4093": "direct", "4094": "multihop"},
    "Hops": {"2": {"Intra": {"1": 3}}, "4094": {"Intra": {"1": 2**32 - 1}}},
    "Note": "Ring 3",
}


@dataclass
class Net:
    """The three ASes, running, and the rows of the one that publishes."""

    ap_row: AttachmentPoint
    link: Link
    core: ScionHost
    ap: ScionHost
    user: ScionHost

    def set(self, **values: str | bool) -> None:
        ap_update(attachment_point_id=self.ap_row.pk, values=values, actor=None)

    def install_metadata(self) -> None:
        """As the stock client does with the newest configuration, and no program restarts."""
        content = members_of(self.ap_row.host).get(PATH_METADATA_PATH)
        if content is None:
            (self.ap.config / METADATA).unlink()
        else:
            self.ap.install({METADATA: content})

    def shown(self) -> str:
        """`scion showpaths --extended` of the user AS, once it has found its paths anew."""
        self.user.forget_paths()
        assert self.user.time_until_path(CORE, START_S) is not None
        return self.user.extended_paths(CORE)

    def shown_after_restart(self) -> str:
        """The same, of beacons from an attachment point whose control service was started again."""
        self.ap.stop("control")
        self.ap.start("control")
        return self.shown()


def members_of(host: Host) -> dict[str, bytes]:
    return config_members(config_for(Host.objects.select_related("AS__isd").get(pk=host.pk)).content)


@pytest.fixture
def net(scion_programs: None, db: None, tmp_path: Path) -> Iterator[Net]:
    core = infrastructure_as_create(isd=17, as_text="ffaa:0:1101", label="", is_core=True, public_ipv4="192.0.2.2")
    as_ = infrastructure_as_create(isd=17, as_text="ffaa:0:1107", label="", is_core=False, public_ipv4="192.0.2.1")
    infrastructure_link_create(a=core, b=as_, type=Link.Type.PROVIDER)
    ap = attachment_point_create(as_=as_)
    user_as = attach(UserFactory(), spec(ap, public_ip="192.0.2.11", bandwidth_kbit=800, from_user_kbit=500))
    ap_update(
        attachment_point_id=ap.pk,
        values={"publishes_limits": True, "path_metadata": json.dumps(ENTRIES)},
        actor=None,
    )
    with a_lab(PREFIX) as lab:
        switch, hosts = lab.switch("switch"), {}
        for name, row in {"core": core, "ap": as_, "user": user_as}.items():
            host = row.hosts.get()
            namespace = lab.namespace(name)
            switch.plug(namespace.nic("eth0", f"{host.public_ipv4 or '192.0.2.11'}/24"))
            hosts[name] = ScionHost(namespace, tmp_path / name, members_of(host))
        for scion_host in hosts.values():
            scion_host.start()
        assert hosts["user"].time_until_path(CORE, START_S) is not None, hosts["user"].said("control")[-2000:]
        yield Net(ap, Link.objects.get(interface_b__AS=user_as.pk), **hosts)


def test_a_user_as_sees_its_limit_in_scion_s_path_metadata(net: Net) -> None:
    shown = net.user.extended_paths(CORE)
    assert "Bandwidth: 500Kbit/s" in shown
    for words in ("Latency: >12.25ms", "LinkType: [opennet, unset]", '"Zürich"', "17-ffaa:0:1107: 3", '"Ring 3"'):
        assert words in shown
    assert NO_METADATA not in net.ap.said("control")
    assert NO_METADATA in net.core.said("control")

    link_update(link_id=net.link.pk, actor=None, limits=Limits(300, 400))
    hosts_bump(config_ids=[net.ap_row.host_id])
    net.install_metadata()
    assert "Bandwidth: 500Kbit/s" in net.shown(), "the control service reads it once, at its start"
    assert "Bandwidth: 300Kbit/s" in net.shown_after_restart()

    net.set(publishes_limits=False, path_metadata="")
    net.install_metadata()
    assert "Bandwidth" not in net.shown_after_restart()
    for host in (net.core, net.ap, net.user):
        host.check()
