"""Makes, changes and removes the rows of one attachment: two interfaces, their Link, and a VPN client where needed.

Steps of `services.user_as`, which checked the rules, holds the locks and raises the counters.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Sequence

from bandwidth_config import MAX_PORT, RuleError
from scionlab import selectors
from scionlab.models import AttachmentPoint, BorderRouter, Host, Interface, Link, UserAS, VPNClient
from scionlab.services import allocation
from scionlab.services.attachments import AttachmentSpec, limits_of
from scionlab.services.errors import FieldRuleError


def link_add(user_as: UserAS, host: Host, spec: AttachmentSpec, *, index: int) -> Link:
    """Attach the AS as `spec` says.

    Raises `FieldRuleError` (`interface_ids_exhausted`, `ports_exhausted`, `vpn_full`).
    """
    ap = AttachmentPoint.objects.select_related("AS__isd", "host__vpn").get(pk=spec.attachment_point_id)
    far = Interface(AS=user_as, host=host, border_router=_router(host))
    near = Interface(AS=ap.AS, host=ap.host, border_router=_router(ap.host))
    with _told_of(index):
        far.interface_id = allocation.free_interface_id(user_as)
        near.interface_id = allocation.free_interface_id(ap.AS)
        _set_user_side(far, ap, spec, index)
        _set_ap_side(near, ap, far)
    near.save()
    far.save()
    limits = limits_of(spec, selectors.default_in_force(ap))
    return Link.objects.create(
        interface_a=near,
        interface_b=far,
        type=Link.Type.PROVIDER,
        active=spec.active,
        bandwidth_kbit=limits.to_user_kbit,
        from_user_kbit=None if limits.is_symmetric else limits.from_user_kbit,
    )


def link_edit(link: Link, spec: AttachmentSpec, *, index: int) -> Link:
    """Make the Link what `spec` says, at the attachment point where it is; ids and ports of the AP stay if they can."""
    ap = AttachmentPoint.objects.select_related("AS__isd", "host__vpn").get(pk=spec.attachment_point_id)
    near, far = link.interface_a, link.interface_b
    client = far.vpn_client
    with _told_of(index):
        _set_user_side(far, ap, spec, index)
        _set_ap_side(near, ap, far)
    near.save()
    far.save()
    if client is not None and client.pk != far.vpn_client_id:
        _drop_unused(client)
    link.active = spec.active
    limits = limits_of(spec, selectors.default_in_force(ap))
    link.bandwidth_kbit = limits.to_user_kbit
    link.from_user_kbit = None if limits.is_symmetric else limits.from_user_kbit
    link.save(update_fields=["active", "bandwidth_kbit", "from_user_kbit"])
    return link


def link_remove(link: Link) -> None:
    """Remove the Link with both interfaces, and the VPN client when no other Link uses it."""
    client = link.interface_b.vpn_client
    Interface.objects.filter(pk__in=(link.interface_a_id, link.interface_b_id)).delete()
    if client is not None:
        _drop_unused(client)


def park_ports(host: Host, specs: Sequence[AttachmentSpec], kept: dict[int, Link]) -> None:
    """Move the kept interfaces that change their port out of each other's way.

    Two attachments may swap their ports, and the unique constraint looks at every statement on its own.
    """
    new_ports = {spec.link_id: spec.public_port for spec in specs}
    moving = [link.interface_b for pk, link in kept.items() if new_ports[pk] != link.interface_b.public_port]
    if len(moving) < 2:
        return
    in_use = set(Interface.objects.filter(host=host).values_list("public_port", flat=True)) | set(new_ports.values())
    parking = (port for port in range(MAX_PORT, 0, -1) if port not in in_use)
    for interface in moving:
        Interface.objects.filter(pk=interface.pk).update(public_port=next(parking))


def _set_user_side(far: Interface, ap: AttachmentPoint, spec: AttachmentSpec, index: int) -> None:
    far.public_port = spec.public_port
    if spec.use_vpn:
        client = allocation.vpn_client_for(ap.host.vpn, far.host)
        if client is None:
            text = (
                f"All addresses of the VPN of {ap.AS.isd_as} ({ap.host.vpn.subnet}) are in use. Give a public IP, or "
                "choose another attachment point."
            )
            raise FieldRuleError("vpn_full", text, "use_vpn", index)
        far.vpn_client, far.public_ip, far.bind_ip, far.bind_port = client, client.ip, None, None
    else:
        far.vpn_client, far.public_ip = None, str(ipaddress.ip_address(spec.public_ip or ""))
        far.bind_ip = str(ipaddress.ip_address(spec.bind_ip)) if spec.bind_ip else None
        far.bind_port = spec.bind_port


def _set_ap_side(near: Interface, ap: AttachmentPoint, far: Interface) -> None:
    address = _address_of(ap, far)
    near.bind_ip = None if far.vpn_client_id else allocation.bind_ip_for(address, ap.host.bind_ip)
    if near.pk is not None and near.public_ip == address:
        return
    near.public_ip = address
    if near.pk is None or not allocation.is_port_free(ap.host, address, near.public_port, interface_id=near.pk):
        near.public_port = allocation.free_port(ap.host, address)


@contextlib.contextmanager
def _told_of(index: int) -> Iterator[None]:
    """A number that ran out is an error of the attachment point that was chosen."""
    try:
        yield
    except FieldRuleError:
        raise
    except RuleError as exc:
        raise FieldRuleError.of(exc, "attachment_point_id", index) from exc


def _address_of(ap: AttachmentPoint, far: Interface) -> str:
    """The attachment point's end: the VPN server, or its address of the family that the user AS's end has."""
    if far.vpn_client_id:
        return ap.host.vpn.server_ip
    is_ipv4 = ipaddress.ip_address(far.public_ip).version == 4
    address = ap.host.public_ipv4 if is_ipv4 else ap.host.public_ipv6
    if address is None:
        raise RuntimeError(f"{ap} has no address of the family of {far.public_ip}; check_attachments refuses that")
    return address


def _router(host: Host) -> BorderRouter:
    return host.border_routers.order_by("number").first() or BorderRouter.objects.create(host=host, number=1)


def _drop_unused(client: VPNClient) -> None:
    if not client.interfaces.exists():
        client.delete()
