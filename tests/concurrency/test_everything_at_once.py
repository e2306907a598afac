"""Every service against every other one: no two of them wait for each other, and in the end all rows fit together."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scionlab.accounts.models import User
from scionlab.limits.defaults import ap_default_set, fan_out, site_default_set
from scionlab.limits.update import link_set_active, link_set_bandwidth
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed import selectors
from scionlab.testbed.host import host_rotate_secret, host_set_addresses
from scionlab.testbed.models import AttachmentPoint, Host, Interface, Link, UserAS, VPNClient
from scionlab.testbed.selectors import links_of
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.user_ases.user_as import user_as_delete, user_as_set_active, user_as_update
from tests.factories import UserFactory, attach, spec

THREADS, OPERATIONS = 6, 15
AtOnce = Callable[..., list[Any]]


class Person:
    """Does random things to everybody's ASes; the seed makes the sequence of tries the same in each run."""

    def __init__(self, number: int, aps: list[AttachmentPoint]) -> None:
        self._random = random.Random(number)  # noqa: S311  no secret
        self._user = UserFactory(email=f"p{number}@example.org", as_quota=50)
        self._ip = f"198.51.100.{number + 1}"
        self._aps = aps

    def work(self) -> list[str]:
        """What went through; rules that refuse and things that are gone meanwhile are part of the day."""
        done = []
        for _ in range(OPERATIONS):
            action = self._random.choice(ACTIONS)
            try:
                action(self)
                done.append(action.__name__)
            except (FieldRuleError, Link.DoesNotExist, UserAS.DoesNotExist):
                continue
        return done

    def _specs(self) -> list[Any]:
        ports = self._random.sample(range(50_000, 50_100), 2)
        return [
            spec(ap, public_ip=self._ip, public_port=port, bandwidth_kbit=self._random.randrange(0, 900))
            for ap, port in zip(self._random.sample(self._aps, 2), ports, strict=True)
        ]

    def _some_as(self) -> int:
        ids = list(UserAS.objects.values_list("pk", flat=True))
        return self._random.choice(ids) if ids else 0

    def _some_link(self) -> int:
        ids = list(Link.objects.values_list("pk", flat=True))
        return self._random.choice(ids) if ids else 0

    def create(self) -> None:
        attach(self._user, *self._specs())

    def create_over_vpn(self) -> None:
        attach(self._user, spec(self._aps[0], use_vpn=True))

    def update(self) -> None:
        pk = self._some_as()
        user_as_update(
            user_as_id=pk, actor=self._user, label="", installation_type="dedicated", attachments=self._specs()
        )

    def switch(self) -> None:
        user_as_set_active(user_as_id=self._some_as(), actor=None, active=self._random.random() < 0.7)

    def delete(self) -> None:
        user_as_delete(user_as_id=self._some_as(), actor=self._user)

    def save_bandwidth(self) -> None:
        kbit = self._random.randrange(0, 900)
        link_set_bandwidth(link_id=self._some_link(), bandwidth_kbit=kbit, actor=self._user)

    def switch_link(self) -> None:
        link_set_active(link_id=self._some_link(), actor=None, active=self._random.random() < 0.7)

    def site_default(self) -> None:
        site_default_set(default_bandwidth_kbit=self._random.randrange(1, 1000), actor=None)

    def ap_default(self) -> None:
        kbit = self._random.choice([None, 0, 300, 900])
        ap_default_set(attachment_point_id=self._random.choice(self._aps).pk, default_bandwidth_kbit=kbit, actor=None)

    def carry_out(self) -> None:
        fan_out()

    def move_host(self) -> None:
        host = self._random.choice(self._aps).host
        ipv4 = f"192.0.2.{self._random.randrange(10, 90)}"
        host_set_addresses(
            host_id=host.pk, actor=self._user, public_ipv4=ipv4, public_ipv6=host.public_ipv6, bind_ip=None
        )

    def new_secret(self) -> None:
        host_rotate_secret(host_id=self._random.choice(self._aps).host.pk, actor=self._user)

    def bump_all(self) -> None:
        hosts_bump(config_ids=list(Host.objects.order_by("?").values_list("pk", flat=True)))


ACTIONS = [
    *([Person.create, Person.update, Person.save_bandwidth] * 2),
    Person.create_over_vpn,
    Person.switch,
    Person.delete,
    Person.switch_link,
    Person.site_default,
    Person.ap_default,
    Person.carry_out,
    Person.move_host,
    Person.new_secret,
    Person.bump_all,
]


@pytest.mark.parametrize("seed", [0, 100])
def test_everybody_at_once(seed: int, ap: AttachmentPoint, ap_b: AttachmentPoint, owner: User, at_once: AtOnce) -> None:
    people = [Person(seed + number, [ap, ap_b]) for number in range(THREADS)]
    attach(owner, spec(ap, public_ip="198.51.100.200"))
    results = at_once(*(partial(one.work) for one in people))
    assert [one for one in results if isinstance(one, Exception)] == [], "no deadlock, no broken constraint"
    assert len({name for done in results for name in done}) >= 10, "most kinds of saves went through"
    fan_out()
    _everything_goes_together()


def _everything_goes_together() -> None:
    for ap in AttachmentPoint.objects.select_related("host"):
        assert ap.maximum_kbit == selectors.default_in_force(ap)
    for user_as in UserAS.objects.all():
        assert 1 <= len(links_of(user_as)) <= 5
    links = Link.objects.select_related("interface_a__host", "interface_b")
    remote = [(link.interface_a.host_id, link.interface_b.public_ip, link.interface_b.public_port) for link in links]
    assert len(remote) == len(set(remote)), "one socket, one Link"
    for link in links:
        host = link.interface_a.host
        assert link.wanted_config_version <= host.config_version
        assert link.wanted_limits_version <= host.limits_version
        assert link.interface_a.public_ip in {*host.public_ips, "10.10.1.1"}, "interfaces moved along with their host"
    assert Interface.objects.count() == 2 * len(links), "no end without a Link"
    assert not VPNClient.objects.filter(interfaces=None).exists(), "no address is kept for nobody"
