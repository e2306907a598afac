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


def three_classes_without_filter(dev: str) -> list[str]:
    """The shape of one link of ours (inner class, data, heartbeats), everything goes to its data class."""
    return [
        f"qdisc add dev {dev} root handle 1: htb default 1001",
        f"class add dev {dev} parent 1: classid 1:1 htb {WIDE}",
        f"class add dev {dev} parent 1:1 classid 1:1001 htb {WIDE} prio 1",
        f"class add dev {dev} parent 1:1 classid 1:2001 htb rate 16kbit ceil 16kbit burst 3028 cburst 3028",
        f"qdisc add dev {dev} parent 1:1001 handle 1001: bfifo limit 125000000",
        f"qdisc add dev {dev} parent 1:2001 handle 2001: bfifo limit 6056",
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


def change_of_ours(dev: str, major: int, number: int, kbit: int) -> list[str]:
    """One link of our tree gets another limit, as an administrator would do it by hand with `tc -batch`."""
    burst, data = "burst 3028 cburst 3028", kbit - 16
    return [
        f"class change dev {dev} parent {major}: classid {major}:{number:x} htb "
        f"rate {kbit}kbit ceil {kbit}kbit {burst}",
        f"class change dev {dev} parent {major}:{number:x} classid {major}:{0x1000 + number:x} htb "
        f"rate {data}kbit ceil {kbit}kbit {burst} prio 1 quantum 1514",
        f"qdisc change dev {dev} parent {major}:{0x1000 + number:x} handle {0x1000 + number:x}: "
        f"bfifo limit {kbit * 125 // 10}",
    ]
