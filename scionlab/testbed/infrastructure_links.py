"""Links between infrastructure ASes, which are not limited."""

from __future__ import annotations

from django.db import transaction

from bandwidth_config import RuleError, check_bandwidth
from contract.link_rules import bind_ip_for
from contract.scion_files import link_mtu_bytes
from scionlab.accounts.models import User
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.testbed import locks
from scionlab.testbed.audit import note_link
from scionlab.testbed.models import AS, BorderRouter, Host, Interface, Link, numbers
from scionlab.testbed.models.link import is_user_as
from scionlab.testbed.versions.changes import Changes, read_links, view_of


def check_infrastructure_bandwidth(bandwidth_kbit: int) -> None:
    """Check the nominal bandwidth of a Link that is not limited: never 0, which would mean blocked (DOMAIN section 3).
    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`, `infrastructure_bandwidth`)."""
    with at_field("bandwidth_kbit"):
        check_bandwidth(bandwidth_kbit)
    if bandwidth_kbit == 0:
        text = (
            "A Link between infrastructure ASes is not limited and cannot have bandwidth 0. Enter the "
            "bandwidth of the line."
        )
        raise FieldRuleError("infrastructure_bandwidth", text, "bandwidth_kbit")


# Nominal bandwidth in link_info.json (DOMAIN section 3).
INFRASTRUCTURE_BANDWIDTH_KBIT = 1_000_000


# --- Links between infrastructure ASes ------------------------------------------------------------------------


@transaction.atomic
def infrastructure_link_create(
    *,
    a: AS,
    b: AS,
    type: Link.Type,  # noqa: A002  the field's name
    bandwidth_kbit: int = INFRASTRUCTURE_BANDWIDTH_KBIT,
    router_a: BorderRouter | None = None,
    router_b: BorderRouter | None = None,
    actor: User | None = None,
    reason: str = "",
) -> Link:
    """Create a Link between two infrastructure ASes; for a provider Link, `a` is the provider.

    It ends on the given border routers, or on the first one of each AS's first host; over IPv4 if both hosts have it,
    otherwise IPv6. H of all hosts of both ASes rises. Raises `RuleError`, about one end with its field (`router_a`,
    `router_b`): `link_to_itself`, `link_of_user_as`, `core_link_needs_core_ases`, `infrastructure_bandwidth`,
    `host_missing`, `router_elsewhere`, `router_of_vpn`, `address_family`, `interface_ids_exhausted`, `ports_exhausted`.
    """
    locks.lock_ases({a.pk, b.pk})
    _check_infrastructure_link(a, b, type, bandwidth_kbit)
    end_a, end_b = _router_of(a, router_a, "router_a"), _router_of(b, router_b, "router_b")
    ip_a, ip_b = _addresses_of_one_family(end_a.host, end_b.host)
    link = Link.objects.create(
        interface_a=_interface_create(a, end_a, ip_a),
        interface_b=_interface_create(b, end_b, ip_b),
        type=type,
        bandwidth_kbit=bandwidth_kbit,
        mtu=link_mtu_bytes(ip_a),
    )
    changes = Changes()
    changes.note(link.pk, None, view_of(link))
    changes.carry_out()
    note_link(link, actor=actor, old=None, new=link.requested, reason=reason)
    return link


@transaction.atomic
def infrastructure_link_delete(*, link_id: int, actor: User | None = None, reason: str = "") -> None:
    """Delete it; H of both hosts rises if it was active. Raises `RuleError` (`link_of_user_as`),
    `Link.DoesNotExist`."""
    locks.lock_ases(set(Link.objects.filter(pk=link_id).values_list("interface_a__AS", "interface_b__AS").get()))
    link = read_links({link_id})[0]
    if is_user_as(link.interface_b.AS):
        raise RuleError(
            "link_of_user_as",
            f"This Link is an attachment of {link.interface_b.AS}. Deactivate it here, or remove it on that AS's page.",
        )
    changes = Changes()
    changes.note(link.pk, view_of(link), None)
    note_link(link, actor=actor, old=link.requested, new=None, reason=reason)
    Interface.objects.filter(pk__in=(link.interface_a_id, link.interface_b_id)).delete()
    changes.carry_out()


def _check_infrastructure_link(a: AS, b: AS, link_type: Link.Type, bandwidth_kbit: int) -> None:
    check_infrastructure_bandwidth(bandwidth_kbit)
    if a.pk == b.pk:
        text = f"A Link connects two different ASes, not {a} to itself. Choose another AS."
        raise FieldRuleError("link_to_itself", text, "router_b")
    for as_, field in ((a, "router_a"), (b, "router_b")):
        if is_user_as(as_):
            text = f"{as_} is a user AS. Attach it on its own page instead."
            raise FieldRuleError("link_of_user_as", text, field)
        if link_type == Link.Type.CORE and not AS.objects.filter(pk=as_.pk, is_core=True).exists():
            text = f"{as_} is not a core AS. Choose a provider Link instead."
            raise FieldRuleError("core_link_needs_core_ases", text, "type")


def first_host(as_: AS) -> Host:
    host = as_.hosts.order_by("pk").first()
    if host is None:
        raise RuleError("host_missing", f"{as_} has no host for the Link to end on. Add a host first.")
    return host


def _addresses_of_one_family(a: Host, b: Host) -> tuple[str, str]:
    if a.public_ipv4 and b.public_ipv4:
        return a.public_ipv4, b.public_ipv4
    if a.public_ipv6 and b.public_ipv6:
        return a.public_ipv6, b.public_ipv6
    text = f"{a} and {b} have no common address family. Give both an IPv4 or both an IPv6 address."
    raise FieldRuleError("address_family", text, "router_b")


def _router_of(as_: AS, router: BorderRouter | None, field: str) -> BorderRouter:
    """The border router on which the Link ends, with its host read under the AS's lock."""
    if router is None:
        return numbers.border_router_for(first_host(as_), as_.pk)
    if router.vpn_id is not None:
        text = f"{router} is reserved for Links over {router.vpn}. Choose another border router."
        raise FieldRuleError("router_of_vpn", text, field)
    chosen = BorderRouter.objects.select_related("host").filter(host__AS=as_, vpn=None, pk=router.pk).first()
    if chosen is None:
        raise FieldRuleError("router_elsewhere", f"{router} is not in {as_}. Choose a border router there.", field)
    return chosen


def _interface_create(as_: AS, router: BorderRouter, public_ip: str) -> Interface:
    return Interface.objects.create(
        AS=as_,
        host=router.host,
        border_router=router,
        interface_id=numbers.free_interface_id(as_),
        public_ip=public_ip,
        public_port=numbers.free_port(router.host, public_ip),
        bind_ip=bind_ip_for(public_ip, router.host.bind_ip),
    )
