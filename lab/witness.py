"""What the kernel of a host says about its traffic control, read with iproute2 and nothing of ours.

An independent witness for tests and the demo: the agent talks netlink itself and must not testify for itself. qdiscs
and links come from `tc -j` and `ip -j`; classes from the text of `tc -s -d class show`, because `tc -j class
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
    """One HTB class: its rate, exact up to four digits of tc's unit, cut off beyond; and its counters."""

    rate_bits: int
    drops: int
    backlog_bytes: int


def parse_classes(text: str) -> dict[str, HtbClass]:
    """The text of `tc -s class show dev DEV`, keyed by class id. Raises `LabError` when it is not understood."""
    found = {}
    for block in re.split(r"\n(?=class )", text.strip()) if text.strip() else []:
        head = re.match(r"class (\S+) (\S+) (root|parent \S+)", block)
        if head is None:
            raise LabError(f"`tc class show` prints what is not understood: {block[:200]}")
        if head.group(1) == "htb":
            found[head.group(2)] = _htb_class(block)
    return found


def classes(host: Namespace, dev: str) -> dict[str, HtbClass]:
    """The HTB classes of one device; none where the device does not exist or has no HTB."""
    return parse_classes(host.run("tc", "-s", "class", "show", "dev", dev, check=False))


def qdiscs(host: Namespace, dev: str | None = None) -> list[dict[str, Any]]:
    """`tc -j -s qdisc show`, of one device or all."""
    return _json(host, "tc", "-j", "-s", "qdisc", "show", *(["dev", dev] if dev else []))


def links(host: Namespace) -> dict[str, dict[str, Any]]:
    """`ip -j -d -s link show`, keyed by device name."""
    return {one["ifname"]: one for one in _json(host, "ip", "-j", "-d", "-s", "link", "show")}


def _json(host: Namespace, *argv: str) -> list[dict[str, Any]]:
    text = host.run(*argv, check=False).strip()
    if not text:
        return []
    try:
        loaded: list[dict[str, Any]] = json.loads(text)
    except json.JSONDecodeError as exc:
        raise LabError(f"`{' '.join(argv)}` does not print JSON: {text[:200]}") from exc
    return [one for one in loaded if one]


def _htb_class(block: str) -> HtbClass:
    rate = re.search(r" rate (\d+)([KMGT]?bit)", block)
    dropped = re.search(r"Sent \d+ bytes \d+ pkt \(dropped (\d+)", block)
    backlog = re.search(r"backlog (\d+)(b|Kb|Mb) ", block)
    if rate is None or dropped is None or backlog is None:
        raise LabError(f"`tc class show` prints no rate or no counters: {block[:200]}")
    return HtbClass(
        rate_bits=int(rate.group(1)) * _UNITS[rate.group(2)],
        drops=int(dropped.group(1)),
        backlog_bytes=int(backlog.group(1)) * _BYTE_UNITS[backlog.group(2)],
    )
