"""What taking in usage costs the service, and what it takes on disk (docs/adr/0015).

    python -m tests.servers -- python -m bench.service_usage [LINKS] [MINUTES]

On a PostgreSQL of its own: an attachment point's agent uploads a batch a minute, each link busy in both directions.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import django


def batch(links: int, minute: int, begins_at: datetime, version: str) -> dict[str, Any]:
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

    return {
        "schema": 1,
        "batch": f"{minute:032x}",
        "agent_version": "bench",
        "version": version,
        "times": [f"{at:%Y-%m-%dT%H:%M:%S}.000Z" for at in times],
        "links": {str(n): {"to_user": column(n, 2), "from_user": column(n, 1)} for n in range(1, links + 1)},
    }


def measure(links: int, minutes: int) -> None:
    from django.core.management import call_command
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from bench.service_data import fill
    from scionlab.host_api.usage_format import parse_usage, read_body
    from scionlab.models import AttachmentPoint, UsageDay, UsageSamples, UsageSlot
    from scionlab.usage import months
    from scionlab.usage.ingest import usage_store
    from scionlab.usage.report import monthly_traffic, traffic_now
    from scionlab.usage.rollup import roll_up

    call_command("migrate", verbosity=0)
    sys.stdout = sys.stderr  # fill prints credentials
    fill(0, links)
    sys.stdout = sys.__stdout__
    host = AttachmentPoint.objects.get().host
    begins_at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    read, stored, ours = [], [], []
    for minute in range(minutes):
        document = json.dumps(batch(links, minute, begins_at, f"1.{host.config_version}")).encode()
        body = gzip.compress(document, 6)
        began = time.perf_counter()
        parsed = parse_usage(read_body(lambda _n, body=body: body, "gzip"))  # type: ignore[misc]  # of this turn
        read.append(time.perf_counter() - began)
        began, ours_before = time.perf_counter(), time.process_time()
        with CaptureQueriesContext(connection) as queries:
            assert usage_store(host_id=host.pk, batch=parsed).stored  # noqa: S101  or the figures are of nothing
        stored.append(time.perf_counter() - began)
        ours.append(time.process_time() - ours_before)
    print(f"{links} links, {minutes} batches; the last one: {len(document)} bytes, {len(body)} as gzip")
    print(f"read and checked {statistics.median(read):.2f} s, stored {statistics.median(stored[1:]):.2f} s,")
    print(f"{statistics.median(ours[1:]):.2f} s of them ours and not PostgreSQL's (medians)")
    print(f"{len(queries)} statements for the last batch")

    def timed(label: str, function: Any) -> None:
        began = time.perf_counter(), time.process_time()
        function()
        print(f"{label}: {time.perf_counter() - began[0]:.2f} s, {time.process_time() - began[1]:.2f} s of them ours")

    timed(f"roll up {minutes} batches", roll_up)
    timed("percentiles of the month", lambda: months.compute_due(now=datetime.now(UTC)))
    timed("monthly_traffic", lambda: monthly_traffic(begins_at.year, begins_at.month))
    timed("traffic_now", lambda: traffic_now([host.attachment_point.pk]))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL")
        for model in (UsageSamples, UsageSlot, UsageDay):
            cursor.execute("SELECT pg_total_relation_size(%s)", [model._meta.db_table])
            size, rows = cursor.fetchone()[0], model._default_manager.count()
            print(f"{model.__name__}: {rows} rows, {size} bytes, {size / rows:.0f} bytes a row with indexes")


if __name__ == "__main__":
    django.setup()
    measure(*(int(word) for word in [*sys.argv[1:], *["4000", "10"][len(sys.argv) - 1 :]]))
