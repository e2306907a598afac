"""Small rows with visible numbers. Infrastructure has 192.0.2.x and 2001:db8::x, user ASes have 198.51.100.x.

Factories write rows as they are; `attach` goes through the service, as everything that a user does.
"""

from __future__ import annotations

from typing import Any

import factory
from factory.django import DjangoModelFactory

from scionlab.accounts.api_token import api_token_create
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.models import (
    AS,
    ISD,
    VPN,
    AttachmentPoint,
    BandwidthPolicy,
    BorderRouter,
    Host,
    Interface,
    Link,
    UserAS,
)
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.attachments import AttachmentSpec, spec_of
from scionlab.user_ases.user_as import user_as_create, user_as_update

PASSWORD = "correct horse battery"


class UserFactory(DjangoModelFactory):
    class Meta:
        model = User
        skip_postgeneration_save = True

    email = factory.Sequence(lambda n: f"user{n}@example.org")

    @classmethod
    def _create(cls, model_class: type[User], *args: Any, **kwargs: Any) -> User:
        return model_class.objects.create_user(*args, password=kwargs.pop("password", PASSWORD), **kwargs)


def api_token(user: User, name: str = "script", **values: Any) -> str:
    """A token of this person, to be sent as `Authorization: Token ...`."""
    return api_token_create(user_id=user.pk, name=name, replaces=True, **values).text


class ISDFactory(DjangoModelFactory):
    class Meta:
        model = ISD
        django_get_or_create = ("isd_id",)

    isd_id = 17


class ASFactory(DjangoModelFactory):
    """An infrastructure AS: 17-ffaa:0:2001, 17-ffaa:0:2002, ..., apart from the ids that tests name."""

    class Meta:
        model = AS

    isd = factory.SubFactory(ISDFactory)
    as_id = factory.Sequence(lambda n: parse_as_id("ffaa:0:2001") + n)


class HostFactory(DjangoModelFactory):
    class Meta:
        model = Host

    AS = factory.SubFactory(ASFactory)
    public_ipv4 = factory.Sequence(lambda n: f"192.0.2.{100 + n % 150}")


class BorderRouterFactory(DjangoModelFactory):
    class Meta:
        model = BorderRouter

    host = factory.SubFactory(HostFactory)
    number = 1


class VPNFactory(DjangoModelFactory):
    class Meta:
        model = VPN

    host = factory.SubFactory(HostFactory)
    subnet = "10.10.1.0/24"
    server_ip = "10.10.1.1"


class AttachmentPointFactory(DjangoModelFactory):
    """With its host and border router; `host__public_ipv6`, `vpn=True`, `default_bandwidth_kbit` where they matter."""

    class Meta:
        model = AttachmentPoint
        skip_postgeneration_save = True

    AS = factory.SubFactory(ASFactory)
    host = factory.SubFactory(HostFactory, AS=factory.SelfAttribute("..AS"))

    @factory.lazy_attribute
    def maximum_kbit(self) -> int:
        """Carried out already, unless a test says otherwise."""
        policy = BandwidthPolicy.objects.filter(pk=1).first() or BandwidthPolicy()
        own: int | None = getattr(self, "default_bandwidth_kbit", None)
        return policy.default_bandwidth_kbit if own is None else own

    @factory.post_generation
    def router(self, create: bool, extracted: object, **kwargs: Any) -> None:
        BorderRouterFactory(host=self.host)  # type: ignore[attr-defined]  # self is the AttachmentPoint

    @factory.post_generation
    def vpn(self, create: bool, extracted: object, **kwargs: Any) -> None:
        if extracted:
            VPNFactory(host=self.host, **kwargs)  # type: ignore[attr-defined]  # self is the AttachmentPoint


class UserASFactory(DjangoModelFactory):
    """A user AS without attachments: 17-ffaa:1:1001, ... `attach` makes whole ones."""

    class Meta:
        model = UserAS

    isd = factory.SubFactory(ISDFactory)
    as_id = factory.Sequence(lambda n: parse_as_id("ffaa:1:1001") + n)
    owner = factory.SubFactory(UserFactory)


class InterfaceFactory(DjangoModelFactory):
    class Meta:
        model = Interface

    host = factory.SubFactory(HostFactory)
    AS = factory.SelfAttribute("host.AS")
    border_router = factory.SubFactory(BorderRouterFactory, host=factory.SelfAttribute("..host"))
    interface_id = factory.Sequence(lambda n: 1 + n % 4094)
    public_ip = factory.SelfAttribute("host.public_ipv4")
    public_port = factory.Sequence(lambda n: 50_000 + n % 15_000)


class LinkFactory(DjangoModelFactory):
    """A core link between two infrastructure ASes; nobody limits it."""

    class Meta:
        model = Link

    interface_a = factory.SubFactory(InterfaceFactory)
    interface_b = factory.SubFactory(InterfaceFactory)
    type = Link.Type.CORE
    bandwidth_kbit = 1_000_000


class HostReceiptFactory(DjangoModelFactory):
    class Meta:
        model = HostReceipt

    host = factory.SubFactory(HostFactory)
    agent_version = "0.1.0"
    content = HostReceipt.Content.PROVEN
    generation = 1
    config_version = factory.SelfAttribute("host.config_version")
    limits_version = factory.SelfAttribute("host.limits_version")
    observed_at = factory.SelfAttribute("received_at")


class LinkEnforcementFactory(DjangoModelFactory):
    """The AP's kernel has `kbit` in both directions."""

    class Meta:
        model = LinkEnforcement

    link = factory.SubFactory(LinkFactory)
    kbit = factory.SelfAttribute("link.bandwidth_kbit")
    state = LinkEnforcement.State.ENFORCED
    since = factory.SelfAttribute("received_at")
    generation = 1
    config_version = factory.SelfAttribute("link.interface_a.host.config_version")
    limits_version = factory.SelfAttribute("link.interface_a.host.limits_version")
    to_user_rate_kbit = factory.SelfAttribute("kbit")
    from_user_rate_kbit = factory.SelfAttribute("kbit")


def spec(ap: AttachmentPoint, **values: Any) -> AttachmentSpec:
    """An attachment at `ap` over 198.51.100.7:50000, or what `values` say."""
    if not values.get("use_vpn"):
        values = {"public_ip": "198.51.100.7", **values}
    return AttachmentSpec(attachment_point_id=ap.pk, **values)


def attach(owner: User, *specs: AttachmentSpec, label: str = "") -> UserAS:
    """A user AS of `owner` on a machine that has its public addresses itself, made by the service."""
    return user_as_create(
        owner=owner, actor=owner, label=label, installation_type=UserAS.Installation.DEDICATED, attachments=specs
    )


def stored(user_as: UserAS) -> list[AttachmentSpec]:
    """Its attachments, as a form sends them that was opened and is saved without a change."""
    return [spec_of(link, user_as.installation_type) for link in links_of(user_as)]


def save(user_as: UserAS, *specs: AttachmentSpec, actor: User | None = None, **values: Any) -> None:
    """The AS with these attachments and no others, saved by the service."""
    values = {"label": user_as.label, "installation_type": user_as.installation_type, **values}
    user_as_update(user_as_id=user_as.pk, actor=actor, attachments=specs, **values)
