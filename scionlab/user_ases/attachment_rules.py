"""Rules for the requested attachments of a user AS.

They are checked twice with `check_attachments`: by the form or API, to show all errors beside their fields, and by the
service under its locks, where the first one is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q

from bandwidth_config import RuleError
from contract.link_rules import IPAddress, check_bind_address, check_port, check_underlay_address, with_exception
from scionlab.accounts.models import User
from scionlab.limits.maximum import limit_errors
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed import selectors
from scionlab.testbed.address_owners import TestbedAddresses, testbed_addresses
from scionlab.testbed.locks import storable_ids
from scionlab.testbed.models import AttachmentPoint, Host, Interface, Link, UserAS
from scionlab.user_ases.attachments import (
    MAX_ATTACHMENTS,
    AttachmentSpec,
    attachment_point_id,
    bind_ip_of,
    limits_of,
    provider_links,
    public_address,
    public_addresses,
)


@dataclass(frozen=True)
class _Facts:
    user_as: UserAS | None
    aps: dict[int, AttachmentPoint]
    default_kbit: dict[int, int]  # by attachment point
    links: dict[int, Link]  # of the user AS
    has: set[tuple[int, str, int]]  # (AP host, remote IP, remote port) of these
    taken: dict[tuple[str, int], str]  # public sockets of other ASes -> words for the owner
    served: set[tuple[str, int]]  # sockets of the user AS's host for ASes attached to it
    testbed: TestbedAddresses


def check_attachments(
    specs: Sequence[AttachmentSpec], *, user_as: UserAS | None, installation_type: str, reader: User | None = None
) -> list[FieldRuleError]:
    """Return every rule that the attachments break; `user_as` None: of an AS that is about to be created. `reader` is
    the user who sees the messages: other ASes are named only if this user may see them."""
    errors = list(_count(specs))
    if len(specs) > MAX_ATTACHMENTS:
        return errors
    facts = _facts(specs, user_as, reader)
    for index, spec in enumerate(specs):
        errors += _one(index, spec, facts)
    refused = {error.index for error in errors if error.field == "public_ip"}
    errors += [error for error in _together(specs, facts, installation_type) if not _is_known(error, refused)]
    return sorted(errors, key=lambda error: -1 if error.index is None else error.index)


def _is_known(error: FieldRuleError, refused: set[int | None]) -> bool:
    """Whether the address itself is already rejected; then its ports add nothing."""
    return error.code == "endpoint_taken" and error.index in refused


def _facts(specs: Sequence[AttachmentSpec], user_as: UserAS | None, reader: User | None) -> _Facts:
    ids = storable_ids(spec.attachment_point_id for spec in specs)
    rows = AttachmentPoint.objects.select_related("AS__isd", "AS__useras", "host__vpn").filter(pk__in=ids)
    aps = {ap.pk: ap for ap in rows}
    policy = selectors.policy()
    links = provider_links(user_as)
    asked = public_addresses(specs)
    served = Interface.objects.filter(link_as_a__type=Link.Type.PROVIDER, AS=None if user_as is None else user_as.pk)
    return _Facts(
        user_as=user_as,
        aps=aps,
        default_kbit={pk: ap.default_in_force(policy) for pk, ap in aps.items()},
        links={link.pk: link for link in links},
        has={(link.interface_a.host_id, link.interface_b.public_ip, link.interface_b.public_port) for link in links},
        taken=_taken(specs, user_as, reader),
        served=set() if user_as is None else set(served.values_list("public_ip", "public_port")),
        testbed=testbed_addresses(asked - {link.interface_b.public_ip for link in links}, user_as=user_as),
    )


def _taken(specs: Sequence[AttachmentSpec], user_as: UserAS | None, reader: User | None) -> dict[tuple[str, int], str]:
    wanted = Q()
    for spec in specs:
        address = public_address(spec)
        if address is not None:
            wanted |= Q(public_ip=address, public_port=spec.public_port)
    if not wanted:
        return {}
    ends = Interface.objects.filter(wanted, vpn_client=None).exclude(AS=None if user_as is None else user_as.pk)
    rows = ends.select_related("AS__isd", "AS__useras").order_by("-pk")
    return {(end.public_ip, end.public_port): _who(end, reader) for end in rows}


def _who(end: Interface, reader: User | None) -> str:
    user_as: UserAS | None = getattr(end.AS, "useras", None)
    is_hidden = user_as is not None and (reader is None or not (reader.is_staff or reader.pk == user_as.owner_id))
    return "another AS" if is_hidden else str(end.AS)


def raise_first(errors: Iterable[FieldRuleError]) -> None:
    for error in errors:
        raise error


# --- the rules of one attachment ----------------------------------------------------------------------------


def _one(index: int, spec: AttachmentSpec, facts: _Facts) -> Iterator[FieldRuleError]:
    if spec.link_id is not None and spec.link_id not in facts.links:
        text = "This AS has no such attachment, or it was removed. Reload the page and try again."
        yield FieldRuleError("link_unknown", text, "link_id", index)
    ap = facts.aps.get(spec.attachment_point_id)
    if ap is None:
        text = f"Attachment point {spec.attachment_point_id} does not exist. Choose one from the list."
        yield FieldRuleError("attachment_point_unknown", text, "attachment_point_id", index)
        return
    yield from _attachable(index, ap, facts)
    if spec.use_vpn:
        if not hasattr(ap.host, "vpn"):
            text = f"{ap.AS.isd_as} has no VPN. Give a public IP, or choose an attachment point with a VPN."
            yield FieldRuleError("vpn_missing", text, "use_vpn", index)
    else:
        yield from _addresses(index, spec, ap, facts.testbed)
    yield from _as_field("public_port", index, lambda: check_port(spec.public_port))
    yield from _bandwidth(index, spec, ap, facts)


def _attachable(index: int, ap: AttachmentPoint, facts: _Facts) -> Iterator[FieldRuleError]:
    user_as = facts.user_as
    if user_as is None:
        return
    if ap.AS_id == user_as.pk:
        text = f"{ap.AS.isd_as} is this AS itself. Choose another attachment point."
        yield FieldRuleError("attachment_point_own", text, "attachment_point_id", index)
    elif ap.AS.isd_id != user_as.isd_id:
        text = (
            f"{ap.AS.isd_as} is in another isolation domain than this AS ({user_as.isd_as}). Choose an attachment "
            f"point of ISD {user_as.isd.isd_id}, or create a new AS there."
        )
        yield FieldRuleError("attachment_point_isd", text, "attachment_point_id", index)


def _addresses(
    index: int, spec: AttachmentSpec, ap: AttachmentPoint, testbed: TestbedAddresses
) -> Iterator[FieldRuleError]:
    families = {family for family, ip in ((4, ap.host.public_ipv4), (6, ap.host.public_ipv6)) if ip}
    if not families:
        text = f"{ap.AS.isd_as} is reachable only over its VPN. Choose the VPN, or another attachment point."
        yield FieldRuleError("attachment_point_vpn_only", text, "use_vpn", index)
        return
    if not spec.public_ip:
        text = "A public IP is missing. Enter one like 192.0.2.7 or 2001:db8::7, or choose the VPN."
        yield FieldRuleError("address_required", text, "public_ip", index)
        return
    address: list[IPAddress] = []
    yield from _as_field("public_ip", index, lambda: address.append(_public(spec, ap, families, testbed)))
    family = address[0].version if address else None
    if spec.bind_ip:
        yield from _as_field("bind_ip", index, lambda: check_bind_address(spec.bind_ip, family=family))
    if spec.bind_port is not None:
        yield from _as_field("bind_port", index, lambda: check_port(spec.bind_port or 0))


def _public(spec: AttachmentSpec, ap: AttachmentPoint, families: set[int], testbed: TestbedAddresses) -> IPAddress:
    address = check_underlay_address(
        spec.public_ip,
        global_only=settings.UNDERLAY_GLOBAL_ONLY,
        own=own_addresses(ap.host),
        family=next(iter(families)) if len(families) == 1 else None,
    )
    testbed.check(address)
    return address


def own_addresses(host: Host) -> list[str]:
    """Addresses that a user AS cannot have."""
    vpn_server = host.vpn.server_ip if hasattr(host, "vpn") else None
    return [ip for ip in (*host.public_ips, host.bind_ip, vpn_server) if ip]


def _bandwidth(index: int, spec: AttachmentSpec, ap: AttachmentPoint, facts: _Facts) -> Iterator[FieldRuleError]:
    link, maximum = facts.links.get(spec.link_id or 0), facts.default_kbit[ap.pk]
    is_here = link is not None and attachment_point_id(link) == ap.pk
    old = link.requested if link is not None and is_here else None
    if link is not None and is_here:
        maximum = with_exception(maximum, link.exception_kbit)
    yield from limit_errors(old, limits_of(spec, facts.default_kbit[ap.pk]), maximum, index)


def _as_field(field: str, index: int, check: Callable[[], object]) -> Iterator[FieldRuleError]:
    try:
        check()
    except RuleError as exc:
        yield FieldRuleError.of(exc, field, index)


# --- the rules of all attachments together --------------------------------------------------------------------


def _count(specs: Sequence[AttachmentSpec]) -> Iterator[FieldRuleError]:
    if not specs:
        text = f"An AS needs an attachment point. Add 1 to {MAX_ATTACHMENTS}."
        yield FieldRuleError("attachments_none", text, "attachments")
    if len(specs) > MAX_ATTACHMENTS:
        text = f"{len(specs)} attachments are more than the {MAX_ATTACHMENTS} that an AS may have. Remove some."
        yield FieldRuleError("attachments_too_many", text, "attachments")


def _together(specs: Sequence[AttachmentSpec], facts: _Facts, installation_type: str) -> Iterator[FieldRuleError]:
    yield from _one_isd(specs, facts)
    yield from _links_once(specs)
    yield from _endpoints_once(specs, facts, installation_type)


def _one_isd(specs: Sequence[AttachmentSpec], facts: _Facts) -> Iterator[FieldRuleError]:
    if facts.user_as is not None:  # then each attachment is compared with the AS itself
        return
    first: AttachmentPoint | None = None
    for index, spec in enumerate(specs):
        ap = facts.aps.get(spec.attachment_point_id)
        if ap is None:
            continue
        first = first or ap
        if ap.AS.isd_id != first.AS.isd_id:
            text = (
                f"{ap.AS.isd_as} is in another isolation domain than {first.AS.isd_as}. All attachments of an AS are "
                f"in one: choose an attachment point of ISD {first.AS.isd.isd_id}."
            )
            yield FieldRuleError("attachment_point_isd", text, "attachment_point_id", index)


def _links_once(specs: Sequence[AttachmentSpec]) -> Iterator[FieldRuleError]:
    seen: set[int] = set()
    for index, spec in enumerate(specs):
        if spec.link_id in seen:
            text = "This attachment is listed twice. Reload the page and try again."
            yield FieldRuleError("link_twice", text, "link_id", index)
        if spec.link_id is not None:
            seen.add(spec.link_id)


def _endpoints_once(specs: Sequence[AttachmentSpec], facts: _Facts, installation_type: str) -> Iterator[FieldRuleError]:
    """A socket belongs to one Link: on the user AS's host, and publicly, because a NAT forwards a port to one machine.
    Sockets that the Link already has are kept, like addresses (`testbed.address_owners`)."""
    public: set[tuple[str, int]] = set()
    local: set[tuple[str, int]] = set()
    for index, spec in enumerate(specs):
        ap = facts.aps.get(spec.attachment_point_id)
        if ap is None:
            continue
        address = f"VPN of {ap.AS.isd_as}" if spec.use_vpn else public_address(spec)
        if address is None:
            continue
        here = (address, spec.public_port)
        bind_ip = bind_ip_of(spec, installation_type)
        behind = here if spec.use_vpn else (bind_ip or address, spec.bind_port or spec.public_port)
        if here in public:
            text = (
                f"{address} port {spec.public_port} is used by two attachments of this AS. Choose another port for "
                "one of them."
            )
            yield FieldRuleError("endpoint_twice", text, "public_port", index)
        elif behind in local:
            text = (
                f"{behind[0]} port {behind[1]} is the bind address of two attachments of this AS. Choose another bind "
                "port for one of them."
            )
            yield FieldRuleError("bind_twice", text, "bind_port", index)
        elif here in facts.served:
            text = (
                f"{address} port {spec.public_port} is in use by this AS for an AS attached to it. "
                "Choose another port, or another address."
            )
            yield FieldRuleError("endpoint_own", text, "public_port", index)
        elif here in facts.taken and (ap.host_id, *here) not in facts.has:
            text = (
                f"{address} port {spec.public_port} is in use by {facts.taken[here]}. Choose another port, or "
                "another address."
            )
            yield FieldRuleError("endpoint_taken", text, "public_port", index)
        public.add(here)
        local.add(behind)
