"""For each kind of save: exactly which hosts' H and L rise, by exactly how much, and that nobody else's do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.limits.defaults import ap_default_set, ap_update, fan_out, site_default_set
from scionlab.limits.update import link_set_bandwidth, link_update
from scionlab.platform import queue
from scionlab.testbed.host import host_rotate_secret, host_set_addresses
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.testbed.selectors import links_of
from scionlab.testbed.versions.changes import Changes, read_links, view_of
from scionlab.testbed.versions.counters import host_note_delivered, host_set_deployed_version
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_change, user_as_delete
from tests.cases import table
from tests.factories import attach, save, spec, stored
from tests.support.counters import Counters

CONFIG, LIMITS, BOTH = (1, 0), (0, 1), (1, 1)


@dataclass
class World:
    """The owner's AS is attached at `a` by two Links and at `b` (over its VPN); a stranger's AS at `b` too."""

    owner: User
    user_as: UserAS
    a: AttachmentPoint
    b: AttachmentPoint
    links: list[Link]

    @property
    def specs(self) -> list[AttachmentSpec]:
        return stored(self.user_as)

    def update(self, *specs: AttachmentSpec, **values: str) -> None:
        save(self.user_as, *specs, actor=self.owner, **values)

    def set_ap(self, **values: int | bool | None) -> None:
        ap_update(attachment_point_id=self.a.pk, values=values, actor=None)

    def observe(self, index: int, *, observe_only: bool = True) -> None:
        link_update(link_id=self.links[index].pk, observe_only=observe_only, actor=None)

    def edit(self, index: int, **values: Any) -> None:
        specs = self.specs
        specs[index] = replace(specs[index], **values)
        self.update(*specs)


@pytest.fixture
def world(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint, stranger: User, ap_other: AttachmentPoint) -> World:
    user_as = attach(
        owner,
        spec(ap, bandwidth_kbit=800),
        spec(ap, public_port=50001, bandwidth_kbit=200),
        spec(ap_b, use_vpn=True, public_port=50002, bandwidth_kbit=500),
        label="Lab",
    )
    return World(owner, user_as, ap, ap_b, links_of(user_as))


def host_of(world: World) -> Host:
    return world.user_as.hosts.get()


def set_mtu(link: Link, mtu: int) -> None:
    """As the importer does."""
    (one,) = read_links({link.pk})
    before, changes = view_of(one), Changes()
    one.mtu = mtu
    one.save()
    changes.note(one.pk, before, view_of(one))
    changes.carry_out()


Save = Callable[[World], object]

SAVES: dict[str, tuple[Save, dict[str, tuple[int, int]]]] = {
    # a bandwidth alone: L of the attachment point's host alone
    "bandwidth of a link": (
        lambda w: link_set_bandwidth(link_id=w.links[0].pk, bandwidth_kbit=300, actor=w.owner),
        {"a": LIMITS},
    ),
    "bandwidths of all at two attachment points in one save": (
        lambda w: w.update(*(replace(one, bandwidth_kbit=n) for n, one in enumerate(w.specs))),
        {"a": LIMITS, "b": LIMITS},
    ),
    # unchanged values: nobody
    "the same bandwidth": (
        lambda w: link_set_bandwidth(link_id=w.links[0].pk, bandwidth_kbit=800, actor=w.owner),
        {},
    ),
    "the whole form unchanged": (lambda w: w.update(*w.specs), {}),
    "active already": (lambda w: link_update(link_id=w.links[0].pk, actor=w.owner, active=True), {}),
    "the whole AS active already": (
        lambda w: user_as_change(user_as_id=w.user_as.pk, actor=w.owner, active=True),
        {},
    ),
    "the label": (lambda w: w.update(*w.specs, label="Other"), {}),
    # structure: H of the hosts at both ends
    "a link deactivated": (
        lambda w: link_update(link_id=w.links[0].pk, actor=w.owner, active=False),
        {"a": CONFIG, "user": CONFIG},
    ),
    "the whole AS deactivated": (
        lambda w: user_as_change(user_as_id=w.user_as.pk, actor=w.owner, active=False),
        {"a": CONFIG, "b": CONFIG, "user": CONFIG},
    ),
    "an address": (lambda w: w.edit(0, public_ip="198.51.100.8"), {"a": CONFIG, "user": CONFIG}),
    "a port": (lambda w: w.edit(2, public_port=50009), {"b": CONFIG, "user": CONFIG}),
    "from the VPN to a public address": (
        lambda w: w.edit(2, use_vpn=False, public_ip="198.51.100.7"),
        {"b": CONFIG, "user": CONFIG},
    ),
    "a link added": (
        lambda w: w.update(*w.specs, spec(w.b, public_port=50003)),
        {"b": CONFIG, "user": CONFIG},
    ),
    "a link removed": (lambda w: w.update(*w.specs[1:]), {"a": CONFIG, "user": CONFIG}),
    "a link moved to another attachment point": (
        lambda w: w.edit(0, attachment_point_id=w.b.pk),
        {"a": CONFIG, "b": CONFIG, "user": CONFIG},
    ),
    "a bind address, which the attachment point does not see": (
        lambda w: w.edit(0, bind_ip="10.0.0.5", bind_port=40000),
        {"user": CONFIG},
    ),
    "the installation type, and with it where its border router binds": (
        lambda w: w.update(*w.specs, installation_type="vm"),
        {"user": CONFIG},
    ),
    "an MTU alone": (lambda w: set_mtu(w.links[0], 1400), {"a": CONFIG, "user": CONFIG}),
    # each counter for what it counts
    "a port and the bandwidth of the same link": (
        lambda w: w.edit(0, public_port=50009, bandwidth_kbit=1),
        {"a": BOTH, "user": CONFIG},
    ),
    "a port here and a bandwidth there": (
        lambda w: w.update(replace(w.specs[0], public_port=50009), w.specs[1], replace(w.specs[2], bandwidth_kbit=1)),
        {"a": CONFIG, "b": LIMITS, "user": CONFIG},
    ),
    "the AS deleted": (
        lambda w: user_as_delete(user_as_id=w.user_as.pk, actor=w.owner),
        {"a": CONFIG, "b": CONFIG},
    ),
    "another AS of the owner, with two Links here and one there": (
        lambda w: attach(w.owner, *(spec(at, public_port=1024 + n) for n, at in enumerate((w.a, w.a, w.b)))),
        {"a": CONFIG, "b": CONFIG},
    ),
    # defaults: L of the hosts where a limit changes
    "the site default lowered below some choices": (
        # the owner's 800 at `a` is clamped; at `b` the stranger's 1000 is, the owner's 500 is not
        lambda _: (site_default_set(default_bandwidth_kbit=600, actor=None), fan_out()),
        {"a": LIMITS, "b": LIMITS},
    ),
    "the default of one attachment point lowered": (
        lambda w: (
            ap_default_set(attachment_point_id=w.a.pk, default_bandwidth_kbit=100, actor=None),
            fan_out(),
            fan_out(),
        ),
        {"a": LIMITS},
    ),
    "a default lowered and raised again before anybody carried it out": (
        lambda _: (
            site_default_set(default_bandwidth_kbit=100, actor=None),
            site_default_set(default_bandwidth_kbit=1000, actor=None),
            fan_out(),
        ),
        {},
    ),
    "a bandwidth saved while a lower default is on its way": (
        lambda w: (
            ap_default_set(attachment_point_id=w.a.pk, default_bandwidth_kbit=100, actor=None),
            link_set_bandwidth(link_id=w.links[0].pk, bandwidth_kbit=50, actor=w.owner),
            fan_out(),
        ),
        {"a": LIMITS},
    ),
    # totals and observing: L of the attachment point's host alone, once
    "a total": (lambda w: w.set_ap(total_kbit=5000), {"a": LIMITS}),
    "a total that is there already": (lambda w: w.set_ap(total_kbit=None), {}),
    "a total, observing and a lower default in one save": (
        lambda w: (w.set_ap(total_kbit=5000, observe_only=True, default_bandwidth_kbit=100), fan_out()),
        {"a": LIMITS},
    ),
    "observing an attachment point": (lambda w: w.set_ap(observe_only=True), {"a": LIMITS}),
    "observing a link": (lambda w: w.observe(0), {"a": LIMITS}),
    "observing a link, and its bandwidth": (
        lambda w: link_update(link_id=w.links[0].pk, limits=Limits.both(1), observe_only=True, actor=None),
        {"a": LIMITS},
    ),
    # path metadata: H of the host with the control service, once (more: tests/paths/test_path_metadata.py)
    "limits that are published": (lambda w: w.set_ap(publishes_limits=True), {"a": CONFIG}),
    # hosts
    "an attachment point's address": (
        lambda w: host_set_addresses(
            host_id=w.a.host.pk, actor=w.owner, public_ipv4="192.0.2.77", public_ipv6="2001:db8::1", bind_ip=None
        ),
        {"a": CONFIG, "user": CONFIG},
    ),
    "an attachment point's bind address": (
        lambda w: host_set_addresses(
            host_id=w.a.host.pk, actor=w.owner, public_ipv4="192.0.2.1", public_ipv6="2001:db8::1", bind_ip="10.0.0.1"
        ),
        {"a": CONFIG},
    ),
    "a new secret": (lambda w: host_rotate_secret(host_id=w.a.host.pk, actor=w.owner), {"a": LIMITS}),
}


@table("name", SAVES)
def test_each_save_raises_exactly_these_counters(name: str, world: World) -> None:
    change, expected = SAVES[name]
    names = {world.a.host.pk: "a", world.b.host.pk: "b", host_of(world).pk: "user"}
    counters = Counters()
    change(world)
    risen = counters.risen()
    assert {names.get(host.pk, f"somebody else: {host}"): by for host, by in risen.items()} == expected


# --- inactive links are in no configuration ---------------------------------------------------------------------


INACTIVE_SAVES: dict[str, Save] = {
    "a bandwidth": lambda w: link_set_bandwidth(link_id=w.links[0].pk, bandwidth_kbit=5, actor=w.owner),
    "a port": lambda w: w.edit(0, public_port=50009),
    "removing it": lambda w: w.update(*w.specs[1:]),
    "a default": lambda w: (
        ap_default_set(attachment_point_id=w.a.pk, default_bandwidth_kbit=700, actor=None),
        fan_out(),
    ),
    "observing it": lambda w: w.observe(0),
}


@table("name", INACTIVE_SAVES)
def test_what_happens_to_an_inactive_link_raises_nothing(name: str, world: World) -> None:
    link_update(link_id=world.links[0].pk, actor=world.owner, active=False)
    counters = Counters()
    INACTIVE_SAVES[name](world)
    assert counters.risen() == {}


# --- from when on the change is delivered -------------------------------------------------------------------------


def test_a_link_knows_the_versions_that_first_have_what_it_wants(world: World) -> None:
    first, second = world.links[:2]
    host = Host.objects.get(pk=world.a.host.pk)
    assert [(link.wanted_config_version, link.wanted_limits_version) for link in (first, second)] == [(2, 1), (2, 1)]
    link_set_bandwidth(link_id=first.pk, bandwidth_kbit=300, actor=world.owner)
    for link in (first, second):
        link.refresh_from_db()
    assert (first.wanted_config_version, first.wanted_limits_version) == (2, 2)
    assert (second.wanted_config_version, second.wanted_limits_version) == (2, 1), "nothing new is wanted there"
    host.refresh_from_db()
    assert (host.config_version, host.limits_version) == (2, 2)


def test_a_clamp_marks_the_clamped_links_alone(world: World) -> None:
    ap_default_set(attachment_point_id=world.a.pk, default_bandwidth_kbit=500, actor=None)
    fan_out()
    first, second, third = Link.objects.filter(pk__in=[link.pk for link in world.links]).order_by("pk")
    assert [first.wanted_limits_version, second.wanted_limits_version] == [2, 1]
    assert third.wanted_limits_version == 1


def test_observing_an_attachment_point_is_news_of_each_of_its_active_links(world: World) -> None:
    link_update(link_id=world.links[1].pk, actor=world.owner, active=False)

    def wanted() -> list[int]:
        own = Link.objects.filter(pk__in=[link.pk for link in world.links])
        return list(own.order_by("pk").values_list("wanted_limits_version", flat=True))

    world.set_ap(total_kbit=5000)
    assert wanted() == [1, 1, 1], "a total is news of no Link"
    world.set_ap(observe_only=True)
    assert wanted() == [3, 1, 1]


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What was handed to the broker: each task with its arguments."""
    found: list[tuple[object, ...]] = []
    monkeypatch.setattr(queue, "queue_now", lambda task, *args: found.append((task, *args)))
    return found


def test_user_as_create_queues_its_own_host_too(
    world: World, django_capture_on_commit_callbacks: Any, queued: list[tuple[object, ...]]
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        made = attach(world.owner, spec(world.a, public_port=50007))
    new = made.hosts.get()
    assert (new.config_version, new.limits_version) == (1, 1)
    assert sorted(queued) == sorted((queue.RENDER_HOST, pk) for pk in (world.a.host.pk, new.pk))


def test_a_user_as_that_is_an_attachment_point_lists_its_uplink_as_it_is(world: World) -> None:
    """Its own link_info.json has the number (DOMAIN section 3): same versions, same bytes."""
    host = attachment_point_create(as_=world.user_as).host
    uplink = world.links[0]
    before = Counters()
    link_set_bandwidth(link_id=uplink.pk, bandwidth_kbit=300, actor=world.owner)
    assert before.risen() == {world.a.host: LIMITS, host: LIMITS}
    ap_default_set(attachment_point_id=world.a.pk, default_bandwidth_kbit=200, actor=None)
    fan_out()
    before = Counters()
    link_set_bandwidth(link_id=uplink.pk, bandwidth_kbit=150, actor=world.owner)
    link_set_bandwidth(link_id=uplink.pk, bandwidth_kbit=0, actor=world.owner)
    assert before.risen() == {world.a.host: (0, 2), host: (0, 2)}
    before = Counters()
    link_set_bandwidth(link_id=uplink.pk, bandwidth_kbit=1, actor=world.owner)
    assert before.risen() == {world.a.host: LIMITS}, "0 is listed as 1 there"


def test_an_infrastructure_link_is_news_only_where_it_is_listed(world: World) -> None:
    core = infrastructure_as_create(
        isd=17, as_text="ffaa:0:1101", label="core", is_core=True, public_ipv4="192.0.2.100"
    )
    link = infrastructure_link_create(a=core, b=world.a.AS, type=Link.Type.PROVIDER)
    before = Counters()
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=77, actor=world.owner)
    assert before.risen() == {world.a.host: LIMITS}, "the core AS has no link_info.json"


# --- what was delivered and what is installed ---------------------------------------------------------------------


def test_what_was_delivered_only_rises_and_only_at_its_host(ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    def noted(host: Host) -> tuple[int, int, bool]:
        host.refresh_from_db()
        return host.delivered_config_version, host.delivered_limits_version, host.delivered_at is not None

    untouched = noted(ap_b.host)
    for told, kept in (((3, 5), (3, 5)), ((4, 4), (4, 5)), ((2, 6), (4, 6)), ((4, 6), (4, 6))):
        host_note_delivered(host_id=ap.host.pk, config_version=told[0], limits_version=told[1])
        assert noted(ap.host) == (*kept, True)
    Host.objects.update(delivered_at=None)
    host_note_delivered(host_id=ap.host.pk, config_version=4, limits_version=6)
    host_note_delivered(host_id=ap.host.pk, config_version=1, limits_version=1)
    assert noted(ap.host) == (4, 6, False), "no news is not written"
    assert noted(ap_b.host) == untouched


def test_a_host_installs_no_version_that_is_older_or_not_made_yet(ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    Host.objects.update(config_version=9, config_version_deployed=4)
    for told, is_stored in ((5, True), (5, True), (4, False), (10, False), (9, True)):
        assert host_set_deployed_version(host_id=ap.host.pk, config_version=told) is is_stored
    deployed = dict(Host.objects.values_list("pk", "config_version_deployed"))
    assert (deployed[ap.host.pk], deployed[ap_b.host.pk]) == (9, 4)
