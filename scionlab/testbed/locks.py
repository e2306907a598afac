"""The locks and their order. `testbed.models.numbers` allocates the numbers that they guard.

Every service takes its locks in this order, and rows of one table in the order of their primary keys, which prevents
deadlocks (tests/concurrency/test_lock_order.py checks all services). Row locks are `FOR NO KEY UPDATE`, because
`FOR UPDATE` would block references, too:

     1. ApiRequest          whose Idempotency-Key is used (`web.rest.idempotency`)
     2. NoticeWatch         the check for due notices
     3. DefaultChange       which preview is applied
     4. MaximumException    which request for a higher maximum is decided
     5. BandwidthPolicy     the site default
     6. ServiceState        guards the ids of all ASes, signing keys, and G
     7. User                quota of a user; all administrators if one of them might be the last
     8. ISD                 guards its TRCs, and the certificates of its core ASes
     9. AS                  guards its hosts, routers, attachments and keys
    10. AttachmentPoint     guards the default in force there, its numbers (interface ids, ports, VPN addresses, border
                            routers), and its Links
    11. Link                in any order if the attachment point's row is held
    12. UserAS              last change of the AS
    13. Host                all hosts of each AS concerned, once, because every service ends by raising counters
    14. HostReceipt
    15. LinkEnforcement
    16. UsageBatch, UsageSeries  and their sums
    17. EnrolmentToken, Mail  which link of a mail is used

A service locks the rows of a table at once, or later only rows that it holds already. Reading a default to decide (is
this number allowed?) requires the attachment point's lock; changing a default requires those of all attachment points
that use it. Saves at two attachment points do not block each other.

Public addresses are locked between the attachment points and the Links, with advisory locks, as there is no row for an
address (`lock_addresses`).

If a deadlock happens anyway (a deleted row takes others along, in an order of the database's own), the database aborts
one transaction, which is then repeated (`scionlab.platform.retry`).

SQLite has no row locks and Django drops `FOR UPDATE` there; its transactions begin with the write lock (settings,
`transaction_mode` IMMEDIATE), so they run one after the other. On both, decisive reads must be inside the transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Final

from django.db import connection
from django.db.models import Q

from scionlab.platform.locks import lock_rows
from scionlab.testbed import selectors
from scionlab.testbed.models import AS, ISD, AttachmentPoint, BandwidthPolicy, Host, Link, ServiceState, UserAS

_ADDRESSES: Final = 0x5C10  # first half of our advisory locks on addresses


# --- locks ------------------------------------------------------------------------------------------------
# NO KEY: a plain FOR UPDATE would also hold up everybody who only inserts a row that refers to the locked one (an audit
# row that names its actor), and waits of that kind follow no order: a deadlock.


def lock_policy() -> BandwidthPolicy:
    selectors.policy()  # creates a missing row
    return BandwidthPolicy.objects.select_for_update(no_key=True).get(pk=1)


def lock_as_ids() -> None:
    selectors.generation()  # creates a missing row
    ServiceState.objects.select_for_update(no_key=True).get(pk=1)


def lock_isd(isd_id: int) -> None:
    """`isd_id` is its primary key."""
    lock_rows(ISD.objects.filter(pk=isd_id))


def lock_keys_of_ases(as_ids: Iterable[int]) -> None:
    """Lock the ASes without their attachment points: for changes that touch no Link."""
    lock_rows(AS.objects.filter(pk__in=set(as_ids)))


def lock_as(as_id: int) -> None:
    """The caller checks whether it (still) exists."""
    lock_rows(AS.objects.filter(pk=as_id))


def lock_ases(ids: Iterable[int], *, joins: Collection[int] = ()) -> None:
    """Lock ASes with the attachment points there, those they are attached to, and those they are about to attach to:
    blocks all changes of hosts, routers and Links of these ASes."""
    wanted = set(ids)
    lock_rows(AS.objects.filter(pk__in=wanted))
    aps = AttachmentPoint.objects.filter(
        Q(AS__in=wanted) | Q(AS__interfaces__link_as_a__interface_b__AS__in=wanted)
    ).values_list("pk", flat=True)
    lock_attachment_points({*aps, *joins})


def lock_attachment_points(ids: Iterable[int] | None = None) -> None:
    """None: all of them."""
    rows = AttachmentPoint.objects.all()
    lock_rows(rows if ids is None else rows.filter(pk__in=storable_ids(ids)))


def storable_ids(ids: Iterable[int]) -> set[int]:
    """Drop numbers from outside that are out of the range of a key, which a database would reject."""
    return {one for one in ids if 0 < one < 2**63}


def lock_attachment_points_of_hosts(host_ids: Iterable[int]) -> None:
    lock_rows(AttachmentPoint.objects.filter(host_id__in=set(host_ids)))


def lock_addresses(addresses: Iterable[str]) -> None:
    """Lock public addresses until the transaction ends, at all attachment points: no other transaction assigns sockets
    on them. On SQLite the transaction holds the database anyway."""
    if connection.vendor != "postgresql":
        return
    hashes = {hashlib.sha256(address.encode()).digest()[:4] for address in addresses}
    with connection.cursor() as cursor:
        for key in sorted(int.from_bytes(one, signed=True) for one in hashes):
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_ADDRESSES, key])


def lock_links(ids: Iterable[int]) -> None:
    lock_rows(Link.objects.filter(pk__in=set(ids)))


def lock_hosts(ids: Iterable[int]) -> dict[int, Host]:
    """Lock these hosts and all others of their ASes, whose counters rise with theirs; by key, with what `Host.trace`
    needs and only the key of their AS."""
    wanted = set(ids)
    siblings = Q(AS__in=Host.objects.filter(pk__in=wanted, AS__isnull=False).values("AS"))
    rows = Host.objects.filter(Q(pk__in=wanted) | siblings)
    columns = ("AS_id", "uid", "config_version", "limits_version", "restart_due_at")
    return {host.pk: host for host in rows.select_for_update(no_key=True).order_by("pk").only(*columns)}


def lock_network() -> None:
    """Lock all ISDs, ASes, attachment points, Links and hosts, and the site default: the whole network."""
    lock_policy()
    lock_as_ids()
    for model in (ISD, AS, AttachmentPoint, Link, UserAS, Host):
        lock_rows(model._default_manager.all())


# --- before a service ---------------------------------------------------------------------------------------
# For callers that compare stored values with shown ones and then call a service, which takes the same locks again:
# these start at the same table, and hold all rows that it will lock there. Within a transaction.


def lock_link(link_id: int) -> None:
    """Lock the Link, its timed limits, and its existence."""
    aps = Link.objects.filter(pk=link_id).values_list("interface_a__AS__attachment_point", flat=True)
    lock_attachment_points(ap_id for ap_id in aps if ap_id is not None)


def lock_user_as(user_as_id: int, *, joins: Collection[int] = ()) -> None:
    """Lock the AS and its Links. `joins`: attachment points that it is about to attach to."""
    lock_ases([user_as_id], joins=joins)
