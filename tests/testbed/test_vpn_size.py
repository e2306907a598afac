"""How many clients a VPN has room for: each is a file of its server's tarball, and agents take so many files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ap_agent.agent.archive import DEFAULT_LIMITS
from ap_agent.agent.bundle import read_bundle
from scionlab.accounts.models import User
from scionlab.delivery.render import config_for
from scionlab.platform.field_errors import FieldRuleError
from scionlab.scion_config.vpn import files_for
from scionlab.testbed import vpn_clients
from scionlab.testbed.infrastructure import vpn_create
from scionlab.testbed.models import VPN, AttachmentPoint, Host, VPNClient, numbers
from scionlab.testbed.vpn_clients import MAX_CLIENTS
from scionlab.user_ases.user_as import user_as_delete
from tests.factories import attach, save, spec, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def vpn(ap: AttachmentPoint) -> VPN:
    """Of `ap`, with addresses for 65 533 clients."""
    return vpn_create(host=ap.host, subnet="10.10.0.0/16")


def test_agents_take_a_file_of_each_client_with_room_for_routers_and_trcs(
    owner: User, teammate: User, ap: AttachmentPoint, vpn: VPN
) -> None:
    def members() -> set[str]:
        content = config_for(Host.objects.get(pk=ap.host_id)).content
        return set(read_bundle(content, host_id=ap.host.uid).members)

    attach(owner, spec(ap, use_vpn=True))
    of_one = members()
    attach(teammate, spec(ap, use_vpn=True))
    (added,) = members() - of_one
    assert "/ccd/" in added
    assert MAX_CLIENTS == 500
    assert DEFAULT_LIMITS.members - len(of_one) - 499 - numbers.LAST_BORDER_ROUTER >= 200, "20 TRCs of 10 ISDs"


def test_one_client_more_is_refused(
    owner: User, teammate: User, ap: AttachmentPoint, vpn: VPN, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vpn_clients, "MAX_CLIENTS", 2)
    made = [attach(owner, spec(ap, use_vpn=True)) for _ in range(2)]
    before = files_for(ap.host)
    with pytest.raises(FieldRuleError) as refused:
        attach(teammate, spec(ap, use_vpn=True))
    assert (refused.value.code, refused.value.field, refused.value.index) == ("vpn_full", "use_vpn", 0)
    assert files_for(ap.host) == before
    save(made[1], replace(stored(made[1])[0], public_port=50_007))
    user_as_delete(user_as_id=made[0].pk, actor=None)
    attach(teammate, spec(ap, use_vpn=True))
    assert VPNClient.objects.filter(vpn=vpn).count() == 2
