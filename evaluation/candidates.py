"""What else might let datagrams larger than the MTU through an overloaded limit: each really built, and measured.

All but the last are our own tree (one cycle of the engine) with another leaf in place of the shallow `bfifo`; the last
is a rate limit of nftables on whole datagrams, behind the kernel's own reassembly on the way in and before fragments
are made on the way out. This kernel has no fq_codel, sfq, choke, red, netem or police to try.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ap_agent.model import IFB_NAME, Handle, data_class
from bandwidth_config import check_link_info
from bench.world import enforce
from evaluation.bed import Bed, BedLab, Wire
from evaluation.limiters import NO_LIMIT
from measuring.netns import LabError

MAJORS = {"nic": 1, "ifb": 3}
HEAD_DROP_HANDLE = 0x5000  # another kind of leaf cannot have the handle of the one that it replaces
HEAD_DROP_PACKETS = 42  # six datagrams of 10 000 bytes
UDP_IP_BYTES = {4: 28, 6: 48}

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


def _our_tree(bed: Bed, limits: Limits) -> None:
    """Put into force once; nobody stays who would put another leaf right."""
    entries = {str(number): _entry(bed.wire(number), kbit) for number, kbit in limits.items()}
    enforce(bed.ap, check_link_info(entries))


def _entry(wire: Wire, kbit: int) -> dict[str, object]:
    (local, local_port), (remote, port) = wire.ends
    four = {"AS_ID": wire.number, "IsUserAS": True, "Bandwidth": kbit, "IP-Address": remote}
    return four | {"Port": port, "Local-IP": local, "Local-Port": local_port}


def _leaves(bed: Bed, limits: Limits) -> list[tuple[str, Handle]]:
    """Device and data class of every link, both directions."""
    nic = [(bed.wire(number).dev, data_class(MAJORS["nic"], number)) for number in limits]
    return [*nic, *((IFB_NAME, data_class(MAJORS["ifb"], number)) for number in limits)]


def _drop_tail(limit_bytes: int, bed: Bed, limits: Limits) -> None:
    _our_tree(bed, limits)
    changes = [
        f"qdisc change dev {dev} parent {at} handle {at.minor:x}: bfifo limit {limit_bytes}"
        for dev, at in _leaves(bed, limits)
    ]
    _batch(bed, changes)


def _head_drop(bed: Bed, limits: Limits) -> None:
    """The kernel refuses another kind in place: the leaf goes first."""
    _our_tree(bed, limits)
    lines = []
    for dev, at in _leaves(bed, limits):
        lines.append(f"qdisc del dev {dev} parent {at} handle {at.minor:x}:")
        handle = HEAD_DROP_HANDLE + at.minor
        lines.append(f"qdisc add dev {dev} parent {at} handle {handle:x}: pfifo_head_drop limit {HEAD_DROP_PACKETS}")
    _batch(bed, lines)


def _batch(bed: Bed, lines: Sequence[str]) -> None:
    bed.ap.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")


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
HEAD_DROP = "our tree, head drop"


def depth_name(kilobytes: int) -> str:
    return f"our tree, leaf of {kilobytes} kB"


DEPTHS_KB = (16, 64, 256)
CANDIDATES = (
    *(
        Candidate(depth_name(one), f"drop-tail leaf, bfifo of {one},000 bytes", partial(_drop_tail, one * 1000))
        for one in DEPTHS_KB
    ),
    Candidate(HEAD_DROP, f"a leaf that drops at its head, {HEAD_DROP_PACKETS} packets", _head_drop),
    Candidate(NFT, "a rate limit of nftables on whole datagrams, without HTB and without a queue", _nft),
)
