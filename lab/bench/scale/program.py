"""Measures parts of the service in a process of its own, with the service's settings, on a PostgreSQL beside it.

    python -m lab.bench.scale.program receipts POINTS LINKS SAMPLE
    python -m lab.bench.scale.program changes POINTS LINKS
    python -m lab.bench.scale.program sweep POLLING CHANGED...
    python -m lab.bench.scale.program reads POINTS LINKS

Prints a line of JSON for each figure: what, ours [s of processor of this process], theirs [s of PostgreSQL's process
that serves it], wal [bytes]. The requests go through all of Django, not through a socket.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import django

from lab.bench.core import cpu_s_of

if TYPE_CHECKING:
    from scionlab.testbed.models import Host


PARSED, PARSED_LINKS, PARSED_ROUNDS = "parsing", 4000, 20


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
    return time.process_time(), cpu_s_of(pid), float(wal)


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


def changes(points: int, links: int) -> None:
    """A save of one Link, and a default of an attachment point that is lowered below the limits of all of its Links."""
    from lab.bench.scale.world import FIRST_KEY, OWNER, Size, fill
    from scionlab.accounts.models import User
    from scionlab.limits.defaults import ap_default_set, carry_out_default
    from scionlab.limits.update import link_set_bandwidth
    from scionlab.testbed.models import AttachmentPoint, Link

    fill(Size(points=points, links=links))
    actor = User.objects.get(email=OWNER)
    first, second = AttachmentPoint.objects.filter(pk__gte=FIRST_KEY).order_by("pk")[:2]

    def links_of(ap: AttachmentPoint) -> list[int]:
        return list(Link.objects.filter(interface_a__AS=ap.AS_id).order_by("pk").values_list("pk", flat=True))

    of_first = links_of(first)
    link_set_bandwidth(link_id=of_first[0], bandwidth_kbit=900, actor=actor)  # loads what every save needs
    with measured("a save", changed=1):
        link_set_bandwidth(link_id=of_first[1], bandwidth_kbit=900, actor=actor)
    with measured("a lowered default", changed=links):
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

READS = {"the cockpit's overview": "/cockpit/", "a REST list of 1,000 Links": "/api/v1/links/?limit=1000"}


def reads(points: int, links: int) -> None:
    """What an administrator reads of all Links."""
    from django.test import Client

    from lab.bench.scale.world import Size, fill
    from scionlab.accounts.models import User

    fill(Size(points=points, links=links))
    client = Client()
    client.force_login(User.objects.create_user(email="staff@example.org", password=None, is_staff=True))
    for what, path in READS.items():
        for round_ in range(4):
            with measured(what, round=round_):
                answer = client.get(path)
            if answer.status_code != 200:
                raise RuntimeError(f"{path} answers {answer.status_code}")


PROGRAMS: dict[str, Callable[..., None]] = {
    "receipts": receipts, "changes": changes, "sweep": sweep, "reads": reads
}  # fmt: skip

if __name__ == "__main__":
    django.setup()
    PROGRAMS[sys.argv[1]](*map(int, sys.argv[2:]))
