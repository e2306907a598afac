"""What one statement over the rows of waiting hosts takes: how long a message may have to wait for it.

    python -m bench.fleet.reading ROUNDS SIZE...

Prints JSON: size -> [best ms of the whole, best ms of PostgreSQL alone]. In a process with the service's settings, on
the rows of `bench.fleet.data`.
"""

from __future__ import annotations

import json
import sys
import time

import django


def measure(rounds: int, sizes: list[int]) -> dict[int, tuple[float, float]]:
    from django.db import connection

    from scionlab.host_api.auth import hosts_with_newest
    from scionlab.models import Host
    from scionlab.polls.known import read_states

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    uids = list(Host.objects.filter(attachment_point__isnull=False).values_list("uid", flat=True))
    found: dict[int, tuple[float, float]] = {}
    for size in sizes:
        some = uids[:size]
        whole, inside = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            read_states(some)
            whole.append((time.perf_counter() - began) * 1000)
            plan = json.loads(
                hosts_with_newest().filter(uid__in=some).values_list("pk").explain(analyze=True, format="json")
            )
            inside.append(plan[0]["Execution Time"])
        found[len(some)] = (min(whole), min(inside))
    return found


if __name__ == "__main__":
    django.setup()
    rounds, *sizes = (int(one) for one in sys.argv[1:])
    print(json.dumps(measure(rounds, sizes)))
