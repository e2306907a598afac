"""Whatever form a packet has: a limited link gets its limit, a blocked one nothing, other ports of the address all.

The forms are those that slipped past the first engine (LIMITER.md), sent as frames, counted by sockets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import pytest

from ap_agent.dataplane.program import Key
from lab.frames.shape import DESTINATION, FRAGMENT, HOP, OUTER_TAG, ROUTING, TAG
from measuring.judge import room_bytes
from tests.dataplane.bed import AP, AP6, AP_PORT, USER, USER6, Bed
from tests.dataplane.frames import datagram, scion

pytestmark = pytest.mark.kernel

LIMITED, BLOCKED, FREE = 50_001, 50_002, 50_099  # ports of the user; the last one has no link
LIMIT_KBIT = 500
PAYLOAD_BYTES = 1200
PIECE_BYTES = 400


@dataclass(frozen=True)
class Form:
    """How a datagram looks on the wire."""

    name: str
    family: int = 4
    more: tuple[tuple[str, object], ...] = ()
    piece: int | None = None

    def __str__(self) -> str:
        return f"IPv{self.family} {self.name}"


def forms() -> Iterator[Form]:
    tags = {
        "a tag of id 0": [(TAG, 0)],
        "a tag of id 0 with a priority": [(TAG, 5 << 13)],
        "a service tag of id 0": [(OUTER_TAG, 0)],
        "two tags of id 0": [(OUTER_TAG, 0), (TAG, 0)],
    }
    for piece, words in ((None, ""), (PIECE_BYTES, " in fragments")):
        for family in (4, 6):
            yield Form(f"plain{words}", family, (), piece)
            for name, tag in tags.items():
                yield Form(name + words, family, (("tags", tuple(tag)),), piece)
        yield Form(f"options of 40 bytes{words}", 4, (("options", bytes([1]) * 40),), piece)
        chains = {
            "hop-by-hop": [HOP],
            "destination options": [DESTINATION],
            "a routing header": [ROUTING],
            "a chain of seven": [HOP, DESTINATION, ROUTING, DESTINATION, DESTINATION, DESTINATION, DESTINATION],
        }
        for name, chain in chains.items():
            yield Form(name + words, 6, (("extensions", tuple(chain)),), piece)
    yield Form("an atomic fragment", 6, (("extensions", (FRAGMENT,)),))
    yield Form("an atomic fragment behind a tag", 6, (("extensions", (FRAGMENT,)), ("tags", ((TAG, 0),))))


FORMS = list(forms())


def frames(form: Form, port: int, numbers: range, *, from_user: bool) -> list[bytes]:
    user, ap = ((USER, port), (AP, AP_PORT)) if form.family == 4 else ((USER6, port), (AP6, AP_PORT))
    ends = {"source": user, "destination": ap} if from_user else {"source": ap, "destination": user}
    more: dict[str, Any] = {**dict(form.more), **ends, "piece": form.piece, "from_user": from_user}
    payload = scion(size=PAYLOAD_BYTES)
    return [one.frame for number in numbers for one in datagram(payload, identification=number, **more)]


def user_of(form: Form) -> str:
    return USER if form.family == 4 else USER6


@pytest.mark.parametrize("from_user", [True, False], ids=["from the user", "to the user"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_in_every_form_each_port_gets_what_is_its_own(ap: Bed, form: Form, from_user: bool) -> None:
    address = ip_address(user_of(form))
    ap.link(7, LIMIT_KBIT, LIMIT_KBIT, Key(address, LIMITED))
    ap.link(8, 0, 0, Key(address, BLOCKED))
    before = [ap.counters(one)[from_user] for one in (7, 8)]
    floods = {
        port: frames(form, port, ap.identifications(number), from_user=from_user)
        for port, number in ((LIMITED, 100), (BLOCKED, 20), (FREE, 20))
    }
    ends = (ap.ap, AP if form.family == 4 else AP6) if from_user else (ap.user, user_of(form))
    began = time.monotonic()
    with ap.listen(*ends, *([AP_PORT] if from_user else floods)) as receiver:
        for flood in floods.values():
            ap.send(flood, from_ap=not from_user)
        found = receiver.counted(other_port=from_user)
    seconds = time.monotonic() - began
    limited, blocked = (ap.counters(one)[from_user] for one in (7, 8))

    assert found.get(BLOCKED, 0) == 0
    assert found[FREE] == 20
    assert blocked.passed_packets == before[1].passed_packets
    assert blocked.refused_packets - before[1].refused_packets == len(floods[BLOCKED])
    wire = sum(map(len, floods[LIMITED])) / 100
    # A datagram may be admitted with the last byte of room; early refusal takes at most one in eight.
    assert (
        room_bytes(LIMIT_KBIT) * 0.7
        <= found[LIMITED] * wire
        <= room_bytes(LIMIT_KBIT) + LIMIT_KBIT * 125 * seconds + wire
    )
    assert limited.passed_bytes - before[0].passed_bytes == pytest.approx(found[LIMITED] * wire, rel=0.03)
    packets_seen = limited.passed_packets + limited.refused_packets
    assert packets_seen - before[0].passed_packets - before[0].refused_packets == len(floods[LIMITED])
