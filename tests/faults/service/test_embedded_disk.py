"""The embedded set-up on a disk that is full: database, queue and mails lie in one folder (docs/architecture.md)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.nginx import free_port
from lab.service import REPOSITORY, CoordinationService, on_this_host
from tests.faults.service.servers import SmallDisk, wait_for
from tests.faults.service.site import PREPARE, Answer, Site

pytestmark = pytest.mark.xdist_group("faults of the embedded service")  # one process breaks it, others do not wait

DISK_MIB = 16  # web, worker and beat keep 2 MiB of figures each
ASK = """
import json, sqlite3
print(json.dumps([row[0] for row in sqlite3.connect("{}").execute("{}", {})]))
"""


class EmbeddedSite(Site):
    """Web tier and worker on SQLite and the file broker, below a folder that is a small disk."""

    def __init__(self, folder: Path) -> None:  # without the servers of a `Site`
        self.disk = SmallDisk(folder / "var", mib=DISK_MIB)
        self.port = free_port()
        self.service = CoordinationService(
            folder / "var",
            bind=f"127.0.0.1:{self.port}",
            site_url=f"http://127.0.0.1:{self.port}",
            environment={"WEB_WORKERS": "1", "SWEEP_INTERVAL_S": "1", "PYTHONPATH": str(REPOSITORY)},
            start_process=self._start_inside,
        )
        # Logs would go to the disk that is full: those of this test lie beside it.
        (folder / "log").mkdir()
        (self.disk.seen / "log").symlink_to(folder / "log")
        (folder / "var" / "log").symlink_to(folder / "log")

    def in_place(self, command: list[str]) -> list[str]:
        return self.disk.inside(command)

    def _start_inside(self, argv: list[str], **options: Any) -> subprocess.Popen[str]:
        return on_this_host(self.in_place(argv), **options)

    def _ask(self, sql: str, *values: object) -> list[Any]:
        """In place: SQLite looks a path up by its own rules, and would find the folder below the disk."""
        return list(json.loads(self.python(ASK.format(self.disk.path / "scionlab.sqlite3", sql, values))))

    def stored_kbit(self, *, link: int = 0) -> int:
        (kbit,) = self._ask("SELECT bandwidth_kbit FROM testbed_link WHERE id = ?", self.facts["links"][link])
        return int(kbit)

    def maxima(self) -> list[int]:
        return self._ask("SELECT maximum_kbit FROM testbed_attachmentpoint ORDER BY id")

    def changes_of(self, link: int = 0) -> list[int]:
        sql = "SELECT new_kbit FROM testbed_bandwidthchange WHERE link_id = ? ORDER BY id"
        return self._ask(sql, self.facts["links"][link])


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedSite]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    with tempfile.TemporaryDirectory(prefix="slbw-embedded-") as folder:
        site = EmbeddedSite(Path(folder))
        try:
            site.facts = json.loads(site.python(PREPARE).splitlines()[-1])
            site.service.start_part("web")
            wait_for(site.is_healthy, "the site is up")
            yield site
        finally:
            site.service.stop()
            site.disk.close()


def test_a_full_disk_is_told_and_nothing_is_half_stored(embedded: EmbeddedSite) -> None:
    site = embedded
    before, maxima, accepted = site.changes_of(), site.maxima(), [300]
    assert site.save(300).status == 200, (site.service.var_dir / "log" / "web.log").read_text(encoding="utf-8")
    site.disk.fill()
    refused: list[Answer] = []
    for kbit in range(400, 600):
        answer = site.save(kbit)
        if answer.status != 200:
            refused.append(answer)
            break
        accepted.append(kbit)
    assert [(one.status, one.json["code"]) for one in refused] == [(503, "unavailable")]
    assert "Retry-After" in refused[0].headers
    assert site.save_default(800).status == 503
    site.disk.free()
    wait_for(lambda: site.save(320).status == 200, "room on the disk of SQLite: saves work again")
    assert site.stored_kbit() == 320
    assert site.changes_of() == [*before, *accepted, 320]
    assert site.maxima() == maxima


def test_a_queue_that_takes_nothing_costs_no_accepted_save(embedded: EmbeddedSite) -> None:
    site = embedded
    queue, before = site.disk.seen / "queue", site.maxima()
    queue.rename(queue.with_name("elsewhere"))
    assert site.save_default(900).status == 302
    assert site.maxima() == before
    queue.with_name("elsewhere").rename(queue)
    site.service.start_part("worker")
    site.service.start_part("beat")
    wait_for(lambda: site.maxima() == [900, 900, 900], "the sweep found the default")
