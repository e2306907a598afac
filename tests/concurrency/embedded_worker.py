"""One of several processes that save at once in the embedded set-up; `tests/concurrency/test_embedded.py` starts it.

    python -m tests.concurrency.embedded_worker NAME ROUNDS

It waits for a line on its standard input, so that all of them begin together.
"""

from __future__ import annotations

import sys

import django

django.setup()

from scionlab.accounts.models import User  # noqa: E402  models need the line above
from scionlab.limits.update import link_set_bandwidth  # noqa: E402
from scionlab.testbed.models import AttachmentPoint  # noqa: E402  models need the line above
from scionlab.testbed.selectors import links_of  # noqa: E402
from tests.factories import attach, spec  # noqa: E402


def main(name: str, rounds: int) -> None:
    owner = User.objects.get(email=f"{name}@example.org")
    ap = AttachmentPoint.objects.get()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(rounds):
        made = attach(owner, spec(ap, public_ip=f"198.51.100.{owner.pk}", public_port=50_000 + number))
        for kbit in (100, 200, 300):
            link_set_bandwidth(link_id=links_of(made)[0].pk, bandwidth_kbit=kbit, actor=owner)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
