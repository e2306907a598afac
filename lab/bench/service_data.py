"""Hosts that a measurement polls for, and changes of them: in a process of its own with the service's settings.

    python -m lab.bench.service_data fill HOSTS LINKS  prints JSON: the hosts, then the attachment point with its Links
    python -m lab.bench.service_data change  for each host id on stdin: saves, prints the moment of the commit

Moments are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time

import django

from lab.bench.scale.world import FIRST_KEY, Size


def fill(hosts: int, links: int) -> None:
    from lab.bench.scale.world import fill as fill_database
    from scionlab.testbed.models import Host

    fill_database(Size(points=1, links=links, polling=hosts))
    polling = Host.objects.filter(pk__gte=FIRST_KEY, AS__useras=None, attachment_point=None).order_by("pk")
    for host in [*polling, Host.objects.get(pk=FIRST_KEY)]:
        print(json.dumps([host.pk, host.uid, host.secret]))


def change() -> None:
    """A host id: its L rises. `all`: the generation does."""
    from scionlab.enforcement.generation import generation_raise
    from scionlab.testbed.versions.counters import hosts_bump

    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "all":
            generation_raise()
        else:
            hosts_bump(limits_ids=[int(word)])
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    django.setup()
    if sys.argv[1] == "fill":
        fill(int(sys.argv[2]), int(sys.argv[3]))
    else:
        change()
