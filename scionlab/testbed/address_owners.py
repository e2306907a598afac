"""Owners of addresses: user ASes cannot use those of the testbed's hosts; shared addresses are reported to
administrators.

An address is rejected when it is requested. One that an AS already has is kept: if a host of the testbed moves to it
later, administrators are notified.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from bandwidth_config import RuleError
from contract.link_rules import IPAddress
from scionlab.testbed.models import VPN, Host, Interface, Link, UserAS

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class TestbedAddresses:
    """ISD-AS by address of the testbed's hosts, and by network of its VPNs."""

    hosts: dict[str, str]
    vpns: dict[IPNetwork, str]

    def check(self, address: IPAddress) -> None:
        """Raises `RuleError` (`address_of_host`, `address_in_vpn`)."""
        owner = self.hosts.get(str(address))
        if owner is not None:
            raise RuleError(
                "address_of_host",
                f"{address} is the address of a host of {owner}. Use the address of the user AS as seen by the "
                "attachment point.",
            )
        for network, vpn_owner in self.vpns.items():
            if address in network:
                raise RuleError(
                    "address_in_vpn",
                    f"{address} is in the VPN of {vpn_owner} ({network}), which assigns its own addresses. Choose "
                    "the VPN, or an address outside of it.",
                )


# Hosts of infrastructure and attachment points. User ASes have addresses per attachment and may share them.
_TESTBED = Q(AS__isnull=False) & (Q(AS__useras=None) | Q(attachment_point__isnull=False))


def testbed_addresses(among: Collection[str], *, user_as: UserAS | None) -> TestbedAddresses:
    """Which of these addresses belong to hosts other than the user AS's own; and all VPNs. Two statements."""
    hosts = Host.objects.filter(_TESTBED, Q(public_ipv4__in=among) | Q(public_ipv6__in=among))
    if user_as is not None:
        hosts = hosts.exclude(AS=user_as.pk)
    owners = {ip: host.AS.isd_as for host in hosts.select_related("AS__isd") if host.AS for ip in host.public_ips}
    vpns = VPN.objects.filter(host__AS__isnull=False).select_related("host__AS__isd").order_by("pk")
    subnets = {ipaddress.ip_network(vpn.subnet): vpn.host.AS.isd_as for vpn in vpns if vpn.host.AS}
    return TestbedAddresses(owners, subnets)


@dataclass(frozen=True)
class SharedAddress:
    """An address shared by user ASes of several owners, or by one of them and a host of the testbed."""

    address: str
    emails: list[str]
    host_of: str  # ISD-AS; empty: no host of the testbed


def ends_with_shared_addresses() -> QuerySet[Interface]:
    """Ends of user ASes whose address is shared by several owners, or with a host of the testbed."""
    ends = Interface.objects.filter(link_as_b__type=Link.Type.PROVIDER, AS__useras__isnull=False, vpn_client=None)
    by_address = ends.order_by().values("public_ip").annotate(owners=Count("AS__useras__owner", distinct=True))
    several = by_address.filter(owners__gt=1).values("public_ip")
    hosts = Host.objects.filter(_TESTBED)
    # The two lists are read once; which host it is is asked of the few ends alone that are in them.
    of_a_host = Q(public_ip__in=hosts.values("public_ipv4")) | Q(public_ip__in=hosts.values("public_ipv6"))
    here = Q(public_ipv4=OuterRef("public_ip")) | Q(public_ipv6=OuterRef("public_ip"))
    is_anothers = Exists(hosts.filter(here).exclude(AS=OuterRef("AS")))
    return ends.filter(Q(public_ip__in=several) | (of_a_host & is_anothers))


def shared_addresses() -> list[SharedAddress]:
    """Ordered by address, from at most a hundred rows; three statements."""
    rows = ends_with_shared_addresses().order_by("public_ip", "AS__useras__owner__email")
    emails: dict[str, list[str]] = {}
    for address, email in rows.values_list("public_ip", "AS__useras__owner__email").distinct()[:100]:
        emails.setdefault(address, []).append(email)
    hosts = testbed_addresses(emails, user_as=None).hosts if emails else {}
    return [SharedAddress(address, found, hosts.get(address, "")) for address, found in emails.items()]
