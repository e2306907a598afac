"""Two keepers of 5-minute sums behind one interface: the service's tables, and VictoriaMetrics (docs/adr/0015).

VictoriaMetrics is Debian's package `victoria-metrics`, run for the time of a measurement on a port of the loopback.
Nothing of the service knows it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from scionlab.usage.rows import Both, columns_of

PROGRAM: Final = "victoria-metrics"
START_DEADLINE_S: Final = 60.0
Sums = Mapping[tuple[int, int], Both]  # of a series, from a time on [ms]


class UsageStore(Protocol):
    def add(self, sums: Sums) -> None:
        """Keep sums of series."""

    def read(self, series_id: int, first_ms: int, end_ms: int) -> int:
        """What a page reads of one series; returns the sum of its bytes to the user."""

    def tidy(self) -> None:
        """What the store does by itself from time to time."""

    def size(self) -> int:
        """Bytes on the disk."""

    def cpu_s(self) -> float:
        """Processor time of the store's processes so far."""


def process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Tables:
    """What the service has."""

    def __init__(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            self._pid: int = cursor.fetchone()[0]
        self._empty = self._size()

    def add(self, sums: Sums) -> None:
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


class Victoria:
    """Each of the 16 numbers of a row is a series of its own there, kept as floats."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self._process, self._url, self._folder = process, f"http://127.0.0.1:{port}", folder

    def add(self, sums: Sums) -> None:
        lines = []
        for (series_id, at_ms), both in sums.items():
            fields = ",".join(f"{name}={value}" for name, value in columns_of(both).items() if value is not None)
            lines.append(f"usage,series={series_id} {fields} {at_ms}")
        self.ask("/write?precision=ms", "\n".join(lines).encode())

    def read(self, series_id: int, first_ms: int, end_ms: int) -> int:
        return int(sum(self.values(f'{{series="{series_id}"}}', first_ms, end_ms).get("usage_to_user_bytes", [])))

    def values(self, match: str, first_ms: int, end_ms: int) -> dict[str, list[float]]:
        """By name, of one series."""
        query = urllib.parse.urlencode({"match[]": match, "start": first_ms / 1000, "end": (end_ms - 1) / 1000})
        rows = [json.loads(line) for line in self.ask(f"/api/v1/export?{query}").splitlines()]
        found: dict[str, list[float]] = {}
        for row in rows:
            found.setdefault(row["metric"]["__name__"], []).extend(row["values"])
        return found

    def tidy(self) -> None:
        pass

    def size(self) -> int:
        self.ask("/internal/force_flush")
        self.ask("/internal/force_merge")
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        return sum(path.stat().st_blocks * 512 for path in files)

    def cpu_s(self) -> float:
        return process_cpu_s(self._process.pid)

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(f"{self._url}{path}", data=body, timeout=120) as answer:  # noqa: S310  ours
            said: bytes = answer.read()
            return said


@contextlib.contextmanager
def victoria(*options: str) -> Iterator[Victoria]:
    """Raises `FileNotFoundError` where it is not installed, `TimeoutError` where it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="slbw-bench-") as name:
        folder = Path(name)
        command = [PROGRAM, f"-storageDataPath={folder / 'data'}", f"-httpListenAddr=127.0.0.1:{port}"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*command, "-retentionPeriod=100y", *options], stdout=log, stderr=log)
        store = Victoria(process, port, folder / "data")
        try:
            _until_it_answers(store)
            yield store
        finally:
            process.terminate()
            process.wait(timeout=60)


def _until_it_answers(store: Victoria) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            store.ask("/health")
        except OSError as exc:
            if time.monotonic() > deadline:
                raise TimeoutError("VictoriaMetrics does not answer") from exc
            time.sleep(0.1)
        else:
            return
