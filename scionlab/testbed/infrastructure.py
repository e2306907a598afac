"""Infrastructure set up by the operators: ASes, hosts, attachment points and VPNs.

`lab.seed` builds a small SCIONLab with these. `user_ases.user_as` has what users create.
"""

from __future__ import annotations

import ipaddress

from django.db import transaction
from django.db.models import Q

from bandwidth_config import RuleError, check_bandwidth
from contract.link_rules import MAX_PORT
from scionlab.accounts.models import User
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.isd_as import FIRST_USER_AS_ID, LAST_USER_AS_ID, MAX_ISD, format_as_id, parse_as_id
from scionlab.testbed import audit, locks, selectors
from scionlab.testbed.deleted_host import hosts_bury
from scionlab.testbed.host_addresses import checked_addresses
from scionlab.testbed.infrastructure_links import first_host
from scionlab.testbed.life import LIVES
from scionlab.testbed.models import AS, ISD, VPN, AttachmentPoint, BandwidthChange, BorderRouter, Host, Link
from scionlab.testbed.models.link import is_user_as
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.web.pages.stale_pages import Values, last_admin_change, refuse_stale


def check_isd_id(isd_id: int) -> None:
    """Raises `RuleError` (`isd_range`)."""
    if not 1 <= isd_id <= MAX_ISD:
        raise RuleError("isd_range", f"ISD {isd_id} is outside 1 to {MAX_ISD}. Choose a number in that range.")


def check_infrastructure_as_id(as_id: int) -> None:
    """Ids of user ASes are not allowed. Raises `RuleError` (`as_id_range`, `as_id_for_users`)."""
    written = format_as_id(as_id)
    if FIRST_USER_AS_ID <= as_id <= LAST_USER_AS_ID:
        raise RuleError(
            "as_id_for_users",
            f"{written} is in the range of user ASes, {format_as_id(FIRST_USER_AS_ID)} to "
            f"{format_as_id(LAST_USER_AS_ID)}. Choose an id like ffaa:0:1107 for infrastructure.",
        )


def infrastructure_as_id(text: str) -> int:
    """Parse an id like `ffaa:0:1107`. Raises `RuleError` (`as_id_invalid`, `as_id_zero`, `as_id_for_users`)."""
    as_id = parse_as_id(text)
    check_infrastructure_as_id(as_id)
    return as_id


@transaction.atomic
def infrastructure_as_create(
    *,
    isd: int,
    as_text: str,
    label: str,
    is_core: bool,
    public_ipv4: str | None = None,
    public_ipv6: str | None = None,
    bind_ip: str | None = None,
    isd_label: str = "",
    actor: User | None = None,
    reason: str = "",
) -> AS:
    """Create an AS with one host, one border router, and keys; `as_text` like `ffaa:0:1107`. Creates a missing ISD,
    named `isd_label`; a core AS leads to a new TRC. Raises `RuleError`: `as_id_invalid`, `as_id_zero`,
    `as_id_for_users`, `as_id_taken`, `isd_range`, `address_required`, and those of `check_underlay_address` and
    `isd_ensure`."""
    as_id = infrastructure_as_id(as_text)
    addresses = checked_addresses(public_ipv4, public_ipv6, bind_ip, is_public=True)
    locks.lock_as_ids()
    taken = AS.objects.filter(as_id=as_id).select_related("isd").first()
    if taken is not None:
        raise RuleError("as_id_taken", f"{format_as_id(as_id)} already exists as {taken}. Choose another id.")
    check_isd_id(isd)
    home, _ = ISD.objects.get_or_create(isd_id=isd, defaults={"label": isd_label})
    as_ = AS.objects.create(isd=home, as_id=as_id, label=label, is_core=is_core)
    host = Host.objects.create(AS=as_, label=label, **addresses)
    BorderRouter.objects.create(host=host)
    for life in LIVES:
        life.as_made(as_, actor=actor)
    audit.note(as_, kind=audit.Kind.AS, actor=actor, detail="Created with its first host", reason=reason)
    return as_


@transaction.atomic
def attachment_point_create(
    *,
    as_: AS,
    default_bandwidth_kbit: int | None = None,
    vpn_subnet: str | None = None,
    actor: User | None = None,
    reason: str = "",
) -> AttachmentPoint:
    """Make `as_` an attachment point on its first host; with a VPN server if a subnet is given (10.10.1.0/24). L of the
    host rises: its configuration now has link_info.json; SCION's files do not change. Raises `RuleError`:
    `attachment_point_exists`, `host_missing`, `subnet_invalid`, and those of `check_bandwidth`."""
    if default_bandwidth_kbit is not None:
        check_bandwidth(default_bandwidth_kbit)
    locks.lock_as(as_.pk)
    host = first_host(as_)
    if AttachmentPoint.objects.filter(AS=as_).exists():
        raise RuleError("attachment_point_exists", f"{as_} is already an attachment point. Edit it.")
    ap = AttachmentPoint(AS=as_, host=host, default_bandwidth_kbit=default_bandwidth_kbit)
    ap.maximum_kbit = ap.default_in_force(selectors.policy())
    ap.save()
    detail = "Created, with the site default" if default_bandwidth_kbit is None else ""
    audit.note(
        ap, kind=audit.Kind.AP_DEFAULT, actor=actor, old=None, new=default_bandwidth_kbit, detail=detail, reason=reason
    )
    if vpn_subnet is not None:
        vpn_create(host=host, subnet=vpn_subnet, actor=actor, reason=reason)
    hosts_bump(limits_ids=[host.pk])
    return ap


def check_subnet(subnet: str) -> ipaddress.IPv4Network:
    """An IPv4 subnet, as OpenVPN's `ifconfig-push` requires. Raises `RuleError` (`subnet_invalid`,
    `subnet_too_small`)."""
    try:
        network = ipaddress.IPv4Network(subnet)
    except ValueError as exc:
        text = f'"{subnet[:43]}" is not an IPv4 network. Enter one like 10.10.1.0/24.'
        raise RuleError("subnet_invalid", text) from exc
    if network.num_addresses < 4:  # network, server, one client, and broadcast
        raise RuleError(
            "subnet_too_small", f"{subnet} has no room for a server and a client. Choose a subnet like 10.10.1.0/24."
        )
    return network


def check_vpn_port(server_port: int) -> None:
    """Raises `FieldRuleError` (`vpn_port_range`)."""
    if not 1 <= server_port <= MAX_PORT:
        text = f"Port {server_port} is outside 1 to {MAX_PORT}. The default of OpenVPN is 1194."
        raise FieldRuleError("vpn_port_range", text, "server_port")


@transaction.atomic
def vpn_create(*, host: Host, subnet: str, server_port: int = 1194, actor: User | None = None, reason: str = "") -> VPN:
    """Create the VPN server of an attachment point's host, with keys; it has the subnet's first address. Raises
    `RuleError` (`subnet_invalid`, `subnet_too_small`, `subnet_taken`, `vpn_port_range`, `vpn_exists`)."""
    network = check_subnet(subnet)
    check_vpn_port(server_port)
    locks.lock_attachment_points_of_hosts([host.pk])
    if VPN.objects.filter(host=host).exists():
        raise RuleError("vpn_exists", f"{host} already has a VPN server. Delete it first.")
    _refuse_overlap(network)
    vpn = VPN.objects.create(host=host, subnet=str(network), server_ip=str(network[1]), server_port=server_port)
    for life in LIVES:
        life.vpn_made(vpn)
    detail = f"VPN {vpn.subnet} added, port {server_port}"
    audit.note(host, kind=BandwidthChange.Kind.HOST_SETTINGS, actor=actor, detail=detail, reason=reason)
    return vpn


def _refuse_overlap(network: ipaddress.IPv4Network) -> None:
    for other in VPN.objects.select_related("host__AS__isd").order_by("pk"):
        theirs = ipaddress.ip_network(other.subnet)
        if theirs.version == network.version and network.overlaps(theirs):
            raise RuleError(
                "subnet_taken",
                f"{network} overlaps {other}: routing would be ambiguous for a host in both. Choose another "
                "subnet, like 10.10.7.0/24.",
            )


@transaction.atomic
def infrastructure_as_update(
    *,
    as_id: int,
    label: str,
    is_core: bool,
    shown: Values | None = None,
    actor: User | None = None,
    reason: str = "",
) -> AS:
    """Rename the AS (`as_id` is its primary key), or change whether it is core, which is in the TRC and its topology,
    so H of its hosts rises. `shown`: values that the page showed, see `web.pages.stale_pages`. Raises `RuleError`
    (`core_link_needs_core_ases`, those of `isd_ensure`), `StalePageError`, `AS.DoesNotExist`."""
    locks.lock_isd(AS.objects.values_list("isd", flat=True).get(pk=as_id))
    locks.lock_as(as_id)
    as_ = AS.objects.select_related("isd").get(pk=as_id)
    refuse_stale(
        shown=shown,
        stored={"label": as_.label, "is_core": as_.is_core},
        wanted={"label": label, "is_core": is_core},
        last=lambda: last_admin_change(as_),
    )
    is_changed = as_.is_core != is_core
    core_links = Q(interface_a__AS=as_) | Q(interface_b__AS=as_)
    if is_changed and not is_core and Link.objects.filter(core_links, type=Link.Type.CORE).exists():
        raise RuleError("core_link_needs_core_ases", f"{as_} has core Links. Remove them first, or keep it a core AS.")
    if label != as_.label or is_changed:
        renamed = f'label "{as_.label}" \N{RIGHTWARDS ARROW} "{label}"' if label != as_.label else ""
        role = ("core AS" if is_core else "no longer a core AS") if is_changed else ""
        audit.note(as_, kind=audit.Kind.AS, actor=actor, detail=", ".join(filter(None, (renamed, role))), reason=reason)
    as_.label, as_.is_core = label, is_core
    as_.save(update_fields=["label", "is_core"])
    if is_changed:
        for life in LIVES:
            life.as_role_changed(as_, actor=actor)
        hosts_bump(config_ids=list(as_.hosts.values_list("pk", flat=True)))
    return as_


@transaction.atomic
def infrastructure_as_delete(*, as_id: int, actor: User | None = None, reason: str = "") -> None:
    """Delete the AS with its hosts and keys; for a core AS a TRC without it follows. Raises `RuleError`
    (`as_has_links`, `link_of_user_as`, those of `isd_ensure`), `AS.DoesNotExist`."""
    locks.lock_isd(AS.objects.values_list("isd", flat=True).get(pk=as_id))
    locks.lock_ases([as_id])  # no AS can attach there meanwhile
    as_ = AS.objects.select_related("isd", "useras").get(pk=as_id)
    if is_user_as(as_):
        raise RuleError("link_of_user_as", f"{as_} is a user AS. Delete it in the list of user ASes.")
    count = Link.objects.filter(Q(interface_a__AS=as_) | Q(interface_b__AS=as_)).count()
    if count:
        raise RuleError("as_has_links", f"{count} Links end at {as_}. Remove them before the AS is deleted.")
    audit.note(as_, kind=audit.Kind.AS, actor=actor, detail="Deleted with its hosts", reason=reason)
    hosts_bury(as_.pk)
    as_.delete()
    for life in LIVES:
        life.as_deleted(as_, actor=actor)


@transaction.atomic
def attachment_point_delete(*, attachment_point_id: int, actor: User | None = None, reason: str = "") -> None:
    """Delete the attachment point and keep the AS; L of the host rises, as its link_info.json is removed; H too if it
    has path metadata. Raises `RuleError` (`as_has_user_links`), `AttachmentPoint.DoesNotExist`."""
    locks.lock_attachment_points([attachment_point_id])
    ap = AttachmentPoint.objects.select_related("AS__isd").get(pk=attachment_point_id)
    count = Link.objects.filter(interface_a__AS=ap.AS, interface_b__AS__useras__isnull=False).count()
    if count:
        raise RuleError(
            "as_has_user_links",
            f"{count} Links to user ASes end at {ap.AS}; without an attachment point they would not be limited. "
            "Remove those attachments first.",
        )
    default = ap.default_bandwidth_kbit
    audit.note(
        ap,
        kind=audit.Kind.AP_DEFAULT,
        actor=actor,
        old=default,
        new=None,
        detail="Attachment point deleted",
        reason=reason,
    )
    hosts_bump(limits_ids=[ap.host_id])
    for life in LIVES:
        life.attachment_point_ends(ap)
    ap.delete()


@transaction.atomic
def vpn_delete(*, vpn_id: int, actor: User | None = None, reason: str = "") -> None:
    """Raises `RuleError` (`vpn_in_use`), `VPN.DoesNotExist`."""
    vpn = VPN.objects.get(pk=vpn_id)
    locks.lock_attachment_points_of_hosts([vpn.host_id])
    count = vpn.clients.count()
    if count:
        raise RuleError(
            "vpn_in_use", f"{count} hosts have an address in {vpn}. Change their attachments to public addresses first."
        )
    detail = f"VPN {vpn.subnet} removed"
    audit.note(vpn.host, kind=BandwidthChange.Kind.HOST_SETTINGS, actor=actor, detail=detail, reason=reason)
    vpn.delete()
