"""`python -m lab.seed`: a small SCIONLab to look at and to try things with, for `./dev run`.

    ISD 17 (Switzerland)                          ISD 19 (Europe)
    ffaa:0:1101 core ═══════════ core ═══════════ ffaa:0:1301 core
      ├─ ffaa:0:1107 ETHZ-AP (VPN)                  └─ ffaa:0:1303 Magdeburg AP (IPv4 and IPv6)
      ├─ ffaa:0:1108 Lugano AP (its default was lowered: one Link there is clamped)
      └─ ffaa:0:1109 Basel AP (silent; with a link that the kernel rejects: `seed_states`)

Everything is made by the services that people's changes go through, once: where it is there, nothing happens. Addresses
are documentation addresses (RFC 5737, RFC 3849): nothing here reaches anybody. The passwords are public, so settings
that may be somebody's production are refused.

    --points NAME ...   prints JSON: the attachment points, each with a token for those that are not named
    --set-back HOST     lets the last report of this host be two hours old
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import django
from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

if not apps.ready:  # run as a program
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")
    django.setup()

from bandwidth_config import Limits
from lab.seed_usage import seed_usage
from scionlab.accounts.models import User
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.limits import defaults
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_set_bandwidth
from scionlab.limits.uplink import site_cost_set, uplink_set
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, AttachmentPoint, Host, Link, UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_create

HARMLESS_SETTINGS = {"scionlab.settings.dev", "scionlab.settings.test"}
ISDS = {17: "Switzerland", 19: "Europe"}


@dataclass(frozen=True, kw_only=True)
class DemoAS:
    """An infrastructure AS; `default_kbit` and `vpn_subnet` count where it is an attachment point."""

    isd: int
    as_text: str
    label: str
    is_core: bool = False
    is_attachment_point: bool = False
    public_ipv4: str | None = None
    public_ipv6: str | None = None
    default_kbit: int | None = None
    vpn_subnet: str | None = None


INFRASTRUCTURE = (
    DemoAS(isd=17, as_text="ffaa:0:1101", label="Zurich core", is_core=True, public_ipv4="192.0.2.1"),
    DemoAS(isd=19, as_text="ffaa:0:1301", label="Magdeburg core", is_core=True, public_ipv4="198.51.100.1"),
    DemoAS(
        isd=17,
        as_text="ffaa:0:1107",
        label="ETHZ-AP",
        is_attachment_point=True,
        public_ipv4="192.0.2.7",
        vpn_subnet="10.10.1.0/24",
    ),
    DemoAS(
        isd=17,
        as_text="ffaa:0:1108",
        label="Lugano AP",
        is_attachment_point=True,
        public_ipv4="192.0.2.8",
        default_kbit=50_000,
    ),
    DemoAS(
        isd=19,
        as_text="ffaa:0:1303",
        label="Magdeburg AP",
        is_attachment_point=True,
        public_ipv4="198.51.100.3",
        public_ipv6="2001:db8:13::3",
        default_kbit=100_000,
    ),
)
INFRASTRUCTURE_LINKS = (
    ("ffaa:0:1101", "ffaa:0:1301", Link.Type.CORE),
    ("ffaa:0:1101", "ffaa:0:1107", Link.Type.PROVIDER),
    ("ffaa:0:1101", "ffaa:0:1108", Link.Type.PROVIDER),
    ("ffaa:0:1301", "ffaa:0:1303", Link.Type.PROVIDER),
)
LOWERED = ("ffaa:0:1108", 5_000)  # after the user ASes attached
# email, password, name, whether an administrator
USERS = (
    ("owner@example.org", "demo-owner-17", "Olivia Owner", False),
    ("teammate@example.org", "demo-teammate-19", "Theo Teammate", False),
    ("admin@example.org", "demo-admin-1107", "Ada Admin", True),
)


@dataclass(frozen=True, kw_only=True)
class DemoAttachment:
    ap: str
    kbit: int
    public_ip: str | None = None  # None: over the VPN
    public_port: int = 50_000
    bind_ip: str | None = None


@dataclass(frozen=True)
class DemoUserAS:
    owner: str
    as_text: str
    label: str
    attachments: tuple[DemoAttachment, ...]
    installation: UserAS.Installation = UserAS.Installation.DEDICATED


USER_ASES = (
    DemoUserAS(
        "owner", "ffaa:1:a", "Home lab", (DemoAttachment(ap="ffaa:0:1107", kbit=500, public_ip="203.0.113.10"),)
    ),
    DemoUserAS(
        "owner",
        "ffaa:1:2c",
        "Laptop over VPN",
        (DemoAttachment(ap="ffaa:0:1107", kbit=1_000),),
        UserAS.Installation.VM,
    ),
    DemoUserAS(
        "owner",
        "ffaa:1:b6",
        "Office, first AS",
        (DemoAttachment(ap="ffaa:0:1303", kbit=10_000, public_ip="203.0.113.20", bind_ip="192.168.7.20"),),
    ),
    DemoUserAS(
        "teammate",
        "ffaa:1:b7",
        "Office, blocked AS",
        (
            DemoAttachment(
                ap="ffaa:0:1303", kbit=0, public_ip="203.0.113.20", public_port=50_001, bind_ip="192.168.7.21"
            ),
        ),
    ),
    DemoUserAS(
        "teammate",
        "ffaa:1:1c",
        "Two ways out",
        (
            DemoAttachment(ap="ffaa:0:1107", kbit=1_000, public_ip="203.0.113.30"),
            DemoAttachment(ap="ffaa:0:1108", kbit=20_000, public_ip="203.0.113.30", public_port=50_001),
        ),
    ),
    DemoUserAS(
        "teammate",
        "ffaa:1:f00d",
        "IPv6 lab",
        (DemoAttachment(ap="ffaa:0:1303", kbit=50_000, public_ip="2001:db8:cafe::1"),),
    ),
)

SILENT_AP = DemoAS(isd=17, as_text="ffaa:0:1109", label="Basel AP", is_attachment_point=True, public_ipv4="192.0.2.9")
SILENT_FOR = timedelta(hours=2)
FAILING = "Lab server"
OF_STATES = (
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
def seed_demo() -> None:
    """The network, its people and a day of traffic; nothing where its core AS is there."""
    if AS.objects.filter(as_id=parse_as_id(INFRASTRUCTURE[0].as_text)).exists():
        return
    for email, password, name, is_admin in USERS:
        User.objects.create_user(email, password, full_name=name, is_staff=is_admin, is_superuser=is_admin)
    for demo in INFRASTRUCTURE:
        _infrastructure(demo)
    for a, b, link_type in INFRASTRUCTURE_LINKS:
        infrastructure_link_create(a=_as(a), b=_as(b), type=link_type)
    made = [_user_as(demo) for demo in USER_ASES]
    ap, kbit = LOWERED
    reason = "The demo shows a Link that is clamped."
    defaults.ap_default_set(
        attachment_point_id=_ap(ap).pk, default_bandwidth_kbit=kbit, actor=_user("admin"), reason=reason
    )
    defaults.fan_out()  # now, and not by a worker: the demo's pages are right from the first look
    seed_usage(made, now=timezone.now())


@transaction.atomic
def seed_states() -> None:
    """What the states of links need beside it: a link that the kernel rejects, an attachment point that is silent, a
    temporary limit, uplinks and costs, some history; nothing where the silent attachment point is there."""
    if AS.objects.filter(as_id=parse_as_id(SILENT_AP.as_text)).exists():
        return
    admin, owner = _user("admin"), _user("owner")
    _infrastructure(SILENT_AP)
    infrastructure_link_create(a=_as("ffaa:0:1101"), b=_as(SILENT_AP.as_text), type=Link.Type.PROVIDER)
    for demo in OF_STATES:
        _user_as(demo)
    site_cost_set(cost_per_gb=Decimal("0.04"), currency="CHF", actor=admin)
    for as_text, kbit in UPLINKS_KBIT.items():
        uplink_set(attachment_point_id=_ap(as_text).pk, uplink_kbit=kbit, cost_per_gb=None, actor=admin)
    link = Link.objects.get(interface_b__AS__label="Home lab")
    for kbit in (800, 500):
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=owner)
    timed_limit_create(
        link_id=link.pk,
        profile=constant(Limits.both(250), TIMED_DAYS * 86_400),
        begins_at=None,
        actor=owner,
        reason="A slow line, for an experiment",
    )


def _as(as_text: str) -> AS:
    return AS.objects.get(as_id=parse_as_id(as_text))


def _ap(as_text: str) -> AttachmentPoint:
    return AttachmentPoint.objects.get(AS=_as(as_text))


def _user(role: str) -> User:
    return User.objects.get(email=f"{role}@example.org")


def _infrastructure(demo: DemoAS) -> None:
    as_ = infrastructure_as_create(
        isd=demo.isd,
        isd_label=ISDS[demo.isd],
        as_text=demo.as_text,
        label=demo.label,
        is_core=demo.is_core,
        public_ipv4=demo.public_ipv4,
        public_ipv6=demo.public_ipv6,
    )
    if demo.is_attachment_point:
        attachment_point_create(as_=as_, default_bandwidth_kbit=demo.default_kbit, vpn_subnet=demo.vpn_subnet)


def _user_as(demo: DemoUserAS) -> int:
    """Its key."""
    attachments = [
        AttachmentSpec(
            attachment_point_id=_ap(one.ap).pk,
            use_vpn=one.public_ip is None,
            public_ip=one.public_ip,
            public_port=one.public_port,
            bandwidth_kbit=one.kbit,
            bind_ip=one.bind_ip,
        )
        for one in demo.attachments
    ]
    owner = _user(demo.owner)
    made = user_as_create(
        owner=owner,
        actor=owner,
        label=demo.label,
        installation_type=demo.installation,
        attachments=attachments,
        as_id=parse_as_id(demo.as_text),
    )
    return made.pk


# --- the attachment points of `./dev run` ----------------------------------------------------------------------------


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
    failing = [one.isd_as for one in UserAS.objects.filter(label=FAILING)]
    found: list[dict[str, object]] = []
    for ap in AttachmentPoint.objects.select_related("AS__isd", "host").order_by("pk"):
        name = ap.AS.isd_as.replace(":", "_")
        is_silent = ap.AS.as_id == parse_as_id(SILENT_AP.as_text)
        token = None if name in enrolled else enrolment_token_create(host_id=ap.host.pk, actor=None).text
        found.append({"name": name, "host": ap.host.pk, "token": token, "is_silent": is_silent, "failing": failing})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.seed")
    parser.add_argument("--points", nargs="*", help="print the attachment points; tokens but for those named here")
    parser.add_argument("--set-back", type=int, help="let the last report of this host be two hours old; nothing else")
    options = parser.parse_args()
    if settings.SETTINGS_MODULE not in HARMLESS_SETTINGS:
        sys.exit(f"The settings are {settings.SETTINGS_MODULE}: this may be production, and passwords here are public.")
    if options.set_back is not None:
        set_back(Host.objects.get(pk=options.set_back))
        return
    if options.points is not None:
        print(json.dumps(points(options.points)))
        return
    seed_demo()
    seed_states()
    print("Accounts, with the passwords that they have at first:")
    for email, password, _, _ in USERS:
        print(f"  {email:<24} {password}")


if __name__ == "__main__":
    main()
