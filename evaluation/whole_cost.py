"""What admitting whole datagrams costs each packet: the same way with and without the program in front.

Frames of 100 bytes, each a packet of a link; CPU time of everything that they set off (`bench.packets`). To the user:
AF_PACKET into an HTB class on a device that drops. From the user: through a veth pair, redirected to an IFB with the
same class. No class is short of rate, so no packet waits there. `hot`: all packets of one address, admitted and
charged; `random`: of all addresses in random order; `nobody`: of an address without a limit, which the program looks up
and lets go; `refused`: of a link of 1 kbit/s, so that nearly all are kept out (from the user only; on the way out the
sender is told, and its own work changes).

The program is loaded with the agent's two capabilities and no others: from whoever has CAP_PERFMON as well the kernel
accepts it without its guards against speculative loads, and it would look 20 ns cheaper than it is.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ap_agent.bpfmsg import pack_admission
from ap_agent.dataplane.rtsocket import RtSocket
from ap_agent.model import EGRESS_HOOK, INGRESS_HOOK
from ap_agent.tcmsg import RTM_NEWTFILTER
from ap_agent.whole.admission import Admission, Direction, Entry
from bench.core import Outcome, interleave
from bench.packets import CpuMeter, Load, cost_ns, open_socket, udp_frame
from bench.peers import flat
from bench.world import LOCAL, WIDE_KBIT, local_port, remote_port, sink, user_addresses
from evaluation.core import FROM_USER, TO_USER
from measuring.netns import Lab, LabError, Namespace

EXPERIMENT = "cost"
WITHOUT, WITH = "without the program", "with the program"
HOT, RANDOM, NOBODY, REFUSED = "hot", "random", "nobody", "refused"
TRAFFIC = (HOT, RANDOM, NOBODY, REFUSED)
SIZES = (1, 4000)  # addresses
UNIT = "ns/packet"
PACKETS = 16_384
DIRECTIONS: Mapping[str, Direction] = {TO_USER: "to_user", FROM_USER: "from_user"}
_NOBODYS_ADDRESS, _REFUSED_ADDRESS = "198.18.0.1", "198.18.0.2"
_IFB = "ifb0"
_NLM_F_CREATE = 0x400
_ROOM_BYTES = 125_000_000  # 100 ms at 10 Gbit/s
_CAPABILITY_VERSION_3, _CAP_NET_ADMIN, _CAP_BPF = 0x2008_0522, 12, 39  # linux/capability.h
_libc = ctypes.CDLL(None, use_errno=True)


class _Word(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


class _Capabilities(ctypes.Structure):
    """64 capabilities in two words of 32."""

    _fields_ = (("words", _Word * 2),)


@dataclass(frozen=True)
class _Cell:
    """One figure: a device to send on, and what."""

    limiter: str
    size: int
    traffic: str
    dev: str


def measure(outcome: Outcome, direction: str, *, rounds: int, sizes: Sequence[int] = SIZES, prefix: str) -> None:
    """Adds `rounds` samples (ns of CPU time per packet) of every kind of traffic, with and without the program.

    Labels: experiment, limiter (`WITHOUT`, `WITH`), direction, size (addresses with a limit), traffic. `prefix` is that
    of the lab. Raises `LabError` without namespaces, `BpfUnavailableError` without the program.
    """
    with Lab(prefix) as lab, ExitStack() as at_end:
        if direction == TO_USER:
            sender, devices = _ways_out(lab, at_end, sizes)
        else:
            sender, devices = _ways_in(lab, at_end, sizes)
        cells = [
            _Cell(limiter, size, traffic, dev)
            for (limiter, size), dev in devices.items()
            for traffic in TRAFFIC
            if traffic != REFUSED or (direction == FROM_USER and size == min(sizes))
        ]
        sender.call(lambda: _rounds(cells, direction, rounds, outcome))


def memory_bytes(direction: Direction) -> int:
    """What the maps of one direction hold for 4096 addresses, as the kernel accounts them."""
    before = _accounted_bytes()
    admission = Admission(direction)
    try:
        return _accounted_bytes() - before
    finally:
        admission.close()


def _accounted_bytes() -> int:
    """`memlock` of all maps that this process has open (proc(5), fdinfo), each once however often it is open."""
    of_each: dict[str, int] = {}
    for one in Path("/proc/self/fdinfo").iterdir():
        try:
            lines = one.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:  # the descriptor with which the folder was read
            continue
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if "map_id" in fields:
            of_each[fields["map_id"]] = int(fields["memlock"])
    return sum(of_each.values())


@contextmanager
def _capabilities_of_the_agent() -> Iterator[None]:
    """CAP_NET_ADMIN and CAP_BPF alone are effective in this thread, until the block ends. Raises `OSError`."""
    header, before, fewer = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), _Capabilities(), _Capabilities()
    for sets in (before, fewer):
        _check(_libc.capget(header, ctypes.byref(sets)))
    fewer.words[0].effective &= 1 << _CAP_NET_ADMIN
    fewer.words[1].effective &= 1 << _CAP_BPF - 32
    _check(_libc.capset(header, ctypes.byref(fewer)))
    try:
        yield
    finally:
        _check(_libc.capset(header, ctypes.byref(before)))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# --- two ways, each with and without ------------------------------------------------------------------------------


def _ways_out(lab: Lab, at_end: ExitStack, sizes: Sequence[int]) -> tuple[Namespace, dict[tuple[str, int], str]]:
    """Who sends, and the device of each variant."""
    host = lab.namespace("ap")
    devices = {}
    for size in sizes:
        for limiter, dev in ((WITHOUT, f"bare{size}"), (WITH, f"whole{size}")):
            sink(host, dev)
            host.run("tc", "-batch", "-", stdin="\n".join(flat.without_filter(dev)) + "\n")
            devices[limiter, size] = dev
        _admit(host, at_end, f"whole{size}", TO_USER, size)
    return host, devices


def _ways_in(lab: Lab, at_end: ExitStack, sizes: Sequence[int]) -> tuple[Namespace, dict[tuple[str, int], str]]:
    source = lab.namespace("src")
    devices = {}
    for size in sizes:
        for limiter, short in ((WITHOUT, f"bare{size}"), (WITH, f"whole{size}")):
            host = lab.namespace(short)
            lab.veth(host.nic("eth0"), source.nic(short))
            _redirect_everything(host)
            devices[limiter, size] = short
        _admit(host, at_end, "eth0", FROM_USER, size)
    return source, devices


def _redirect_everything(host: Namespace) -> None:
    sink(host, _IFB)
    lines = [
        *flat.without_filter(_IFB),
        "qdisc add dev eth0 clsact",
        f"filter add dev eth0 ingress protocol all pref 200 u32 match u32 0 0 action mirred egress redirect dev {_IFB}",
    ]
    host.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")


def _admit(host: Namespace, at_end: ExitStack, dev: str, direction: str, size: int) -> None:
    """Attach a program with so many addresses. Raises `LabError`, `BpfUnavailableError`."""
    with _capabilities_of_the_agent():
        admission = Admission(DIRECTIONS[direction])
    at_end.callback(admission.close)
    admission.set(
        {
            ip_address(address): Entry(
                WIDE_KBIT, _ROOM_BYTES, 2 * _ROOM_BYTES, remote_port(number), local_port(number), ip_address(LOCAL[4])
            )
            for number, address in enumerate(user_addresses(size), start=1)
        }
        | {ip_address(_REFUSED_ADDRESS): Entry(1, 0, 1, remote_port(1), local_port(1))}
    )
    if direction == TO_USER:
        host.run("tc", "qdisc", "add", "dev", dev, "clsact")
    hook = EGRESS_HOOK if direction == TO_USER else INGRESS_HOOK

    def attach() -> None:
        link = RtSocket()
        try:
            message = pack_admission(socket.if_nametoindex(dev), hook, admission.program_fd)
            refusal = link.send([[(RTM_NEWTFILTER, _NLM_F_CREATE, message)]])[0]
        finally:
            link.close()
        if refusal is not None:
            raise LabError(f"no filter at {dev}: {refusal}")

    host.call(attach)


def _load(traffic: str, size: int, direction: str) -> Load:
    addresses = user_addresses(size)

    def frame(address: str, number: int) -> bytes:
        ends = (LOCAL[4], address, local_port(number), remote_port(number))
        return udp_frame(*ends) if direction == TO_USER else udp_frame(ends[1], ends[0], ends[3], ends[2])

    if traffic == RANDOM:
        return Load([frame(address, number) for number, address in enumerate(addresses, start=1)])
    chosen = {HOT: addresses[0], NOBODY: _NOBODYS_ADDRESS, REFUSED: _REFUSED_ADDRESS}
    return Load([frame(chosen[traffic], 1)])


def _rounds(cells: Sequence[_Cell], direction: str, rounds: int, outcome: Outcome) -> None:
    meter = CpuMeter()
    loads = {(one.traffic, one.size): _load(one.traffic, one.size, direction) for one in cells}
    sockets = {dev: open_socket(dev) for dev in {one.dev for one in cells}}
    for cell in cells:  # warm up, and notice a device that does not take packets
        cost_ns(meter, sockets[cell.dev], loads[cell.traffic, cell.size], PACKETS // 16)
    for cell in interleave(cells, rounds):
        value = cost_ns(meter, sockets[cell.dev], loads[cell.traffic, cell.size], PACKETS)
        outcome.add(
            value,
            UNIT,
            experiment=EXPERIMENT,
            limiter=cell.limiter,
            direction=direction,
            size=cell.size,
            traffic=cell.traffic,
        )
    for one in sockets.values():
        one.close()
