"""The kernel's features that the agent needs, what each is for, and how it is tried. A table; nothing happens here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """Who needs it."""

    LIMITS = "limits"
    SELF_TEST = "self-test"
    OPTION = "option"


class State(StrEnum):
    """`UNTRIED`: nobody knows; the detail says why, or what the kernel's own files say."""

    PRESENT = "present"
    MISSING = "missing"
    UNTRIED = "not tried"


@dataclass(frozen=True)
class Capability:
    """One thing that the kernel or this process can do or not."""

    name: str
    use: Use
    purpose: str
    state: State
    detail: str = ""
    remedy: str = ""

    @property
    def is_in_the_way(self) -> bool:
        """Without it no limit can be measured."""
        return self.state is State.MISSING and self.use is not Use.OPTION


@dataclass(frozen=True)
class Feature:
    """Something of the kernel, tried by commands of iproute2: a witness that is not our own netlink code.

    `module` and `config` are where Linux keeps it; `expects` must stand in what the last command prints; `needs` are
    the names of features without which these commands mean nothing.
    """

    name: str
    use: Use
    purpose: str
    module: str
    config: str
    commands: tuple[str, ...]
    expects: str = ""
    needs: tuple[str, ...] = ()


_VETH, _HTB, _IFB, _CLSACT = "veth", "htb", "ifb", "clsact"

FEATURES = (
    Feature(
        _VETH,
        Use.SELF_TEST,
        "the wire between the two throw-away hosts",
        "veth",
        "CONFIG_VETH",
        ("ip link add probe0 type veth peer name probe1", "ip link set probe0 up", "ip link set probe1 up"),
    ),
    Feature(
        _HTB,
        Use.LIMITS,
        "the rate of each link",
        "sch_htb",
        "CONFIG_NET_SCH_HTB",
        (
            "tc qdisc add dev probe0 root handle 1: htb default 0xfffe",
            "tc class add dev probe0 parent 1: classid 1:1 htb rate 500kbit burst 3028 cburst 3028 quantum 1514",
        ),
        needs=(_VETH,),
    ),
    Feature(
        "64-bit rates",
        Use.OPTION,
        "limits above 34 Gbit/s",
        "sch_htb",
        "CONFIG_NET_SCH_HTB",
        (
            "tc class add dev probe0 parent 1: classid 1:2 htb rate 40gbit burst 20mb cburst 20mb quantum 60000",
            "tc class show dev probe0",
        ),
        expects="rate 40Gbit",
        needs=(_HTB,),
    ),
    Feature(
        "bfifo",
        Use.LIMITS,
        "queues that are bounded in bytes",
        "sch_fifo",
        "CONFIG_NET_SCHED",
        ("tc qdisc add dev probe0 parent 1:1 handle 1001: bfifo limit 6056",),
        needs=(_HTB,),
    ),
    Feature(
        "u32 with hash tables",
        Use.LIMITS,
        "finding the link of a packet, as fast among thousands as with one",
        "cls_u32",
        "CONFIG_NET_CLS_U32",
        (
            "tc filter add dev probe0 parent 1: prio 10 handle 2: protocol ip u32 divisor 256",
            "tc filter add dev probe0 parent 1: prio 10 protocol ip u32 ht 2:1: match ip dst 192.0.2.1 flowid 1:1",
            "tc filter add dev probe0 parent 1: prio 10 protocol ip u32 ht 800:: match u32 0 0 "
            "hashkey mask 0x000000ff at 16 link 2:",
        ),
        needs=(_HTB,),
    ),
    Feature(
        _IFB,
        Use.LIMITS,
        "the limit of what comes from a user AS",
        "ifb",
        "CONFIG_IFB",
        ("ip link add probeifb type ifb", "ip link set probeifb up"),
    ),
    Feature(
        _CLSACT,
        Use.LIMITS,
        "the place where packets from a user AS are caught",
        "sch_ingress",
        "CONFIG_NET_SCH_INGRESS",
        ("tc qdisc add dev probe0 clsact",),
        needs=(_VETH,),
    ),
    Feature(
        "mirred",
        Use.LIMITS,
        "leading them to the IFB",
        "act_mirred",
        "CONFIG_NET_ACT_MIRRED",
        (
            "tc filter add dev probe0 ingress prio 20 protocol ip u32 match u32 0 0 "
            "action mirred egress redirect dev probeifb",
        ),
        needs=(_IFB, _CLSACT),
    ),
    Feature(
        "cls_bpf",
        Use.OPTION,
        "whole_datagrams: datagrams larger than the MTU pass whole or not at all",
        "cls_bpf",
        "CONFIG_NET_CLS_BPF",
        ("tc filter add dev probe0 egress prio 30 protocol all bpf da bytecode '1,6 0 0 4294967295'",),
        needs=(_CLSACT,),
    ),
)
