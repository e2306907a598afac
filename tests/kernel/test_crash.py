"""Crash anywhere: the limiter dies after any step that it takes, another one starts, and no limit was lost meanwhile.

Each beginning of what a change takes is made with the real engine, in the real kernel. Who is limited then is asked
with packets: a burst that no queue of a slow link has room for arrives whole only where nothing limits it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from ap_agent.dataplane.tree import Operation
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from ap_agent.dataplane.writing import Writer
from measuring.iproute import available, cleanup_stale
from measuring.netns import Lab, Namespace
from tests.engine_host import EngineHost, key, limited

pytestmark = pytest.mark.kernel

PREFIX = "slbwx"
AP, USER, USER6, AP6 = "192.0.2.1", "192.0.2.11", "2001:db8::11", "2001:db8::1"
SLOW_KBIT = 8  # nothing of what waits leaves while somebody looks
BURST, BYTES = 16, 1400  # 23 kB: more than the room of 14 kB
ALWAYS, BLOCKED, CHANGING, MOVED, LATER = 50_001, 50_002, 50_003, 50_004, 50_005


class CrashedError(Exception):
    """The limiter dies here."""


@dataclass(frozen=True)
class Change:
    """`limited`: ports whose packets are limited before and after, so at every moment between."""

    before: tuple[LimitedLink, ...]
    after: tuple[LimitedLink, ...]
    limited: tuple[int, ...]
    unmatched_kbit: tuple[int | None, int | None] = (None, None)


def _slow(number: int, port: int, kbit: int = SLOW_KBIT) -> LimitedLink:
    return limited(number, kbit, key(USER, port), key(USER6, port))


_BOTH = (_slow(1, ALWAYS), limited(2, 0, key(USER, BLOCKED), key(USER6, BLOCKED)))
CHANGES = {
    "a link comes": Change(_BOTH, (*_BOTH, _slow(5, LATER)), (ALWAYS,)),
    "a link goes": Change((*_BOTH, _slow(5, LATER)), _BOTH, (ALWAYS,)),
    "a rate rises": Change((*_BOTH, _slow(3, CHANGING)), (*_BOTH, _slow(3, CHANGING, 16)), (ALWAYS, CHANGING)),
    "a rate falls": Change((*_BOTH, _slow(3, CHANGING, 16)), (*_BOTH, _slow(3, CHANGING)), (ALWAYS, CHANGING)),
    "two links swap their ports": Change(
        (*_BOTH, _slow(3, CHANGING), _slow(4, MOVED)),
        (*_BOTH, _slow(3, MOVED), _slow(4, CHANGING)),
        (ALWAYS, CHANGING, MOVED),
    ),
    "a link is found by its address alone": Change(
        (*_BOTH, _slow(3, CHANGING)), (*_BOTH, limited(3, SLOW_KBIT, key(USER), key(USER6))), (ALWAYS, CHANGING)
    ),
    "a blocked link is opened": Change(
        (*_BOTH, _slow(3, CHANGING, 0)), (*_BOTH, _slow(3, CHANGING)), (ALWAYS, CHANGING)
    ),
    "an open link is blocked": Change(
        (*_BOTH, _slow(3, CHANGING)), (*_BOTH, _slow(3, CHANGING, 0)), (ALWAYS, CHANGING)
    ),
    "the rest is limited too": Change(_BOTH, _BOTH, (ALWAYS,), (None, SLOW_KBIT)),
    "the rest is free again": Change(_BOTH, _BOTH, (ALWAYS,), (SLOW_KBIT, None)),
}


@dataclass
class Bed:
    ap: Namespace
    user: Namespace
    engine: EngineHost

    def arrived(self, ports: Sequence[int]) -> dict[tuple[int, int, str], int]:
        """Of a burst for each family and port, in both directions."""
        found: dict[tuple[int, int, str], int] = {}
        with contextlib.ExitStack() as stack:
            for family, here, there in ((4, AP, USER), (6, AP6, USER6)):
                for port in ports:
                    at_ap = stack.enter_context(self.ap.call(lambda here=here, port=port: _bound(here, port + 1000)))
                    at_user = stack.enter_context(self.user.call(lambda there=there, port=port: _bound(there, port)))
                    for _ in range(BURST):
                        at_ap.sendto(bytes(BYTES), (there, port))
                        at_user.sendto(bytes(BYTES), (here, port + 1000))
                    found[family, port, "to user"] = _taken(at_user)
                    found[family, port, "from user"] = _taken(at_ap)
        return found


@contextlib.contextmanager
def dying_after(steps: int) -> Iterator[None]:
    """An engine dies when it has taken so many steps of a pass."""
    apply = Writer.apply

    def beginning(self: Writer, operations: Sequence[Operation], *rest: Any) -> None:
        apply(self, operations[:steps], *rest)
        raise CrashedError

    with mock.patch.object(Writer, "apply", beginning), pytest.raises(CrashedError):
        yield


def _bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, port))
    sock.setblocking(False)
    return sock


def _taken(sock: socket.socket) -> int:
    time.sleep(0.001)  # an IFB's softirq runs behind ours
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.recv(2048)
            count += 1
    return count


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    missing = available()
    if missing is not None:
        pytest.skip(missing)
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        lab.veth(ap.nic("n0", f"{AP}/24", f"{AP6}/64"), user.nic("u0", f"{USER}/24", f"{USER6}/64"))
        with EngineHost(ap) as engine:
            yield Bed(ap, user, engine)


@pytest.mark.parametrize("name", CHANGES)
def test_killed_after_any_step_no_limit_is_lost_and_the_next_start_converges(bed: Bed, name: str) -> None:
    change = CHANGES[name]
    before, after = ({one.interface_id: one for one in links} for links in (change.before, change.after))
    bed.engine.must_enforce()
    bed.engine.must_enforce(*change.before, unmatched_kbit=change.unmatched_kbit[0])
    wanted = Wanted(after, change.unmatched_kbit[1])
    steps = len(bed.ap.call(lambda: bed.engine.engine.plan(wanted)).plan.operations)
    assert steps > 0
    for taken in range(steps + 1):
        bed.engine.must_enforce(*before.values(), unmatched_kbit=change.unmatched_kbit[0])
        with dying_after(taken):
            bed.ap.call(lambda: bed.engine.engine.enforce(wanted))
        bed.engine.again()
        found = bed.arrived((*change.limited, BLOCKED))
        free = {way: count for way, count in found.items() if way[1] != BLOCKED and count == BURST}
        open_ways = {way: count for way, count in found.items() if way[1] == BLOCKED and count}
        assert (free, open_ways) == ({}, {}), f"after {taken} of {steps} steps"
        bed.engine.must_enforce(*after.values(), unmatched_kbit=change.unmatched_kbit[1])
        assert bed.engine.must_enforce(*after.values(), unmatched_kbit=change.unmatched_kbit[1]).writes == 0


def test_a_burst_tells_a_limited_link_from_a_free_one(bed: Bed) -> None:
    bed.engine.must_enforce(_slow(1, ALWAYS), limited(2, 0, key(USER, BLOCKED), key(USER6, BLOCKED)))
    found = bed.arrived((ALWAYS, BLOCKED, LATER))
    assert {count for (_, port, _), count in found.items() if port == BLOCKED} == {0}
    assert {count for (_, port, _), count in found.items() if port == LATER} == {BURST}
    assert max(count for (_, port, _), count in found.items() if port == ALWAYS) < BURST
