"""The demo's small world: one attachment point, user ASes and a bystander on one switch, as network namespaces.

    service 192.0.2.100 ──┐
    bystander  192.0.2.50 ├── switch ── eth0 192.0.2.1, 2001:db8::1  attachment point (the agent runs here)
    users 192.0.2.11 …  ──┘

The service sits on the far side of the limited NIC, so that the agent's own pulls cross what it limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from measuring.netns import Lab, Namespace

PREFIX = "slbwdemo"
SITE_ADDRESS = ("192.0.2.100", 8000)
SITE_URL = "http://{}:{}".format(*SITE_ADDRESS)
AP_IPV4, AP_IPV6 = "192.0.2.1", "2001:db8::1"
AP_AS, AP_ISD, AP_LABEL = "ffaa:0:1107", 17, "Demo AP"
AP_DEFAULT_KBIT = 60_000
BYSTANDER_IP, BYSTANDER_KBIT = "192.0.2.50", 20_000
ADMIN = "admin@example.org"
PASSWORD = "the-demo-ends-with-you"  # noqa: S105  of accounts that live for a minute in a namespace


@dataclass(frozen=True)
class UserAs:
    """A user AS of the demo, as its owner will enter it in the form."""

    label: str
    owner: str
    ip: str
    port: int
    kbit: int
    offered_kbit: int  # [wire] in each direction; well above the limit, within what two cores can send
    over_vpn: bool = False

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.ip

    @property
    def host_name(self) -> str:
        """Two user ASes behind one address are one host of the lab."""
        return "u" + self.ip.rpartition(":" if self.is_ipv6 else ".")[2]


USER_ASES = (
    UserAs("Anna", "anna@example.org", "192.0.2.11", 50000, 500, 10_000),
    UserAs("Ben", "ben@example.org", "192.0.2.12", 50000, 1_000, 5_000),
    UserAs("Clara", "clara@example.org", "192.0.2.13", 50000, 10_000, 15_000),
    UserAs("David", "david@example.org", "192.0.2.14", 50000, 50_000, 60_000),
    UserAs("Emma", "emma@example.org", "192.0.2.15", 50000, 2_000, 5_000),
    UserAs("Emma's 2nd AS", "emma@example.org", "192.0.2.15", 50001, 0, 2_000),
    UserAs("Felix, IPv6", "felix@example.org", "2001:db8::16", 50000, 2_000, 5_000),
)


@dataclass
class World:
    """The hosts of the demo."""

    lab: Lab
    service: Namespace
    ap: Namespace
    bystander: Namespace
    users: dict[str, Namespace]

    @classmethod
    def build(cls, lab: Lab, user_ases: Iterable[UserAs] = USER_ASES) -> World:
        """Make all hosts and plug them in. Raises `LabError`."""
        switch = lab.switch("switch")

        def host(short: str, *addresses: str) -> Namespace:
            namespace = lab.namespace(short)
            switch.plug(namespace.nic("eth0", *addresses))
            return namespace

        addresses = {user_as.host_name: user_as.ip for user_as in user_ases}
        return cls(
            lab=lab,
            service=host("service", f"{SITE_ADDRESS[0]}/24"),
            ap=host("ap", f"{AP_IPV4}/24", f"{AP_IPV6}/64"),
            bystander=host("bystander", f"{BYSTANDER_IP}/24"),
            users={name: host(name, f"{ip}/64" if ":" in ip else f"{ip}/24") for name, ip in addresses.items()},
        )
