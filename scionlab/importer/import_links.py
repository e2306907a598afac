"""Import step: Links with their interfaces; reports objects that are missing in the dump.

A Link is matched by both ends, an end by AS number and interface id. Interface ids are reused there: an id that another
Link has here is rejected until that Link is removed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Min

from bandwidth_config import RuleError, check_bandwidth
from contract.link_rules import MIN_PORT
from scionlab.importer import rows
from scionlab.importer.import_rules import sockets
from scionlab.importer.import_state import BATCH, REASON, Import, differing, set_all
from scionlab.testbed import audit
from scionlab.testbed.infrastructure_links import INFRASTRUCTURE_BANDWIDTH_KBIT
from scionlab.testbed.life import DEACTIVATED, links_end
from scionlab.testbed.models import AttachmentPoint, Host, Interface, Link, UserAS
from scionlab.testbed.versions.changes import LINK_RELATIONS, view_of

EndKey = tuple[int, int]  # AS number, interface id
LinkKey = tuple[EndKey, EndKey]
_Ends = tuple[dict[str, Any], dict[str, Any]]  # by `_END_FIELDS`
_LINK_FIELDS = ("active", "mtu")
_END_FIELDS = ("host_id", "border_router_id", "public_ip", "public_port", "bind_ip", "bind_port", "vpn_client_id")


@dataclass(eq=False)
class _Plan:
    """A Link to be stored with its ends; `found` None: a new one."""

    row: rows.Link
    found: Link | None
    wanted: dict[str, Any]
    ends: _Ends

    @property
    def is_change(self) -> bool:
        return bool(self.differences())

    def differences(self) -> dict[str, tuple[object, object]]:
        if self.found is None:
            return {}
        found = differing(self.found, self.wanted)
        for name, end, wanted in zip("ab", (self.found.interface_a, self.found.interface_b), self.ends, strict=True):
            found |= {f"{name}.{field.removesuffix('_id')}": pair for field, pair in differing(end, wanted).items()}
        return found

    def claims(self, ap_hosts: set[int | None]) -> set[Hashable]:
        return _claims(self.ends, ap_hosts, is_limited=self.row.is_limited)


@dataclass
class _Links:
    by_ends: dict[LinkKey, Link] = field(default_factory=dict)
    by_end: dict[EndKey, Link] = field(default_factory=dict)


def import_links(this: Import) -> set[int]:
    """Return the created or changed Links. Requires the other steps."""
    here = _links_here()
    _note_moved_ases(this, here.by_ends.values())
    plans = _without_conflicts(this, here, list(_plans(this, here)))
    same = sum(plan.found is not None and not plan.is_change for plan in plans)
    this.report.counts["link"].same += same
    this.report.counts["interface"].same += 2 * same
    stored = [*_change(this, [plan for plan in plans if plan.is_change])]
    stored += _make(this, [plan for plan in plans if plan.found is None])
    attached = {link.interface_b.AS_id for link in stored}
    UserAS.objects.filter(pk__in=attached).update(changed_at=this.now, changed_by=None)
    _note_gone_links(this, here)
    unlinked = this.network.unlinked_interfaces
    if unlinked:
        names = ", ".join(unlinked[:20]) + (", ..." if len(unlinked) > 20 else "")
        this.report.notes.append(f"{len(unlinked)} interfaces have no Link there, and are left out: {names}")
    return {link.pk for link in stored}


# --- planned changes --------------------------------------------------------------------------------------------


def _links_here() -> _Links:
    found = _Links()
    for link in Link.objects.select_related(*LINK_RELATIONS).order_by("pk"):
        a, b = ((end.AS.as_id, end.interface_id) for end in (link.interface_a, link.interface_b))
        found.by_ends[a, b] = link
        found.by_end |= {a: link, b: link}
    return found


def _key_of(network: rows.Network, row: rows.Link) -> LinkKey:
    a, b = ((network.ases[end.as_pk].as_id, end.interface_id) for end in row.ends)
    return a, b


def _note_gone_links(this: Import, here: _Links) -> None:
    keys = {_key_of(this.network, row) for row in this.network.links.values()}
    gone = (link for key, link in here.by_ends.items() if key not in keys and _has_limits_only(link))
    this.report.gone += [f"Link {link}" for link in gone]


def note_gone(this: Import) -> None:
    """Report hosts with limits only, and their ASes and attachment points, that are not in the file. Nothing is
    deleted."""
    net, gone = this.network, this.report.gone
    numbers = {row.as_id for row in net.ases.values()}
    uids = {row.uid for row in net.hosts.values()}
    hosts = Host.objects.filter(limits_only=True).select_related("AS__isd").order_by("pk")
    missing = [host for host in hosts if host.uid not in uids]
    gone += sorted({f"AS {host.AS}" for host in missing if host.AS and host.AS.as_id not in numbers})
    gone += [f"host id {host.uid} ({host})" for host in missing]
    aps = {net.ases[ap.as_pk].as_id for ap in net.attachment_points.values()}
    here = AttachmentPoint.objects.filter(host__limits_only=True).select_related("AS__isd")
    gone += [f"attachment point {ap}" for ap in here if ap.AS.as_id not in aps]


def _has_limits_only(link: Link) -> bool:
    return link.interface_a.host.limits_only and link.interface_b.host.limits_only


def _plans(this: Import, here: _Links) -> Iterator[_Plan]:
    above = Counter[tuple[int, str]]()  # Links above the maximum of an attachment point, and why they are
    for row in this.network.links.values():
        if not _takes(this, row):
            continue
        key = _key_of(this.network, row)
        found = here.by_ends.get(key)
        other = here.by_end.get(key[0]) or here.by_end.get(key[1])
        if found is None and other is not None:
            text = f"An interface of it belongs to another Link here, {other}. Remove that one here first."
            this.refuse("link", row, text)
        elif found is None and not all(this.hosts[end.host].limits_only for end in row.ends):
            text = "One of its hosts is not limits only: this service manages it. Create the Link here."
            this.refuse("link", row, text)
        elif found is None and row.is_limited and (text := _why_too_high(this, row)):
            above[this.ap_of[row.a.as_pk], text] += 1
        else:
            yield _plan(this, row, found)
    for (ap_pk, text), number in above.items():
        ap = this.network.attachment_points[ap_pk]
        this.refuse("attachmentpoint", ap, f"{text} {number} new Links are left out.")


def _takes(this: Import, row: rows.Link) -> bool:
    ap = {"attachmentpoint": (this.ap_of[row.a.as_pk], this.attachment_points)} if row.is_limited else {}
    vpn = {} if row.b.vpn_client is None else {"vpnclient": (row.b.vpn_client, this.clients)}
    ends = (
        this.takes(
            "link",
            row,
            as_=(end.as_pk, this.ases),
            host=(end.host, this.hosts),
            borderrouter=(end.router, this.routers),
        )
        for end in row.ends
    )
    return all(ends) and this.takes("link", row, **ap, **vpn)


def _plan(this: Import, row: rows.Link, found: Link | None) -> _Plan:
    a, b = (_wanted_end(this, end) for end in row.ends)
    plan = _Plan(row, found, {"active": row.active, "mtu": row.mtu}, (a, b))
    if found is None:
        return plan
    if found.type != row.type.lower():
        this.keep("link", row, {"type": (found.type, row.type.lower())})
    if plan.is_change and not _has_limits_only(found):
        this.keep("link", row, plan.differences())
        plan.wanted = {name: getattr(found, name) for name in _LINK_FIELDS}
        plan.ends = _ends_here(found)
    return plan


def _wanted_end(this: Import, end: rows.End) -> dict[str, Any]:
    values = (
        this.hosts[end.host].pk,
        this.routers[end.router].pk,
        end.public_ip,
        end.public_port,
        end.bind_ip,
        end.bind_port,
        None if end.vpn_client is None else this.clients[end.vpn_client].pk,
    )
    return dict(zip(_END_FIELDS, values, strict=True))


def _ends_here(link: Link) -> _Ends:
    a, b = ({name: getattr(end, name) for name in _END_FIELDS} for end in (link.interface_a, link.interface_b))
    return a, b


def _socket(end: dict[str, Any]) -> tuple[int, str, int, str | None, int]:
    host, _, ip, port, bind_ip, bind_port, _ = (end[name] for name in _END_FIELDS)
    return host, ip, port, bind_ip or ip, bind_port or port


def _why_too_high(this: Import, row: rows.Link) -> str:
    """Empty if the Link may have the limit."""
    try:
        check_bandwidth(this.kbit, this.attachment_points[this.ap_of[row.a.as_pk]].maximum_kbit)
    except RuleError as exc:
        return exc.message
    return ""


def _without_conflicts(this: Import, here: _Links, plans: list[_Plan]) -> list[_Plan]:
    """Drop Links that want a socket of another Link that stays. Within the file sockets are unique."""
    ap_hosts: set[int | None] = set(AttachmentPoint.objects.values_list("host", flat=True))
    moving = [plan for plan in plans if plan.found is None or plan.is_change]
    leaves = {plan.found.pk for plan in moving if plan.found is not None}
    kept = {claim for link in here.by_ends.values() if link.pk not in leaves for claim in _claims_here(link, ap_hosts)}
    left_out: set[_Plan] = set()
    while refused := [one for one in moving if one not in left_out and not kept.isdisjoint(one.claims(ap_hosts))]:
        for plan in refused:
            text = "An address and port of it belong to another Link here, which is not in the file. Remove that one."
            this.refuse("link", plan.row, text)
            kept |= set() if plan.found is None else _claims_here(plan.found, ap_hosts)
        left_out |= set(refused)
    return [plan for plan in plans if plan not in left_out]


def _claims_here(link: Link, ap_hosts: set[int | None]) -> set[Hashable]:
    return _claims(_ends_here(link), ap_hosts, is_limited=link.is_limited)


def _claims(ends: _Ends, ap_hosts: set[int | None], *, is_limited: bool) -> set[Hashable]:
    is_public = is_limited and ends[1]["vpn_client_id"] is None
    return {claim for claim, _ in sockets(map(_socket, ends), ap_hosts=ap_hosts, is_public=is_public)}


# --- doing it ---------------------------------------------------------------------------------------------------


def _note_moved_ases(this: Import, here: Iterable[Link]) -> None:
    """Topologies contain the ISD-AS of both ends, whether the AS is core, and internal addresses of hosts."""
    moved = this.renumbered
    config_ids = set(Host.objects.filter(AS__in=moved | this.recored).values_list("pk", flat=True))
    linked: set[int] = set()
    for link in here:
        ends = (link.interface_a, link.interface_b) if link.active else ()
        linked |= {end.host_id for end in ends}
        if any(end.AS_id in moved for end in ends):
            config_ids |= {end.host_id for end in ends}
    first = set(Host.objects.order_by().values("AS").annotate(first=Min("pk")).values_list("first", flat=True))
    this.changes.note_topologies(config_ids | (this.readdressed & (linked | first)))


def _change(this: Import, plans: Iterable[_Plan]) -> list[Link]:
    links: list[Link] = []
    ends: list[Interface] = []
    fields: set[str] = set()  # of ends; each costs, in a statement for thousands
    moving: list[int] = []
    ended: list[Link] = []
    for plan in plans:
        link = plan.found
        if link is None:
            continue
        this.note_changed("link", plan.row, plan.differences())
        before, was_active = view_of(link), link.active
        set_all(link, plan.wanted)
        for end, wanted in zip((link.interface_a, link.interface_b), plan.ends, strict=True):
            differences = differing(end, wanted)
            set_all(end, wanted)
            ends += [end] if differences else []
            fields |= {name.removesuffix("_id") for name in differences}
            moving += [end.pk] if differences.keys() & {"host_id", "public_ip", "public_port"} else []
        this.changes.note(link.pk, before, view_of(link))
        links.append(link)
        ended += [link] if was_active and not link.active else []
    _park(moving)
    if fields:
        Interface.objects.bulk_update(ends, fields, batch_size=BATCH)
    Link.objects.bulk_update(links, _LINK_FIELDS, batch_size=BATCH)
    links_end(ended, actor=None, why=DEACTIVATED)
    this.report.counts["interface"].changed += len(ends)
    this.report.counts["interface"].same += 2 * len(links) - len(ends)
    return links


def _park(ids: Iterable[int]) -> None:
    """Move sockets out of the way: the unique constraint is checked per statement. The placeholder address is unused,
    and interface ids of a host are unique."""
    port = F("interface_id") + MIN_PORT
    Interface.objects.filter(pk__in=ids).update(public_ip="0.0.0.0", public_port=port)  # noqa: S104  not listened at


def _make(this: Import, plans: Iterable[_Plan]) -> list[Link]:
    new = [_new_link(this, plan) for plan in plans]
    Interface.objects.bulk_create(
        (end for link in new for end in (link.interface_a, link.interface_b)), batch_size=BATCH
    )
    Link.objects.bulk_create(new, batch_size=BATCH)
    made = list(Link.objects.filter(pk__in=[link.pk for link in new]).select_related(*LINK_RELATIONS).order_by("pk"))
    for link in made:
        this.changes.note(link.pk, None, view_of(link))
    limited = ((link, None, link.requested) for link in made if link.is_limited)
    audit.note_links(limited, actor=None, reason=REASON)
    this.report.counts["link"].made += len(made)
    this.report.counts["interface"].made += 2 * len(made)
    return made


def _new_link(this: Import, plan: _Plan) -> Link:
    """With its unsaved interfaces. A new host has it from its first version on."""
    a, b = (
        Interface(AS_id=this.ases[end.as_pk].pk, interface_id=end.interface_id, **wanted)
        for end, wanted in zip(plan.row.ends, plan.ends, strict=True)
    )
    provider = this.hosts[plan.row.a.host]
    return Link(
        interface_a=a,
        interface_b=b,
        type=plan.row.type.lower(),
        bandwidth_kbit=this.kbit if plan.row.is_limited else INFRASTRUCTURE_BANDWIDTH_KBIT,
        wanted_config_version=provider.config_version,
        wanted_limits_version=provider.limits_version,
        **plan.wanted,
    )
