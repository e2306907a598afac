"""What the kernel itself offers for one connection over several links: MPTCP, and nft spraying packets by weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from lab.evaluation.bed import Bed, Wire


def has_mptcp() -> bool:
    """Whether this kernel was built with it."""
    return Path("/proc/sys/net/mptcp/enabled").exists()


def joined_by_mptcp(bed: Bed, wires: Sequence[Wire]) -> None:
    """An MPTCP connection over the first of these wires gets a subflow over each of the others (ip-mptcp(8)). Needs a
    bed of its own: the addresses are the whole host's. Raises `LabError`."""
    first, *others = wires
    network = first.ends[0][0].rpartition(".")[0] + ".0/24"
    for host in (bed.ap, bed.users):
        host.run("ip", "mptcp", "limits", "set", "subflow", str(len(others)))
    for metric, wire in enumerate(others, start=1):
        (there, _), (here, _) = wire.ends
        bed.users.ip("route", "add", network, "via", there, "dev", wire.dev, "metric", str(metric))
        bed.users.run("ip", "mptcp", "endpoint", "add", here, "dev", wire.dev, "subflow")


def sprayed(bed: Bed, wires: Sequence[Wire], weights: Sequence[int]) -> None:
    """What the attachment point sends to the user's address of the first wire goes out packet by packet over all of
    them, as often as their weights say (numgen of nft(8)). Without a tunnel: a packet gets the address of its wire, and
    the user's host gives it the first one's back. Raises `LabError`."""
    unit = math.gcd(*weights)
    shares = [weight // unit for weight in weights]
    ends = list(accumulate(shares))
    (server, _), (user, _) = wires[0].ends
    chosen = ", ".join(
        f"{end - share}-{end - 1} : {wire.ends[1][0]}" for wire, share, end in zip(wires, shares, ends, strict=True)
    )
    name = f"spray{wires[0].number}"
    bed.ap.run("nft", "-f", "-", stdin=_TABLE.format(
        name=name, hook="type route hook output priority 0",
        rule=f"ip saddr {server} ip daddr {user} ip daddr set numgen inc mod {ends[-1]} map {{ {chosen} }}",
    ))  # fmt: skip
    others = ", ".join(wire.ends[1][0] for wire in wires[1:])
    bed.users.run("nft", "-f", "-", stdin=_TABLE.format(
        name=name, hook="type filter hook prerouting priority -300",
        rule=f"ip saddr {server} ip daddr {{ {others} }} ip daddr set {user}",
    ))  # fmt: skip


_TABLE = "table ip {name} {{ chain packets {{ {hook}; {rule}; }}; }}\n"
