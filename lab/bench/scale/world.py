"""A testbed of any size in a database, made by the database: rows of a few templates, multiplied.

What the services store is stored for one attachment point with one Link, through Django; everything else is a copy of
these rows with other keys, numbers and addresses. Hundreds of thousands of Links take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.db.models import Model

LINKS_OF_AN_AS = 5
OWNER = "scale@example.org"  # of all user ASes
FIRST_AP_AS, FIRST_USER_AS, FIRST_POLLING_AS = 0xFFAA_0000_2000, 0xFFAA_0001_0001, 0xFFAA_0010_0001
FIRST_KEY = 1_000_000  # of copied rows: above those that Django makes


@dataclass(frozen=True)
class Size:
    """`links` at each of `points` attachment points; `polling` more hosts, which poll and have no Link."""

    points: int
    links: int
    polling: int = 0

    @property
    def all_links(self) -> int:
        return self.points * self.links

    @property
    def user_ases(self) -> int:
        return -(-self.all_links // LINKS_OF_AN_AS)


def entry(counted: int) -> dict[str, Any]:
    """What a receipt says of one link, as an agent of today writes it; so many packets were `counted`."""
    both = {
        name: {
            "dev": dev, "rate_kbit": 1000, "bytes": 1200 * counted, "packets": counted, "drops": 0, "refused": 0,
            "dropped": 0, "backlog_bytes": 0,
        }
        for name, dev in (("to_user", "eth0"), ("from_user", "slbw0"))
    }  # fmt: skip
    limits = {"kbit": 1000, "to_user_kbit": 1000, "from_user_kbit": 1000}
    return {**limits, "state": "enforced", "problem": None, **both}


def multiply(model: type[Model], template: int, count: int, **columns: str) -> None:
    """`count` copies of the row with the key `template`; `columns` by SQL of `n`, which counts from 0."""
    from django.db import connection

    names = [str(one.column) for one in model._meta.local_concrete_fields]
    key = next(str(one.column) for one in model._meta.local_concrete_fields if one.primary_key)
    given = {key: f"{FIRST_KEY} + n", **columns}
    unknown = given.keys() - set(names)
    if unknown:
        raise LookupError(f"{model.__name__} has no columns {', '.join(sorted(unknown))}")
    chosen = ", ".join(given.get(name, f't."{name}"') for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f'INSERT INTO "{table}" ({listed}) SELECT {chosen} FROM "{table}" t, generate_series(0, %s - 1) n '  # noqa: S608  our own names
            f'WHERE t."{key}" = %s',
            [count, template],
        )


def fill(size: Size, *, links_digest: str = "") -> None:  # noqa: PLR0915  one table after the other
    """An empty, migrated PostgreSQL gets the testbed. All agents fetched and reported `entry(1)` of each Link, of which
    that is the digest; all is enforced, and all hosts polled just now."""
    from django.db import connection, transaction
    from django.utils import timezone

    from scionlab.accounts.models import User
    from scionlab.delivery.models import IssuedLimits
    from scionlab.enforcement.models import HostReceipt, LinkEnforcement
    from scionlab.enforcement.receipt_changes import mark_of
    from scionlab.testbed.models import (
        AS,
        ISD,
        AttachmentPoint,
        BandwidthPolicy,
        BorderRouter,
        Host,
        Interface,
        Link,
        ServiceState,
        UserAS,
    )

    BandwidthPolicy.objects.update_or_create(pk=1, defaults={"default_bandwidth_kbit": 100_000})
    ServiceState.objects.get_or_create(pk=1)
    now = timezone.now()
    has: Mapping[str, Any] = {
        "config_version": 1, "limits_version": 1, "delivered_config_version": 1, "delivered_limits_version": 1,
        "delivered_at": now, "last_seen_at": now,
    }  # fmt: skip
    with transaction.atomic():
        isd, _ = ISD.objects.get_or_create(isd_id=17)
        owner = User.objects.create_user(email=OWNER, password=None)
        ap_as = AS.objects.create(isd=isd, as_id=FIRST_AP_AS - 1)
        ap_host = Host.objects.create(AS=ap_as, public_ipv4="192.0.2.1", **has)
        ap = AttachmentPoint.objects.create(AS=ap_as, host=ap_host, maximum_kbit=100_000)
        user_as = UserAS.objects.create(isd=isd, as_id=FIRST_USER_AS - 1, owner=owner)
        host = Host.objects.create(AS=user_as, **has)
        routers = [BorderRouter.objects.create(host=one, number=1) for one in (ap_host, host)]
        near, far = (
            Interface.objects.create(
                AS=as_, host=router.host, border_router=router, interface_id=1,
                public_ip=address, public_port=50_000,
            )
            for as_, router, address in zip((ap_as, user_as), routers, ("192.0.2.1", "192.0.2.2"), strict=True)
        )  # fmt: skip
        link = Link.objects.create(interface_a=near, interface_b=far, bandwidth_kbit=1000, is_told=True)
        seen: Mapping[str, Any] = {"generation": 1, "config_version": 1, "limits_version": 1, "received_at": now}
        receipt = HostReceipt.objects.create(
            host=ap_host, agent_version="bench", observed_at=now, content=HostReceipt.Content.PROVEN,
            limits_digest="0" * 64, links_digest=mark_of(links_digest), **seen,
        )  # fmt: skip
        said = {name: value for name, value in entry(1)["to_user"].items() if name not in {"dev", "backlog_bytes"}}
        row = LinkEnforcement.objects.create(
            link=link, kbit=1000, state="enforced", since=now, to_user_dev="eth0", from_user_dev="slbw0", **seen,
            **{f"{end}_{name}": value for end in ("to_user", "from_user") for name, value in said.items()},
            to_user_kbit=1000, from_user_kbit=1000,
        )  # fmt: skip
        issued = IssuedLimits.objects.create(
            host=ap_host, generation=1, config_version=1, limits_version=1, digest="0" * 64
        )

        points, links, ases = size.points, size.all_links, size.user_ases
        at, as_at = f"{FIRST_KEY} + n", f"{FIRST_KEY + points} + n"
        uid = {"uid": "md5('uid' || {0})", "secret": "md5('secret' || {0})"}
        multiply(AS, ap_as.pk, points, as_id=f"{FIRST_AP_AS} + n")
        multiply(AS, user_as.pk, ases, id=as_at, as_id=f"{FIRST_USER_AS} + n")
        multiply(UserAS, user_as.pk, ases, as_ptr_id=as_at)
        multiply(Host, ap_host.pk, points, AS_id=at, **{k: v.format(at) for k, v in uid.items()})
        multiply(Host, host.pk, ases, id=as_at, AS_id=as_at, **{k: v.format(as_at) for k, v in uid.items()})
        multiply(AttachmentPoint, ap.pk, points, AS_id=at, host_id=at)
        multiply(BorderRouter, routers[0].pk, points, host_id=at)
        multiply(BorderRouter, routers[1].pk, ases, id=as_at, host_id=as_at)
        here, number = f"{FIRST_KEY} + n / {size.links}", f"mod(n, {size.links}) + 1"
        multiply(
            Interface, near.pk, links, AS_id=here, host_id=here, border_router_id=here, interface_id=number,
            public_ip=f"('10.0.0.0'::inet + n / {size.links})", public_port=f"20000 + mod(n, {size.links})",
        )  # fmt: skip
        there = f"{FIRST_KEY + points} + n / {LINKS_OF_AN_AS}"
        multiply(
            Interface, far.pk, links, id=f"{FIRST_KEY + links} + n", AS_id=there, host_id=there, border_router_id=there,
            interface_id=f"mod(n, {LINKS_OF_AN_AS}) + 1", public_ip=f"('11.0.0.0'::inet + n / {LINKS_OF_AN_AS})",
            public_port=f"50000 + mod(n, {LINKS_OF_AN_AS})",
        )  # fmt: skip
        multiply(Link, link.pk, links, interface_a_id=at, interface_b_id=f"{FIRST_KEY + links} + n")
        multiply(LinkEnforcement, row.pk, links, link_id=at)
        multiply(HostReceipt, receipt.pk, points, host_id=at)
        multiply(IssuedLimits, issued.pk, points, host_id=at)
        polling = f"{FIRST_KEY + points + ases} + n"
        multiply(AS, ap_as.pk, size.polling, id=polling, as_id=f"{FIRST_POLLING_AS} + n")
        multiply(
            Host, host.pk, size.polling, id=polling, AS_id=polling, **{k: v.format(polling) for k, v in uid.items()}
        )
    with connection.cursor() as cursor:  # what autovacuum does while a testbed grows
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
