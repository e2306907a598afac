"""Numbers that two people must not get at once (AS ids, interface ids, ports, VPN addresses), and the order of locks.

Every service takes the locks that it needs in this order, and rows of one table in the order of their primary keys.
So no two of them can wait for each other (docs/adr/0026; tests/concurrency/test_lock_order.py watches them all):

     1. ApiRequest          whose Idempotency-Key is used (`services.idempotency`)
     2. NoticeWatch         who looks for what to tell people
     3. BulkChange          which preview is carried out
     4. AccountRequest      whose link is used
     5. BandwidthPolicy     who changes the site's default
     6. ServiceState        who needs a new AS id (the row guards the ids of all ASes), makes signing keys or raises G
     7. User                who is counted against a quota; all administrators where one of them might be the last
     8. ISD                 guards its TRCs, and the certificates of its core ASes
     9. AS                  whose hosts, routers, attachments or own keys change
    10. AttachmentPoint     guards the default in force there, its numbers (interface ids, ports, VPN addresses, border
                            routers), and its Links
    11. Link                in any order where the attachment point's row is held
    12. UserAS              who changed it last
    13. Host                all hosts of each AS concerned, once, because every service ends by raising counters
    14. HostReceipt
    15. LinkEnforcement
    16. UsageBatch, UsageSeries  and what is summed up of them
    17. EnrolmentToken, Mail

A service locks the rows of a table at once, or later only rows that it holds already. Whoever reads a default in order
to decide (is this number allowed?) holds the attachment point's row; whoever changes a default holds the rows of all
the attachment points it counts for. Saves at two attachment points do not meet.

Between the attachment points and the Links comes who uses which public address: no row stands for an address, so that
lock is the database's own (`lock_addresses`).

Where two meet anyway (a row that is deleted takes others along, in whichever order the database finds them), the
database ends one of the two transactions, which is then run again (`scionlab.retry`).

SQLite has no row locks and Django drops `FOR UPDATE` there; its transactions begin with the write lock (settings,
`transaction_mode` IMMEDIATE), so they run one after the other. Both need the reads that decide inside the transaction.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterable
from typing import Any, Final

from django.db import connection
from django.db.models import Q, QuerySet

from bandwidth_config import MAX_INTERFACE_ID, MAX_PORT, MIN_INTERFACE_ID, RuleError, format_number
from scionlab import selectors
from scionlab.isd_as import FIRST_USER_AS_ID, LAST_USER_AS_ID, MAX_AS_ID, format_as_id
from scionlab.models import (
    AS,
    ISD,
    VPN,
    AttachmentPoint,
    BandwidthPolicy,
    BorderRouter,
    Host,
    HostReceipt,
    Interface,
    Link,
    ServiceState,
    User,
    UserAS,
    VPNClient,
)
from scionlab.services.errors import FieldRuleError

FIRST_PORT = 50_000  # where the field's underlay ports begin (DOMAIN section 4)
LAST_BORDER_ROUTER = 253  # br-N has the internal port 30000 + N, and 30254 is the control service's
_ADDRESSES: Final = 0x5C10  # the first half of each advisory lock of ours on an address


# --- locks ------------------------------------------------------------------------------------------------
# NO KEY: a plain FOR UPDATE would also hold up everybody who only inserts a row that refers to the locked one (an audit
# row that names its actor), and waits of that kind follow no order: a deadlock.


def lock_policy() -> BandwidthPolicy:
    selectors.policy()  # makes the row where there is none yet
    return BandwidthPolicy.objects.select_for_update(no_key=True).get(pk=1)


def lock_as_ids() -> None:
    selectors.generation()  # makes the row where there is none yet
    ServiceState.objects.select_for_update(no_key=True).get(pk=1)


def lock_user(user_id: int) -> User:
    return User.objects.select_for_update(no_key=True).get(pk=user_id)


def lock_administrators(user_id: int) -> User:
    """The person's row and those of all administrators: whether another one stays is decided by one at a time.

    Returns the person. Raises `User.DoesNotExist`.
    """
    _lock(User.objects.filter(Q(pk=user_id) | Q(is_staff=True, is_active=True)))
    return User.objects.get(pk=user_id)


def lock_isd(isd_id: int) -> None:
    """`isd_id` is its primary key."""
    _lock(ISD.objects.filter(pk=isd_id))


def lock_keys_of_ases(as_ids: Iterable[int]) -> None:
    """The rows of the ASes, without their attachment points: no Link is touched."""
    _lock(AS.objects.filter(pk__in=set(as_ids)))


def lock_as(as_id: int) -> None:
    """Whether it exists (still) is for the caller to find out, once he has the lock."""
    _lock(AS.objects.filter(pk=as_id))


def lock_ases(ids: Iterable[int], *, joins: Collection[int] = ()) -> None:
    """With the attachment points there, those where the ASes are attached, and those that they are about to attach to:
    holds up everybody who makes or changes hosts, routers or Links of these ASes."""
    wanted = set(ids)
    _lock(AS.objects.filter(pk__in=wanted))
    aps = AttachmentPoint.objects.filter(
        Q(AS__in=wanted) | Q(AS__interfaces__link_as_a__interface_b__AS__in=wanted)
    ).values_list("pk", flat=True)
    lock_attachment_points({*aps, *joins})


def lock_attachment_points(ids: Iterable[int] | None = None) -> None:
    """None: all of them."""
    rows = AttachmentPoint.objects.all()
    _lock(rows if ids is None else rows.filter(pk__in=storable_ids(ids)))


def storable_ids(ids: Iterable[int]) -> set[int]:
    """Without numbers from outside that no row can have and that a database would refuse to look for."""
    return {one for one in ids if 0 < one < 2**63}


def lock_attachment_points_of_hosts(host_ids: Iterable[int]) -> None:
    _lock(AttachmentPoint.objects.filter(host_id__in=set(host_ids)))


def lock_addresses(addresses: Iterable[str]) -> None:
    """Until the transaction ends nobody else gives out sockets of these public addresses, at whichever attachment
    point. On SQLite the transaction holds the database anyhow."""
    if connection.vendor != "postgresql":
        return
    hashes = {hashlib.sha256(address.encode()).digest()[:4] for address in addresses}
    with connection.cursor() as cursor:
        for key in sorted(int.from_bytes(one, signed=True) for one in hashes):
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_ADDRESSES, key])


def lock_links(ids: Iterable[int]) -> None:
    _lock(Link.objects.filter(pk__in=set(ids)))


def lock_hosts(ids: Iterable[int]) -> dict[int, int | None]:
    """These and all other hosts of their ASes, whose counters rise with theirs. By host its AS (both as keys)."""
    wanted = set(ids)
    siblings = Q(AS__in=Host.objects.filter(pk__in=wanted, AS__isnull=False).values("AS"))
    rows = Host.objects.filter(Q(pk__in=wanted) | siblings)
    return dict(rows.select_for_update(no_key=True).order_by("pk").values_list("pk", "AS"))


def lock_network() -> None:
    """All ISDs, ASes, attachment points, Links and hosts, and the default of the site: nobody else changes the
    network."""
    lock_policy()
    lock_as_ids()
    for model in (ISD, AS, AttachmentPoint, Link, UserAS, Host):
        _lock(model._default_manager.all())


def lock_receipts() -> None:
    """All: no receipt is being stored."""
    _lock(HostReceipt.objects.all())


def _lock(rows: QuerySet[Any]) -> None:
    list(rows.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True))


# --- numbers ----------------------------------------------------------------------------------------------
# Each is to be called with the row locked that guards it; the database's unique constraints are the second line.


def free_user_as_id() -> int:
    """The smallest AS number of user ASes that nobody has; under `lock_as_ids`. Raises `FieldRuleError`."""
    taken = AS.objects.filter(as_id__gte=FIRST_USER_AS_ID, as_id__lte=LAST_USER_AS_ID)
    found = _first_free(FIRST_USER_AS_ID, LAST_USER_AS_ID, set(taken.values_list("as_id", flat=True)))
    if found is None:
        raise FieldRuleError(
            "as_ids_exhausted",
            f"All {format_number(LAST_USER_AS_ID - FIRST_USER_AS_ID + 1)} ids of user ASes are in use. "
            "Ask the administrators to delete unused ASes.",
            "label",
        )
    return found


def checked_user_as_id(as_id: int) -> int:
    """A number chosen by somebody, if it may become a user AS's. Raises `FieldRuleError`."""
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
    """The smallest interface id that the AS does not have. Raises `RuleError` (`interface_ids_exhausted`)."""
    taken = set(Interface.objects.filter(AS_id=as_.pk).values_list("interface_id", flat=True))
    found = _first_free(MIN_INTERFACE_ID, MAX_INTERFACE_ID, taken)
    if found is None:
        text = f"All {format_number(MAX_INTERFACE_ID)} interface ids of {as_.isd_as} are in use. Choose another AS."
        raise RuleError("interface_ids_exhausted", text)
    return found


def free_border_router_number(as_id: int) -> int:
    """The smallest number that no border router of the AS has, on whichever host: its topology names routers by it.

    `as_id` is the AS's primary key. Raises `RuleError` (`border_routers_exhausted`).
    """
    taken = set(BorderRouter.objects.filter(host__AS=as_id).values_list("number", flat=True))
    found = _first_free(1, LAST_BORDER_ROUTER, taken)
    if found is None:
        text = f"The AS has {LAST_BORDER_ROUTER} border routers, which is the maximum. Use one of these."
        raise RuleError("border_routers_exhausted", text)
    return found


def border_router_for(end: Interface, vpn: VPN | None) -> BorderRouter:
    """The router on the end's host for Links over this VPN, for None of those over no VPN; made where there is none.

    A router with a local address that is not there ends at its start (v0.15), so a tun that is down takes no other
    Links along. Raises `RuleError` (`border_routers_exhausted`).
    """
    found = BorderRouter.objects.filter(host=end.host, vpn=vpn).order_by("number").first()
    number = free_border_router_number
    return found or BorderRouter.objects.create(host=end.host, vpn=vpn, number=number(end.AS_id))


def free_port(host: Host, ip: str) -> int:
    """The smallest port from 50000 that no interface has at this address of the host.

    Raises `RuleError` (`ports_exhausted`).
    """
    taken = set(Interface.objects.filter(host=host, public_ip=ip).values_list("public_port", flat=True))
    found = _first_free(FIRST_PORT, MAX_PORT, taken)
    if found is None:
        text = f"All ports from {FIRST_PORT} to {MAX_PORT} of {ip} on {host} are in use. Choose another AS."
        raise RuleError("ports_exhausted", text)
    return found


def is_port_free(host: Host, ip: str, port: int) -> bool:
    """True when no interface has the port at this address of the host."""
    return not Interface.objects.filter(host=host, public_ip=ip, public_port=port).exists()


def free_vpn_address(vpn: VPN, host: Host) -> str | None:
    """The smallest address of the VPN that nobody has, None where it is full. Those that the host has in other VPNs
    are left out: subnets may overlap."""
    taken = {vpn.server_ip, *VPNClient.objects.filter(Q(vpn=vpn) | Q(host=host)).values_list("ip", flat=True)}
    free = (str(ip) for ip in ipaddress.ip_network(vpn.subnet).hosts() if str(ip) not in taken)
    return next(free, None)


def bind_ip_for(public_ip: str, bind_ip: str | None) -> str | None:
    """The bind address for a socket with this public address: addresses of the other family do not go with it."""
    if bind_ip is None or ipaddress.ip_address(bind_ip).version != ipaddress.ip_address(public_ip).version:
        return None
    return bind_ip


def _first_free(low: int, high: int, taken: Collection[int]) -> int | None:
    return next((number for number in range(low, high + 1) if number not in taken), None)
