"""Trees of one class per link without hash tables: what most tools build, and what costs nothing to classify.

Lines for `tc -batch`, for one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bandwidth_config import LinkInfo

WIDE = "rate 10gbit ceil 10gbit burst 5000000 cburst 5000000 quantum 1514"


def without_filter(dev: str) -> list[str]:
    """A root with one class which takes everything: the floor of every HTB."""
    return [
        f"qdisc add dev {dev} root handle 1: htb default 1",
        f"class add dev {dev} parent 1: classid 1:1 htb {WIDE}",
        f"qdisc add dev {dev} parent 1:1 handle 11: bfifo limit 125000000",
    ]


def linear(dev: str, links: Mapping[int, LinkInfo]) -> list[str]:
    """One class and one filter per link, all filters in one list, the last link at its end."""
    lines = [f"qdisc add dev {dev} root handle 1: htb default ffff"]
    lines += [f"class add dev {dev} parent 1: classid 1:{number:x} htb {WIDE}" for number in links]
    return [*lines, *_filters(dev, links.values())]


def _filters(dev: str, links: Iterable[LinkInfo]) -> list[str]:
    """Numbered by hand: the kernel keeps a list in the order of these numbers, and would begin in its middle."""
    return [
        f"filter add dev {dev} parent 1: protocol ip pref 10 handle 800:0:{link.interface_id:x} u32 "
        f"match ip dst {link.remote_ip}/32 match ip dport {link.remote_port} 0xffff flowid 1:{link.interface_id:x}"
        for link in links
    ]
