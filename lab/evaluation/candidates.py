"""What else might let datagrams larger than the MTU through an overloaded limit: each really built, and measured.

All but the last are HTB alone, a class for each wire and direction, with different leaves; the last is a rate limit of
nftables on whole datagrams, behind the kernel's own reassembly on the way in and before fragments are made on the way
out. This kernel has no fq_codel, sfq, choke, red, netem or police to try.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from lab.evaluation.bed import Bed, BedLab, Wire
from lab.evaluation.limiters import NO_LIMIT
from measuring.iproute import LabError
from measuring.judge import bucket_bytes

HEAD_DROP_PACKETS = 42  # six datagrams of 10 000 bytes

Limits = Mapping[int, int]  # wire: kbit/s


@dataclass(frozen=True)
class Candidate:
    """A name for tables, what it is in a few words, and how to build it in a bed without a limiter."""

    name: str
    what: str
    install: Callable[[Bed, Limits], None]


def make_bed(lab: BedLab, candidate: Candidate, limits: Limits) -> Bed:
    """An attachment point whose limiter is this candidate. Raises `LabError`."""
    bed = Bed(lab, NO_LIMIT, max(limits))
    candidate.install(bed, limits)
    return bed


def _htb(leaf: str, bed: Bed, limits: Limits) -> None:
    """A class for each wire at its network card and at an IFB behind it, with this leaf."""
    bed.ap.ip_batch(
        line for number in limits for line in (f"link add ifb{number} type ifb", f"link set ifb{number} up")
    )
    lines = [line for number, kbit in limits.items() for line in htb_lines(bed.wire(number), kbit, leaf)]
    bed.ap.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")


def htb_lines(wire: Wire, kbit: int, leaf: str) -> Iterator[str]:
    """For `tc -batch`; the IFB is there."""
    burst = bucket_bytes(kbit)
    ifb = f"ifb{wire.number}"
    for dev in (wire.dev, ifb):
        yield f"qdisc add dev {dev} root handle 1: htb default 1"
        rate = f"rate {kbit}kbit ceil {kbit}kbit burst {burst} cburst {burst} quantum 1514"
        yield f"class add dev {dev} parent 1: classid 1:1 htb {rate}"
        yield f"qdisc add dev {dev} parent 1:1 handle 11: {leaf}"
    yield f"qdisc add dev {wire.dev} clsact"
    redirect = f"action mirred egress redirect dev {ifb}"
    yield f"filter add dev {wire.dev} ingress protocol all pref 1 u32 match u32 0 0 {redirect}"


# --- nftables -------------------------------------------------------------------------------------------------------


def nft_missing() -> str | None:
    """None where nftables can be tried, else a sentence."""
    return None if shutil.which("nft") else "The program nft is missing; install the package nftables."


def nft_rules(bed: Bed, limits: Limits) -> str:
    """Before fragments are made (postrouting) and after they were put together (prerouting, with connection tracking,
    which needs whole datagrams). The bucket of `limit` is a second of the rate, less cannot be said."""
    to_user, from_user = [], []
    for number, kbit in limits.items():
        (local, local_port), (remote, port) = bed.wire(number).ends
        over = f"limit rate over {kbit * 125} bytes/second drop"
        to_user.append(f"ip daddr {remote} udp dport {port} udp sport {local_port} ip saddr {local} {over}")
        from_user.append(f"ip saddr {remote} udp sport {port} udp dport {local_port} ip daddr {local} {over}")
    track = "ct state invalid counter"
    return (
        "table inet candidate {\n"
        "chain from_user { type filter hook prerouting priority 0; policy accept;\n"
        f"{track}\n" + "\n".join(from_user) + "\n}\n"
        "chain to_user { type filter hook postrouting priority 0; policy accept;\n" + "\n".join(to_user) + "\n}\n}\n"
    )


def _nft(bed: Bed, limits: Limits) -> None:
    if (missing := nft_missing()) is not None:
        raise LabError(missing)
    bed.ap.run("nft", "-f", "-", stdin=nft_rules(bed, limits))


NFT = "nftables, whole datagrams"
HEAD_DROP = "HTB alone, head drop"


def depth_name(kilobytes: int) -> str:
    return f"HTB alone, leaf of {kilobytes} kB"


DEPTHS_KB = (16, 64, 256)
CANDIDATES = (
    *(
        Candidate(depth_name(one), f"drop-tail leaf of {one},000 bytes", partial(_htb, f"bfifo limit {one * 1000}"))
        for one in DEPTHS_KB
    ),
    Candidate(
        HEAD_DROP,
        f"a leaf that drops at its head, {HEAD_DROP_PACKETS} packets",
        partial(_htb, f"pfifo_head_drop limit {HEAD_DROP_PACKETS}"),
    ),
    Candidate(NFT, "a rate limit of nftables on whole datagrams, without HTB and without a queue", _nft),
)
