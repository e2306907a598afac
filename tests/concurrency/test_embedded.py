"""The embedded set-up: SQLite in a file, several processes, no row locks. Writers queue up at BEGIN IMMEDIATE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKERS, ROUNDS = 4, 5
PREPARE = """
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from tests.factories import AttachmentPointFactory, UserFactory
AttachmentPointFactory()
for number in range({workers}):
    UserFactory(email=f"w{{number}}@example.org", as_quota=50)
"""
# Its name and the number of rounds; it waits for a line on its standard input, so that all of them begin together.
WORK = """
import django; django.setup()
import sys
from scionlab.accounts.models import User
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint
from scionlab.testbed.selectors import links_of
from tests.factories import attach, spec
owner, ap = User.objects.get(email=f"{sys.argv[1]}@example.org"), AttachmentPoint.objects.get()
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    made = attach(owner, spec(ap, public_ip=f"198.51.100.{owner.pk}", public_port=50_000 + number))
    for kbit in (100, 200, 300):
        link_set_bandwidth(link_id=links_of(made)[0].pk, bandwidth_kbit=kbit, actor=owner)
"""
LOOK = """
import django; django.setup()
import json
from scionlab.accounts.models import *
from scionlab.testbed.models import *
from scionlab.enforcement.models import *
host = AttachmentPoint.objects.get().host
print(json.dumps({
    "as_ids": sorted(UserAS.objects.values_list("as_id", flat=True)),
    "ends": sorted(Interface.objects.filter(host=host).values_list("interface_id", "public_port")),
    "versions": [host.config_version, host.limits_version],
    "changes": BandwidthChange.objects.count(),
}))
"""


@pytest.fixture(autouse=True)
def _real_database() -> None:
    """Not needed here: the processes have an embedded one of their own."""


@pytest.fixture
def embedded(tmp_path: Path) -> dict[str, str]:
    """An environment without PostgreSQL and Redis."""
    without = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    return without | {
        "SCIONLAB_VAR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "scionlab.settings.test",
        "LOG_LEVEL": "WARNING",
    }


def _python(environment: dict[str, str], code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_that_save_at_once_lose_nothing(embedded: dict[str, str]) -> None:
    _python(embedded, PREPARE.format(workers=WORKERS))
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    workers = [
        subprocess.Popen([sys.executable, "-c", WORK, f"w{number}", str(ROUNDS)], env=embedded, text=True, **pipes)
        for number in range(WORKERS)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    answers = [worker.communicate(timeout=90) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS, answers
    found = json.loads(_python(embedded, LOOK))
    made = WORKERS * ROUNDS
    assert found["as_ids"] == [0xFFAA_0001_0001 + number for number in range(made)]
    assert found["ends"] == [[1 + number, 50_000 + number] for number in range(made)]
    assert found["versions"] == [1 + made, 1 + 3 * made]
    assert found["changes"] == 4 * made
