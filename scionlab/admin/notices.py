"""What administrators must know now, at the top of the pages where they would look."""

from __future__ import annotations

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from scionlab.admin.base import link_to, link_to_list
from scionlab.models import Host, Link, selectors
from scionlab.network.address_owners import SharedAddress, shared_addresses
from scionlab.trust.ends import endings
from scionlab.trust.signing import near_end_of_last_key, unreadable_keys

_MOST_NAMED = 5


def notices() -> list[str]:
    """Sentences, each with its remedy; twelve SQL statements at most."""
    return [*_hosts_ahead(), *_hosts_of_others(), *_keys(), *_trust(), *_shared_addresses()]


def _hosts_ahead() -> list[str]:
    hosts = list(selectors.hosts_ahead().select_related("AS__isd")[: _MOST_NAMED + 1])
    if not hosts:
        return []
    count = len(hosts) if len(hosts) <= _MOST_NAMED else selectors.hosts_ahead().count()
    have = "1 host has a configuration" if count == 1 else f"{count} hosts have configurations"
    named = format_html_join(", ", "{}", ((link_to(host),) for host in hosts[:_MOST_NAMED]))
    text = (
        "{} signed by this service but unknown to this database: {}{}. Was a backup restored? Their agents accept "
        "nothing older. Run <code>manage.py raise_generation</code>."
    )
    return [format_html(text, have, named, " and others" if count > _MOST_NAMED else "")]


def _hosts_of_others() -> list[str]:
    hosts = list(selectors.hosts_of_others().select_related("AS__isd")[: _MOST_NAMED + 1])
    if not hosts:
        return []
    count = len(hosts) if len(hosts) <= _MOST_NAMED else selectors.hosts_of_others().count()
    have = "1 host has" if count == 1 else f"{count} hosts have"
    named = format_html_join(", ", "{}", ((_files_of(host),) for host in hosts[:_MOST_NAMED]))
    text = (
        "{} SCION files of another coordination service, so this service sends no configuration: {}{}. Set limits "
        "only, or take over the host."
    )
    return [format_html(text, have, named, " and others" if count > _MOST_NAMED else "")]


def _files_of(host: Host) -> str:
    return format_html('<a href="{}">{}</a>', reverse("admin:scionlab_host_files", args=[host.pk]), host)


def _keys() -> list[str]:
    told: list[str] = [
        format_html(
            "The signing key {} cannot be decrypted, so no configuration is sent: it was encrypted with another "
            "SIGNING_SECRET.",
            link_to(key),
        )
        for key in unreadable_keys()
    ]
    end = near_end_of_last_key()
    if end is not None:
        text = (
            'The last signing key expires on {}. After that agents accept no configuration: <a href="{}">create a '
            "new key</a> now."
        )
        told.append(format_html(text, f"{end:%Y-%m-%d}", reverse("admin:scionlab_signingkey_rotate")))
    return told


def _trust() -> list[str]:
    found = endings(timezone.now())
    if not found:
        return []
    named = format_html_join(", ", "{}", ((one.text,) for one in found[:_MOST_NAMED]))
    text = (
        "SCION will stop working: {}{}. The worker renews certificates every hour and failed. Search its log for "
        "<code>trust.</code>."
    )
    return [format_html(text, named, " and others" if len(found) > _MOST_NAMED else "")]


def _shared_addresses() -> list[str]:
    shared = shared_addresses()
    if not shared:
        return []
    named = format_html_join(", ", "{} ({})", ((_links_at(one), _users_of(one)) for one in shared[:_MOST_NAMED]))
    text = (
        "User ASes of different owners share an address with each other or with a host of the testbed: {}{}. This is "
        "normal behind a NAT; otherwise ask the owners."
    )
    return [format_html(text, named, " and others" if len(shared) > _MOST_NAMED else "")]


def _links_at(shared: SharedAddress) -> str:
    return link_to_list(Link, shared.address, q=shared.address)


def _users_of(shared: SharedAddress) -> str:
    host = [f"a host of {shared.host_of}"] if shared.host_of else []
    return ", ".join([*shared.emails[:_MOST_NAMED], *(["others"] if len(shared.emails) > _MOST_NAMED else []), *host])
