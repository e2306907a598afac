"""Which of the kernel's messages concern us. The messages are packed here, by linux/rtnetlink.h and nothing of ours."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent.limiter.events import Change, Heard, Interest, Listener, Prefixes

NEWLINK, DELLINK, NEWADDR, DELADDR, NEWROUTE, DELROUTE, NEWRULE = 16, 17, 20, 21, 24, 25, 32
NEWQDISC, DELQDISC, NEWTCLASS, DELTFILTER, NEWCHAIN, NEWNEXTHOP = 36, 37, 40, 45, 100, 104
UP, LOWER_UP = 1, 1 << 16
OURS, THEIRS = 4001, 977

ETH0, ETH9, IFB = 2, 9, 5
ADDRESSES = [ipaddress.ip_address(one) for one in ("192.0.2.11", "203.0.113.1", "2001:db8:1::11")]
INTEREST = Interest(frozenset({ETH0}), frozenset({"wan0", "slbw0"}), IFB, Prefixes(ADDRESSES))


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def message(kind: int, body: bytes, port: int = THEIRS) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, port) + body


def link(
    ifindex: int, name: str, *, kind: int = NEWLINK, up: bool = True, mtu: int = 1500, alias: str = "", family: int = 0
) -> bytes:
    flags = (UP | LOWER_UP) if up else 0
    body = struct.pack("=BxHiII", family, 1, ifindex, flags, 0) + attribute(3, name.encode() + b"\0")
    body += attribute(4, struct.pack("=I", mtu))
    return message(kind, body + (attribute(20, alias.encode() + b"\0") if alias else b""), port=0)


def our_ifb(ifindex: int = IFB, **facts: int) -> bytes:
    return link(ifindex, "slbw0", alias="scionlab-bw", **facts)


def route(destination: str | None, kind: int = NEWROUTE, family: int = socket.AF_INET) -> bytes:
    net = ipaddress.ip_network(destination) if destination else None
    header = struct.pack("=BBBBBBBBI", family, net.prefixlen if net else 0, 0, 0, 254, 3, 0, 1, 0)
    return message(kind, header + (attribute(1, net.network_address.packed) if net else b""))


def address(text: str, kind: int = NEWADDR, ifindex: int = ETH9) -> bytes:
    one = ipaddress.ip_address(text)
    family = socket.AF_INET if one.version == 4 else socket.AF_INET6
    header = struct.pack("=BBBBI", family, one.max_prefixlen, 0, 0, ifindex)
    return message(kind, header + attribute(1, one.packed))


def tc(kind: int, ifindex: int, port: int = THEIRS) -> bytes:
    return message(kind, struct.pack("=BxxxiIII", 0, ifindex, 0x10001, 0x10000, 0), port)


class Kernel:
    """A listener, and the other end of its socket."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.listener._socket.close()
        self.listener._socket, self._end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listener._socket.setblocking(False)

    def says(self, *messages: bytes, interest: Interest = INTEREST) -> set[tuple[str, str]]:
        for one in messages:
            self._end.send(one)
        return {(one.device, one.what) for one in self.listener.drain(interest).changes}

    def close(self) -> None:
        self.listener._socket.close()
        self._end.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.close()


# --- traffic control --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "what"), [(NEWTCLASS, "class"), (DELQDISC, "qdisc"), (DELTFILTER, "filter")])
def test_a_change_on_a_managed_interface_or_our_ifb_concerns_us(kernel: Kernel, kind: int, what: str) -> None:
    assert {said for _, said in kernel.says(tc(kind, ETH0))} == {what}
    assert {said for _, said in kernel.says(tc(kind, IFB))} == {what}
    assert kernel.says(tc(kind, ETH9)) == set()


def test_our_own_changes_are_dropped_until_the_socket_was_empty_once(kernel: Kernel) -> None:
    """Afterwards the port may be somebody else's: a closed socket's port is free."""
    kernel.listener.own({OURS})
    assert len(kernel.says(tc(NEWTCLASS, ETH0, OURS), tc(NEWQDISC, ETH0, THEIRS))) == 1
    assert len(kernel.says(tc(NEWTCLASS, ETH0, OURS))) == 1


def test_chains_which_come_and_go_with_filters_say_nothing(kernel: Kernel) -> None:
    assert kernel.says(tc(NEWCHAIN, ETH0)) == set()


# --- routes, addresses, rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("destination", "matters"),
    [
        (None, True),  # the default route
        ("192.0.2.11/32", True),
        ("192.0.2.0/24", True),
        ("203.0.113.0/30", True),  # of the local address: how the user's packets come in may change too
        ("192.0.2.12/32", False),
        ("192.0.2.12/30", False),
        ("10.0.0.0/8", False),
        ("2001:db8:1::/64", True),
        ("2001:db8:2::/64", False),
    ],
)
def test_a_route_matters_if_it_covers_an_address_of_a_link(
    kernel: Kernel, destination: str | None, matters: bool
) -> None:
    family = socket.AF_INET6 if destination is not None and ":" in destination else socket.AF_INET
    for kind in (NEWROUTE, DELROUTE):
        assert kernel.says(route(destination, kind, family)) == ({("", "route")} if matters else set())


def test_the_ipv6_default_route_matters_only_where_a_link_has_ipv6(kernel: Kernel) -> None:
    assert kernel.says(route(None, family=socket.AF_INET6)) == {("", "route")}
    only_v4 = Interest(frozenset({ETH0}), addresses=Prefixes(ADDRESSES[:2]))
    assert kernel.says(route(None, family=socket.AF_INET6), interest=only_v4) == set()


def test_an_address_matters_if_it_is_one_of_a_link(kernel: Kernel) -> None:
    assert kernel.says(address("203.0.113.1")) == {("", "address")}
    assert kernel.says(address("2001:db8:1::11", DELADDR)) == {("", "address")}
    assert kernel.says(address("203.0.113.2"), address("2001:db8:1::12")) == set()


def test_rules_and_nexthops_always_matter(kernel: Kernel) -> None:
    assert kernel.says(message(NEWRULE, bytes(12))) == {("", "routing rule")}
    assert kernel.says(message(NEWNEXTHOP, bytes(8))) == {("", "nexthop")}


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_managed_interface_counts_when_it_is_not_as_it_was(kernel: Kernel) -> None:
    kernel.says(link(ETH0, "eth0"))
    assert kernel.says(link(ETH0, "eth0"), link(ETH0, "eth0")) == set()
    assert kernel.says(link(ETH0, "eth0", mtu=1400)) == {("eth0", "device")}
    assert kernel.says(link(ETH0, "uplink", mtu=1400)) == {("uplink", "device")}
    assert kernel.says(link(ETH0, "uplink", mtu=1400, up=False)) == {("uplink", "device")}
    assert kernel.says(link(ETH0, "uplink", kind=DELLINK)) == {("uplink", "device deleted")}


def test_down_and_up_at_once_counts_because_it_costs_routes(kernel: Kernel) -> None:
    kernel.says(link(ETH0, "eth0"))
    assert kernel.says(link(ETH0, "eth0", up=False), link(ETH0, "eth0")) == {("eth0", "device")}


def test_devices_of_others_do_not_count_but_a_configured_name_does(kernel: Kernel) -> None:
    assert kernel.says(link(ETH9, "veth1234"), link(ETH9, "veth1234", kind=DELLINK)) == set()
    assert kernel.says(link(11, "wan0")) == {("wan0", "device")}


def test_a_device_that_gives_up_a_configured_name_counts(kernel: Kernel) -> None:
    kernel.says(link(11, "wan0"))
    assert kernel.says(link(11, "spare")) == {("spare", "device")}
    assert kernel.says(link(11, "spare", up=False)) == set()


def test_what_was_heard_while_everything_counted_does_not_count_for_ever(kernel: Kernel) -> None:
    assert kernel.says(link(ETH9, "veth1234"), interest=Interest(devices=None)) == {("veth1234", "device")}
    assert kernel.says(link(ETH9, "veth1234", up=False)) == set()


def test_a_bridge_that_speaks_of_its_port_deletes_no_device(kernel: Kernel) -> None:
    assert kernel.says(link(ETH0, "eth0", kind=DELLINK, family=7)) == set()


def test_our_ifb_counts_when_in_the_end_it_is_another_than_was_read_back(kernel: Kernel) -> None:
    made = (link(IFB, "slbw0", up=False), our_ifb(), our_ifb())
    assert kernel.says(*made) == set()
    assert kernel.says(our_ifb(up=False), our_ifb()) == set()  # nothing is lost by that
    changed = {("slbw0", "device")}
    assert kernel.says(our_ifb(mtu=1400)) == changed
    assert kernel.says(our_ifb(mtu=1400, up=False)) == changed
    assert kernel.says(our_ifb(mtu=1400)) == set()
    assert kernel.says(link(IFB, "other0", alias="scionlab-bw")) == changed
    assert kernel.says(our_ifb(7)) == changed  # redirects lead to the old one


def test_our_ifb_that_is_deleted_counts(kernel: Kernel) -> None:
    assert kernel.says(our_ifb(kind=DELLINK)) == {("slbw0", "device")}


def test_somebodys_device_under_our_name_counts_when_it_comes_and_when_it_goes(kernel: Kernel) -> None:
    """While it is there nothing can be limited from the user AS."""
    without = Interest(frozenset({ETH0}), frozenset({"slbw0"}), None, Prefixes(ADDRESSES))
    assert kernel.says(link(7, "slbw0"), interest=without) == {("slbw0", "device")}
    assert kernel.says(link(7, "slbw0"), interest=without) == set()
    assert kernel.says(link(7, "slbw0", kind=DELLINK), interest=without) == {("slbw0", "device")}


def test_no_ifb_counts_where_none_is_wanted(kernel: Kernel) -> None:
    nothing = Interest(frozenset(), frozenset(), None)
    assert kernel.says(our_ifb(), our_ifb(kind=DELLINK), interest=nothing) == set()


# --- everything -------------------------------------------------------------------------------------------------------


def test_everything_counts_while_nobody_knows_what_matters(kernel: Kernel) -> None:
    unknown = Interest(devices=None)
    said = kernel.says(
        tc(NEWTCLASS, ETH9), route("10.0.0.0/8"), address("198.51.100.1"), link(ETH9, "eth9"), interest=unknown
    )
    assert {what for _, what in said} == {"class", "route", "address", "device"}


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

    kernel._end.send(route(None))
    monkeypatch.setattr(kernel.listener, "_socket", Overflown())
    heard = kernel.listener.drain(INTEREST)
    monkeypatch.undo()

    assert heard == Heard(frozenset({Change("", "route")}), is_lost=True, messages=1, is_all=True)
    assert heard.concerns_us
    assert not kernel.listener.drain(INTEREST).concerns_us


def test_a_flood_is_read_in_pieces(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ap_agent.limiter.events._MESSAGES_AT_ONCE", 3)
    for _ in range(4):
        kernel._end.send(tc(NEWTCLASS, ETH0, OURS))
    kernel.listener.own({OURS})

    assert kernel.listener.drain(INTEREST) == Heard(messages=3, is_all=False)
    assert kernel.listener.drain(INTEREST) == Heard(messages=1, is_all=True)


@given(st.lists(st.binary(max_size=64), max_size=4), st.sampled_from([16, 17, 20, 24, 32, 36, 40, 44, 104]))
def test_no_bytes_whatever_make_it_fail(bodies: list[bytes], kind: int) -> None:
    made = Kernel()
    try:
        made.says(*bodies, *(message(kind, body) for body in bodies))
        made.says(*(message(kind, body) for body in bodies), interest=Interest(devices=None))
    finally:
        made.close()
