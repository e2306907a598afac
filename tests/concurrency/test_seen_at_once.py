"""When thousands of hosts were heard is written while services raise the counters of the same hosts."""

from __future__ import annotations

import threading
import time

from django.db import connection, transaction

from scionlab.delivery.last_contact import HOSTS
from scionlab.platform.last_contact import store
from scionlab.testbed.models import Host
from tests.concurrency.conftest import AtOnce
from tests.factories import HostFactory

DEADLINE_S = 20.0


def test_hosts_heard_are_written_in_the_order_of_their_keys(at_once: AtOnce) -> None:
    """In the order in which they were heard, the writer holds the last host when it waits for the first one."""
    first, last = (HostFactory() for _ in range(2))
    holding, heard = threading.Event(), time.time()

    def raises_counters() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            list(Host.objects.select_for_update(no_key=True).filter(pk=first.pk))
            holding.set()
            deadline, waiting = time.monotonic() + DEADLINE_S, 0
            while not waiting:
                assert time.monotonic() < deadline
                cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
                waiting = cursor.fetchone()[0]
                time.sleep(0.02)
            list(Host.objects.select_for_update(no_key=True).filter(pk=last.pk))

    def writes() -> int:
        assert holding.wait(DEADLINE_S)
        return store({last.pk: heard, first.pk: heard}, HOSTS)

    assert at_once(raises_counters, writes) == [None, 2]
