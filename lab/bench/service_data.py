"""The data of the service's measurements, made and changed in a process of its own with the service's settings.

    python -m lab.bench.service_data fill HOSTS LINKS  prints JSON: the hosts, then the attachment point with its Links
    python -m lab.bench.service_data people ASES [POINTS]  prints JSON: who may look at which pages, see `people`
    python -m lab.bench.service_data turn CONDITION  healthy, silent or clamped: see `turn`
    python -m lab.bench.service_data exceptions COUNT ROUNDS  prints JSON: milliseconds of saves, see `exceptions`
    python -m lab.bench.service_data change  for each host id on stdin: saves, prints the moment of the commit

Moments are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from scionlab.accounts.models import User
    from scionlab.testbed.models import AS, Host

FIRST_AS_ID = 0xFFAA_0001_0001
FIRST_AP_ID = 0xFFAA_0000_2000
POINTS = 20
ASES_EACH = 5
BATCH = 5_000


def fill(hosts: int, links: int) -> None:
    from django.db import transaction

    from scionlab.accounts.models import User
    from scionlab.testbed.models import AS, ISD, AttachmentPoint, BandwidthPolicy, Host, ServiceState

    BandwidthPolicy.objects.get_or_create(pk=1)
    ServiceState.objects.get_or_create(pk=1)
    with transaction.atomic():
        isd = ISD.objects.create(isd_id=17)
        ases = AS.objects.bulk_create(
            [AS(isd=isd, as_id=FIRST_AS_ID + number) for number in range(hosts + links)], batch_size=BATCH
        )
        made = Host.objects.bulk_create([Host(AS=as_) for as_ in ases], batch_size=BATCH)
        ap_as = AS.objects.create(isd=isd, as_id=0xFFAA_0000_1107)
        ap_host = Host.objects.create(AS=ap_as, public_ipv4="192.0.2.1")
        owner = User.objects.create_user(email="bench@example.org", password=None)
        AttachmentPoint.objects.create(AS=ap_as, host=ap_host, maximum_kbit=100_000)
        attach(ap_host, ases[hosts:], made[hosts:], [owner.pk] * links)
    for host in [*made[:hosts], ap_host]:
        print(json.dumps([host.pk, host.uid, host.secret]))


def attach(ap_host: Host, ases: Sequence[AS], hosts: Sequence[Host], owner_ids: Sequence[int]) -> None:
    """One provider Link each, as the service would have stored them."""
    from lab.bench.world import user_addresses
    from scionlab.testbed.models import BorderRouter, Interface, Link, UserAS

    router = BorderRouter.objects.create(host=ap_host, number=1)
    routers = BorderRouter.objects.bulk_create([BorderRouter(host=host) for host in hosts], batch_size=BATCH)
    near, far = [], []
    for number, (as_, host, own, owner_id, address) in enumerate(
        zip(ases, hosts, routers, owner_ids, user_addresses(len(ases)), strict=True), start=1
    ):
        UserAS(as_ptr_id=as_.pk, owner_id=owner_id).save_base(raw=True, force_insert=True)
        at_ap = {"public_ip": "192.0.2.1", "public_port": 50_000 + number}
        near.append(Interface(AS=ap_host.AS, host=ap_host, border_router=router, interface_id=number, **at_ap))
        far.append(
            Interface(AS=as_, host=host, border_router=own, interface_id=1, public_ip=address, public_port=50_000)
        )
    Interface.objects.bulk_create([*near, *far], batch_size=BATCH)
    Link.objects.bulk_create(
        [
            Link(interface_a=a, interface_b=b, bandwidth_kbit=100 + number)
            for number, (a, b) in enumerate(zip(near, far, strict=True))
        ],
        batch_size=BATCH,
    )


def people(ases: int, points: int = POINTS) -> None:
    """`ases` user ASes of one Link each, at `points` attachment points whose agents have just said that all is
    enforced; five belong to each person. Prints the cookies of the first of them and of an administrator, and keys of
    their pages.
    """
    from django.db import transaction
    from django.utils import timezone

    from lab.seed_usage import seed_usage
    from scionlab.accounts.models import User
    from scionlab.testbed.models import AS, ISD, AttachmentPoint, BandwidthPolicy, Host, ServiceState, UserAS

    BandwidthPolicy.objects.get_or_create(pk=1)
    ServiceState.objects.get_or_create(pk=1)
    with transaction.atomic():
        isd, _ = ISD.objects.get_or_create(isd_id=19)
        staff = User.objects.create(email="staff@example.org", is_staff=True, is_superuser=True)
        owners = User.objects.bulk_create(
            [User(email=f"person-{number}@example.org") for number in range(-(-ases // ASES_EACH))], batch_size=BATCH
        )
        for point in range(points):
            numbers = range(point, ases, points)
            ap_as = AS.objects.create(isd=isd, as_id=FIRST_AP_ID + point)
            ap_host = Host.objects.create(AS=ap_as, public_ipv4="192.0.2.1")
            AttachmentPoint.objects.create(AS=ap_as, host=ap_host, maximum_kbit=100_000)
            made = AS.objects.bulk_create([AS(isd=isd, as_id=FIRST_AS_ID + number) for number in numbers])
            hosts = Host.objects.bulk_create([Host(AS=as_) for as_ in made])
            attach(ap_host, made, hosts, [owners[number // ASES_EACH].pk for number in numbers])
            _say_enforced(ap_host)
    mine = UserAS.objects.filter(owner=owners[0]).order_by("as_id")[0]
    link = mine.interfaces.get().link_as_b
    seed_usage(UserAS.objects.filter(owner=owners[0]).values_list("pk", flat=True), now=timezone.now())
    print(json.dumps({
        "owner": _session(owners[0]), "staff": _session(staff), "user_as": mine.pk, "link": link.pk,
        "attachment_point": link.interface_a.AS.attachment_point.pk,
    }))  # fmt: skip


def _say_enforced(ap_host: Host) -> None:
    """What the newest receipt of the attachment point would have left."""
    from django.utils import timezone

    from scionlab.enforcement.models import HostReceipt, LinkEnforcement
    from scionlab.testbed.models import Link

    now = timezone.now()
    ap_host.delivered_config_version = ap_host.delivered_limits_version = 1
    ap_host.delivered_at = ap_host.last_seen_at = now
    ap_host.save()
    seen = {"generation": 1, "config_version": 1, "limits_version": 1, "received_at": now}
    HostReceipt.objects.create(host=ap_host, agent_version="bench", observed_at=now, **seen)
    rows = []
    for link in Link.objects.filter(interface_a__host=ap_host):
        row = LinkEnforcement(
            link=link, kbit=link.bandwidth_kbit, state=LinkEnforcement.State.ENFORCED, since=now, **seen
        )
        row.to_user_rate_kbit = row.from_user_rate_kbit = link.bandwidth_kbit
        rows.append(row)
    LinkEnforcement.objects.bulk_create(rows)


def turn(condition: str) -> None:
    """What all agents said last: now ("healthy", and "clamped" with maxima below what everybody asked for), or an hour
    ago ("silent")."""
    from datetime import timedelta

    from django.db.models import OuterRef, Subquery
    from django.utils import timezone

    from scionlab.enforcement.models import HostReceipt, LinkEnforcement
    from scionlab.testbed.models import AttachmentPoint, Link

    at = timezone.now() - timedelta(hours=condition == "silent")
    AttachmentPoint.objects.update(maximum_kbit=50 if condition == "clamped" else 100_000)
    asked = Subquery(Link.objects.filter(pk=OuterRef("link")).values("bandwidth_kbit"))
    kbit = 50 if condition == "clamped" else asked
    LinkEnforcement.objects.update(kbit=kbit, to_user_rate_kbit=kbit, from_user_rate_kbit=kbit, received_at=at)
    HostReceipt.objects.update(received_at=at, observed_at=at)


def _session(user: User) -> str:
    """The cookie of somebody who has logged in."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session.save()
    return str(session.session_key)


def exceptions(count: int, rounds: int) -> None:
    """How long the save of one limit takes without exceptions, and with `count` of them at the attachment point."""
    from datetime import timedelta

    from django.utils import timezone

    from scionlab.limits.defaults import fan_out
    from scionlab.limits.models import MaximumException
    from scionlab.limits.update import link_set_bandwidth
    from scionlab.testbed.models import Link

    def save_ms() -> float:
        link = Link.objects.order_by("pk")[count]  # without an exception
        began = time.perf_counter()
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=link.bandwidth_kbit + 1, actor=None)
        return (time.perf_counter() - began) * 1000

    save_ms()  # connects
    found = {"none": [save_ms() for _ in range(rounds)]}
    values = {"maximum_kbit": 200_000, "ends_at": timezone.now() + timedelta(days=1), "reason": "A course."}
    MaximumException.objects.bulk_create(
        [
            MaximumException(link=link, state=MaximumException.State.APPROVED, decided_at=timezone.now(), **values)
            for link in Link.objects.order_by("pk")[:count]
        ]
    )
    fan_out()
    found["own"] = [save_ms() for _ in range(rounds)]
    print(json.dumps(found))


def change() -> None:
    """A host id: its L rises. `all`: the generation does."""
    from scionlab.enforcement.generation import generation_raise
    from scionlab.testbed.versions.counters import hosts_bump

    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "all":
            generation_raise()
        else:
            hosts_bump(limits_ids=[int(word)])
        print(time.monotonic(), flush=True)


PROGRAMS: dict[str, Callable[..., None]] = {
    "fill": fill, "people": people, "turn": turn, "exceptions": exceptions, "change": change
}  # fmt: skip

if __name__ == "__main__":
    django.setup()
    PROGRAMS[sys.argv[1]](*(int(one) if one.isdecimal() else one for one in sys.argv[2:]))
