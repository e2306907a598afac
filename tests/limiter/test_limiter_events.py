"""Which of the kernel's messages concern us. The messages are packed here, by linux/rtnetlink.h and nothing of ours."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

import pytest

from ap_agent.limiter.events import Change, Listener, Notifications

NEWLINK, DELLINK, NEWADDR, DELADDR, NEWROUTE, NEWRULE = 16, 17, 20, 21, 24, 32
NEWQDISC, DELQDISC, NEWTCLASS, DELTFILTER, NEWCHAIN = 36, 37, 40, 45, 100
UP = 1
OURS, THEIRS = 4001, 977
ETH0, IFB, SHARED = 2, 5, 0xFFFF_FFFF
AT_ROOT, AT_CLSACT, AT_EGRESS, IN_CLASS = 0xFFFF_FFFF, 0xFFFF_FFF1, 0xFFFF_FFF3, 0x1_0000
NAMES = {ETH0: "eth0", IFB: "slbw0"}


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def message(kind: int, body: bytes, port: int = THEIRS) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, port) + body


def link(
    ifindex: int, name: str, *, kind: int = NEWLINK, up: bool = True, mtu: int = 1500, alias: str = "", family: int = 0
) -> bytes:
    body = struct.pack("=BxHiII", family, 1, ifindex, UP if up else 0, 0) + attribute(3, name.encode() + b"\0")
    body += attribute(4, struct.pack("=I", mtu))
    return message(kind, body + (attribute(20, alias.encode() + b"\0") if alias else b""), port=0)


def our_ifb(ifindex: int = IFB, name: str = "slbw0", *, kind: int = NEWLINK, up: bool = True) -> bytes:
    return link(ifindex, name, kind=kind, up=up, alias="scionlab-bw")


def address(text: str, kind: int = NEWADDR, ifindex: int = ETH0) -> bytes:
    one = ipaddress.ip_address(text)
    family = socket.AF_INET if one.version == 4 else socket.AF_INET6
    header = struct.pack("=BBBBI", family, one.max_prefixlen, 0, 0, ifindex)
    return message(kind, header + attribute(1, one.packed))


def tc(kind: int, ifindex: int, parent: int, port: int = THEIRS) -> bytes:
    return message(kind, struct.pack("=BxxxIIII", 0, ifindex, 0x10001, parent, 0), port)


class Kernel:
    """A listener, and the other end of its socket."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.listener._socket.close()
        self.listener._socket, self._end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listener._socket.setblocking(False)

    def sends(self, *messages: bytes) -> None:
        for one in messages:
            self._end.send(one)

    def says(self, *messages: bytes) -> set[tuple[str, str]]:
        self.sends(*messages)
        return {(one.device, one.what) for one in self.listener.drain().changes}

    def says_after_work(self, *messages: bytes) -> set[tuple[str, str]]:
        self.sends(*messages)
        return {(one.device, one.what) for one in self.listener.drain_own(frozenset({OURS})).changes}

    def close(self) -> None:
        self.listener._socket.close()
        self._end.close()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setattr("ap_agent.limiter.events._name", lambda ifindex: NAMES.get(ifindex, f"device {ifindex}"))
    made = Kernel()
    yield made
    made.close()


# --- traffic control --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "what"), [(NEWTCLASS, "class"), (DELQDISC, "qdisc"), (DELTFILTER, "filter")])
def test_every_change_on_our_ifb_concerns_us(kernel: Kernel, kind: int, what: str) -> None:
    for parent in (AT_ROOT, IN_CLASS):
        assert kernel.says(tc(kind, IFB, parent)) == {("slbw0", what)}


def test_of_other_devices_only_what_happens_at_a_hook_concerns_us(kernel: Kernel) -> None:
    assert kernel.says(tc(DELQDISC, ETH0, AT_CLSACT)) == {("eth0", "qdisc")}
    assert kernel.says(tc(DELTFILTER, ETH0, AT_EGRESS)) == {("eth0", "filter")}
    assert kernel.says(tc(DELTFILTER, SHARED, IN_CLASS)) == {(f"device {SHARED}", "filter")}
    assert kernel.says(tc(NEWQDISC, ETH0, AT_ROOT), tc(NEWTCLASS, ETH0, IN_CLASS)) == set()


def test_our_own_changes_are_passed_over_and_those_of_others_meanwhile_are_not(kernel: Kernel) -> None:
    assert kernel.says_after_work(tc(NEWTCLASS, IFB, AT_ROOT, OURS)) == set()
    assert kernel.says_after_work(tc(NEWTCLASS, IFB, AT_ROOT, OURS), tc(DELTFILTER, ETH0, AT_EGRESS)) == {
        ("eth0", "filter")
    }
    assert kernel.says(tc(NEWTCLASS, IFB, AT_ROOT, OURS)) == {("slbw0", "class")}  # a closed socket's port is free


# --- addresses and devices --------------------------------------------------------------------------------------------


def test_an_address_counts_when_it_comes_and_when_it_goes_and_not_when_it_is_repeated(kernel: Kernel) -> None:
    assert kernel.says(address("2001:db8::7")) == {("", "address")}
    assert kernel.says(address("2001:db8::7"), address("2001:db8::7")) == set()
    assert kernel.says(address("2001:db8::7", ifindex=9)) == {("", "address")}
    assert kernel.says(address("2001:db8::7", DELADDR)) == {("", "address")}
    assert kernel.says(address("2001:db8::7")) == {("", "address")}


def test_a_device_counts_when_it_is_not_as_it_was(kernel: Kernel) -> None:
    kernel.says(link(ETH0, "eth0"))
    assert kernel.says(link(ETH0, "eth0"), link(ETH0, "eth0")) == set()
    assert kernel.says(link(ETH0, "eth0", mtu=1400)) == {("eth0", "device")}
    assert kernel.says(link(ETH0, "uplink", mtu=1400)) == {("uplink", "device")}
    assert kernel.says(link(ETH0, "uplink", mtu=1400, up=False)) == {("uplink", "device")}
    assert kernel.says(link(ETH0, "uplink", kind=DELLINK)) == {("uplink", "device deleted")}


def test_a_bridge_that_speaks_of_its_port_deletes_no_device(kernel: Kernel) -> None:
    assert kernel.says(link(ETH0, "eth0", kind=DELLINK, family=7)) == set()


def test_our_ifb_is_our_own_doing_while_it_is_as_we_made_it(kernel: Kernel) -> None:
    assert kernel.says_after_work(link(IFB, "slbw0", up=False), our_ifb(), our_ifb()) == set()
    assert kernel.says_after_work(our_ifb(up=False)) == {("slbw0", "device")}
    assert kernel.says_after_work(our_ifb(kind=DELLINK)) == {("slbw0", "device deleted")}
    assert kernel.says_after_work(our_ifb(), tc(DELQDISC, IFB, AT_ROOT)) == {("slbw0", "qdisc")}


# --- everything -------------------------------------------------------------------------------------------------------


def test_lost_messages_are_an_occasion_and_the_rest_is_still_read(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kernel.listener._socket

    class Overflown:
        """The kernel says it once, in front of what it kept."""

        has_said = False

        def recv_into(self, buffer: memoryview) -> int:
            if not self.has_said:
                self.has_said = True
                raise OSError(105, "No buffer space available")  # ENOBUFS
            return real.recv_into(buffer)

    kernel.sends(tc(DELTFILTER, ETH0, AT_EGRESS))
    monkeypatch.setattr(kernel.listener, "_socket", Overflown())
    heard = kernel.listener.drain()
    monkeypatch.undo()

    assert heard == Notifications(frozenset({Change("eth0", "filter")}) if heard.changes else frozenset(), is_lost=True)
    assert {one.what for one in heard.changes} == {"filter"}
    assert heard.concerns_us
    assert not kernel.listener.drain().concerns_us


def test_a_flood_is_read_in_pieces_and_our_own_one_to_its_end(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ap_agent.limiter.events._MESSAGES_AT_ONCE", 3)
    several = [tc(NEWTCLASS, ETH0, AT_ROOT)] * 4
    kernel.sends(*several)
    assert kernel.listener.drain() == Notifications(is_all=False)
    assert kernel.listener.drain() == Notifications(is_all=True)
    kernel.sends(*[tc(NEWTCLASS, IFB, AT_ROOT, OURS)] * 10)
    assert kernel.listener.drain_own(frozenset({OURS})) == Notifications(is_all=True)
