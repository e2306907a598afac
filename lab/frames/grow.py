"""Sequences of at most twelve frames from a seed: datagrams of several ports with the same identifications, whole and
in fragments, shuffled, repeated, left out, and damaged in any field; between them a bystander's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from lab.frames import shape
from lab.frames.shape import AP_PORT, Frame

LIMITED, BLOCKED, OBSERVED, NEIGHBOUR, FREE = 50_001, 50_002, 50_003, 50_004, 50_099  # ports of the user
MOST_FRAMES = 12
STORM = 64
DATA, HEARTBEAT = 17, 203  # next header of SCION
KINDS = (shape.HOP, shape.DESTINATION, shape.ROUTING, shape.FRAGMENT, shape.AUTHENTICATION, shape.UDP, 6, 58, 59, 1)
VALUES = (0, 1, 2, 7, 8, 13, 16, 21, 40, 0x7F, 0x80, 0xFF)
WORDS = (0x05DC, 0x0800, 0x1FFF, 0x2000, 0x2001, 0x4000, 0x7FFF, 0x8000, 0x8100, 0x86DD, 0x88A8, 0xFFEB, 0xFFFF)


@dataclass
class Sequence:
    frames: list[Frame]
    from_user: bool

    @property
    def is_storm(self) -> bool:
        return any(one.copies > 1 for one in self.frames)

    def lines(self) -> str:
        """Each frame in words and as hexadecimal digits."""
        words = "from the user:" if self.from_user else "to the user:"
        return "\n".join([words, *(f"  {one}\n    {one.encoded()[0].hex()}" for one in self.frames)])


ON_BOTH_EVERY, ONE_FRAME_EVERY = 100, 200  # of the sequences run on two processors, half are of one frame


def sequence(seed: int, number: int) -> Sequence:
    """Always the same one."""
    rng = random.Random(seed << 40 | number)
    from_user = rng.random() < 0.5
    identifications = [rng.randrange(1, 0x7FFF) for _ in range(rng.choice((1, 1, 2)))]
    family = rng.choice((4, 6))
    if number % ONE_FRAME_EVERY == 1:
        return Sequence([_whole(rng, family, LIMITED, from_user)], from_user)
    frames: list[Frame] = []
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        frames += _datagram(rng, family if rng.random() < 0.9 else 10 - family, from_user, identifications)
    way = rng.random()
    if way < 0.35:
        rng.shuffle(frames)
    elif way < 0.5:
        frames.reverse()
    frames = frames[: MOST_FRAMES - 2]
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        _damage(rng, rng.choice(frames))
    if rng.random() < 0.02:
        rng.choice(frames).copies = STORM
    if rng.random() < 0.3:
        bystanders = _bystander(rng, from_user)
        at = rng.randrange(len(frames) + 1)
        if rng.random() < 0.5:
            frames[at:at] = bystanders
        else:
            frames = [*bystanders[:1], *frames, *bystanders[1:]]
    return Sequence(frames[:MOST_FRAMES], from_user)


def _datagram(rng: random.Random, family: int, from_user: bool, identifications: list[int]) -> list[Frame]:
    """One datagram of one of the ports."""
    port = rng.choice((LIMITED, LIMITED, LIMITED, BLOCKED, BLOCKED, OBSERVED, FREE, FREE))
    whole = _whole(rng, family, port, from_user)
    if rng.random() < 0.35:
        return [whole]
    return _pieces(rng, whole, rng.choice(identifications))


def _whole(rng: random.Random, family: int, port: int, from_user: bool) -> Frame:
    user, ap = (shape.USER4, shape.AP4) if family == 4 else (shape.USER6, shape.AP6)
    if rng.random() < 0.05:
        user = shape.WHOLE4 if family == 4 else shape.WHOLE6
    payload = bytes((0, 0, 0, 0, rng.choice((DATA, DATA, HEARTBEAT)))) + bytes(
        rng.choice((0, 3, 5, 59, 200, 700, 1300))
    )
    ports, ends = ((port, AP_PORT), (user, ap)) if from_user else ((AP_PORT, port), (ap, user))
    body = shape.udp(*ports, payload)
    whole = Frame(ends[0], ends[1], body, from_user)
    if rng.random() < 0.2:
        whole.tags = [(rng.choice((shape.TAG, shape.OUTER_TAG)), rng.choice((0, 0, 0xE000))) for _ in range(_some(rng))]
    if family == 4 and rng.random() < 0.1:
        whole.options = b"\1" * rng.choice((4, 8, 40))
    if family == 6 and rng.random() < 0.25:
        whole.extensions = [rng.choice(KINDS[:4] if rng.random() < 0.3 else (0, 60, 43, 60)) for _ in range(_some(rng))]
        if 0 in whole.extensions[1:]:  # Linux takes it in the first place alone
            whole.extensions = [one or shape.DESTINATION for one in whole.extensions]
    if family == 6 and rng.random() < 0.1:  # behind the fragment header
        whole.body, whole.protocol = shape.extension(shape.DESTINATION, shape.UDP) + body, shape.DESTINATION
    return whole


def _some(rng: random.Random) -> int:
    return rng.choice((1, 1, 2, 3, 4, 5, 6, 7, 8, 25, 40)) if rng.random() < 0.5 else 1


def _pieces(rng: random.Random, whole: Frame, identification: int) -> list[Frame]:
    """Of any size: what is no multiple of 8 overlaps, or leaves a gap, or is dropped."""
    body, at = whole.body, 0
    found: list[Frame] = []
    first = rng.choice((8, 8, 13, 16, 24, 64, 512, len(body)))
    while at < len(body) and len(found) < 5:
        size = first if at == 0 else rng.choice((8, 16, 64, 512, len(body), len(body)))
        end = min(len(body), at + size)
        found.append(
            replace(
                whole,
                body=body[at:end],
                fragment=(identification, at, end < len(body) or rng.random() < 0.05),
                tags=list(whole.tags),
                extensions=list(whole.extensions),
                changes={},
            )
        )
        at = (at + size) & ~7
    if rng.random() < 0.2:
        found.append(replace(rng.choice(found), changes={}))
    if rng.random() < 0.2:
        del found[rng.randrange(len(found))]
    return found or [whole]


def _bystander(rng: random.Random, from_user: bool) -> list[Frame]:
    """Nobody limits its port, or its address, or its link has much room."""
    family = rng.choice((4, 6))
    port = rng.choice((FREE, NEIGHBOUR))
    user, ap = (shape.USER4, shape.AP4) if family == 4 else (shape.USER6, shape.AP6)
    if rng.random() < 0.3:
        user = shape.OTHER4 if family == 4 else shape.OTHER6
    ports, ends = ((port, AP_PORT), (user, ap)) if from_user else ((AP_PORT, port), (ap, user))
    whole = Frame(*ends, shape.udp(*ports, b"bystander" + bytes(180)), from_user, is_bystander=True)
    if rng.random() < 0.4:
        return [whole]
    fragment = rng.randrange(0x8000, 0xFFFF)  # of no other datagram
    size = rng.choice((16, 64, 104))
    return [
        replace(whole, body=whole.body[:size], fragment=(fragment, 0, True)),
        replace(whole, body=whole.body[size:], fragment=(fragment, size // 8 * 8, False)),
    ]


def _damage(rng: random.Random, frame: Frame) -> None:
    way = rng.random()
    if way < 0.08:
        frame.cut = rng.choice((1, 2, 4, 8, 20, 40))
    elif way < 0.16:
        frame.changes[f"byte{rng.randrange(12, 80)}"] = rng.getrandbits(8)
    elif way < 0.26:
        frame.tags = [(rng.choice((shape.TAG, shape.OUTER_TAG)), 0) for _ in range(_some(rng))]
    else:
        places = frame.places()
        name, _, size = places[rng.randrange(len(places))]
        value = _value(rng, name, size)
        frame.changes[name] = value & 0x7FFF if name.endswith("identification") else value  # none of a bystander's


def _value(rng: random.Random, name: str, size: int) -> int:
    if name.endswith((".next", ".protocol")):
        return rng.choice(KINDS)
    if name in ("udp.source", "udp.destination"):
        return rng.choice((LIMITED, BLOCKED, OBSERVED, FREE, AP_PORT, 0, 67, 546))
    if name in ("fragment.offset", "ipv4.offset"):
        offset = rng.choice((0, 0, 1, 2, 3, 8, 64, 0x1FFF))
        return offset << 3 | rng.choice((0, 1)) if name[0] == "f" else offset | rng.choice((0, 0x2000))
    if name.endswith("version"):
        version = rng.choice((0, 4, 5, 6, 15))
        return version << 4 | rng.choice((0, 5, 6, 15)) if size == 1 else version << 28
    way = rng.random()
    likely = VALUES if way < 0.4 else WORDS if size > 1 else ()
    return rng.choice(likely) if likely and way < 0.8 else rng.getrandbits(8 * size)


def smaller(found: Sequence, is_still: Callable[[Sequence], bool]) -> Sequence:
    """Without the frames, copies and damages that it does not need."""
    is_done = False
    while not is_done:
        is_done = True
        for tried in _steps(found):
            if is_still(tried):
                found, is_done = tried, False
                break
    return found


def _steps(found: Sequence) -> list[Sequence]:
    tried = []
    for number, frame in enumerate(found.frames):
        rest = found.frames[:number], found.frames[number + 1 :]
        changed: list[list[Frame]] = [[]] if len(found.frames) > 1 else []
        if frame.copies > 1:
            changed += [[replace(frame, copies=1)], [replace(frame, copies=frame.copies // 2)]]
        if frame.cut:
            changed.append([replace(frame, cut=0)])
        if frame.options:
            changed.append([replace(frame, options=b"")])
        for name in frame.changes:
            changed.append([replace(frame, changes={one: to for one, to in frame.changes.items() if one != name})])
        if frame.tags:
            changed += [[replace(frame, tags=[])], [replace(frame, tags=frame.tags[:-1])]]
        if frame.extensions:
            changed += [[replace(frame, extensions=[])], [replace(frame, extensions=frame.extensions[:-1])]]
        tried += [Sequence([*rest[0], *one, *rest[1]], found.from_user) for one in changed]
    return tried
