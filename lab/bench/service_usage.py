"""What usage costs the service, and what it takes on disk (docs/adr/0015): in a process of its own.

    python -m lab.bench.service_usage LINKS ROUND ROWS  batches of one attachment point, into a day of so many rows

On the PostgreSQL of DATABASE_URL, filled by `lab.bench.service_data`. Prints JSON: [what, value, unit] a line.
Processor time is counted of this process and of the one of PostgreSQL that serves it.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import django

from lab.bench.core import cpu_s_of

READS = 21
MINUTES = 5


def say(what: str, value: float, unit: str) -> None:
    print(json.dumps([what, value, unit]), flush=True)


def batch(links: int, minute: int, begins_at: datetime, version: str) -> dict[str, Any]:
    """Six samples of every link; counters that differ between links and rise all the time."""
    times = [begins_at + timedelta(minutes=minute % 60, seconds=10 * index) for index in range(6)]

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

    return {
        "schema": 1,
        "batch": f"{minute:032x}",
        "agent_version": "bench",
        "version": version,
        "times": [f"{at:%Y-%m-%dT%H:%M:%S}.000Z" for at in times],
        "links": {str(n): {"to_user": column(n, 2), "from_user": column(n, 1)} for n in range(1, links + 1)},
    }


def _backend_pid() -> int:
    """Of PostgreSQL's process that serves this one."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@contextmanager
def spending(what: str, per: int, store_pid: int) -> Iterator[None]:
    """Processor time of this process and the store's, by what it is spent on [us each]."""
    ours, theirs = time.process_time(), cpu_s_of(store_pid)
    yield
    say(f"{what}, ours", (time.process_time() - ours) / per * 1e6, "us")
    say(f"{what}, store", (cpu_s_of(store_pid) - theirs) / per * 1e6, "us")


def take(links: int, number: int, rows: int) -> None:
    """Five minutes of an hour of their own; `rows` are added to what former rounds left."""
    from scionlab.delivery.host_api.bodies import read_body
    from scionlab.testbed.models import AttachmentPoint
    from scionlab.usage import months
    from scionlab.usage.host_api.usage_format import parse_usage
    from scionlab.usage.ingest import usage_store
    from scionlab.usage.models import UsageSeries
    from scionlab.usage.rollup import roll_up
    from scionlab.usage.series import usage_of_link

    host = AttachmentPoint.objects.get().host
    now = datetime.now(UTC)
    # A time of yesterday, whose day has a partition of its own and does not end meanwhile.
    begins_at = now.replace(hour=12 + number, minute=0, second=0, microsecond=0) - timedelta(days=1)
    store = _backend_pid()
    _fill(number, rows, begins_at)
    for minute in range(number * 60, number * 60 + MINUTES):
        document = json.dumps(batch(links, minute, begins_at, f"1.{host.config_version}")).encode()
        body = gzip.compress(document, 6)
        with spending("read and check", links, store):
            parsed = parse_usage(read_body(lambda _n, body=body: body, "gzip"))  # type: ignore[misc]  # of this turn
        with spending("store samples", links, store):
            if not usage_store(host_id=host.pk, batch=parsed, now=begins_at + timedelta(hours=2)).stored:
                raise ValueError("a batch was not stored: the figures would be of nothing")
    with spending("roll up", links, store):
        roll_up()
    with spending("percentiles", links, store):
        months.compute_due(now=now)
    link_ids = UsageSeries.objects.order_by("pk").values_list("link_id", flat=True)[:READS]
    for days in (1, 7):
        _timed(
            f"a link's page, {days} d",
            [
                partial(
                    usage_of_link,
                    link_id,
                    begins_at=begins_at + timedelta(hours=12 - 24 * days),
                    ends_at=begins_at + timedelta(hours=12),
                    step="5min",
                )
                for link_id in link_ids
                if link_id is not None
            ],
        )


def _fill(number: int, rows: int, begins_at: datetime) -> None:
    """Rows of other links in the same day, and in the six before, so that the index is as deep as it would be."""
    from django.db import connection, transaction

    from scionlab.usage.partitions import TABLE, ensure
    from scionlab.usage.slot_field import slot_number

    days = [begins_at.date() - timedelta(days=ago) for ago in range(7)]
    with transaction.atomic(), connection.cursor() as cursor:
        ensure(days)
        for day in days:
            first = slot_number(datetime(day.year, day.month, day.day, tzinfo=UTC))
            cursor.execute(
                f"INSERT INTO {TABLE} (series_id, begins_at, to_user_kbit, from_user_kbit, packed) "  # noqa: S608  a name of ours
                "SELECT %s + series, %s + slot, series %% 900, slot, "
                r"'\x037fe0e8f011b0ea010c14a09c01e90798757fe0e8f011b0ea010c14a09c01e9079875'::bytea "
                "FROM generate_series(0, 287) AS slot, generate_series(1, %s) AS series",
                [number * 1_000_000 + 1_000_000, first, rows // 288],
            )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _timed(what: str, calls: list[Callable[[], Any]]) -> None:
    for call in calls:
        began = time.perf_counter()
        call()
        say(what, (time.perf_counter() - began) * 1000, "ms")


if __name__ == "__main__":
    django.setup()
    take(*map(int, sys.argv[1:]))
