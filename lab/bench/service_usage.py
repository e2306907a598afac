"""What usage costs the service, and what it takes on disk (docs/adr/0015, 0036): in a process of its own.

    python -m lab.bench.service_usage take LINKS ROUND ROWS  batches of one attachment point, into a day of so many rows
    python -m lab.bench.service_usage keep LINKS SLOTS       5-minute sums alone

On the PostgreSQL of DATABASE_URL, filled by `lab.bench.service_data`. Prints JSON: [what, value, unit] a line.
Processor time is counted of this process and of the one of PostgreSQL that serves it.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from scionlab.usage.models import UsageSeries
    from scionlab.usage.rows import Both

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


def process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Tables:
    """5-minute sums in the tables of the service, and the process of PostgreSQL that keeps them."""

    def __init__(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            self._pid: int = cursor.fetchone()[0]
        self._empty = self._size()

    def add(self, sums: Mapping[tuple[int, int], Both]) -> None:
        from django.db import transaction

        from scionlab.usage.slots import add_slots

        with transaction.atomic():
            add_slots(sums)

    def read(self, series_id: int, first_ms: int, end_ms: int) -> int:
        from scionlab.usage.compact import totals_unpack
        from scionlab.usage.models import UsageSlot
        from scionlab.usage.totals import of_ms

        rows = UsageSlot.objects.filter(
            series=series_id, begins_at__gte=of_ms(first_ms), begins_at__lt=of_ms(end_ms)
        ).values_list("packed", flat=True)
        return sum(totals_unpack(packed)["to_user"].bytes for packed in rows)

    def tidy(self) -> None:
        """As autovacuum, which a partition is set to when 2 % of its rows have changed."""
        from django.db import connection

        from scionlab.usage.partitions import TABLE

        with connection.cursor() as cursor:
            cursor.execute(f"VACUUM {TABLE}")

    def size(self) -> int:
        """What came since, after a VACUUM as PostgreSQL does by itself: what that freed is there, to be used again."""
        return self._size() - self._empty

    def _size(self) -> int:
        from django.db import connection

        from scionlab.usage.partitions import TABLE

        with connection.cursor() as cursor:
            cursor.execute(f"VACUUM {TABLE}")
            cursor.execute(
                "SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) FROM pg_inherits "
                "WHERE inhparent = %s::regclass",
                [TABLE],
            )
            return int(cursor.fetchone()[0])

    def cpu_s(self) -> float:
        return process_cpu_s(self._pid)


@contextmanager
def spending(what: str, per: int, store: Tables) -> Iterator[None]:
    """Processor time of this process and the store's, by what it is spent on [us each]."""
    ours, theirs = time.process_time(), store.cpu_s()
    yield
    say(f"{what}, ours", (time.process_time() - ours) / per * 1e6, "us")
    say(f"{what}, store", (store.cpu_s() - theirs) / per * 1e6, "us")


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
    store = Tables()
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

    from scionlab.usage.models.slot_field import slot_number
    from scionlab.usage.partitions import TABLE, ensure

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


def keep(links: int, slots: int) -> None:
    """Each row in two halves, as roll-ups that meet no border do."""
    from scionlab.usage.models import UsageSeries
    from scionlab.usage.totals import SLOT_MS, to_ms

    series_ids = [one.pk for one in UsageSeries.objects.bulk_create(map(_series, range(links)))]
    first_ms = to_ms(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=10))
    end_ms = first_ms + slots * SLOT_MS
    store = Tables()
    with spending("write a row", links * slots, store):
        for at_ms in range(first_ms, end_ms, SLOT_MS):
            for half in (0, 1):
                store.add({(pk, at_ms): _sums(pk, at_ms, half) for pk in series_ids})
            store.tidy()
    say("bytes a row", store.size() / (links * slots), "bytes")
    for pk in series_ids[:READS]:
        expected = sum(_sums(pk, at_ms, None)["to_user"].bytes for at_ms in range(first_ms, end_ms, SLOT_MS))
        began = time.perf_counter()
        found = store.read(pk, first_ms, end_ms)
        say("a series' page", (time.perf_counter() - began) * 1000, "ms")
        say("bytes that are missing", expected - found, "bytes")


def _series(number: int) -> UsageSeries:
    from scionlab.usage.models import UsageSeries

    names = {"ap_isd_as": "17-ffaa:0:1108", "isd_as": f"17-ffaa:2:{number:x}", "owner_email": "bench@example.org"}
    return UsageSeries(interface_id=number % 4094 + 1, first_config_version=1, last_config_version=1, **names)


def _sums(series_id: int, at_ms: int, half: int | None) -> Both:
    """Of both directions, different for each series and time. None: both halves."""
    from scionlab.enforcement.directions import DIRECTIONS
    from scionlab.usage.totals import SLOT_MS, Totals

    packets = (series_id * 7919 + at_ms // SLOT_MS * 104_729) % 30_000
    sums: Both = {}
    for number, name in enumerate(DIRECTIONS, 1):
        whole = (packets * 1081 // number, packets // number, packets % 7, SLOT_MS - packets % 40)
        carried, sent, lost, covered_ms = whole if half is None else [(one + half) // 2 for one in whole]
        sums[name] = Totals(carried, sent, lost, carried, covered_ms, 0, 100 + series_id % 900, packets % 3000)
    return sums


def main(argv: list[str]) -> None:
    django.setup()
    match argv:
        case ["take", links, number, rows]:
            take(int(links), int(number), int(rows))
        case ["keep", links, slots]:
            keep(int(links), int(slots))
        case _:
            print(__doc__, file=sys.stderr)
            sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
