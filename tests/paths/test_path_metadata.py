"""Limits as path metadata of SCION: who turns it on, what raises H, what pages say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from bandwidth_config import Limits
from contract.scion_files import PATH_METADATA_PATH
from scionlab.accounts.models import User
from scionlab.delivery.render import config_for
from scionlab.limits.defaults import ap_update, refuse_older_page
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_update
from scionlab.testbed.infrastructure import attachment_point_create, attachment_point_delete
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, UserAS
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.web.pages.stale_pages import StalePageError
from tests.factories import AttachmentPointFactory, HostFactory, attach, spec
from tests.support.counters import Counters
from tests.support.html import Page
from tests.support.polling import config_members

pytestmark = pytest.mark.django_db

CONFIG, LIMITS = (1, 0), (0, 1)
NOTE = '{"Note": "Ring 3"}'


def set_ap(ap: AttachmentPoint, **values: Any) -> None:
    ap_update(attachment_point_id=ap.pk, values=values, actor=None)


def metadata(host: Host) -> dict[str, Any] | None:
    """staticInfoConfig.json of the tarball that the host would get now."""
    content = config_members(config_for(Host.objects.get(pk=host.pk)).content).get(PATH_METADATA_PATH)
    return None if content is None else json.loads(content)


def limit_of(link: Link) -> int | None:
    found = metadata(link.interface_a.host)
    assert found is not None
    number: int | None = found["Bandwidth"].get(str(link.interface_a.interface_id), {}).get("Inter")
    return number


@pytest.fixture
def publishing(ap: AttachmentPoint, link: Link) -> AttachmentPoint:
    """The attachment point of `link` publishes its 1000 kbit/s."""
    set_ap(ap, publishes_limits=True)
    return ap


# --- on and off -----------------------------------------------------------------------------------------------------


def test_it_is_off_until_somebody_turns_it_on(ap: AttachmentPoint, link: Link) -> None:
    assert metadata(ap.host) is None
    counters = Counters()
    set_ap(ap, publishes_limits=True)
    assert counters.risen() == {ap.host: CONFIG}
    assert metadata(ap.host) == {"Bandwidth": {"1": {"Inter": 1000}}}
    set_ap(ap, publishes_limits=False)
    assert metadata(ap.host) is None


def test_both_in_one_save_raise_h_once_and_a_total_raises_l_beside(ap: AttachmentPoint, link: Link) -> None:
    counters = Counters()
    set_ap(ap, publishes_limits=True, path_metadata=NOTE, total_kbit=5000, observe_only=False)
    assert counters.risen() == {ap.host: (1, 1)}
    assert metadata(ap.host) == {"Note": "Ring 3", "Bandwidth": {"1": {"Inter": 1000}}}


def test_siblings_of_the_control_service_s_host_do_not_restart(publishing: AttachmentPoint) -> None:
    sibling = HostFactory(AS=publishing.AS)
    counters = Counters()
    set_ap(publishing, path_metadata=NOTE)
    assert counters.risen() == {publishing.host: CONFIG}
    assert metadata(sibling) is None


def test_an_attachment_point_that_is_deleted_takes_its_metadata_along(ap_b: AttachmentPoint) -> None:
    set_ap(ap_b, path_metadata=NOTE)
    counters = Counters()
    attachment_point_delete(attachment_point_id=ap_b.pk)
    assert counters.risen() == {ap_b.host: (1, 1)}
    assert metadata(ap_b.host) is None


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_changed_limit_raises_l_alone_and_is_in_the_next_configuration(
    publishing: AttachmentPoint, link: Link
) -> None:
    counters = Counters()
    link_update(link_id=link.pk, actor=None, limits=Limits(400, 300))
    assert counters.risen() == {publishing.host: LIMITS}
    hosts_bump(config_ids=[publishing.host_id])
    assert limit_of(link) == 300


def test_one_configuration_has_the_same_bytes_however_often_it_is_made(publishing: AttachmentPoint, link: Link) -> None:
    """What is published is a function of the versions: with another limit L is another one, as the manifest says."""

    def made() -> tuple[tuple[int, int, int], bytes]:
        cache.clear()
        found = config_for(Host.objects.get(pk=publishing.host_id))
        return found.version, found.content

    first = made()
    assert made() == first
    timed_limit_create(link_id=link.pk, profile=constant(Limits.both(7), 3600), begins_at=None, actor=None)
    assert limit_of(link) == 1000
    link_update(link_id=link.pk, actor=None, limits=Limits.both(300))
    second = made()
    generation, configuration, limits = first[0]
    assert second[0] == (generation, configuration, limits + 2)
    assert made() == second
    assert limit_of(link) == 300


def test_a_control_service_on_another_host_than_the_links_has_the_limits_of_its_versions(owner: User) -> None:
    """Its L rises with theirs: nothing else would say that its file is another one."""
    first = HostFactory()
    ap = AttachmentPointFactory(AS=first.AS, host__AS=first.AS)
    link = Link.objects.get(interface_b__AS=attach(owner, spec(ap)).pk)
    counters = Counters()
    set_ap(ap, publishes_limits=True)
    assert counters.risen() == {first: CONFIG}
    assert metadata(ap.host) is None
    assert metadata(first) == {"Bandwidth": {"1": {"Inter": 1000}}}
    counters = Counters()
    link_update(link_id=link.pk, actor=None, limits=Limits.both(300))
    assert counters.risen() == {first: LIMITS, ap.host: LIMITS}
    assert metadata(first) == {"Bandwidth": {"1": {"Inter": 300}}}
    set_ap(ap, publishes_limits=False)
    counters = Counters()
    link_update(link_id=link.pk, actor=None, limits=Limits.both(400))
    assert counters.risen() == {ap.host: LIMITS}


# --- pages ----------------------------------------------------------------------------------------------------------


def page_of(client: Client, link: Link) -> str:
    return Page(client.get(reverse("link_detail", args=[link.interface_b.AS_id, link.pk]))).text


def form(ap: AttachmentPoint, **values: str) -> dict[str, str]:
    found = AttachmentPoint.objects.get(pk=ap.pk)
    typed = {"default_bandwidth_kbit": "", "total_kbit": "", "path_metadata": found.path_metadata, "reason": ""}
    return {**typed, **({"publishes_limits": "on"} if found.publishes_limits else {}), **values}


def url_of(ap: AttachmentPoint) -> str:
    return reverse("admin:testbed_attachmentpoint_change", args=[ap.pk])


def test_an_administrator_sets_both_on_the_page_of_the_attachment_point(
    door: Client, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    counters = Counters()
    typed = form(ap, publishes_limits="on", path_metadata=NOTE, reason="asked for")
    assert door.post(url_of(ap), typed).status_code == 302
    assert counters.risen() == {ap.host: CONFIG}
    row = BandwidthChange.objects.get(kind="ap_metadata")
    assert (row.actor, row.reason) == (staff, "asked for")
    assert row.text == "Limits are published; the operator's entries changed"
    counters = Counters()
    assert door.post(url_of(ap), form(ap)).status_code == 302
    assert counters.risen() == {}
    assert door.post(url_of(ap), form(ap, path_metadata="")).status_code == 302
    assert metadata(ap.host) == {"Bandwidth": {"1": {"Inter": 1000}}}


def test_a_page_that_somebody_made_old_undoes_nothing(ap: AttachmentPoint) -> None:
    longest = json.dumps({"Note": '"' * 4990})
    set_ap(ap, path_metadata=longest)
    shown = {"path_metadata": "", "publishes_limits": False}
    values = {"path_metadata": NOTE, "publishes_limits": False}
    with pytest.raises(StalePageError):
        refuse_older_page(attachment_point_id=ap.pk, values=values, shown=shown)


def test_the_page_of_the_longest_entries_can_be_saved(door: Client, ap: AttachmentPoint) -> None:
    set_ap(ap, path_metadata=json.dumps({"Note": '"' * 4990}))
    shown = door.get(url_of(ap)).context["shown"]
    assert len(shown) > 19_000
    assert door.post(url_of(ap), form(ap, _shown=shown, path_metadata=NOTE)).status_code == 302
    assert AttachmentPoint.objects.get(pk=ap.pk).metadata_entries == {"Note": "Ring 3"}


def test_the_owner_reads_it_on_the_page_of_the_link(
    client: Client, owner: User, ap: AttachmentPoint, link: Link
) -> None:
    client.force_login(owner)
    set_ap(ap, path_metadata=NOTE)  # the operator's own entries are no news to users
    assert "path metadata" not in page_of(client, link)
    set_ap(ap, publishes_limits=True)
    assert "publishes this limit as path metadata, visible to anyone with a SCION path through" in page_of(client, link)
    link_update(link_id=link.pk, actor=None, active=False)
    assert "path metadata" not in page_of(client, link)


def test_a_user_as_that_lets_others_attach_publishes_their_limits_and_not_its_own(
    teammate: User, user_as: UserAS, link: Link
) -> None:
    host = Host.objects.get(AS=user_as.pk)
    Host.objects.filter(pk=host.pk).update(public_ipv4="198.51.100.8")
    ap = attachment_point_create(as_=user_as)
    attach(teammate, spec(ap, public_ip="198.51.100.9", bandwidth_kbit=70))
    set_ap(ap, publishes_limits=True)
    assert link.interface_b.interface_id == 1
    assert metadata(host) == {"Bandwidth": {"2": {"Inter": 70}}}


def test_a_limit_is_news_to_the_control_service_of_its_own_as_alone() -> None:
    """Two attachment points that publish, each with its control service on another host than its links."""
    first, second = HostFactory(), HostFactory()
    one, other = (AttachmentPointFactory(AS=host.AS, host__AS=host.AS) for host in (first, second))
    for ap in (one, other):
        set_ap(ap, publishes_limits=True)
    counters = Counters()
    hosts_bump(limits_ids=[one.host_id], config_ids=[second.pk])
    assert counters.risen() == {first: LIMITS, one.host: LIMITS, second: CONFIG, other.host: CONFIG}
