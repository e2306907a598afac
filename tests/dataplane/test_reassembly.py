"""What others and a blocked user do to the host's reassembly (property 6). Each test has namespaces of its own: Linux
keeps what is incomplete for 30 s, and drops what comes while that is more than `ipfrag_high_thresh`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

import pytest

from ap_agent.dataplane.program import Key
from tests.dataplane.bed import AP, AP6, AP_PORT, OTHER, USER, USER6, USER_PORT, Bed, bed
from tests.dataplane.frames import Packet, datagram, scion

pytestmark = pytest.mark.kernel

USER_ADDRESS = ip_address(USER)
FREE_PORT, SLOW_PORT = 50_099, 50_005


@pytest.fixture
def ap() -> Iterator[Bed]:
    with bed() as made:
        yield made


def reassembly(ap: Bed, name: str = "ReasmReqds") -> int:
    lines = [one.split() for one in ap.ap.run("cat", "/proc/net/snmp").splitlines() if one.startswith("Ip:")]
    return int(lines[1][lines[0].index(name)])


@pytest.mark.parametrize("to_user", [True, False], ids=["to the user", "from the user"])
def test_fragments_of_strangers_take_nothing_from_datagrams_of_a_link(ap: Bed, to_user: bool) -> None:
    """Later fragments with new identifications and the user's address: 20 beside each datagram of three fragments."""
    ap.link(7, 100_000, 100_000, Key(USER_ADDRESS, USER_PORT))
    source, sink = ((AP, AP_PORT), (USER, USER_PORT)) if to_user else ((USER, USER_PORT), (AP, AP_PORT))
    with ap.listen(ap.user if to_user else ap.ap, *sink) as receiver:
        for number in range(200):
            first, *rest = datagram(
                scion(size=4000),
                source=source,
                destination=sink,
                piece=1480,
                from_user=not to_user,
                identification=number,
            )
            others = range(30_000 + number * 20, 30_020 + number * 20)
            ap.send([first.frame], from_ap=to_user)
            ap.send([Packet(bytes(32), offset=800, more=True, identification=one).frame for one in others])
            ap.send([one.frame for one in rest], from_ap=to_user)
        assert len(receiver.received()[sink[1]]) >= 199
    assert to_user or ap.counters(7)[1].refused_packets == 0, ap.counters(7)


def test_a_blocked_user_does_not_fill_the_reassembly(ap: Bed) -> None:
    """Each datagram's first fragment last: 5400 later fragments, and somebody else's datagrams beside them."""
    ap.link(7, 0, 0, Key(USER_ADDRESS, USER_PORT))
    ap.ap.sysctl({"net.ipv4.ipfrag_high_thresh": 4 << 20})
    before = reassembly(ap)
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        for number in range(50):
            for one in range(9):
                first, *later = datagram(scion(size=1000), piece=80, identification=1000 + number * 9 + one)
                ap.send([*(one.frame for one in later), first.frame])
            ap.send(
                [one.frame for one in datagram(scion(size=3000), source=(OTHER, 5), piece=1480, identification=number)]
            )
        assert len(receiver.received()[AP_PORT]) == 50
    assert reassembly(ap) - before - 150 <= 300


def fill(ap: Bed, *, is_full: bool) -> None:
    """As if strangers' fragments took the host's memory for them, which Linux then has for no fragment."""
    for name in ("net.ipv4.ipfrag", "net.ipv6.ip6frag"):
        low, high = f"{name}_low_thresh", f"{name}_high_thresh"
        ap.ap.sysctl({low: 0, high: 0} if is_full else {high: 4 << 20, low: 3 << 20})


def test_what_a_full_host_drops_is_charged_once_and_decides_about_nothing_later(ap: Bed) -> None:
    """Three fragments of 1,514, 1,514 and 1,082 bytes; the same identification again when there is room."""
    ap.link(7, 10_000, 10_000, Key(USER_ADDRESS, USER_PORT))
    frames = [one.frame for one in datagram(scion(size=4000), piece=1480, identification=7)]
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        for is_full, arrived, passed_bytes in ((True, 0, 4_110), (False, 1, 8_220), (False, 1, 12_330)):
            fill(ap, is_full=is_full)
            ap.send(frames)
            assert len(receiver.received()[AP_PORT]) == arrived
            assert ap.counters(7)[1].passed_bytes == passed_bytes
    assert ap.counters(7)[1].refused_packets == 0


def two_parts(source: tuple[str, int], number: int) -> tuple[bytes, bytes]:
    """A datagram's first 16 bytes, and the other 1,392."""
    here = AP6 if ":" in source[0] else AP
    whole = datagram(scion(size=1_400), source=source, destination=(here, AP_PORT), identification=number)[0]
    first, last = replace(whole, body=whole.body[:16], more=True), replace(whole, body=whole.body[16:], offset=16)
    return first.frame, last.frame


def test_of_datagrams_whose_first_fragment_a_full_host_dropped_a_link_completes_48_at_most(ap: Bed) -> None:
    """docs/reliability.md: an address has so many verdicts; those before them are marked, and refuse the link's."""
    ap.link(7, 100_000, 100_000, Key(ip_address(USER6), USER_PORT))
    nobodys, links = ([two_parts((USER6, port), number) for number in range(200)] for port in (FREE_PORT, USER_PORT))
    with ap.listen(ap.ap, AP6, AP_PORT) as receiver:
        fill(ap, is_full=True)
        ap.send([first for first, _ in nobodys])
        fill(ap, is_full=False)
        ap.send([last for _, last in nobodys])
        ap.send([first for first, _ in links])
        arrived = receiver.received(other_port=True)
    assert len(arrived.get(USER_PORT, [])) <= ap.counters(7)[1].passed_packets <= 48
    assert FREE_PORT not in arrived


def test_of_a_datagram_that_waits_and_another_links_first_fragment_completes_each_byte_is_paid(ap: Bed) -> None:
    """It need not wait, and Linux puts the other one's last fragment behind it. A blocked link completes nothing."""
    ap.link(7, 10_000, 10_000, Key(USER_ADDRESS, USER_PORT))
    ap.link(8, 100, 100, Key(USER_ADDRESS, SLOW_PORT))
    ap.link(9, 0, 0, Key(USER_ADDRESS, FREE_PORT))
    burst = [datagram(scion(size=1_400))[0].frame] * 12  # 1,442 bytes each
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        for port, number in ((SLOW_PORT, 1), (FREE_PORT, 2)):
            waiting = two_parts((USER, USER_PORT), number)
            first, _ = two_parts((USER, port), number)
            ap.send([*burst, *waiting, first])
            arrived = receiver.received(other_port=True)
            assert len(arrived.pop(USER_PORT)) + len(arrived.pop(SLOW_PORT, [])) == 13
            assert arrived == {}
    paid = [(one.passed_bytes, one.refused_packets) for one in (ap.counters(link)[1] for link in (7, 8, 9))]
    assert paid == [(2 * (12 * 1_442 + 60 + 1_426), 0), (60, 0), (0, 1)]
