"""Decides when H and L rise, by comparing each host's view of a Link before and after a change (DOMAIN section 2).

A host sees a Link only while it is active:

    the host's view of the Link changes (added, removed, address, port, router, MTU)                H of that host
    only its link_info.json changes: at an attachment point what it enforces, including timed
    limits (`limits.timed_limit`), and settings; if a user AS is an attachment point itself,
    what it requested at its own uplink                                                             L of that host
    the total of an attachment point, or that it observes only                                      L of its host
    a Link begins or ends to be active, and H of the attachment point waits for a restart           L of its host
    nothing of the above (same values saved, an inactive Link edited, a label)                      none

The limit of an added Link is part of H; if both differ, both rise. Each counter of a host rises at most once per save.
What each setting of a Link raises is declared in `models.link_settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.platform.clock import database_now
from scionlab.testbed import locks
from scionlab.testbed.life import LIVES
from scionlab.testbed.models import HeldLinkEnd, Host, Interface, Link
from scionlab.testbed.models.link_ends import IN_DOCUMENT, Geometry
from scionlab.testbed.models.link_settings import Raises, names_raising
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.testbed.versions.restarts import spend_or_hold

Seen = tuple[object, ...]
Stated = tuple[Limits, Seen]  # and the settings that a receipt confirms

LINK_RELATIONS = [f"interface_{end}__{path}" for end in "ab" for path in ("AS__isd", "AS__useras", "host")]
LINK_RELATIONS += ["interface_a__AS__attachment_point__host", "interface_a__border_router"]
LINK_RELATIONS += [f"interface_{end}__host__attachment_point" for end in "ab"]


@dataclass(frozen=True)
class LinkView:
    """An active Link in the configurations of the hosts at both ends."""

    views: dict[int, Seen]  # by host
    stated: dict[int, Stated]  # by host with a link_info.json: the Link's content in it at all times
    provider_host_id: int
    provider_end: Geometry | None  # of a Link that an attachment point limits
    document: Seen  # settings of such a Link that are in its document, and are no limit


def view_of(link: Link) -> LinkView | None:
    """None for an inactive Link: it is in no configuration. Read `link` with `LINK_RELATIONS`, or it is new."""
    if not link.active:
        return None
    a, b = link.interface_a, link.interface_b
    views: dict[int, Seen] = {}
    for near, far in ((a, b), (b, a)):
        set_so = _settings(link, Raises.CONFIGURATION)
        seen = (link.type, link.mtu, *set_so, *_near(near), *_far(far), a.vpn_client_id or b.vpn_client_id)
        views[near.host_id] = (*views.get(near.host_id, ()), *seen)
    # A host that does not limit the Link lists it with its stored bandwidth, never 0 (DOMAIN section 3).
    listed = Limits.both(max(1, link.bandwidth_kbit))
    stated: dict[int, Stated] = {end.host_id: (listed, ()) for end in (a, b) if hasattr(end.host, "attachment_point")}
    if not link.is_limited:
        return LinkView(views, stated, a.host_id, None, ())
    stated[a.host_id] = (link.enforced, _settings(link, Raises.LIMIT))
    return LinkView(views, stated, a.host_id, _provider_end(link), _settings(link, Raises.DOCUMENT))


def _settings(link: Link, raising: Raises) -> Seen:
    return tuple(getattr(link, name) for name in names_raising(raising))


def _provider_end(link: Link) -> Geometry:
    a, b = link.interface_a, link.interface_b
    return {
        "interface_id": a.interface_id,
        "remote_isd_as": b.AS.isd_as,
        "remote_ip": b.public_ip,
        "remote_port": b.public_port,
        "local_ip": a.local_ip,
        "local_port": a.local_port,
        "is_vpn": (a.vpn_client_id or b.vpn_client_id) is not None,
        "public_port": a.public_port,
        "mtu": link.mtu,
        "link_to": "CHILD",
        "border_router": a.border_router.number,
        "bandwidth_kbit": link.bandwidth_kbit,
        "from_user_kbit": link.from_user_kbit,
        "exception_kbit": link.exception_kbit,
        **{name: getattr(link, name) for name in IN_DOCUMENT},
    }


def _near(end: Interface) -> Seen:
    return (end.interface_id, end.public_ip, end.public_port, end.bind_ip, end.bind_port, end.border_router_id)


def _far(end: Interface) -> Seen:
    return (end.AS_id, end.public_ip, end.public_port)


class Changes:
    """Collects what one save does to Links, then raises each counter once and stores the versions that contain it."""

    def __init__(self) -> None:
        self._config_ids: set[int] = set()
        self._restarts: dict[int, dict[int, Geometry | None]] = {}  # attachment point's host -> Link -> as it was
        self._switched_ids: set[int] = set()  # of these hosts, those at which a Link begins or ends to be active
        self._limits_ids: set[int] = set()
        self._wanting: dict[int, int] = {}  # Link -> its provider's host

    def note(self, link_id: int, before: LinkView | None, after: LinkView | None) -> None:
        was = {} if before is None else before.views
        becomes = {} if after is None else after.views
        config_ids = {host for host in was.keys() | becomes.keys() if was.get(host) != becomes.get(host)}
        limits_ids: set[int] = set()
        if before is not None and after is not None:
            stated = after.stated.items()
            limits_ids = {host for host, now in stated if before.stated.get(host, now) != now}
            if before.document != after.document:
                self.note_documents([after.provider_host_id])
        view = before or after
        if view is not None and view.provider_end is not None and view.provider_host_id in config_ids:
            ends = self._restarts.setdefault(view.provider_host_id, {})
            ends.setdefault(link_id, None if before is None else before.provider_end)
            if before is None or after is None:
                self._switched_ids.add(view.provider_host_id)
            config_ids -= {view.provider_host_id}
            self._wanting[link_id] = view.provider_host_id
        self._config_ids |= config_ids
        self._limits_ids |= limits_ids
        if after is not None and after.provider_host_id in config_ids | limits_ids:
            self._wanting[link_id] = after.provider_host_id

    def note_limits(self, provider_host_of: Mapping[int, int]) -> None:
        """Links of which only the enforced limit changed, with their providers' hosts."""
        self._limits_ids |= set(provider_host_of.values())
        self._wanting |= provider_host_of

    def note_documents(self, host_ids: Iterable[int]) -> None:
        """Hosts whose document changed although none of their Links wants anything new."""
        self._limits_ids |= set(host_ids)

    def note_topologies(self, host_ids: Iterable[int]) -> None:
        """Hosts whose SCION configuration changed although none of their Links looks different."""
        self._config_ids |= set(host_ids)

    def carry_out(self, *, actor: User | None = None, without_hosts: frozenset[int] = frozenset()) -> set[int]:
        """Raise the counters, except those of hosts that do not fetch (new, or about to be deleted). At other people's
        attachment points H rises as often as the budget of `actor` allows (`testbed.versions.restarts`). Returns the
        hosts concerned."""
        config_ids, limits_ids = self._config_ids - without_hosts, self._limits_ids - without_hosts
        restarts = {host: ends for host, ends in self._restarts.items() if host not in config_ids | without_hosts}
        if not (config_ids or limits_ids or restarts):
            return set()
        if restarts:
            locks.lock_hosts({*config_ids, *limits_ids, *restarts})
            held_ids = spend_or_hold(restarts, actor)
            config_ids |= restarts.keys() - held_ids
            # Without a restart, its temporary limits and tests end or its newest limits apply.
            limits_ids |= held_ids & self._switched_ids
        hosts_bump(config_ids=config_ids, limits_ids=limits_ids)
        self._mark_wanted()
        self._tell_ends_changed()
        return config_ids | limits_ids

    def _mark_wanted(self) -> None:
        """Store at each Link the first versions of its provider's host that contain what it wants: the next H if that
        waits."""
        for host in Host.objects.filter(pk__in=set(self._wanting.values())):
            ids = {link_id for link_id, provider in self._wanting.items() if provider == host.pk}
            held: set[int] = set()
            if host.restart_due_at is not None:
                held = ids & set(HeldLinkEnd.objects.filter(host=host.pk).values_list("link_id", flat=True))
            for some, config_version in ((ids - held, host.config_version), (held, host.config_version + 1)):
                if some:
                    Link.objects.filter(pk__in=some).update(
                        wanted_config_version=config_version,
                        wanted_limits_version=host.limits_version,
                        changed_at=database_now(),
                        is_told=False,
                    )

    def _tell_ends_changed(self) -> None:
        hosts = Host.objects.filter(pk__in=self._restarts).order_by("pk")
        for host_id, config_version, due_at in hosts.values_list("pk", "config_version", "restart_due_at"):
            for life in LIVES:
                life.ends_changed(host_id, self._restarts[host_id].keys(), config_version + (due_at is not None))


def read_links(link_ids: set[int]) -> list[Link]:
    """The locked Links, with everything that `view_of` reads."""
    locks.lock_links(link_ids)
    return list(Link.objects.filter(pk__in=link_ids).select_related(*LINK_RELATIONS).order_by("pk"))
