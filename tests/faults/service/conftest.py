"""One running service for all of these tests, whole again before each of them.

Everything is real and ours: PostgreSQL on a small disk, Redis, a mail server, gunicorn, a worker and beat. The servers
that `tests.servers` may have started for other tests are not touched.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.service.mailbox import Mailbox
from tests.faults.service.servers import DISK_MIB, Postgres, Redis, SmallDisk
from tests.faults.service.site import Site


@pytest.fixture(scope="session")
def _running() -> Iterator[Site]:
    # /tmp: a Unix socket's path has at most 107 bytes, and user postgres must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="slbw-faults-", dir="/tmp"))
    folder.chmod(0o755)
    disk = SmallDisk(folder / "disk", mib=DISK_MIB) if os.geteuid() == 0 else None
    mailbox = Mailbox()
    site = Site(folder, Postgres(folder / "pg", disk), Redis(folder / "redis"), mailbox)
    try:
        site.postgres.start()
        site.redis.start()
        site.prepare()
        site.start()
        yield site
    finally:
        site.service.stop()
        site.postgres.stop()
        site.redis.stop()
        mailbox.close()
        if disk is not None:
            disk.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def site(_running: Site) -> Iterator[Site]:
    """The service with everything up, the site default at 1000 kbit/s, and the owner's Links at 1000. A test that fails
    shows what worker and beat said last."""
    _running.mailbox.unconfirmed = ""
    _running.start()
    _running.postgres.ask("UPDATE testbed_bandwidthpolicy SET default_bandwidth_kbit = 1000")
    _running.postgres.ask("UPDATE testbed_attachmentpoint SET maximum_kbit = 1000, default_bandwidth_kbit = NULL")
    _running.postgres.ask("UPDATE testbed_link SET bandwidth_kbit = 1000")
    yield _running
    for name in ("worker", "beat"):
        log = _running.service.var_dir / "log" / f"{name}.log"
        print(f"--- {name}\n{log.read_text(errors='replace')[-2500:] if log.exists() else ''}")
