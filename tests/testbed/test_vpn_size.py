"""How many clients a VPN has room for: each is a file of its server's tarball, and agents take so many files."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from ap_agent.agent.archive import DEFAULT_LIMITS
from ap_agent.agent.bundle import read_bundle
from scionlab.accounts.models import User
from scionlab.delivery.render import config_for
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.scion_config.vpn import files_for, vpn_clients_admit
from scionlab.testbed import vpn_clients
from scionlab.testbed.infrastructure import vpn_create
from scionlab.testbed.models import (
    VPN,
    AttachmentPoint,
    BorderRouter,
    Host,
    Interface,
    Link,
    UserAS,
    VPNClient,
    numbers,
)
from scionlab.testbed.selectors import links_of
from scionlab.testbed.vpn_clients import MAX_CLIENTS
from scionlab.user_ases.attachments import spec_of
from scionlab.user_ases.user_as import user_as_delete, user_as_update
from tests.factories import LinkFactory, attach, spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def vpn(ap: AttachmentPoint) -> VPN:
    """Of `ap`, with addresses for 65 533 clients."""
    return vpn_create(host=ap.host, subnet="10.10.0.0/16")


def fill(vpn: VPN, ap: AttachmentPoint, owner: User) -> None:
    """As many ASes as there is room for, each with an active Link over it."""
    first = parse_as_id("ffaa:1:1000")
    ases = [UserAS.objects.create(isd=ap.AS.isd, as_id=first + one, owner=owner) for one in range(MAX_CLIENTS)]
    hosts = Host.objects.bulk_create(Host(AS=as_) for as_ in ases)
    far_routers = BorderRouter.objects.bulk_create(BorderRouter(host=host, number=1, vpn=vpn) for host in hosts)
    near_router = numbers.border_router_for(ap.host, ap.AS_id, vpn)
    ips = [str(ip) for ip in list(ipaddress.ip_network(vpn.subnet).hosts())[1 : MAX_CLIENTS + 1]]
    made = [VPNClient(vpn=vpn, host=host, ip=ip) for host, ip in zip(hosts, ips, strict=True)]
    clients = VPNClient.objects.bulk_create(made)
    vpn_clients_admit(clients)
    for number, (client, router) in enumerate(zip(clients, far_routers, strict=True)):
        near = Interface.objects.create(
            AS=ap.AS,
            host=ap.host,
            border_router=near_router,
            interface_id=number + 1,
            public_ip=vpn.server_ip,
            public_port=50_000 + number,
        )
        far = Interface.objects.create(
            AS=router.host.AS,
            host=router.host,
            border_router=router,
            vpn_client=client,
            interface_id=1,
            public_ip=client.ip,
            public_port=50_000,
        )
        LinkFactory(interface_a=near, interface_b=far, type=Link.Type.PROVIDER, bandwidth_kbit=500)


def test_agents_read_the_tarball_of_a_full_vpn_with_room_for_routers_and_trcs(
    owner: User, ap: AttachmentPoint, vpn: VPN
) -> None:
    fill(vpn, ap, owner)
    found = read_bundle(config_for(Host.objects.get(pk=ap.host_id)).content, host_id=ap.host.uid)
    assert len([name for name in found.members if "/ccd/" in name]) == len(found.links) == MAX_CLIENTS == 500
    assert DEFAULT_LIMITS.members - len(found.members) - numbers.LAST_BORDER_ROUTER >= 200, "20 TRCs of 10 ISDs"


def test_one_client_more_is_refused(
    owner: User, teammate: User, ap: AttachmentPoint, vpn: VPN, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vpn_clients, "MAX_CLIENTS", 2)
    made = [attach(owner, spec(ap, use_vpn=True)) for _ in range(2)]
    before = files_for(ap.host)
    with pytest.raises(FieldRuleError) as refused:
        attach(teammate, spec(ap, use_vpn=True))
    assert (refused.value.code, refused.value.field, refused.value.index) == ("vpn_full", "use_vpn", 0)
    assert refused.value.message == (
        "2 clients are in the VPN of 17-ffaa:0:1107, and 2 is the most. Give a public IP, or choose another attachment "
        "point."
    )
    assert files_for(ap.host) == before
    stays = replace(spec_of(links_of(made[1])[0], "dedicated"), public_port=50_007)
    user_as_update(user_as_id=made[1].pk, actor=None, label="", installation_type="dedicated", attachments=[stays])
    user_as_delete(user_as_id=made[0].pk, actor=None)
    attach(teammate, spec(ap, use_vpn=True))
    assert VPNClient.objects.filter(vpn=vpn).count() == 2
