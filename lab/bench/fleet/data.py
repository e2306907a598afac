"""The rows of the fleet's network, made in a process with the service's settings.

    python -m lab.bench.fleet.data BUSY LINKS QUIET SAVERS

`BUSY` attachment points with `LINKS` Links each, and `QUIET` ones without; each has one host, whose agent waits. The
Links belong to `SAVERS` people by turns. Prints JSON: hosts, keys of the service, each Link with a token of its owner.
"""

from __future__ import annotations

import hashlib
import json
import sys

import django

from bandwidth_config import LINK_INFO_PATH
from lab.bench.service_data import BATCH, FIRST_AP_ID, FIRST_AS_ID, attach

MAXIMUM_KBIT = 10_000_000


def fill(busy: int, links: int, quiet: int, savers: int) -> dict[str, object]:
    from django.db import transaction
    from django.utils import timezone

    from scionlab.accounts.api_token import api_token_create
    from scionlab.accounts.models import User
    from scionlab.delivery.models import IssuedLimits
    from scionlab.delivery.signing import key_ring
    from scionlab.testbed.models import AS, ISD, AttachmentPoint, BandwidthPolicy, Host, Link, ServiceState

    BandwidthPolicy.objects.update_or_create(pk=1, defaults={"default_bandwidth_kbit": MAXIMUM_KBIT})
    ServiceState.objects.get_or_create(pk=1)
    keys = key_ring()
    with transaction.atomic():
        isd = ISD.objects.create(isd_id=17)
        own = AS.objects.bulk_create(
            [AS(isd=isd, as_id=FIRST_AP_ID + number) for number in range(busy + quiet)], batch_size=BATCH
        )
        seen = {"last_seen_at": timezone.now(), "public_ipv4": "192.0.2.1"}
        hosts = Host.objects.bulk_create([Host(AS=as_, **seen) for as_ in own], batch_size=BATCH)
        AttachmentPoint.objects.bulk_create(
            [
                AttachmentPoint(AS=as_, host=host, maximum_kbit=MAXIMUM_KBIT)
                for as_, host in zip(own, hosts, strict=True)
            ],
            batch_size=BATCH,
        )
        people = [
            User.objects.create_user(email=f"saver-{number}@example.org", password=None) for number in range(savers)
        ]
        users = AS.objects.bulk_create([AS(isd=isd, as_id=FIRST_AS_ID + number) for number in range(busy * links)])
        far = Host.objects.bulk_create([Host(AS=as_) for as_ in users], batch_size=BATCH)
        for number, host in enumerate(hosts[:busy]):
            mine = slice(number * links, (number + 1) * links)
            attach(host, users[mine], far[mine], [people[(number + one) % savers].pk for one in range(links)])
    digest = _digest_of(hosts[-1].pk) if quiet else ""
    # What the quiet ones would have been given before: they are restarted with it.
    issued = {"generation": 1, "config_version": 1, "limits_version": 1, "digest": digest}
    IssuedLimits.objects.bulk_create([IssuedLimits(host=host, **issued) for host in hosts[busy:-1]], batch_size=BATCH)
    tokens = {one.pk: api_token_create(user_id=one.pk, name="bench").text for one in people}
    rows = Link.objects.order_by("interface_a__interface_id", "interface_a__host_id").values_list(
        "pk", "interface_a__host__uid", "interface_a__interface_id", "interface_b__AS__useras__owner_id"
    )
    return {
        "keys": keys.entries,
        "hosts": [
            {"id": host.pk, "uid": host.uid, "secret": host.secret, "digest": digest if number >= busy else ""}
            for number, host in enumerate(hosts)
        ],
        "links": [
            {"id": pk, "uid": uid, "interface_id": interface_id, "token": tokens[owner_id]}
            for pk, uid, interface_id, owner_id in rows
        ],
    }


def _digest_of(host_id: int) -> str:
    """Of the limits of an attachment point without Links: the same for all."""
    from ap_agent.agent.archive import unpack
    from scionlab.delivery.render import config_for
    from scionlab.testbed.models import Host

    members = unpack(config_for(Host.objects.select_related("AS__isd").get(pk=host_id)).content)
    return hashlib.sha256(members[LINK_INFO_PATH]).hexdigest()


if __name__ == "__main__":
    django.setup()
    print(json.dumps(fill(*(int(one) for one in sys.argv[1:]))))
