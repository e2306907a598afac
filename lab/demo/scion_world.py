"""The hosts of `./dev demo --scion`; `lab.demo.scion` draws them."""

from __future__ import annotations

from lab.demo.world import AP_IPV4, AP_IPV6, SITE_ADDRESS, UserAs
from measuring.netns import Lab, Namespace

CORE_AS, CORE_IPV4 = "ffaa:0:1101", "192.0.2.2"
VPN_SUBNET, VPN_SERVER_IP, TUN = "10.10.1.0/24", "10.10.1.1", "tun0"
ANNA = UserAs("Anna", "anna@example.org", "192.0.2.11", 50000, 400, 0)
BEN = UserAs("Ben", "ben@example.org", "2001:db8::12", 50000, 1_000, 0)
CLARA = UserAs("Clara", "clara@example.org", "192.0.2.13", 50000, 2_000, 0, over_vpn=True)
USERS = (ANNA, BEN, CLARA)


class World:
    """The hosts, on one switch; Clara's tunnel is made once the service gave her an address in it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        switch = lab.switch("switch")

        def host(short: str, *addresses: str) -> Namespace:
            namespace = lab.namespace(short)
            switch.plug(namespace.nic("eth0", *addresses))
            return namespace

        self.service = host("service", f"{SITE_ADDRESS[0]}/24")
        self.core = host("core", f"{CORE_IPV4}/24")
        self.ap = host("ap", f"{AP_IPV4}/24", f"{AP_IPV6}/64")
        self.users = {one.label: host(one.label.lower(), f"{one.ip}/{64 if one.is_ipv6 else 24}") for one in USERS}

    def join_vpn(self, user_as: UserAs, ip: str) -> None:
        """Carry its inner packets to the attachment point and back, as OpenVPN would."""
        for host, inner, outer, peer in (
            (self.ap, VPN_SERVER_IP, AP_IPV4, f"{ip}={user_as.ip}"),
            (self.users[user_as.label], ip, user_as.ip, f"default={AP_IPV4}"),
        ):
            self.lab.tun(host.nic(TUN, f"{inner}/24"))
            host.python("lab.tunnel", "--dev", TUN, "--local", f"{outer}:1194", "--peer", f"{peer}:1194")
