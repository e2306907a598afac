"""The packet fuzzer: what it once found, what a short run finds, and whether its idea of Linux is right.

`python -m lab.frames` and `./dev bench fuzz` run more of it.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from lab.frames import grow, judge, linux, runs, shape, wire
from lab.frames.grow import BLOCKED, FREE, LIMITED, NEIGHBOUR, OBSERVED, Sequence
from lab.frames.replay import Replay, replay
from lab.frames.shape import AP4, AP6, AP_PORT, TAG, USER4, USER6, Frame
from measuring.iproute import available

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(available() is not None, reason=str(available())),
]

# What the judge need not know: other addresses, checksums of UDP, congestion marks that fragments have in common.
UNSEEN = (
    *("ipv4.tos", "ipv6.version", "ethernet.", "udp.checksum", "udp.destination", "byte"),
    *("ipv4.source", "ipv6.source", "ipv4.destination", "ipv6.destination"),
)


@pytest.fixture(scope="module")
def running() -> Iterator[Replay]:
    with replay() as found:
        yield found


def body(port: int, size: int = 64, mark: int = 17) -> bytes:
    return shape.udp(port, AP_PORT, (bytes(4) + bytes([mark])).ljust(size, b"\0"))


def frame4(body_: bytes, **more: object) -> Frame:
    return Frame(USER4, AP4, body_, from_user=True, **more)  # type: ignore[arg-type]


def frame6(body_: bytes, **more: object) -> Frame:
    return Frame(USER6, AP6, body_, from_user=True, **more)  # type: ignore[arg-type]


def no_length(port: int) -> bytes:
    """The first 8 bytes of a UDP datagram that says it is as long as its IP packet."""
    return body(port)[:4] + bytes(4)


def parts(frame: Callable[..., Frame], port: int, *places: tuple[int, int]) -> list[Frame]:
    """From, to: of a datagram of 1008 bytes."""
    whole = shape.udp(port, AP_PORT, bytes(1_000))
    return [frame(whole[at:end], fragment=(7, at, end < 1_008)) for at, end in places]


def many(frame: Callable[..., Frame]) -> Frame:
    """First fragments of nobody's, more than an address has slots."""
    return frame(body(FREE)[:16], fragment=(1_000, 0, True), copies=150)


UNPAID: dict[str, Callable[[Callable[..., Frame]], list[Frame]]] = {
    "come twice": lambda frame: [
        *parts(frame, FREE, (0, 16), (16, 32), (16, 32), (32, 1_008), (16, 32), (32, 1_008)),
        many(frame),
        *parts(frame, LIMITED, (0, 16)),
    ],
    "overlap": lambda frame: [
        *parts(frame, FREE, (0, 16), (8, 24), (16, 1_008)),
        many(frame),
        *parts(frame, LIMITED, (0, 16)),
    ],
    "have lost their place when another first one overlaps": lambda frame: [
        *parts(frame, FREE, (0, 16)),
        many(frame),
        *parts(frame, FREE, (0, 24), (24, 1_008)),
        many(frame),
        *parts(frame, LIMITED, (0, 24)),
    ],
    "are refused as a blocked link's": lambda frame: [
        *parts(frame, FREE, (16, 1_008)),
        *parts(frame, BLOCKED, (0, 16)),
        many(frame),
        *parts(frame, LIMITED, (0, 16)),
    ],
}

# The scenes that were seen with real packets, and what the fuzzer made of them; every one broke a property.
FOUND = {
    "a first fragment that Linux drops names another port": [
        frame6(body(FREE)[:13], fragment=(7, 0, True)),
        frame6(bytes(1000), fragment=(7, 8, False)),
        frame6(no_length(LIMITED), fragment=(7, 0, True)),
    ],
    "the same, IPv4, with a wrong checksum": [
        frame4(body(FREE)[:16], fragment=(7, 0, True), changes={"ipv4.checksum": 1}),
        frame4(bytes(56), fragment=(7, 16, False)),
        frame4(body(LIMITED)[:16], fragment=(7, 0, True)),
    ],
    "a second first fragment names another link": [
        frame6(body(FREE)[:16], fragment=(7, 0, True)),
        frame6(body(LIMITED)[:16], fragment=(7, 0, True)),
    ],
    "a blocked link's first fragment takes what came before it": [
        frame4(bytes(1000), fragment=(7, 16, False)),
        frame4(body(BLOCKED)[:16], fragment=(7, 0, True)),
        frame4(body(LIMITED)[:16], fragment=(7, 0, True)),
    ],
    "six tags of VLAN 0": [frame4(body(BLOCKED), tags=[(TAG, 0)] * 6)],
    "forty tags of VLAN 0": [frame6(body(LIMITED), tags=[(TAG, 0)] * 40)],
    "a fragment behind six tags": [
        frame6(body(LIMITED)[:16], fragment=(7, 0, True)),
        frame6(body(LIMITED)[16:], fragment=(7, 16, False), tags=[(TAG, 0)] * 6),
    ],
    "a first fragment claims the longest datagram": [
        frame4(shape.udp(LIMITED, AP_PORT, b"")[:8], fragment=(7, 0, True), changes={"udp.length": 65_515})
    ],
    "behind an authentication header, at which Linux stops, a fragment that is not the first": [
        Frame(
            shape.WHOLE6,
            AP6,
            bytes(8),
            from_user=True,
            extensions=[shape.DESTINATION],
            fragment=(7, 712, False),
            changes={"ipv6.next": shape.AUTHENTICATION, "extension0.length": 0},
        )
    ],
    "a burst of an observed link": [frame4(body(OBSERVED, 713), copies=64)],
    "other datagrams push out what came before an observed link's first fragment": [
        frame4(bytes(149), fragment=(7, 64, False), copies=64),
        frame4(body(OBSERVED)[:64], fragment=(7, 0, True)),
    ],
    "a link sends many first fragments while a neighbour's datagram is on its way": [
        frame4(body(NEIGHBOUR)[:16], fragment=(7, 0, True), is_bystander=True),
        frame4(body(LIMITED)[:16], fragment=(1_000, 0, True), copies=200),
        frame4(bytes(56), fragment=(7, 16, False), is_bystander=True),
    ],
    "fragments of no link take the slot of a link's datagram": [
        frame4(body(NEIGHBOUR)[:16], fragment=(7, 0, True), is_bystander=True),
        frame4(body(FREE)[:16], fragment=(1_000, 0, True), copies=200),
        frame4(bytes(8), fragment=(5_000, 64, True), copies=100),
        frame4(bytes(56), fragment=(7, 16, False), is_bystander=True),
    ],
    "as many bytes overlap as are missing, and another link's first fragment comes": [
        frame6(bytes(32), fragment=(7, 40, False)),
        frame6(body(LIMITED)[:24], fragment=(7, 0, True)),
        frame6(bytes(16), fragment=(7, 48, True)),
        frame6(body(OBSERVED)[:24], fragment=(7, 0, True)),
    ],
    "the same, where Linux drops the last fragment": [
        frame4(body(LIMITED)[:24], fragment=(7, 0, True)),
        frame4(bytes(48), fragment=(7, 24, False), changes={"ipv4.checksum": 1}),
        frame4(body(OBSERVED)[:24], fragment=(7, 0, True)),
    ],
    "an IPv6 fragment behind 64 large ones without a first one": [
        frame6(body(FREE)[:16], fragment=(7, 0, True), is_bystander=True),
        frame6(bytes(1281), fragment=(1_000, 32, False), copies=64),
        frame6(bytes(56), fragment=(7, 16, False), is_bystander=True),
    ],
    **{
        f"nobody's fragments {how}, and a link's first one completes what Linux has of them, {family}": frames(frame)
        for family, frame in (("IPv4", frame4), ("IPv6", frame6))
        for how, frames in UNPAID.items()
    },
}


@pytest.mark.parametrize("frames", FOUND.values(), ids=FOUND)
def test_what_the_fuzzer_found_breaks_no_property(running: Replay, frames: list[Frame]) -> None:
    broken, _ = judge.examined(running, Sequence(frames, from_user=True), is_probed=True, is_on_both=False)
    assert broken is None


OTHERS = frame4(body(LIMITED)[:16], fragment=(1_000, 0, True), copies=200)


@pytest.mark.parametrize(
    "port", [None, FREE, OBSERVED], ids=["nothing", "nobody's first one", "another link's first one"]
)
def test_what_comes_after_a_datagram_lost_its_slot_passes_counted_or_not_at_all(
    running: Replay, port: int | None
) -> None:
    """200 others of its link, 60 bytes each, take the slot; the last fragment would complete it, and Linux drops a
    second first fragment that comes in front of that."""
    running.reset()
    first, last = frame4(body(LIMITED)[:16], fragment=(7, 0, True)), frame4(bytes(1_000), fragment=(7, 16, False))
    later = [last] if port is None else [frame4(body(port)[:16], fragment=(7, 0, True)), last]
    result = running.run([first, OTHERS, *later], from_user=True)
    assert result.passed == [True] * 201 + [False] * len(later)
    assert result.counted[judge.LIMITED].passed_bytes == 201 * 60


def test_a_full_table_of_marks_lets_nothing_pass_and_harms_only_its_address(running: Replay) -> None:
    """Then a datagram that loses its slot makes all unknown fragments of its address another owner's."""
    running.reset()
    running.fill_marks()
    before = frame4(body(FREE)[:16], fragment=(5, 0, True))
    first, last = frame4(body(LIMITED)[:16], fragment=(7, 0, True)), frame4(bytes(56), fragment=(7, 16, False))
    nobodys, links = (frame4(body(port)[:16], fragment=(number, 0, True)) for port, number in ((FREE, 8), (LIMITED, 9)))
    elsewhere = frame6(body(FREE)[:16], fragment=(8, 0, True))
    result = running.run([before, first, OTHERS, last, nobodys, links, elsewhere], from_user=True)
    assert result.passed == [True] * 202 + [False, False, True, True]
    neighbours = frame4(body(NEIGHBOUR)[:16], fragment=(10, 0, True))
    assert running.run([neighbours], from_user=True).passed == [False]


def test_when_datagrams_of_two_links_are_lost_neither_has_more(running: Replay) -> None:
    """The neighbour's slots are taken by his own for a second, and then a link's older one, too."""
    running.reset()
    neighbours = [frame4(body(NEIGHBOUR)[:16], fragment=(one, 0, True), copies=200) for one in (1_000, 2_000)]
    assert all(running.run([frame4(body(LIMITED)[:16], fragment=(7, 0, True)), neighbours[0]], from_user=True).passed)
    time.sleep(1.2)
    running.fill_marks()
    running.run([neighbours[1]], from_user=True)
    assert running.run([frame4(body(LIMITED)[:16], fragment=(8, 0, True))], from_user=True).passed == [False]


@pytest.mark.parametrize("port", [FREE, LIMITED], ids=["nobody's", "a link's"])
def test_datagrams_that_stay_incomplete_take_no_verdict_away_at_once(running: Replay, port: int) -> None:
    """Eight of the limited link between two fragments, when no fragment may pass without a verdict any more."""
    running.reset()
    lost = 0
    for number in range(400):
        unseen = [frame4(bytes(64), fragment=(2_000 + number, 64, False))]
        others = [frame4(body(LIMITED)[:16], fragment=(10_000 + 8 * number + one, 0, True)) for one in range(8)]
        first, last = (
            frame4(one, fragment=(number, at, at == 0)) for at, one in ((0, body(port)[:32]), (32, bytes(40)))
        )
        passed = running.run([*unseen, first, *others, last], from_user=True).passed
        lost += passed[1] and not passed[-1]
    assert lost <= 4


@pytest.mark.parametrize(
    ("frame", "head", "others", "passes"),
    [(frame4, 34, 63, True), (frame4, 34, 64, False), (frame6, 62, 200, True)],
    ids=["IPv4", "IPv4, Linux gives it up", "IPv6"],
)
def test_fragments_without_a_first_one_have_a_bucket_and_datagrams_in_order_need_none(
    running: Replay, frame: Callable[..., Frame], head: int, others: int, passes: bool
) -> None:
    """90,000 bytes, of which each takes 448 beside its own: 60 of 1,500. `others` come between two fragments; of IPv4
    Linux takes 64 fragments of a sender for too many (net.ipv4.ipfrag_max_dist)."""
    running.reset()
    first, last = (frame(one, fragment=(7, at, at == 0)) for at, one in ((0, body(FREE)[:16]), (16, bytes(48))))
    stranger = frame(bytes(1_052 - head), fragment=(1_000, 64, False), copies=others)
    passed = running.run([first, stranger, last], from_user=True).passed
    assert passed == [True] * 61 + [False] * (others - 60) + [passes]
    for port in (FREE, LIMITED, NEIGHBOUR):
        whole = [frame(one, fragment=(port, at, at == 0)) for at, one in ((0, body(port)[:16]), (16, bytes(48)))]
        assert running.run([frame(body(port)), *whole], from_user=True).passed == [True] * 3


def test_a_nobodys_datagram_that_lost_its_place_or_is_not_in_order_passes_whole(running: Replay) -> None:
    """Not in order it takes its price once, also when strangers have taken what its address has for others."""
    running.reset()
    first, last = parts(frame4, FREE, (0, 16), (992, 1_008))
    middle = [frame4(bytes(8), fragment=(8, at, True)) for step in (16, 8) for at in range(step, 992, 16)]
    result = running.run([replace(first, fragment=(8, 0, True)), *middle, first, many(frame4), last], from_user=True)
    assert all(result.passed)
    stranger = frame4(bytes(1_018), fragment=(3_000, 64, False), copies=64)
    passed = running.run([first, many(frame4), stranger, last], from_user=True).passed
    assert passed[-65:] == [True] * 59 + [False] * 5 + [True]


def test_what_came_before_a_nobodys_first_fragment_makes_it_no_links_later(running: Replay) -> None:
    """A first fragment that overlaps with it, a minute later: Linux keeps what follows, IPv6 for a minute."""
    running.reset()
    running.run([*parts(frame6, FREE, (8, 24)), many(frame6)], from_user=True)
    running.age_marks(13)
    assert all(running.run(parts(frame6, FREE, (0, 16), (16, 1_008)), from_user=True).passed)
    running.age_marks(4)
    assert running.run(parts(frame6, LIMITED, (0, 16)), from_user=True).passed == [False]


def test_what_lost_its_place_before_its_first_fragment_came_passes_no_bucket_by(running: Replay) -> None:
    """177 of 60 bytes and 448 each; 48 of them keep a place."""
    running.reset()
    first, second = (frame4(bytes(8), fragment=(1_000, at, True), copies=200) for at in (64, 72))
    assert running.run([first], from_user=True).passed == [True] * 177 + [False] * 23
    assert sum(running.run([second], from_user=True).passed) <= 1


@pytest.mark.long
def test_a_short_run_finds_nothing() -> None:
    found = runs.fuzz(40_000, seed=20_261_128)
    assert found.broken == [], "\n".join(map(str, found.broken))
    assert found.sequences > 5_000


@pytest.mark.long
@pytest.mark.parametrize("from_user", [True, False], ids=["from the user", "to the user"])
def test_from_two_processors_over_a_wire_nothing_leaks_and_nobody_is_harmed(from_user: bool) -> None:
    without, limited = (wire.send(20_000, 5, from_user=from_user, is_limited=one) for one in (False, True))
    assert without.arrived[judge.BLOCKED] > 100_000  # so they leak, unless they are limited
    assert without.bystanders > 1_000
    assert limited.broken(without) == []


@pytest.mark.long
@pytest.mark.parametrize("from_user", [True, False], ids=["from the user", "to the user"])
def test_linux_delivers_what_the_judge_thinks_it_does(from_user: bool) -> None:
    """Without a limiter, sequence by sequence."""
    linux_model, compared, differences = linux.Host(), 0, []
    device = "u0" if from_user else "n0"
    with wire.pair() as (user, ap), wire.listening(ap if from_user else user, at_ap=from_user) as sockets:
        raw = (user if from_user else ap).call(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        with raw:
            raw.bind((device, 0))
            for number in range(2_000):
                one = grow.sequence(7, number)
                if one.from_user != from_user or _is_unseen(one):
                    continue
                expected, came = _sent(raw, one, linux_model), Counter[int]()
                deadline = time.monotonic() + 1.0
                while came < expected and time.monotonic() < deadline:
                    came.update(link for link, _, _ in wire.taken(sockets, from_user=from_user))
                compared += 1
                if came != expected:
                    differences.append(f"{number}: {dict(came)} came of {dict(expected)}\n{one.lines()}")
    assert compared > 500
    assert differences == []


def _is_unseen(one: Sequence) -> bool:
    return any(name.startswith(UNSEEN) for frame in one.frames for name in frame.changes)


def _sent(raw: socket.socket, one: Sequence, host: linux.Host) -> Counter[int]:
    """Sends it; how many datagrams of each link ought to come."""
    expected = Counter[int]()
    for frame in one.frames:
        encoded = bytes(frame.encoded()[0])
        try:
            raw.send(encoded)
        except OSError:  # longer than the device takes
            continue
        datagram = host.take(linux.read(encoded), len(encoded))
        if datagram is None or datagram.ports is None:
            continue
        if datagram.ports[1] in ((AP_PORT,) if one.from_user else wire.USER_PORTS):
            remote = datagram.source if one.from_user else datagram.destination
            expected[judge.link_of(remote, datagram.ports[not one.from_user])] += 1
    return expected
