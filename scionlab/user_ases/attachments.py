"""A requested attachment of a user AS, and its stored form. `attachment_rules` has the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bandwidth_config import Limits, RuleError
from contract.link_rules import check_bind_address, check_port, check_underlay_address
from scionlab.testbed.models import AttachmentPoint, Link, UserAS

MAX_ATTACHMENTS = 5  # DOMAIN section 1
DEFAULT_PORT = 50_000
# Address of the first network card of every virtual machine behind VirtualBox's NAT, which Vagrant uses.
VM_ADDRESS = "10.0.2.15"


@dataclass(frozen=True, kw_only=True)
class AttachmentSpec:
    """One requested attachment.

    Over the VPN (`use_vpn`) the client address is allocated, and `public_ip` and the bind fields are ignored. `bind_ip`
    None: the machine has the public address, a virtual machine `VM_ADDRESS` instead of an IPv4 one. `bandwidth_kbit`
    (to the user AS) None: a copy of the default in force; `from_user_kbit` None: the same as that. `link_id`: an
    existing attachment to edit; if the attachment point differs, it is removed there and created anew.
    """

    attachment_point_id: int
    use_vpn: bool = False
    public_ip: str | None = None
    public_port: int = DEFAULT_PORT
    bandwidth_kbit: int | None = None
    from_user_kbit: int | None = None
    bind_ip: str | None = None
    bind_port: int | None = None
    link_id: int | None = None
    active: bool = True


def provider_links(user_as: UserAS | None) -> list[Link]:
    """Links by which the user AS is attached, with what the rules read."""
    if user_as is None:
        return []
    links = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS=user_as.pk).order_by("pk")
    return list(links.select_related("interface_a__AS__attachment_point", "interface_b__vpn_client"))


def public_addresses(specs: Sequence[AttachmentSpec]) -> set[str]:
    """Public addresses of the attachments, normalized; none over the VPN, and none that are invalid."""
    return {address for spec in specs if (address := public_address(spec)) is not None}


def spec_of(link: Link, installation_type: str) -> AttachmentSpec:
    """The attachment that corresponds to this Link, for a user AS of this installation type."""
    end = link.interface_b
    is_default = installation_type == UserAS.Installation.VM and end.bind_ip == VM_ADDRESS
    return AttachmentSpec(
        attachment_point_id=attachment_point_id(link) or 0,
        use_vpn=end.vpn_client_id is not None,
        public_ip=end.public_ip,
        public_port=end.public_port,
        bandwidth_kbit=link.bandwidth_kbit,
        from_user_kbit=link.from_user_kbit,
        bind_ip=None if is_default else end.bind_ip,
        bind_port=end.bind_port,
        link_id=link.pk,
        active=link.active,
    )


def bind_ip_of(spec: AttachmentSpec, installation_type: str) -> str | None:
    """Where the border router binds, normalized; None: at the public address, or invalid."""
    if spec.bind_ip:
        return _bind(spec)
    address = public_address(spec)
    is_translated = installation_type == UserAS.Installation.VM and address is not None and ":" not in address
    return VM_ADDRESS if is_translated else None


def socket_of(spec: AttachmentSpec, installation_type: str) -> tuple[object, ...]:
    """Socket of the user AS: public and bind address. Equal for equivalent requests."""
    if spec.use_vpn:
        return (True, spec.public_port)
    asked = (public_address(spec), spec.public_port, _bind(spec), spec.bind_port)
    return (False, *asked, bind_ip_of(spec, installation_type))


def public_address(spec: AttachmentSpec) -> str | None:
    """Public address, normalized; None over the VPN, or if it or its port is invalid."""
    if spec.use_vpn or not spec.public_ip:
        return None
    try:
        check_port(spec.public_port)
        return str(check_underlay_address(spec.public_ip))
    except RuleError:
        return None


def limits_of(spec: AttachmentSpec, default_kbit: int) -> Limits:
    return Limits.of_columns(default_kbit if spec.bandwidth_kbit is None else spec.bandwidth_kbit, spec.from_user_kbit)


def attachment_point_id(link: Link) -> int | None:
    ap: AttachmentPoint | None = getattr(link.interface_a.AS, "attachment_point", None)
    return None if ap is None else ap.pk


def _bind(spec: AttachmentSpec) -> str | None:
    try:
        return str(check_bind_address(spec.bind_ip)) if spec.bind_ip else None
    except RuleError:
        return None
