"""`python -m lab.seed_states`: what `./dev run` shows beside `lab.seed_demo`, so that each state of a link is there.

A link that the kernel rejects, an attachment point that is silent, a temporary limit, uplinks and costs, some history.
Whatever exists already stays. Prints JSON: the attachment points, each with a token for those that are not in
`--enrolled`.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import timedelta
from decimal import Decimal

import django
from django.apps import apps
from django.db import transaction
from django.db.models import F

if not apps.ready:  # run as a program
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")
    django.setup()

from bandwidth_config import Limits
from lab.seed import DemoAS, DemoAttachment, DemoUserAS, make_infrastructure, make_infrastructure_link, make_user_as
from scionlab.accounts.models import User
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_set_bandwidth
from scionlab.limits.uplink import site_cost_set, uplink_set
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.models import AS, AttachmentPoint, Host, Link, UserAS

SILENT_AP = DemoAS(isd=17, as_text="ffaa:0:1109", label="Basel AP", is_attachment_point=True, public_ipv4="192.0.2.9")
SILENT_FOR = timedelta(hours=2)
FAILING = "Lab server"
USER_ASES = (
    DemoUserAS("owner", "ffaa:1:fa", FAILING, (DemoAttachment(ap="ffaa:0:1107", kbit=900, public_ip="203.0.113.40"),)),
    DemoUserAS(
        "teammate",
        "ffaa:1:51",
        "Old office",
        (DemoAttachment(ap=SILENT_AP.as_text, kbit=800, public_ip="203.0.113.50"),),
    ),
)
UPLINKS_KBIT = {"ffaa:0:1107": 2_000, "ffaa:0:1303": 1_000_000}
TIMED_DAYS = 6


@transaction.atomic
def seed_states() -> None:
    """Once: nothing happens where the silent attachment point exists."""
    if AS.objects.filter(as_id=parse_as_id(SILENT_AP.as_text)).exists():
        return
    admin = User.objects.get(email="admin@example.org")
    made: list[str] = []
    make_infrastructure(SILENT_AP, made)
    make_infrastructure_link("ffaa:0:1101", SILENT_AP.as_text, Link.Type.PROVIDER, made)
    for demo in USER_ASES:
        make_user_as(demo, User.objects.get(email=f"{demo.owner}@example.org"), made)
    site_cost_set(cost_per_gb=Decimal("0.04"), currency="CHF", actor=admin)
    for as_text, kbit in UPLINKS_KBIT.items():
        ap = AttachmentPoint.objects.get(AS__as_id=parse_as_id(as_text))
        uplink_set(attachment_point_id=ap.pk, uplink_kbit=kbit, cost_per_gb=None, actor=admin)
    link = Link.objects.get(interface_b__AS__label="Home lab")
    owner = User.objects.get(email="owner@example.org")
    for kbit in (800, 500):
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=owner)
    timed_limit_create(
        link_id=link.pk,
        profile=constant(Limits.both(250), TIMED_DAYS * 86_400),
        begins_at=None,
        actor=owner,
        reason="A slow line, for an experiment",
    )


def set_back(host: Host) -> None:
    """Let the last word of a host's agent be two hours old."""
    Host.objects.filter(pk=host.pk).update(last_seen_at=F("last_seen_at") - SILENT_FOR)
    HostReceipt.objects.filter(host=host).update(
        received_at=F("received_at") - SILENT_FOR, observed_at=F("observed_at") - SILENT_FOR
    )
    LinkEnforcement.objects.filter(link__interface_a__host=host).update(
        received_at=F("received_at") - SILENT_FOR, since=F("since") - SILENT_FOR
    )


def points(enrolled: list[str]) -> list[dict[str, object]]:
    """What `./dev run` needs to know of each attachment point."""
    failing = UserAS.objects.filter(label=FAILING).first()
    found: list[dict[str, object]] = []
    for ap in AttachmentPoint.objects.select_related("AS__isd", "host").order_by("pk"):
        name = ap.AS.isd_as.replace(":", "_")
        is_silent = ap.AS.as_id == parse_as_id(SILENT_AP.as_text)
        token = None if name in enrolled else enrolment_token_create(host_id=ap.host.pk, actor=None).text
        found.append(
            {
                "name": name,
                "host": ap.host.pk,
                "token": token,
                "is_silent": is_silent,
                "failing": [failing.isd_as] if failing is not None else [],
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.seed_states", description=__doc__)
    parser.add_argument("--enrolled", nargs="*", default=[], help="names of attachment points that need no token")
    parser.add_argument("--set-back", type=int, help="let the last report of this host be two hours old; nothing else")
    options = parser.parse_args()
    if options.set_back is not None:
        set_back(Host.objects.get(pk=options.set_back))
        return
    seed_states()
    print(json.dumps(points(options.enrolled)))


if __name__ == "__main__":
    main()
