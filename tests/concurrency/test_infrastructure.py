"""Two administrators at once: numbers of border routers, and a host that moves while a Link is made to it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from scionlab.accounts.models import User
from scionlab.limits import update
from scionlab.testbed import infrastructure, infrastructure_links
from scionlab.testbed.host import border_router_create, host_set_addresses
from scionlab.testbed.models import AS, ISD, BandwidthChange, Host, Interface, Link, numbers
from tests.concurrency.conftest import AtOnce, MeetIn, failures


@pytest.fixture
def core(transactional_db: None) -> AS:
    """An AS that is no attachment point: only its own row guards it."""
    return infrastructure.infrastructure_as_create(
        isd=17, as_text="ffaa:0:1101", label="Core", is_core=True, public_ipv4="192.0.2.11", internal_ip="10.0.0.1"
    )


@pytest.fixture
def other(transactional_db: None) -> AS:
    return infrastructure.infrastructure_as_create(
        isd=17, as_text="ffaa:0:1102", label="Other", is_core=True, public_ipv4="192.0.2.12"
    )


def two_routers(core: AS, owner: User, at_once: AtOnce) -> list[Any]:
    host = core.hosts.get()
    return at_once(*(partial(border_router_create, host=host, actor=owner) for _ in range(2)))


def test_two_routers_get_two_numbers(core: AS, owner: User, at_once: AtOnce, meet_in: MeetIn) -> None:
    meeting = meet_in(numbers, "free_border_router_number")
    made = two_routers(core, owner, at_once)
    assert not meeting.met
    assert sorted(router.number for router in made) == [2, 3]


def link_while_moving(core: AS, other: AS, owner: User, at_once: AtOnce) -> tuple[list[Any], str | None, str]:
    """What both returned, the address that the host of `core` ends up with, and that of its new interface."""
    host = core.hosts.get()
    move = partial(
        host_set_addresses, host_id=host.pk, actor=owner, public_ipv4="192.0.2.99", public_ipv6=None, bind_ip=None
    )
    link = partial(infrastructure_links.infrastructure_link_create, a=core, b=other, type=Link.Type.CORE)
    results = at_once(move, link)
    return results, Host.objects.get(pk=host.pk).public_ipv4, Interface.objects.get(host=host).public_ip


def test_a_host_that_moves_takes_a_link_along_that_is_being_made(
    core: AS, other: AS, owner: User, at_once: AtOnce
) -> None:
    for address in ("192.0.2.98", "192.0.2.97", "192.0.2.96"):
        results, host_ip, interface_ip = link_while_moving(core, other, owner, at_once)
        assert failures(results) == []
        assert (host_ip, interface_ip) == ("192.0.2.99", "192.0.2.99")
        Link.objects.get().interface_a.delete()
        Interface.objects.all().delete()
        Host.objects.filter(AS=core).update(public_ipv4=address)


def two_first_ases(at_once: AtOnce, *as_texts: str) -> list[Any]:
    create = infrastructure.infrastructure_as_create
    values: dict[str, Any] = {"isd": 18, "label": "", "is_core": True, "public_ipv4": "192.0.2.13"}
    return at_once(*(partial(create, as_text=text, **values) for text in as_texts))


def test_two_administrators_make_the_first_ases_of_an_isd(at_once: AtOnce, meet_in: MeetIn) -> None:
    meeting = meet_in(infrastructure, "check_isd_id")
    made = two_first_ases(at_once, "ffaa:0:1201", "ffaa:0:1202")
    assert not meeting.met
    assert sorted(as_.isd_as for as_ in made) == ["18-ffaa:0:1201", "18-ffaa:0:1202"]
    assert ISD.objects.filter(isd_id=18).count() == 1


def test_two_bandwidths_of_a_line_follow_each_other_in_the_history(
    core: AS, other: AS, at_once: AtOnce, meet_in: MeetIn
) -> None:
    """No attachment point's row guards this Link: its own has to be locked."""
    link = infrastructure_links.infrastructure_link_create(a=core, b=other, type=Link.Type.CORE, bandwidth_kbit=100)
    meet_in(update, "locked_link")
    save = partial(update.link_set_bandwidth, link_id=link.pk, actor=None)
    saved = at_once(*(partial(save, bandwidth_kbit=kbit) for kbit in (200, 300)))
    assert failures(saved) == []
    rows = list(BandwidthChange.objects.filter(link=link).order_by("pk").values_list("old_kbit", "new_kbit"))
    assert [old for old, _ in rows] == [None, 100, rows[1][1]]
