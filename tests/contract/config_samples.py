"""Hosts as plain values, for `config_tar`: an attachment point, a user AS on it, and the odd ones.

17-ffaa:0:1107  AP, core is 17-ffaa:0:1101; user AS 17-ffaa:1:b6 over IPv4 behind NAT (0.5 Mbit/s of at most 1),
                17-ffaa:1:c0ff over the VPN (blocked), 17-ffaa:1:1 over IPv6
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from config_tar import KeyRing, Signer, host_members, pack
from contract.link_tests import TCP, UDP, WATCH, LinkTest
from contract.scion_files import ConfigLinkEnd

SITE_URL = "https://scionlab.example.org"


@dataclass(frozen=True)
class SampleAS:
    isd_as: str
    is_core: bool = False


def sample_end(
    interface_id: int,
    remote_isd_as: str,
    remote_ip: str,
    remote_port: int,
    local_ip: str,
    local_port: int,
    link_to: str,
    **more: Any,
) -> ConfigLinkEnd:
    usual = {"is_limited": False, "bandwidth_kbit": 1_000_000, "maximum_kbit": 1000, "is_vpn": False}
    usual |= {"mtu": 1472, "border_router": 1, "public_port": 50_000}
    return ConfigLinkEnd(
        interface_id=interface_id,
        remote_isd_as=remote_isd_as,
        remote_ip=remote_ip,
        remote_port=remote_port,
        local_ip=local_ip,
        local_port=local_port,
        link_to=link_to,
        **{**usual, **more},
    )


@dataclass(frozen=True)
class SampleHost:
    uid: str
    AS: SampleAS | None
    link_ends: tuple[ConfigLinkEnd, ...] = ()
    secret: str = "5ec4e700000000000000000000000000"
    config_version: int = 18
    limits_version: int = 7
    internal_ip: str = "127.0.0.1"
    scion_packages: str = "scionlab"
    attachment_point: object = None
    limits_only: bool = False


AP_HOST = SampleHost(
    uid="a0000000000000000000000000001107",
    AS=SampleAS("17-ffaa:0:1107"),
    attachment_point=object(),
    link_ends=(
        sample_end(1, "17-ffaa:0:1101", "192.0.2.1", 50001, "192.0.2.7", 50000, "PARENT"),
        sample_end(
            2, "17-ffaa:1:b6", "198.51.100.7", 50000, "192.0.2.7", 50002, "CHILD", is_limited=True, bandwidth_kbit=500
        ),
        sample_end(
            10, "17-ffaa:1:c0ff", "10.10.1.2", 50000, "10.10.1.1", 50003, "CHILD",
            is_limited=True, bandwidth_kbit=0, is_vpn=True,
        ),
        sample_end(
            11, "17-ffaa:1:1", "2001:db8::b6", 50000, "2001:db8::7", 50004, "CHILD",
            is_limited=True, bandwidth_kbit=5000, border_router=2,
        ),
    ),
)  # fmt: skip

# Tests of each kind at its first user AS.
_BEGINS_AT = datetime(2026, 11, 21, 23, 0, tzinfo=UTC)
TESTS = (
    LinkTest(_BEGINS_AT, _BEGINS_AT + timedelta(seconds=600), "0f" * 16, WATCH),
    LinkTest(_BEGINS_AT + timedelta(hours=1), _BEGINS_AT + timedelta(hours=1, seconds=20), "1f" * 16, UDP, 30_301, 750,
             1_000_000),
    LinkTest(_BEGINS_AT + timedelta(hours=2), _BEGINS_AT + timedelta(hours=2, seconds=30), "2f" * 16, TCP, 30_302, 1250,
             3_125_000),
)  # fmt: skip
TESTED_AP_HOST = replace(
    AP_HOST,
    link_ends=(
        AP_HOST.link_ends[0],
        replace(AP_HOST.link_ends[1], tests=tuple(one.statement() for one in TESTS)),
        *AP_HOST.link_ends[2:],
    ),
)

USER_HOST = SampleHost(
    uid="b00000000000000000000000000000b6",
    AS=SampleAS("17-ffaa:1:b6"),
    config_version=3,
    limits_version=1,
    link_ends=(
        # Behind NAT: the others see 198.51.100.7:50000, the router binds to 10.0.0.7:50000.
        sample_end(1, "17-ffaa:0:1107", "192.0.2.7", 50002, "10.0.0.7", 50000, "PARENT", bandwidth_kbit=500),
    ),
)

CORE_HOST = SampleHost(
    uid="c0000000000000000000000000001101",
    AS=SampleAS("17-ffaa:0:1101", is_core=True),
    internal_ip="2001:db8:1::1",
    link_ends=(
        sample_end(1, "19-ffaa:0:1301", "198.51.100.1", 50000, "192.0.2.1", 50000, "CORE", mtu=1400),
        sample_end(2, "17-ffaa:0:1107", "192.0.2.7", 50000, "192.0.2.1", 50001, "CHILD"),
    ),
)

AP_WITHOUT_CUSTOMERS = replace(AP_HOST, uid="d0000000000000000000000000001107", link_ends=AP_HOST.link_ends[:1])
AP_ALONE = replace(AP_HOST, uid="e0000000000000000000000000001107", link_ends=())
# A user AS that lets others attach: its own uplink is listed and not limited.
USER_AP_HOST = replace(
    USER_HOST,
    uid="f00000000000000000000000000000b6",
    attachment_point=object(),
    link_ends=(
        *USER_HOST.link_ends,
        sample_end(2, "17-ffaa:1:b7", "198.51.100.8", 50000, "198.51.100.7", 50001, "CHILD", is_limited=True),
    ),
)
FULL_AP_HOST = replace(
    AP_HOST,
    uid="a0000000000000000000000000004094",
    link_ends=tuple(
        sample_end(
            n, f"17-ffaa:1:{n:x}", f"198.18.{n >> 8}.{n & 255}", 50000, "192.0.2.7", 20_000 + n, "CHILD",
            is_limited=True, bandwidth_kbit=n,
        )
        for n in range(1, 4095)
    ),
)  # fmt: skip

# What is made elsewhere for a host, with contents that everybody knows.
TRUST_FILES = {
    "etc/scion/certs/ISD17-B1-S1.trc": b"a trust root configuration",
    "etc/scion/crypto/as/ISD17-ASffaa_0_1107.pem": b"a chain",
    "etc/scion/crypto/as/cp-as.key": b"a private key",
    "etc/scion/keys/master0.key": b"AAAAAAAAAAAAAAAAAAAAAA==",
    "etc/scion/keys/master1.key": b"AQEBAQEBAQEBAQEBAQEBAQ==",
}
VPN_FILES = {
    "etc/openvpn/ccd/17-ffaa_1_c0ff": b"ifconfig-push 10.10.1.2 255.255.255.0\n",
    "etc/openvpn/server.conf": b"settings with a private key",
}
ADDED_FILES = TRUST_FILES | VPN_FILES

HOSTS = {
    "ap": AP_HOST,
    "user": USER_HOST,
    "core": CORE_HOST,
    "ap_without_customers": AP_WITHOUT_CUSTOMERS,
    "ap_alone": AP_ALONE,
    "user_ap": USER_AP_HOST,
    "ap_full": FULL_AP_HOST,
}


def sample_signer(number: int, *, not_after: datetime = datetime(2028, 11, 21, tzinfo=UTC)) -> Signer:
    """A key that everybody knows: its private part is `number`, 32 times."""
    private = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    return Signer(private.public_key().public_bytes_raw(), not_after, private.sign)


KEYS = KeyRing((sample_signer(1),))


def members_of(host: SampleHost, **options: Any) -> dict[str, bytes]:
    """The files of a host; `options` as `host_members` takes them."""
    return host_members(host, **{"generation": 1, "site_url": SITE_URL, "keys": KEYS, **options})


def tar_of(host: SampleHost, **options: Any) -> bytes:
    return pack(members_of(host, **options))
