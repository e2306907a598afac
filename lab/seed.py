"""A small SCIONLab to look at and to try things with: the network of `python -m lab.seed_demo`.

Everything in it is made by the services that people's changes go through. The functions that make infrastructure are
in `testbed.infrastructure`: a laboratory builds its own network, with its own addresses, from those.

    ISD 17 (Switzerland)                          ISD 19 (Europe)
    ffaa:0:1101 core ═══════════ core ═══════════ ffaa:0:1301 core
      ├─ ffaa:0:1107 ETHZ-AP (VPN)                  └─ ffaa:0:1303 Magdeburg AP (IPv4 and IPv6)
      └─ ffaa:0:1108 Lugano AP (its default was lowered: one Link there is clamped)

Addresses are documentation addresses (RFC 5737, RFC 3849): nothing here reaches anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from bandwidth_config import RuleError
from lab.seed_usage import HOURS, seed_usage
from scionlab.accounts.models import User
from scionlab.limits import defaults
from scionlab.platform.notation.isd_as import format_as_id, parse_as_id
from scionlab.testbed import selectors
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create, isd_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, ISD, AttachmentPoint, Link, UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_create

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
    lowered_default_kbit: int | None = None  # set after the user ASes attached, so that Links are clamped
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
        lowered_default_kbit=5_000,
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


@dataclass(frozen=True)
class DemoUser:
    """An account of the demo. Its password is public: production gets random ones (`seed_demo`)."""

    role: str
    email: str
    password: str
    full_name: str
    is_administrator: bool = False


USERS = (
    DemoUser("owner", "owner@example.org", "demo-owner-17", "Olivia Owner"),
    DemoUser("teammate", "teammate@example.org", "demo-teammate-19", "Theo Teammate"),
    DemoUser("administrator", "admin@example.org", "demo-admin-1107", "Ada Admin", is_administrator=True),
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
    """A user AS; `as_text` is the id that it gets when nobody has it."""

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


@dataclass(frozen=True)
class Account:
    role: str
    email: str
    password: str | None  # None: the account was there before and its password is not the demo's any more


@dataclass(frozen=True)
class Seeded:
    """What a run made, a sentence each (none: everything was there), and the accounts of the demo."""

    made: list[str]
    accounts: list[Account]


@transaction.atomic
def seed_demo(*, password_of: Callable[[DemoUser], str] | None = None) -> Seeded:
    """Makes what is missing of the demo's network, all or nothing; what is there stays as it is, also where somebody
    changed it since. Raises `RuleError` where the site's own data is in the way.

    `password_of` gives other passwords than the public ones to new accounts.
    """
    made: list[str] = []
    users = {demo.role: _user(demo, password_of, made) for demo in USERS}
    admin = users["administrator"][0]
    for isd, label in ISDS.items():
        if not ISD.objects.filter(isd_id=isd).exists():
            isd_create(isd_id=isd, label=label)
            made.append(f"ISD {isd} ({label})")
    new_aps = [demo for demo in INFRASTRUCTURE if make_infrastructure(demo, made) and demo.is_attachment_point]
    for a, b, link_type in INFRASTRUCTURE_LINKS:
        make_infrastructure_link(a, b, link_type, made)
    user_as_ids = [pk for demo in USER_ASES if (pk := make_user_as(demo, users[demo.owner][0], made)) is not None]
    for demo in new_aps:
        if demo.lowered_default_kbit is not None:
            ap = AttachmentPoint.objects.get(AS=_as(demo.as_text))
            defaults.ap_default_set(
                attachment_point_id=ap.pk,
                default_bandwidth_kbit=demo.lowered_default_kbit,
                actor=admin,
                reason="The demo shows a Link that is clamped.",
            )
            made.append(f"default of {demo.label} lowered to {demo.lowered_default_kbit} kbit/s")
    if made:
        defaults.fan_out()  # now, and not by a worker: the demo's pages are right from the first look
    if (count := seed_usage(user_as_ids, now=timezone.now())) > 0:
        made.append(f"{HOURS} hours of traffic of {count} Links")
    return Seeded(made, [account for _, account in users.values()])


def _user(demo: DemoUser, password_of: Callable[[DemoUser], str] | None, made: list[str]) -> tuple[User, Account]:
    user = User.objects.filter(email=demo.email).first()
    if user is not None:
        known = demo.password if user.check_password(demo.password) else None
        return user, Account(demo.role, demo.email, known)
    password = password_of(demo) if password_of else demo.password
    user = User.objects.create_user(
        demo.email,
        password,
        full_name=demo.full_name,
        is_staff=demo.is_administrator,
        is_superuser=demo.is_administrator,
    )
    made.append(f"account {demo.email} ({demo.role})")
    return user, Account(demo.role, demo.email, password)


def _as(as_text: str) -> AS:
    return AS.objects.get(as_id=parse_as_id(as_text))


def make_infrastructure(demo: DemoAS, made: list[str]) -> bool:
    """True where the AS is new."""
    if AS.objects.filter(as_id=parse_as_id(demo.as_text)).exists():
        return False
    as_ = infrastructure_as_create(
        isd=demo.isd,
        as_text=demo.as_text,
        label=demo.label,
        is_core=demo.is_core,
        public_ipv4=demo.public_ipv4,
        public_ipv6=demo.public_ipv6,
    )
    if demo.is_attachment_point:
        attachment_point_create(as_=as_, default_bandwidth_kbit=demo.default_kbit, vpn_subnet=demo.vpn_subnet)
    made.append(f"{'attachment point' if demo.is_attachment_point else 'infrastructure AS'} {as_}")
    return True


def make_infrastructure_link(a_text: str, b_text: str, link_type: Link.Type, made: list[str]) -> None:
    a, b = _as(a_text), _as(b_text)
    if not Link.objects.filter(Q(interface_a__AS=a, interface_b__AS=b) | Q(interface_a__AS=b, interface_b__AS=a)):
        link = infrastructure_link_create(a=a, b=b, type=link_type)
        made.append(f"{link.get_type_display()} Link {link}")


def make_user_as(demo: DemoUserAS, owner: User, made: list[str]) -> int | None:
    """The key of the AS where it is new."""
    if UserAS.objects.filter(owner=owner, label=demo.label).exists():
        return None
    as_id = parse_as_id(demo.as_text)
    user_as = user_as_create(
        owner=owner,
        actor=owner,
        label=demo.label,
        installation_type=demo.installation,
        attachments=[_spec(attachment) for attachment in demo.attachments],
        as_id=None if AS.objects.filter(as_id=as_id).exists() else as_id,  # a site may have given it away already
    )
    made.append(f"user AS {user_as} of {owner}")
    return user_as.pk


def _spec(demo: DemoAttachment) -> AttachmentSpec:
    ap = AttachmentPoint.objects.filter(AS__as_id=parse_as_id(demo.ap)).first()
    if ap is None:
        raise RuleError(
            "attachment_point_missing",
            f"{format_as_id(parse_as_id(demo.ap))} exists and is not an attachment point, as the demo wants it. "
            "Make it one, or use an empty database.",
        )
    return AttachmentSpec(
        attachment_point_id=ap.pk,
        use_vpn=demo.public_ip is None,
        public_ip=demo.public_ip,
        public_port=demo.public_port,
        bandwidth_kbit=min(demo.kbit, selectors.default_in_force(ap)),  # a site may give less than the demo wants
        bind_ip=demo.bind_ip,
    )
