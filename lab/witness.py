"""What the kernel of a host says about its traffic control, read with iproute2 and nothing of ours.

An independent witness for tests and the demo: the agent talks netlink itself and must not testify for itself. qdiscs,
filters and links come from `tc -j` and `ip -j`; classes from the text of `tc -s -d class show`, because `tc -j class
show` of iproute2 6.1 prints text too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from measuring.iproute import LabError
from measuring.netns import Namespace

_UNITS = {"bit": 1, "Kbit": 1000, "Mbit": 1000**2, "Gbit": 1000**3, "Tbit": 1000**4}
_BYTE_UNITS = {"b": 1, "Kb": 1024, "Mb": 1024**2}  # tc(8): sizes count in 1024, rates in 1000


@dataclass(frozen=True)
class HtbClass:
    """One HTB class with its counters. `parent` is None for a child of the root qdisc itself.

    Rates are bit/s as tc prints them: exact up to four digits of its unit, cut off beyond.
    """

    dev: str
    classid: str
    parent: str | None
    leaf: str | None
    prio: int | None
    rate_bits: int
    ceil_bits: int
    burst_bytes: int
    cburst_bytes: int
    sent_bytes: int
    sent_packets: int
    drops: int
    backlog_bytes: int


def parse_classes(text: str, dev: str) -> dict[str, HtbClass]:
    """The text of `tc -s -d class show dev DEV`, keyed by class id. Raises `LabError` when it is not understood."""
    found = {}
    for block in re.split(r"\n(?=class )", text.strip()) if text.strip() else []:
        one = _parse_class(block, dev)
        if one is not None:
            found[one.classid] = one
    return found


def classes(host: Namespace, dev: str) -> dict[str, HtbClass]:
    """The HTB classes of one device; none where the device does not exist or has no HTB."""
    return parse_classes(host.run("tc", "-s", "-d", "class", "show", "dev", dev, check=False), dev)


def qdiscs(host: Namespace, dev: str | None = None) -> list[dict[str, Any]]:
    """`tc -j -s qdisc show`, of one device or all."""
    return _json(host, "tc", "-j", "-s", "qdisc", "show", *(["dev", dev] if dev else []))


def filters(host: Namespace, dev: str, parent: str) -> list[dict[str, Any]]:
    """`tc -j -s filter show` at one parent: `root`, `ingress`, or a handle like `1:`; empty where there is none.

    Of a u32 filter with several matches the JSON of iproute2 6.1 keeps only the last one (it repeats the key).
    """
    at = [parent] if parent in ("root", "ingress", "egress") else ["parent", parent]
    return _json(host, "tc", "-j", "-s", "filter", "show", "dev", dev, *at)


def links(host: Namespace) -> dict[str, dict[str, Any]]:
    """`ip -j -d -s link show`, keyed by device name."""
    return {one["ifname"]: one for one in _json(host, "ip", "-j", "-d", "-s", "link", "show")}


def received_bytes(host: Namespace, dev: str) -> int:
    """What this interface received since it was made, on the wire (with the Ethernet header, without checksum)."""
    return int(links(host)[dev]["stats64"]["rx"]["bytes"])


def traces(host: Namespace) -> list[str]:
    """Everything of traffic control that a host fresh from `Lab` does not have, one line each.

    Empty means: no qdisc but the kernel's own (handle 0), no IFB.
    """
    found = [
        f"qdisc {one['kind']} {one['handle']} dev {one['dev']}"
        for one in qdiscs(host)
        if one["handle"] not in ("0:", "")
    ]
    for name, link in links(host).items():
        if link.get("linkinfo", {}).get("info_kind") == "ifb":
            found.append(f"ifb {name} alias {link.get('ifalias', '')!r}")
    return found


def _json(host: Namespace, *argv: str) -> list[dict[str, Any]]:
    text = host.run(*argv, check=False).strip()
    if not text:
        return []
    try:
        loaded: list[dict[str, Any]] = json.loads(text)
    except json.JSONDecodeError as exc:
        raise LabError(f"`{' '.join(argv)}` does not print JSON: {text[:200]}") from exc
    return [one for one in loaded if one]


def _parse_class(block: str, dev: str) -> HtbClass | None:
    head = re.match(r"class (\S+) (\S+) (root|parent \S+)", block)
    if head is None:
        raise LabError(f"`tc class show` prints what is not understood: {block[:200]}")
    if head.group(1) != "htb":
        return None
    sent = re.search(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+)", block)
    backlog = re.search(r"backlog (\d+)(b|Kb|Mb) ", block)
    if sent is None or backlog is None:
        raise LabError(f"`tc class show` prints no counters: {block[:200]}")
    leaf = re.search(r" leaf (\S+)", block)
    prio = re.search(r" prio (\d+)", block)
    return HtbClass(
        dev=dev,
        classid=head.group(2),
        parent=None if head.group(3) == "root" else head.group(3).removeprefix("parent "),
        leaf=leaf.group(1) if leaf else None,
        prio=int(prio.group(1)) if prio else None,
        rate_bits=_bits(block, "rate"),
        ceil_bits=_bits(block, "ceil"),
        burst_bytes=_bytes(block, "burst"),
        cburst_bytes=_bytes(block, "cburst"),
        sent_bytes=int(sent.group(1)),
        sent_packets=int(sent.group(2)),
        drops=int(sent.group(3)),
        backlog_bytes=int(backlog.group(1)) * _BYTE_UNITS[backlog.group(2)],
    )


def _bits(block: str, word: str) -> int:
    match = re.search(rf" {word} (\d+)([KMGT]?bit)", block)
    if match is None:
        raise LabError(f"`tc class show` prints no {word}: {block[:200]}")
    return int(match.group(1)) * _UNITS[match.group(2)]


def _bytes(block: str, word: str) -> int:
    match = re.search(rf" {word} (\d+)(b|Kb|Mb)", block)
    if match is None:
        raise LabError(f"`tc class show` prints no {word}: {block[:200]}")
    return int(match.group(1)) * _BYTE_UNITS[match.group(2)]
