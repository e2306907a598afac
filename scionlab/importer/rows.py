"""Content of a dump's entries as plain values. `pk` is the dump's primary key.

Addresses are normalized by `ipaddress`. Passwords and secrets are excluded from `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from scionlab.platform.notation.isd_as import format_as_id, format_isd_as

LinkType = Literal["PROVIDER", "CORE", "PEER"]


@dataclass(frozen=True, slots=True)
class User:
    pk: int
    email: str
    full_name: str
    password: str = field(repr=False)  # as Django stores it: algorithm, parameters, salt, hash
    is_active: bool

    @property
    def name(self) -> str:
        return self.email


@dataclass(frozen=True, slots=True)
class Isd:
    """An isolation domain. Its number may repeat in the dump: `pks` are all rows with it, lowest first."""

    number: int
    label: str
    pks: tuple[int, ...]

    @property
    def pk(self) -> int:
        return self.pks[0]

    @property
    def name(self) -> str:
        return f"ISD {self.number}"


@dataclass(frozen=True, slots=True)
class As:
    pk: int
    isd: int  # its number
    as_id: int
    label: str
    is_core: bool
    owner: int | None  # a user; None: infrastructure
    installation_type: str | None  # None: no user AS
    master_key: str = field(repr=False)  # base64; for both of SCION's master keys

    @property
    def name(self) -> str:
        return format_isd_as(self.isd, self.as_id)

    @property
    def is_user_as(self) -> bool:
        return self.installation_type is not None


@dataclass(frozen=True, slots=True)
class Host:
    pk: int
    as_pk: int | None  # None: its AS was deleted
    uid: str
    secret: str = field(repr=False)
    label: str
    internal_ip: str
    public_ip: str | None
    bind_ip: str | None

    @property
    def name(self) -> str:
        return self.label or self.uid


@dataclass(frozen=True, slots=True)
class BorderRouter:
    """`number` is its position among the routers of its AS, ordered by key: it is called br-<number>."""

    pk: int
    as_pk: int
    host: int
    number: int

    @property
    def name(self) -> str:
        return f"br-{self.number}"


@dataclass(frozen=True, slots=True)
class Vpn:
    pk: int
    host: int
    subnet: str
    server_ip: str
    server_port: int

    @property
    def name(self) -> str:
        return f"VPN {self.subnet}"


@dataclass(frozen=True, slots=True)
class VpnClient:
    pk: int
    vpn: int
    host: int
    ip: str

    @property
    def name(self) -> str:
        return self.ip


@dataclass(frozen=True, slots=True)
class AttachmentPoint:
    """`host` is where the Links of user ASes end: the VPN's server, otherwise the first host with a public address."""

    pk: int
    as_pk: int
    vpn: int | None
    host: int | None
    name: str  # of its AS


@dataclass(frozen=True, slots=True)
class End:
    """An interface of a Link, with its effective addresses: its own, or its host's."""

    pk: int
    as_pk: int
    host: int
    router: int
    interface_id: int
    public_ip: str | None
    public_port: int
    bind_ip: str | None
    bind_port: int | None
    vpn_client: int | None
    name: str  # like 17-ffaa:1:b6#3

    @property
    def local(self) -> tuple[str | None, int]:
        """Bind address on its host."""
        return self.bind_ip or self.public_ip, self.bind_port or self.public_port


@dataclass(frozen=True, slots=True)
class Link:
    """Of a provider Link, `a` is the parent's end. `is_limited`: it attaches a user AS to an attachment point."""

    pk: int
    type: LinkType
    active: bool
    mtu: int
    a: End
    b: End
    is_limited: bool

    @property
    def ends(self) -> tuple[End, End]:
        return self.a, self.b

    @property
    def name(self) -> str:
        return f"{self.a.name} - {self.b.name}"


@dataclass(frozen=True, slots=True)
class Key:
    """The newest key of an AS for one usage, with its newest certificate."""

    pk: int
    as_pk: int | None  # None: its AS was deleted, and its vote is still needed
    as_id: int
    usage: str  # as `scionlab.scion_config.pki.certificates.Kind` has them
    pem: str = field(repr=False)
    certificate: str  # PEM
    certificate_pk: int

    @property
    def name(self) -> str:
        return f"{self.usage} of {format_as_id(self.as_id)}"


@dataclass(frozen=True, slots=True)
class Trc:
    pk: int
    isd: int  # its number
    base: int
    serial: int
    content: str = field(repr=False)  # PEM, or DER in base64: both occur

    @property
    def name(self) -> str:
        return f"ISD{self.isd}-B{self.base}-S{self.serial}"


@dataclass(frozen=True, slots=True)
class Network:
    """The imported part of a dump; by primary key, in its order (ISDs by number)."""

    users: dict[int, User]
    isds: dict[int, Isd]
    ases: dict[int, As]
    hosts: dict[int, Host]
    routers: dict[int, BorderRouter]
    vpns: dict[int, Vpn]
    clients: dict[int, VpnClient]
    attachment_points: dict[int, AttachmentPoint]
    links: dict[int, Link]
    keys: dict[int, Key]
    trcs: dict[int, Trc]
    entries: dict[str, int]  # number of each model, imported or not
    unlinked_interfaces: tuple[str, ...]  # interfaces without a Link
