"""What one statement over the rows of waiting hosts takes: how long a message may have to wait for it.

    python -m lab.bench.fleet.reading ROUNDS SIZE...

Prints JSON: size -> ms of the fastest, PostgreSQL included. In a process with the service's settings, on the rows of
`lab.bench.fleet.data`.
"""

from __future__ import annotations

import json
import sys
import time

import django


def measure(rounds: int, sizes: list[int]) -> dict[int, float]:
    from django.db import connection

    from scionlab.delivery.polls.known import read_states
    from scionlab.testbed.models import Host

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    uids = list(Host.objects.filter(attachment_point__isnull=False).values_list("uid", flat=True))
    found: dict[int, float] = {}
    for size in sizes:
        some = uids[:size]
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            read_states(some)
            took.append((time.perf_counter() - began) * 1000)
        found[len(some)] = min(took)
    return found


if __name__ == "__main__":
    django.setup()
    rounds, *sizes = (int(one) for one in sys.argv[1:])
    print(json.dumps(measure(rounds, sizes)))
