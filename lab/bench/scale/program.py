"""Measures parts of the service in a process of its own, with the service's settings, on a PostgreSQL beside it.

    python -m lab.bench.scale.program receipts POINTS LINKS SAMPLE
    python -m lab.bench.scale.program changes POINTS LINKS EXCEPTIONS
    python -m lab.bench.scale.program sweep POLLING CHANGED...
    python -m lab.bench.scale.program reads POINTS LINKS
    python -m lab.bench.scale.program usage LINKS ROWS

Prints a line of JSON for each figure: what, ours [s of processor of this process], theirs [s of PostgreSQL's process
that serves it], wal [bytes]. The requests go through all of Django, not through a socket.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from scionlab.testbed.models import Host


PARSED, PARSED_LINKS, PARSED_ROUNDS = "parsing", 4000, 20
CONDITIONS = HEALTHY, SILENT, CLAMPED = "healthy", "silent", "clamped"
SAVES, READ_ROUNDS = 20, 10  # a processor's time of another process comes in hundredths of a second


@contextmanager
def measured(what: str, **labels: Any) -> Iterator[None]:
    before = _now()
    yield
    ours, theirs, wal = (after - began for began, after in zip(before, _now(), strict=True))
    print(json.dumps({"what": what, "ours": ours, "theirs": theirs, "wal": wal, **labels}))


def _now() -> tuple[float, float, float]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), pg_current_wal_lsn() - '0/0'::pg_lsn")
        pid, wal = cursor.fetchone()
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return time.process_time(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), float(wal)


# --- receipts -----------------------------------------------------------------------------------------------------


def receipt(links: dict[str, Any], number: int) -> bytes:
    from django.utils import timezone

    document = {
        "schema": 1, "agent_version": "bench", "version": "1.1", "limits_version": 1, "limits_digest": "0" * 64,
        "run": "a" * 32, "number": number, "observed_at": timezone.now().isoformat(), "writes": 1, "problems": [],
        "clock_skew_ms": 0, "devices": ["eth0"], "observe_only": False, "total": None, "links": links,
    }  # fmt: skip
    return json.dumps(document).encode()


def receipts(points: int, links: int, sample: int) -> None:
    """A minute of an unchanged testbed: a receipt of each attachment point. Of the dearer kinds a `sample` of them."""
    from django.test import Client

    from lab.bench.scale.world import FIRST_KEY, Size, entry, fill
    from scionlab.enforcement.receipt_format import parse_receipt
    from scionlab.testbed.models import Host

    said = {str(n): entry(1) for n in range(1, links + 1)}
    fill(Size(points=points, links=links), links_digest=parse_receipt(receipt(said, 1)).links_digest)
    hosts = list(Host.objects.filter(attachment_point__isnull=False, pk__gte=FIRST_KEY).order_by("pk"))
    client, number = Client(), 1
    _post(client, hosts[0], receipt(said, number))  # reads the addresses of the site, and all that they name

    def send(what: str, said: dict[str, Any], hosts: list[Host]) -> None:
        nonlocal number
        number += 1
        body = receipt(said, number)
        with measured(what, count=len(hosts)):
            for host in hosts:
                _post(client, host, body)

    large = receipt({str(n): entry(1) for n in range(1, PARSED_LINKS + 1)}, 1)
    with measured(PARSED, count=PARSED_ROUNDS):
        for _ in range(PARSED_ROUNDS):
            parse_receipt(large)

    send("nothing", said, hosts)
    send("one link in 100", said | {name: entry(2) for name in list(said)[::100]}, hosts[:sample])
    send("all counters", {name: entry(3) for name in said}, hosts[:sample])


def _post(client: Any, host: Host, body: bytes) -> None:
    token = base64.b64encode(f"{host.uid}:{host.secret}".encode()).decode()
    answer = client.post(
        f"/api/v4/host/{host.uid}/enforcement",
        data=body,
        content_type="application/json",
        headers={"Authorization": f"Basic {token}"},
    )
    if (answer.status_code, json.loads(answer.content)) != (200, {"stored": True}):
        raise ValueError(f"a receipt is answered {answer.status_code} {answer.content[:200]!r}")


# --- changes ------------------------------------------------------------------------------------------------------


def changes(points: int, links: int, exceptions: int) -> None:
    """A save of one Link, also beside that many exceptions at its attachment point, and a default of an attachment
    point that is lowered below the limits of all of its Links."""
    from django.utils import timezone

    from lab.bench.scale.world import FIRST_KEY, OWNER, Size, fill
    from scionlab.accounts.models import User
    from scionlab.limits.defaults import ap_default_set, carry_out_default, fan_out
    from scionlab.limits.models import MaximumException
    from scionlab.limits.update import link_set_bandwidth
    from scionlab.testbed.models import AttachmentPoint, Link

    fill(Size(points=points, links=links))
    actor = User.objects.get(email=OWNER)
    first, second = AttachmentPoint.objects.filter(pk__gte=FIRST_KEY).order_by("pk")[:2]
    of_first = list(Link.objects.filter(interface_a__AS=first.AS_id).order_by("pk").values_list("pk", flat=True))

    def save(what: str) -> None:
        kbit = 900
        link_set_bandwidth(link_id=of_first[0], bandwidth_kbit=kbit, actor=actor)  # loads what every save needs
        with measured(what, changed=1, count=SAVES):
            for _ in range(SAVES):
                kbit -= 1
                link_set_bandwidth(link_id=of_first[0], bandwidth_kbit=kbit, actor=actor)

    save("a save")
    approved = {"maximum_kbit": 200_000, "ends_at": timezone.now() + timedelta(days=1), "reason": "A course."}
    MaximumException.objects.bulk_create(
        [
            MaximumException(link_id=pk, state=MaximumException.State.APPROVED, decided_at=timezone.now(), **approved)
            for pk in of_first[1 : exceptions + 1]
        ]
    )
    fan_out()
    save("a save beside exceptions")
    with measured("a lowered default", changed=links, count=1):
        ap_default_set(attachment_point_id=second.pk, default_bandwidth_kbit=500, actor=actor, reason="measured")
        carry_out_default(second.pk)


# --- sweep --------------------------------------------------------------------------------------------------------


def sweep(polling: int, *changed: int) -> None:
    """Hosts that polled just now; of some of them L rose, and nobody has rendered what they want."""
    from lab.bench.scale.world import Size, fill
    from scionlab.delivery.last_contact import HOSTS
    from scionlab.platform.last_contact import store
    from scionlab.site import tasks
    from scionlab.testbed.models import Host

    fill(Size(points=10, links=100, polling=polling))
    keys = list(Host.objects.order_by("-pk").values_list("pk", flat=True)[:polling])
    tasks.sweep()  # connects
    for count in changed:
        Host.objects.filter(pk__in=keys[:count]).update(limits_version=2)
        with measured("sweep", changed=count):
            tasks.sweep()
    for _ in range(3):
        with measured("last contact"):
            store(dict.fromkeys(keys, time.time()), HOSTS)


# --- reads --------------------------------------------------------------------------------------------------------

# By name: who reads, and what; `{link}` and such are keys of somebody's first Link.
READS = {
    "the cockpit's overview": ("staff", "/cockpit/"),
    "the cockpit's attachment point": ("staff", "/cockpit/aps/{point}/"),
    "the cockpit's list of what is not enforced": ("staff", "/cockpit/not-enforced/"),
    "a REST list of 1,000 Links": ("staff", "/api/v1/links/?limit=1000"),
    "My ASes": ("owner", "/ases/"),
    "the page of a Link": ("owner", "/ases/{user_as}/links/{link}/"),
}


def reads(points: int, links: int) -> None:
    """What an administrator and a user read: while all agents report, while none did for an hour, and with maxima below
    what everybody asked for."""
    from django.test import Client
    from django.utils import timezone

    from lab.bench.scale.world import FIRST_KEY, Size, fill
    from scionlab.accounts.models import User
    from scionlab.enforcement.models import HostReceipt, LinkEnforcement
    from scionlab.testbed.models import AttachmentPoint, Link

    fill(Size(points=points, links=links))
    clients = {"staff": Client(), "owner": Client()}
    clients["staff"].force_login(User.objects.create_user(email="staff@example.org", password=None, is_staff=True))
    clients["owner"].force_login(User.objects.get(pk=FIRST_KEY))
    link = Link.objects.get(pk=FIRST_KEY)
    keys = {"point": FIRST_KEY, "link": link.pk, "user_as": link.interface_b.AS_id}
    for condition in CONDITIONS:
        at = timezone.now() - timedelta(hours=condition == SILENT)
        kbit = 50 if condition == CLAMPED else 1000
        AttachmentPoint.objects.update(maximum_kbit=50 if condition == CLAMPED else 100_000)
        LinkEnforcement.objects.update(kbit=kbit, to_user_rate_kbit=kbit, from_user_rate_kbit=kbit, received_at=at)
        HostReceipt.objects.update(received_at=at, observed_at=at)
        for what, (who, path) in READS.items():
            answer = clients[who].get(path.format(**keys))  # fills caches
            if answer.status_code != 200:
                raise RuntimeError(f"{path} answers {answer.status_code}")
            with measured(what, condition=condition, count=READ_ROUNDS):
                for _ in range(READ_ROUNDS):
                    clients[who].get(path.format(**keys))


# --- usage --------------------------------------------------------------------------------------------------------


def batch(links: int, minute: int, begins_at: datetime, version: str) -> bytes:
    """Six samples of every link; counters that differ between links and rise all the time."""
    times = [begins_at + timedelta(minutes=minute, seconds=10 * index) for index in range(6)]

    def column(link: int, share: int) -> dict[str, Any]:
        at = [minute * 6 + index for index in range(6)]
        packets = [n * (40 + link % 60) * share for n in at]
        return {
            "segment": "0f3a9c21",
            "rate_kbit": [100 + link] * 6,
            "bytes": [n * 1081 + (link * n) % 977 for n in packets],
            "packets": packets,
            "drops": [n * (link % 3) for n in at],
            "backlog_bytes": [(link * n) % 3000 for n in at],
        }

    document = {
        "schema": 1,
        "batch": f"{minute:032x}",
        "agent_version": "bench",
        "version": version,
        "times": [f"{at:%Y-%m-%dT%H:%M:%S}.000Z" for at in times],
        "links": {str(n): {"to_user": column(n, 2), "from_user": column(n, 1)} for n in range(1, links + 1)},
    }
    return gzip.compress(json.dumps(document).encode(), 6)


def usage(links: int, rows: int) -> None:
    """Five minutes of one attachment point, beside so many rows of a day; then what pages read."""
    from lab.bench.scale.world import FIRST_KEY, Size, fill
    from scionlab.delivery.host_api.bodies import read_body
    from scionlab.usage import months
    from scionlab.usage.host_api.usage_format import parse_usage
    from scionlab.usage.ingest import usage_store
    from scionlab.usage.models import UsageSeries
    from scionlab.usage.rollup import roll_up
    from scionlab.usage.series import usage_of_link

    fill(Size(points=1, links=links))
    now = datetime.now(UTC)
    # A time of yesterday, whose day has a partition of its own and does not end meanwhile.
    begins_at = now.replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
    _fill_usage(rows, begins_at)
    for minute in range(5):
        body = batch(links, minute, begins_at, "1.1")
        with measured("read and check", count=links):
            parsed = parse_usage(read_body(lambda _n, body=body: body, "gzip"))  # type: ignore[misc]  # of this turn
        with measured("store samples", count=links):
            if not usage_store(host_id=FIRST_KEY, batch=parsed, now=begins_at + timedelta(hours=2)).stored:
                raise ValueError("a batch was not stored: the figures would be of nothing")
    with measured("roll up", count=links):
        roll_up()
    with measured("percentiles", count=links):
        months.compute_due(now=now)
    link_ids = UsageSeries.objects.filter(link__isnull=False).order_by("pk").values_list("link_id", flat=True)[:20]
    middle = begins_at + timedelta(hours=12)
    for days in (1, 7):
        with measured(f"usage of {days} d", count=len(link_ids)):
            for link_id in link_ids:
                usage_of_link(link_id, begins_at=middle - timedelta(days=days), ends_at=middle, step="5min")


def _fill_usage(rows: int, begins_at: datetime) -> None:
    """Rows of other links in the same day, and in the six before, so that the index is as deep as it would be."""
    from django.db import connection, transaction

    from scionlab.usage.models.slot_field import slot_number
    from scionlab.usage.partitions import TABLE, ensure

    days = [begins_at.date() - timedelta(days=ago) for ago in range(7)]
    with transaction.atomic(), connection.cursor() as cursor:
        ensure(days)
        for day in days:
            first = slot_number(datetime(day.year, day.month, day.day, tzinfo=UTC))
            cursor.execute(
                f"INSERT INTO {TABLE} (series_id, begins_at, to_user_kbit, from_user_kbit, packed) "  # noqa: S608  a name of ours
                "SELECT 1000000 + series, %s + slot, series %% 900, slot, "
                r"'\x037fe0e8f011b0ea010c14a09c01e90798757fe0e8f011b0ea010c14a09c01e9079875'::bytea "
                "FROM generate_series(0, 287) AS slot, generate_series(1, %s) AS series",
                [first, rows // 288],
            )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


PROGRAMS: dict[str, Callable[..., None]] = {
    "receipts": receipts, "changes": changes, "sweep": sweep, "reads": reads, "usage": usage
}  # fmt: skip

if __name__ == "__main__":
    django.setup()
    PROGRAMS[sys.argv[1]](*map(int, sys.argv[2:]))
