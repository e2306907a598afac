"""Creates, changes and removes the rows of one attachment: two interfaces, their Link, and a VPN client if needed.

For `user_ases.user_as`, which checks the rules, holds the locks and raises the counters.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from contract.link_rules import MIN_PORT, bind_ip_for
from contract.scion_files import link_mtu_bytes
from scionlab.platform.field_errors import at_field
from scionlab.testbed import selectors
from scionlab.testbed.link_mtu import fitting_mtu_bytes
from scionlab.testbed.models import AttachmentPoint, BorderRouter, Host, Interface, Link, UserAS, VPNClient, numbers
from scionlab.testbed.versions.changes import view_of
from scionlab.testbed.vpn_clients import vpn_client_for
from scionlab.user_ases.attachments import AttachmentSpec, bind_ip_of, limits_of, socket_of, spec_of


def link_add(user_as: UserAS, host: Host, spec: AttachmentSpec, *, index: int) -> Link:
    """Attach the AS according to `spec`. Raises `FieldRuleError` (`interface_ids_exhausted`, `ports_exhausted`,
    `border_routers_exhausted`, `vpn_full`)."""
    ap = _attachment_point(spec)
    far, near = Interface(AS=user_as, host=host), Interface(AS=ap.AS, host=ap.host)
    _set_user_side(far, ap, spec, index, user_as.installation_type)
    _set_ap_address(near, ap, far)
    _set_routers(near, far, ap, index)
    with at_field("attachment_point_id", index):
        far.interface_id = numbers.free_interface_id(user_as)
        near.interface_id = numbers.free_interface_id(ap.AS)
        near.public_port = numbers.free_port(ap.host, near.public_ip)
    near.save()
    far.save()
    mtu = link_mtu_bytes(far.public_ip)
    link = Link(interface_a=near, interface_b=far, type=Link.Type.PROVIDER, active=spec.active, mtu=mtu)
    _set_limits(link, ap, spec)
    link.save()
    return link


def links_edit(
    edits: Sequence[tuple[int, AttachmentSpec, Link]], *, installation_type: str, was_installation_type: str
) -> None:
    """Change each Link to match its spec, at the same attachment point; each comes with the index of its attachment.

    Interface ids are kept, and so are ports of the attachment point, unless the Link moves to an address where its port
    is taken. Links may exchange addresses and ports. An unchanged end keeps its addresses, border routers and MTU even
    if a new one would get others: SCION does not restart because rules changed. Raises `FieldRuleError`
    (`ports_exhausted`, `border_routers_exhausted`, `vpn_full`).
    """
    moving: list[Interface] = []
    for index, spec, link in edits:
        near, far = link.interface_a, link.interface_b
        was_near, was_far = near.public_ip, (far.public_ip, far.public_port)
        before = view_of(link)
        ap = _attachment_point(spec)
        was = socket_of(spec_of(link, was_installation_type), was_installation_type)
        if socket_of(spec, installation_type) != was:
            _set_user_side(far, ap, spec, index, installation_type)
            _set_ap_address(near, ap, far)
            _set_routers(near, far, ap, index)
        moving += [far] if (far.public_ip, far.public_port) != was_far else []
        moving += [near] if near.public_ip != was_near else []
        _set_limits(link, ap, spec)
        link.active = spec.active
        after = view_of(link)
        if before is None or after is None or before.views != after.views:
            link.mtu = fitting_mtu_bytes(link)
    _park(moving)
    for index, _, link in edits:
        near, far = link.interface_a, link.interface_b
        if near in moving and not numbers.is_port_free(near.host, near.public_ip, near.public_port):
            with at_field("attachment_point_id", index):
                near.public_port = numbers.free_port(near.host, near.public_ip)
        near.save()
        far.save()
        link.save(update_fields=["active", "bandwidth_kbit", "from_user_kbit", "mtu"])


def link_remove(link: Link) -> None:
    """Remove the Link with both interfaces."""
    Interface.objects.filter(pk__in=(link.interface_a_id, link.interface_b_id)).delete()


def drop_unused_vpn_clients(host: Host) -> None:
    """Remove unused clients with their border routers. Call it after all Links of the host are stored: a new Link may
    have the address of a removed one."""
    VPNClient.objects.filter(host=host, interfaces=None).delete()
    BorderRouter.objects.filter(host=host, vpn__isnull=False, interfaces=None).exclude(vpn__host=host).delete()


def _park(ends: Sequence[Interface]) -> None:
    """Move sockets out of the way: the unique constraint is checked per statement. The placeholder address is unused;
    each end gets its own port there until it is saved."""
    for port, end in enumerate(ends, start=MIN_PORT):
        Interface.objects.filter(pk=end.pk).update(public_ip="0.0.0.0", public_port=port)  # noqa: S104  not listened at


def _attachment_point(spec: AttachmentSpec) -> AttachmentPoint:
    return AttachmentPoint.objects.select_related("AS__isd", "host__vpn").get(pk=spec.attachment_point_id)


def _set_limits(link: Link, ap: AttachmentPoint, spec: AttachmentSpec) -> None:
    link.bandwidth_kbit, link.from_user_kbit = limits_of(spec, selectors.default_in_force(ap)).to_columns()


def _set_user_side(
    far: Interface, ap: AttachmentPoint, spec: AttachmentSpec, index: int, installation_type: str
) -> None:
    far.public_port = spec.public_port
    if spec.use_vpn:
        with at_field("use_vpn", index):
            client = vpn_client_for(ap.host.vpn, far.host)
        far.vpn_client, far.public_ip, far.bind_ip, far.bind_port = client, client.ip, None, None
    else:
        far.vpn_client, far.public_ip = None, str(ipaddress.ip_address(spec.public_ip or ""))
        far.bind_ip = bind_ip_of(spec, installation_type)
        far.bind_port = spec.bind_port


def _set_ap_address(near: Interface, ap: AttachmentPoint, far: Interface) -> None:
    near.public_ip = _address_of(ap, far)
    near.bind_ip = None if far.vpn_client_id else bind_ip_for(near.public_ip, ap.host.bind_ip)


def _set_routers(near: Interface, far: Interface, ap: AttachmentPoint, index: int) -> None:
    """A matching router is kept: an AP may have several."""
    vpn = ap.host.vpn if far.vpn_client_id else None
    with at_field("attachment_point_id", index):
        for end in (near, far):
            if end.border_router_id is None or end.border_router.vpn != vpn:
                end.border_router = numbers.border_router_for(end.host, end.AS_id, vpn)


def _address_of(ap: AttachmentPoint, far: Interface) -> str:
    """The attachment point's end: the VPN server, or the host's address of the user AS's family."""
    if far.vpn_client_id:
        return ap.host.vpn.server_ip
    is_ipv4 = ipaddress.ip_address(far.public_ip).version == 4
    address = ap.host.public_ipv4 if is_ipv4 else ap.host.public_ipv6
    if address is None:
        raise RuntimeError(f"{ap} has no address of the family of {far.public_ip}; check_attachments refuses that")
    return address
