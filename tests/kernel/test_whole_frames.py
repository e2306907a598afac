"""The admission program at the hooks of a device: frames that only a device can make, in pieces and cut off."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address

import pytest

from ap_agent.bpfmsg import pack_admission
from ap_agent.model import EGRESS_HOOK, INGRESS_HOOK, Direction
from ap_agent.tcmsg import RTM_NEWTFILTER
from ap_agent.whole.admission import Admission, Entry
from lab.tunnel import open_tun
from measuring.netns import Namespace
from tests.kernel.conftest import Host
from tests.kernel.whole_packets import AP, AP_PORT, HEARTBEAT_MARK, USER, USER_PORT, Packet, udp

JUMBO = Packet(udp(5000))
SMALL = Packet(udp(20))
ROOM = 1000  # one packet of any size, and the next is refused
NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE = 0x1, 0x4, 0x400
SOL_PACKET, PACKET_VNET_HDR = 263, 15  # linux/if_packet.h
VIRTIO_HEADER = struct.Struct("=BBHHHH")  # flags, kind of super-packet, bytes in the first piece of memory, ...
DEADLINE_S = 10
ETHERNET_BYTES = 14


@dataclass
class Hook:
    """One hook of the AP's eth0 with the program, a full queue of 1 kbit/s, and who sends towards it."""

    direction: Direction
    admission: Admission
    sender: Namespace

    def send(self, *packets: Packet, linear_bytes: int = 0, cut_at: int | None = None) -> None:
        """Raw frames. `linear_bytes`: only so many lie in the packet's first piece of memory, the rest in pages."""
        turned = [one.back() if self.direction == "to_user" else one for one in packets]
        frames = [one.frame[:cut_at] for one in turned]

        def inside() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
                sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
                sock.bind(("eth0", 0))
                for frame in frames:
                    with contextlib.suppress(OSError):  # ENOBUFS: refused on the way out
                        sock.send(VIRTIO_HEADER.pack(0, 0, linear_bytes, 0, 0, 0) + frame)

        self.sender.call(inside)

    def refused(self) -> int:
        return self.admission.refused()[ip_address(USER)].packets

    def expect_refused(self, count: int) -> None:
        """Frames cross the wire in the kernel's own time."""
        deadline = time.monotonic() + DEADLINE_S
        while self.refused() < count and time.monotonic() < deadline:
            time.sleep(0.002)
        assert self.refused() == count


@pytest.fixture(params=["from_user", "to_user"])
def hook(request: pytest.FixtureRequest, host: Host) -> Iterator[Hook]:
    direction: Direction = request.param
    for one in (host.ap, host.u1):
        one.ip("link", "set", "eth0", "mtu", "9000")
    admission = Admission(direction, capacity=4)
    admission.set({ip_address(USER): Entry(1, ROOM, 100_000, USER_PORT, AP_PORT)})
    host.tc("qdisc", "add", "dev", "eth0", "clsact")
    host.inside(lambda: attach("eth0", direction, admission.program_fd))
    found = Hook(direction, admission, host.u1 if direction == "from_user" else host.ap)
    found.send(JUMBO, SMALL)
    found.expect_refused(1)
    yield found
    admission.close()


def test_on_a_tun_device_there_is_no_ethernet_header_to_look_behind_nor_to_count(host: Host) -> None:
    """A VPN's packets begin with their IP header, for the program as for HTB."""
    host.lab.tun(host.ap.nic("tun0", f"{AP}/24"))
    host.tc("qdisc", "add", "dev", "tun0", "clsact")
    tunnel = host.inside(lambda: open_tun("tun0"))
    for direction in ("from_user", "to_user"):
        admission = Admission(direction, capacity=4)  # type: ignore[arg-type]
        admission.set({ip_address(USER): Entry(1, ROOM, 100_000, USER_PORT, AP_PORT)})
        host.inside(lambda one=direction, fd=admission.program_fd: attach("tun0", one, fd))  # type: ignore[misc]
        large, other = Packet(udp(1400)), Packet(udp(1400, source=9))
        for packet in (large, large, other, large):
            if direction == "from_user":
                os.write(tunnel, packet.frame[ETHERNET_BYTES:])
            else:
                host.inside(lambda one=packet: send_back(one))  # type: ignore[misc]
        refused = admission.refused()[ip_address(USER)]
        assert (refused.packets, refused.bytes) == (2, 2 * (len(large.frame) - ETHERNET_BYTES))
        admission.close()
    os.close(tunnel)


def send_back(packet: Packet) -> None:
    """The same packet the other way, through an ordinary socket."""
    source, destination = struct.unpack_from("!HH", packet.body)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"tun0")  # eth0 leads to the same addresses
        sock.bind((AP, destination))
        sock.sendto(packet.body[8:], (USER, source))


def attach(dev: str, direction: Direction, program_fd: int) -> None:
    """In the caller's namespace. Raises `OSError`."""
    parent = INGRESS_HOOK if direction == "from_user" else EGRESS_HOOK
    body = pack_admission(socket.if_nametoindex(dev), parent, program_fd)
    head = struct.pack("=IHHII", 16 + len(body), RTM_NEWTFILTER, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.send(head + body)
        (code,) = struct.unpack_from("=i", sock.recv(65536), 16)
    if code:
        raise OSError(-code, f"no filter at {dev}")


def test_frames_in_pieces_cut_off_and_counted(hook: Hook) -> None:
    """Three things in one run, because each host of this test costs a second."""
    check_that_headers_may_lie_in_another_piece_of_memory(hook)
    check_that_nothing_is_read_beyond_the_end_of_a_frame(hook)
    check_that_the_ethernet_header_counts(hook)


def check_that_headers_may_lie_in_another_piece_of_memory(hook: Hook) -> None:
    """Drivers that put a whole frame into a page leave only the Ethernet header in the packet's own memory."""
    for linear_bytes in (14, 20, 34, 40):
        before = hook.refused()
        hook.send(*[JUMBO] * 3, linear_bytes=linear_bytes)
        hook.expect_refused(before + 3)
        hook.send(*[replace(JUMBO, body=udp(5000, source=9))] * 3, linear_bytes=linear_bytes)
        hook.send(*[replace(JUMBO, body=udp(5000, mark=HEARTBEAT_MARK))] * 3, linear_bytes=linear_bytes)
        hook.send(JUMBO)
        hook.expect_refused(before + 4)


def check_that_nothing_is_read_beyond_the_end_of_a_frame(hook: Hook) -> None:
    """Shorter than an IP header: it passes. Without ports: it ends in the class of the address' fragments."""
    before = hook.refused()
    for cut_at in (15, 20, 33, 34, 35, 37):
        hook.send(SMALL, cut_at=cut_at)
    hook.send(SMALL)
    hook.expect_refused(before + 3 + 1)


def check_that_the_ethernet_header_counts(hook: Hook) -> None:
    """At both hooks, as for HTB behind them."""
    before, bytes_before = hook.refused(), hook.admission.refused()[ip_address(USER)].bytes
    hook.send(JUMBO)
    hook.expect_refused(before + 1)
    assert hook.admission.refused()[ip_address(USER)].bytes - bytes_before == len(JUMBO.frame)
