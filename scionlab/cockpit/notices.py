"""Notices on the overview that concern the whole site: keys, hosts, addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db.models import Exists, QuerySet
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scionlab.delivery.signing import near_end, unreadable_keys, valid_keys
from scionlab.platform.clock import clock_problems, database_now
from scionlab.testbed import selectors
from scionlab.testbed.address_owners import SharedAddress, ends_with_shared_addresses, shared_addresses
from scionlab.testbed.cockpit import MOST_NAMED, OFFERS, named
from scionlab.testbed.models import BandwidthPolicy, Host
from scionlab.web.admin.columns import Tone


class Notice(NamedTuple):
    """A sentence with its remedy."""

    tone: Tone
    text: SafeString


def notices() -> list[Notice]:
    """Return urgent notices first. Two SQL statements if there are none; otherwise up to two about hosts, four about
    expiry, three about addresses."""
    now = database_now()
    asked: dict[str, Any] = {
        "is_ahead": Exists(selectors.hosts_ahead()),
        "is_of_others": Exists(selectors.hosts_of_others()),
        "is_shared": Exists(ends_with_shared_addresses()),
    }
    for offer in OFFERS:
        asked |= offer.asked(now)
    rows: Any = BandwidthPolicy.objects.filter(pk=1).values(**asked)
    there_is = rows.first()
    if there_is is None:
        selectors.policy()  # creates the row
        there_is = rows.get()
    urgent = [
        *(_hosts_ahead() if there_is["is_ahead"] else ()),
        *(_hosts_of_others() if there_is["is_of_others"] else ()),
        *(format_html("{}.", line) for line in clock_problems()),
        *_keys(),
        *(text for offer in OFFERS for text in offer.notices(there_is, now)),
    ]
    to_know = _shared_addresses() if there_is["is_shared"] else ()
    return [*(Notice("bad", text) for text in urgent), *(Notice("info", text) for text in to_know)]


def _hosts_ahead() -> Iterator[SafeString]:
    count, hosts = _hosts(selectors.hosts_ahead(), "change")
    if count:
        yield format_html(
            "{} signed by this service but unknown to this database: {}. Was a backup restored? Their agents accept "
            "nothing older. Run <code>manage.py raise_generation</code>.",
            "1 host has a configuration" if count == 1 else f"{count} hosts have configurations",
            hosts,
        )


def _hosts_of_others() -> Iterator[SafeString]:
    count, hosts = _hosts(selectors.hosts_of_others(), "files")
    if count:
        yield format_html(
            "{} SCION files of another coordination service, so this service sends no configuration: {}. Set limits "
            "only, or take over the host.",
            "1 host has" if count == 1 else f"{count} hosts have",
            hosts,
        )


def _keys() -> Iterator[SafeString]:
    valid = list(valid_keys())
    for key in unreadable_keys(valid):
        yield format_html(
            "The signing key {} cannot be decrypted, so no configuration is sent: it was encrypted with another "
            "SIGNING_SECRET.",
            _link("delivery_signingkey_change", key.pk, key),
        )
    end = near_end(max((key.not_after for key in valid), default=None))
    if end is not None:
        yield format_html(
            'The last signing key expires on {}. After that agents accept no configuration: <a href="{}">create a '
            "new key</a> now.",
            f"{end:%Y-%m-%d}",
            reverse("admin:delivery_signingkey_rotate"),
        )


def _shared_addresses() -> Iterator[SafeString]:
    shared = shared_addresses()
    if shared:
        yield format_html(
            "User ASes of different owners share an address with each other or with a host of the testbed: {}. This is "
            "normal behind a NAT; otherwise ask the owners.",
            named(shared, _users_of),
        )


def _users_of(shared: SharedAddress) -> SafeString:
    links = reverse("admin:testbed_link_changelist", query={"q": shared.address})
    host = f", a host of {shared.host_of}" if shared.host_of else ""
    return format_html('<a href="{}">{}</a> ({}{})', links, shared.address, named(shared.emails, str), host)


def _hosts(found: QuerySet[Host], page: str) -> tuple[int, SafeString]:
    """The number of hosts and the first of them, each linked to Django admin."""
    hosts = list(found.select_related("AS__isd")[: MOST_NAMED + 1])
    count = len(hosts) if len(hosts) <= MOST_NAMED else found.count()
    return count, named(hosts, lambda host: _link(f"testbed_host_{page}", host.pk, host))


def _link(page: str, key: int, text: object) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse(f"admin:{page}", args=[key]), text)
