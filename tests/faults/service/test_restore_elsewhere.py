"""The whole procedure of docs/operations.md, "After a disaster": a backup and the secrets are all that is left.

The commands are those of the page: a test reads them there.
"""

from __future__ import annotations

import re
from pathlib import Path

from lab.nginx import free_port
from lab.service import CoordinationService
from tests.faults.service.servers import wait_for
from tests.faults.service.site import Answer, Site
from tests.faults.service.test_restore import in_order, manifest_in

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


def documented(program: str) -> list[str]:
    """The options with which the page calls a program of PostgreSQL."""
    found = re.search(rf"^{program} (--.+)$", PAGE, flags=re.MULTILINE)
    assert found is not None, program
    return [word for word in found[1].split() if word.startswith("--")]


def test_a_service_made_anew_from_a_backup_goes_on_where_the_agents_are(site: Site) -> None:
    assert site.save(610).status == 200
    dump = str((site.postgres.disk.path if site.postgres.disk else site.postgres.folder) / "backup.dump")
    server = ["--host", str(site.postgres.folder), "--username", "postgres"]
    dumped = site.postgres.run("pg_dump", *server, *documented("pg_dump"), "--dbname", "postgres", "--file", dump)
    assert dumped.returncode == 0, dumped.stderr
    assert site.save(620).status == 200  # what the backup does not have, and hosts do
    today = site.versions()
    assert site.poll(version=today[0], limits=today[1]).status == 304

    assert site.postgres.run("createuser", *server, "scionlab").returncode == 0
    assert site.postgres.run("createdb", *server, "--owner", "scionlab", "elsewhere").returncode == 0
    port = free_port()
    newer = site.another(port)
    newer.environment["DATABASE_URL"] = site.postgres.url.replace("/postgres?", "/elsewhere?")
    newer.environment["REDIS_URL"] = f"{site.redis.url}?db=1"  # one of its own, empty
    try:
        restored = site.postgres.run("pg_restore", *server, *documented("pg_restore"), "--dbname", "elsewhere", dump)
        assert restored.returncode == 0, restored.stderr
        newer.manage("migrate", "--no-input")  # a backup of an older version gets this one's tables
        with_other = CoordinationService(newer.var_dir, bind="", site_url="", environment=newer.environment)
        with_other.environment["SIGNING_SECRET"] = "another one than the keys were encrypted with"
        assert "CANNOT BE DECRYPTED" in with_other.manage("signing_key", "list")
        assert "CANNOT BE DECRYPTED" not in newer.manage("signing_key", "list")

        newer.start_part("web")
        wait_for(lambda: _ready(site, port) == (200, b"ok\n"), "it is ready with the secrets of the backup")
        older = site.poll(version=today[0], limits=today[1], port=port)
        assert older.status == 200, "never 304: what the host has is not the newest that there is"
        assert version_in(older) < in_order(*today), "an agent refuses this"
        newer.manage("raise_generation")
        has = manifest_in(older)
        answer = site.fetch(version=has["version"], limits=has["limits_version"], port=port)
        assert version_in(answer) > in_order(*today), "an agent takes this"
        assert version_in(answer)[0] == in_order(*today)[0] + 1
        assert answer.headers["ETag"] != older.headers["ETag"]
        assert site.save(450, port=port).status == 200
    finally:
        newer.stop()
        assert site.postgres.run("dropdb", *server, "--force", "elsewhere").returncode == 0
        assert site.postgres.run("dropuser", *server, "scionlab").returncode == 0


def version_in(answer: Answer) -> tuple[int, int, int]:
    """G, H and L of the manifest of a tarball."""
    found = manifest_in(answer)
    return in_order(found["version"], int(found["limits_version"]))


def _ready(site: Site, port: int) -> tuple[int, bytes]:
    try:
        answer = site.request("GET", "/readyz", headers={}, port=port)
    except OSError:
        return 0, b""
    return answer.status, answer.body
