"""The data of the service's measurements, made and changed in a process of its own with the service's settings.

    python -m bench.service_data fill HOSTS LINKS    prints JSON: the hosts, then the attachment point with its Links
    python -m bench.service_data change              for each host id on stdin: saves, prints the moment of the commit

Moments are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from scionlab.models import AS, Host

FIRST_AS_ID = 0xFFAA_0001_0001
BATCH = 5_000


def fill(hosts: int, links: int) -> None:
    from django.db import transaction

    from scionlab.models import AS, ISD, AttachmentPoint, BandwidthPolicy, Host, ServiceState, User

    BandwidthPolicy.objects.get_or_create(pk=1)
    ServiceState.objects.get_or_create(pk=1)
    with transaction.atomic():
        isd = ISD.objects.create(isd_id=17)
        ases = AS.objects.bulk_create(
            [AS(isd=isd, as_id=FIRST_AS_ID + number) for number in range(hosts + links)], batch_size=BATCH
        )
        made = Host.objects.bulk_create([Host(AS=as_) for as_ in ases], batch_size=BATCH)
        ap_as = AS.objects.create(isd=isd, as_id=0xFFAA_0000_1107)
        ap_host = Host.objects.create(AS=ap_as, public_ipv4="192.0.2.1")
        owner = User.objects.create_user(email="bench@example.org", password=None)
        AttachmentPoint.objects.create(AS=ap_as, host=ap_host, maximum_kbit=100_000)
        _attach(ap_host, ases[hosts:], made[hosts:], owner.pk)
    for host in [*made[:hosts], ap_host]:
        print(json.dumps([host.pk, host.uid, host.secret]))


def _attach(ap_host: Host, ases: Sequence[AS], hosts: Sequence[Host], owner_id: int) -> None:
    """One provider Link each, as the service would have stored them."""
    from bench.world import user_addresses
    from scionlab.models import BorderRouter, Interface, Link, UserAS

    router = BorderRouter.objects.create(host=ap_host, number=1)
    routers = BorderRouter.objects.bulk_create([BorderRouter(host=host) for host in hosts], batch_size=BATCH)
    near, far = [], []
    for number, (as_, host, own, address) in enumerate(
        zip(ases, hosts, routers, user_addresses(len(ases)), strict=True), start=1
    ):
        UserAS(as_ptr_id=as_.pk, owner_id=owner_id).save_base(raw=True, force_insert=True)
        at_ap = {"public_ip": "192.0.2.1", "public_port": 50_000 + number}
        near.append(Interface(AS=ap_host.AS, host=ap_host, border_router=router, interface_id=number, **at_ap))
        far.append(
            Interface(AS=as_, host=host, border_router=own, interface_id=1, public_ip=address, public_port=50_000)
        )
    Interface.objects.bulk_create([*near, *far], batch_size=BATCH)
    Link.objects.bulk_create(
        [
            Link(interface_a=a, interface_b=b, bandwidth_kbit=100 + number)
            for number, (a, b) in enumerate(zip(near, far, strict=True))
        ],
        batch_size=BATCH,
    )


def change() -> None:
    """A host id: its L rises. `all`: the generation does."""
    from scionlab.services.generation import generation_raise
    from scionlab.services.host import host_bump

    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "all":
            generation_raise()
        else:
            host_bump(host_ids=[int(word)], limits=True)
        print(time.monotonic(), flush=True)


def main(argv: list[str]) -> None:
    django.setup()
    if argv[0] == "fill":
        fill(int(argv[1]), int(argv[2]))
    else:
        change()


if __name__ == "__main__":
    main(sys.argv[1:])
