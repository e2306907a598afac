"""Yesterday's backup restored for real, with pg_dump and pg_restore, while hosts have today's configuration."""

from __future__ import annotations

import pytest

from tests.faults.service.servers import wait_for
from tests.faults.service.site import Site

pytestmark = pytest.mark.xdist_group("faults of the service")  # one process breaks it, others do not wait


def in_order(version: str, limits: int) -> tuple[int, int, int]:
    """Versions as agents compare them: G, then H and L."""
    generation, config_version = version.split(".")
    return int(generation), int(config_version), limits


def test_hosts_follow_a_restored_backup_once_the_generation_is_raised(site: Site) -> None:
    assert site.save(410).status == 200
    dump = str((site.postgres.disk.path if site.postgres.disk else site.postgres.folder) / "yesterday.dump")
    socket = ["--host", str(site.postgres.folder), "--username", "postgres", "--dbname", "postgres"]
    assert site.postgres.run("pg_dump", *socket, "--format", "custom", "--file", dump).returncode == 0
    yesterday = site.versions()
    for kbit in (420, 430, 440):
        assert site.save(kbit).status == 200
    today = site.versions()
    assert in_order(*today) > in_order(*yesterday)
    assert site.poll(version=today[0], limits=today[1]).status == 304

    for name in ("web", "worker", "beat"):
        site.kill(name)
    restored = site.postgres.run("pg_restore", *socket, "--clean", "--if-exists", "--exit-on-error", dump)
    assert restored.returncode == 0, restored.stderr
    site.redis.command("flushall")  # configurations and versions of days that never were
    site.start()
    assert (site.versions(), site.stored_kbit()) == (yesterday, 410)
    older = site.poll(version=today[0], limits=today[1])
    assert older.status == 200, "never 304: what the host has is not the newest that there is"
    assert in_order(*site.versions()) < in_order(*today), "an agent refuses this one"

    told = site.service.manage("raise_generation")
    assert in_order(*site.versions()) > in_order(*today), told
    assert site.versions()[0].split(".")[0] == str(int(today[0].split(".")[0]) + 1)
    newer = site.fetch(version=today[0], limits=today[1])
    assert newer.headers["ETag"] != older.headers["ETag"]
    assert site.save(450).status == 200
    assert site.save_default(400).status == 302
    wait_for(lambda: site.maxima() == [400, 400, 400], "the worker works on the restored database")
