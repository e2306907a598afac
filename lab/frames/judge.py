"""The properties, as numbers of the specification. Nothing here is taken from what is judged.

A link of 500 kbit/s has 62,500 bytes a second, room for 20,000 and 12,500 more for heartbeats.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from lab.frames import grow, shape
from lab.frames.grow import Sequence
from lab.frames.linux import Datagram, Distances, Host, Piece, first_ports, read
from lab.frames.replay import PORTS, WHOLE, Replay, Result

BYTES_PER_S: Final = 62_500
ROOM_BYTES: Final = 20_000
BEATS_BYTES: Final = 12_500
PROBE_BYTES: Final = 1_000
PROBES: Final = 80
REPEAT: Final = 100_000  # in the kernel, from each processor, of all frames together
DATAGRAM_BYTES: Final = 66_000  # the largest, in frames
LIMITED, BLOCKED, OBSERVED, NEIGHBOUR = (
    PORTS[one] for one in (grow.LIMITED, grow.BLOCKED, grow.OBSERVED, grow.NEIGHBOUR)
)


class Broken(NamedTuple):
    """`rule`: limit, count, parsing, claim, verdict, harm."""

    rule: str
    words: str


def link_of(remote: bytes, port: int | None) -> int:
    """0: nobody's."""
    if remote in (shape.WHOLE4, shape.WHOLE6):
        return WHOLE
    return PORTS.get(port or 0, 0) if remote in (shape.USER4, shape.USER6) else 0


def judged(result: Result, *, from_user: bool, is_storm: bool) -> Broken | None:
    """What passed against what was counted, as Linux sees it."""
    host, delivered = Host(), Counter[int]()
    carried = 0  # bytes that passed with an address that has a link, and are not surely nobody's
    verdicts: dict[tuple[object, ...], set[int]] = {}
    distances = Distances()
    for number, (frame, passed) in enumerate(zip(result.frames, result.passed, strict=True)):
        piece = read(frame)
        is_given_up = distances.is_too_far(piece)
        if not passed:
            if result.is_bystander[number] and not is_given_up:
                return Broken("harm", f"frame {number + 1} of a bystander is refused")
            continue
        if has_address(frame) and not _is_nobodys(piece, from_user):
            carried += len(frame)
        if piece is not None and piece.identity and piece.offset == 0 and (ports := first_ports(piece)):
            remote = piece.source if from_user else piece.destination
            links = verdicts.setdefault(piece.identity, set())
            links.add(link_of(remote, ports[not from_user]))
            if len(links) > 1 and not is_storm:
                return Broken("verdict", f"first fragments of one datagram pass for the links {sorted(links)}")
        datagram = host.take(piece, len(frame))
        if piece is not None and piece.identity and piece.payload and not host.has(piece):
            verdicts.pop(piece.identity, None)  # its life has ended, its identification may come again
        if datagram is not None:
            link = _link_of(datagram, from_user)
            if link in (BLOCKED, WHOLE):
                return Broken("parsing", f"frame {number + 1} delivers a datagram of a blocked link")
            delivered[link] += datagram.wire_bytes
    return _counts(result, delivered, carried)


def _counts(result: Result, delivered: Counter[int], carried: int) -> Broken | None:
    counted = {link: one.passed_bytes for link, one in result.counted.items()}
    for link in (LIMITED, OBSERVED, NEIGHBOUR):
        if delivered[link] > counted[link]:
            return Broken("count", f"link {link}: {delivered[link]} B are delivered, {counted[link]} counted")
    if sum(counted.values()) > carried:
        return Broken("count", f"{carried} B of links can have passed, {sum(counted.values())} are counted")
    if result.other_way:
        return Broken("count", "links count packets of the other direction")
    return None


def has_address(frame: bytes) -> bool:
    return shape.USER4 in frame or shape.USER6 in frame or shape.WHOLE4 in frame or shape.WHOLE6 in frame


def _is_nobodys(piece: Piece | None, from_user: bool) -> bool:
    """Surely: a whole datagram of a port without a link."""
    if piece is None or piece.identity or piece.protocol != 17 or len(piece.payload) < 8:
        return False
    remote = piece.source if from_user else piece.destination
    ports = first_ports(piece)
    return link_of(remote, ports[not from_user] if ports else None) == 0


def _link_of(datagram: Datagram, from_user: bool) -> int:
    remote = datagram.source if from_user else datagram.destination
    return link_of(remote, datagram.ports[not from_user] if datagram.ports else None)


def probe(family: int, *, from_user: bool) -> bytes:
    """A packet of the limited link, of `PROBE_BYTES`."""
    user, ap = (shape.USER4, shape.AP4) if family == 4 else (shape.USER6, shape.AP6)
    ports, ends = (
        ((grow.LIMITED, shape.AP_PORT), (user, ap)) if from_user else ((shape.AP_PORT, grow.LIMITED), (ap, user))
    )
    payload = bytes(PROBE_BYTES - 14 - (20 if family == 4 else 40) - 8)
    return bytes(shape.Frame(*ends, shape.udp(*ports, payload), from_user).encoded()[0])


def claimed(replay: Replay, result: Result, *, from_user: bool) -> Broken | None:
    """After the frames a burst of the link gets the rest of its room: no more, and no less than they took."""
    replay.burst(probe(4, from_user=from_user), PROBES, from_user=from_user)
    passed = replay.passed_bytes(LIMITED, from_user=from_user)
    burst = passed - result.counted[LIMITED].passed_bytes
    arrived = sum(len(frame) for frame in result.frames if has_address(frame))
    if burst < ROOM_BYTES - arrived - PROBE_BYTES:
        return Broken("claim", f"{arrived} B arrived, and left {burst} of {ROOM_BYTES} B to the link")
    return None


def limited(replay: Replay, sequence: Sequence) -> Broken | None:
    """Its first frames again and again from two processors at once."""
    frames = sequence.frames[:2]
    encoded = [bytes(one.encoded()[0]) for one in frames]
    replay.reset()
    seconds = replay.both(encoded, REPEAT // len(encoded), from_user=sequence.from_user)
    passed = replay.passed_bytes(LIMITED, from_user=sequence.from_user)
    largest = DATAGRAM_BYTES if any(one.fragment for one in frames) else max(map(len, encoded))
    most = ROOM_BYTES + BEATS_BYTES + largest + BYTES_PER_S * seconds
    if passed > most:
        return Broken("limit", f"{passed} B passed in {seconds * 1000:.1f} ms, at most {most:.0f} may")
    return None


def examined(replay: Replay, sequence: Sequence, *, is_probed: bool, is_on_both: bool) -> tuple[Broken | None, int]:
    """The first property that it breaks, and how many frames were run one by one."""
    replay.reset()
    result = replay.run(sequence.frames, from_user=sequence.from_user)
    broken = judged(result, from_user=sequence.from_user, is_storm=sequence.is_storm)
    if broken is None and is_probed:
        broken = claimed(replay, result, from_user=sequence.from_user)
    if broken is None and is_on_both:
        broken = limited(replay, sequence)
    return broken, len(result.frames)
