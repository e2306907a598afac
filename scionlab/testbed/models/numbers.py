"""Allocation of unique numbers: AS ids, interface ids, ports, addresses of VPNs, border routers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from django.db.models import Q

from bandwidth_config import RuleError, format_number
from contract.link_rules import MAX_INTERFACE_ID, MAX_PORT, MIN_INTERFACE_ID
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.isd_as import FIRST_USER_AS_ID, LAST_USER_AS_ID, MAX_AS_ID, format_as_id
from scionlab.testbed.models import AS, VPN, BorderRouter, Host, Interface, VPNClient

FIRST_PORT = 50_000  # start of SCIONLab's underlay ports (DOMAIN section 4)
LAST_BORDER_ROUTER = 253  # br-N has the internal port 30000 + N, and 30254 is the control service's


# --- numbers ----------------------------------------------------------------------------------------------
# Each is to be called with the row locked that guards it; the database's unique constraints are the second line.


def free_user_as_id() -> int:
    """The smallest free AS number of user ASes; call it under `lock_as_ids`. Raises `FieldRuleError`."""
    taken = AS.objects.filter(as_id__gte=FIRST_USER_AS_ID, as_id__lte=LAST_USER_AS_ID)
    number = format_number(LAST_USER_AS_ID - FIRST_USER_AS_ID + 1)
    text = f"All {number} ids of user ASes are in use. Ask the administrators to delete unused ASes."
    none = FieldRuleError("as_ids_exhausted", text, "label")
    return _first_free(FIRST_USER_AS_ID, LAST_USER_AS_ID, taken.values_list("as_id", flat=True), none)


def checked_user_as_id(as_id: int) -> int:
    """Return a chosen number if it is free and for user ASes. Raises `FieldRuleError`."""
    check_user_as_id(as_id)
    if AS.objects.filter(as_id=as_id).exists():
        text = f"{format_as_id(as_id)} is in use. Choose another id, or none to get the smallest free one."
        raise FieldRuleError("as_id_taken", text, "as_id")
    return as_id


def check_user_as_id(as_id: int) -> None:
    """Raises `FieldRuleError` (`as_id_not_for_users`)."""
    if not FIRST_USER_AS_ID <= as_id <= LAST_USER_AS_ID:
        written = format_as_id(as_id) if 0 <= as_id <= MAX_AS_ID else str(as_id)
        text = (
            f"{written} is not among the ids of user ASes, {format_as_id(FIRST_USER_AS_ID)} to "
            f"{format_as_id(LAST_USER_AS_ID)}. Choose one of these."
        )
        raise FieldRuleError("as_id_not_for_users", text, "as_id")


def free_interface_id(as_: AS) -> int:
    """The smallest free interface id of the AS. Raises `RuleError` (`interface_ids_exhausted`)."""
    taken = Interface.objects.filter(AS_id=as_.pk).values_list("interface_id", flat=True)
    text = f"All {format_number(MAX_INTERFACE_ID)} interface ids of {as_.isd_as} are in use. Choose another AS."
    return _first_free(MIN_INTERFACE_ID, MAX_INTERFACE_ID, taken, RuleError("interface_ids_exhausted", text))


def free_border_router_number(as_id: int) -> int:
    """The smallest free border router number of the AS, over all its hosts, as the topology names routers by it.
    `as_id` is the AS's primary key. Raises `RuleError` (`border_routers_exhausted`)."""
    taken = BorderRouter.objects.filter(host__AS=as_id).values_list("number", flat=True)
    text = f"The AS has {LAST_BORDER_ROUTER} border routers, which is the maximum. Use one of these."
    return _first_free(1, LAST_BORDER_ROUTER, taken, RuleError("border_routers_exhausted", text))


def border_router_for(host: Host, as_id: int, vpn: VPN | None = None) -> BorderRouter:
    """The router on this host of the AS for Links over this VPN (None: over no VPN); created if missing. A router with
    a missing local address exits at start (v0.15), so a tun that is down must not affect other Links. Raises
    `RuleError` (`border_routers_exhausted`)."""
    found = BorderRouter.objects.filter(host=host, vpn=vpn).order_by("number").first()
    return found or BorderRouter.objects.create(host=host, vpn=vpn, number=free_border_router_number(as_id))


def free_port(host: Host, ip: str) -> int:
    """The smallest port from 50000 that is free at this address of the host. Raises `RuleError` (`ports_exhausted`)."""
    taken = Interface.objects.filter(host=host, public_ip=ip).values_list("public_port", flat=True)
    text = f"All ports from {FIRST_PORT} to {MAX_PORT} of {ip} on {host} are in use. Choose another AS."
    return _first_free(FIRST_PORT, MAX_PORT, taken, RuleError("ports_exhausted", text))


def is_port_free(host: Host, ip: str, port: int) -> bool:
    """Whether no interface uses the port at this address of the host."""
    return not Interface.objects.filter(host=host, public_ip=ip, public_port=port).exists()


def free_vpn_address(vpn: VPN, host: Host) -> str | None:
    """The smallest free address of the VPN, None if it is full. Skips addresses that the host has in other VPNs:
    subnets may overlap."""
    taken = {vpn.server_ip, *VPNClient.objects.filter(Q(vpn=vpn) | Q(host=host)).values_list("ip", flat=True)}
    free = (str(ip) for ip in ipaddress.ip_network(vpn.subnet).hosts() if str(ip) not in taken)
    return next(free, None)


def _first_free(low: int, high: int, taken: Iterable[int], none: RuleError) -> int:
    """Raises `none` if all are taken."""
    known = set(taken)
    found = next((number for number in range(low, high + 1) if number not in known), None)
    if found is None:
        raise none
    return found
