"""A real SCION network on the keys that the service stores and hands out, through a leak of the core AS's keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import timezone

from lab.scion import net as lab_net
from lab.scion.net import AP, CORE, START_S, USER, ScionNet
from measuring.iproute import available, cleanup_stale
from scionlab.accounts.models import User
from scionlab.platform.notation.isd_as import parse_isd_as
from scionlab.scion_config.chain import as_new_keys
from scionlab.scion_config.credentials import files_for
from scionlab.scion_config.renewal import keys_renew
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.models import AS, Host
from tests.factories import UserFactory, attach, spec
from tests.scion.conftest import PREFIX

pytestmark = [pytest.mark.django_db, pytest.mark.kernel, pytest.mark.timeout(300)]


def trust_of(isd_as: str) -> dict[str, bytes]:
    """What the tarball of the AS's host has of it, below etc/scion."""
    as_ = AS.objects.get(as_id=parse_isd_as(isd_as)[1])
    found = files_for(Host.objects.get(AS=as_))
    return {name.removeprefix("etc/scion/"): content for name, content in found.items()}


class ServiceKeys:
    """In place of the lab's own."""

    def __init__(self, _now: object) -> None:
        values = {"isd": 17, "label": ""}
        infrastructure_as_create(as_text="ffaa:0:1101", is_core=True, public_ipv4="198.51.100.1", **values)
        as_ = infrastructure_as_create(as_text="ffaa:0:1107", is_core=False, public_ipv4="192.0.2.1", **values)
        attach(UserFactory(), spec(attachment_point_create(as_=as_), public_ip="192.0.2.11"))

    def host_files(self, isd_as: str, _now: object) -> dict[str, bytes]:
        return trust_of(isd_as)


@pytest.fixture
def net(scion_programs: None, db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScionNet]:
    reason = available()
    if reason is not None:
        pytest.skip(reason)
    cleanup_stale(PREFIX)
    monkeypatch.setattr(lab_net, "Keys", ServiceKeys)
    with ScionNet(PREFIX, tmp_path) as made:
        yield made


def test_scion_runs_on_the_service_s_keys_and_goes_on_after_the_core_as_lost_its_own(net: ScionNet) -> None:
    assert net.user.paths(CORE, probe=True) == ["17-ffaa:1:1#0,1 17-ffaa:0:1107#21,11 17-ffaa:0:1101#1,0"]
    before = {isd_as: trust_of(isd_as) for isd_as in (CORE, AP, USER)}
    core = AS.objects.get(is_core=True)
    as_new_keys(as_id=core.pk, actor=User.objects.create(email="boss@example.org"), core=True)
    assert keys_renew(now=timezone.now()) == 2
    for host in (net.core, net.ap, net.user):
        files = trust_of(host.isd_as)
        assert "certs/ISD17-B1-S2.trc" in files
        assert files["crypto/as/cp-as.key"] != before[host.isd_as]["crypto/as/cp-as.key"]
        host.install(files)
    found = net.user.ping(net.core)
    assert (found.sent, found.received) == (5, 5)
    net.user.forget_paths()
    assert net.user.time_until_path(CORE, START_S) is not None
    for host in (net.core, net.ap, net.user):
        host.check()
