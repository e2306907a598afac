"""What the limiter counts for who looks: only what is asked for, each second, and only for a while."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ap_agent.common.errors import StoreError
from ap_agent.document.live import (
    ASKED_FOR_S,
    LIVE_FILE,
    LOOKS_FILE,
    MOST_LINKS,
    read_live,
    read_request,
    write_request,
)
from ap_agent.document.series import SeriesSample
from ap_agent.document.state import Counters
from tests.cases import table
from tests.limiter.test_limiter_loop import World, fresh, settings, two, world

__all__ = ["fresh", "settings", "world"]  # fixtures


def ask(world: World, *links: int) -> None:
    write_request(world.settings.state_dir, links)
    world.files.is_touched = True


def counted_for(world: World, seconds: float) -> list[dict[int, SeriesSample]]:
    """Each file that was written in this time."""
    found: list[dict[int, SeriesSample]] = []
    path, end = world.settings.limiter_run_dir / LIVE_FILE, world.monotonic + seconds
    while world.monotonic < end:
        path.unlink(missing_ok=True)
        world.run_for(min(0.1, end - world.monotonic))
        if path.exists():
            found.append(read_live(world.settings.limiter_run_dir))
    return found


def test_links_are_counted_each_second_while_they_are_asked_for_and_no_longer(world: World) -> None:
    assert counted_for(world, 5) == [], "nobody looks"
    world.engine.count[7, "to_user"] = Counters(5000, 5, 3000, 3, 0, 0)
    ask(world, 7, 99)
    found = counted_for(world, ASKED_FOR_S + 10)

    assert len(found) in (15, 16)
    assert {frozenset(one) for one in found} == {frozenset({7})}, "the kernel has no link 99"
    assert found[0][7].to_user[1:] == (500, 5000, 5, 3000, 3, 0)
    clocks = [one[7].clock_ms for one in found]
    assert {round((later - earlier) / 100) for earlier, later in pairwise(clocks)} == {10}
    ask(world, 8)
    assert set(counted_for(world, 0.2)[0]) == {8}, "at once"


def test_request_of_before_asks_nothing_of_a_limiter_that_begins(fresh: World) -> None:
    fresh.hand(links=two())
    ask(fresh, 7)
    fresh.start()
    fresh.loop.start()
    assert counted_for(fresh, 3) == []


def test_request_that_asks_again_goes_on_without_a_gap(world: World) -> None:
    found = []
    for _ in range(3):
        ask(world, 7)
        found += counted_for(world, 5)
    clocks = [one[7].clock_ms for one in found]
    assert {round((later - earlier) / 100) for earlier, later in pairwise(clocks)} == {10}


BAD = {
    "no object": b"[7]",
    "another schema": b'{"schema": 2, "links": [7]}',
    "a number that is too large": b'{"schema": 1, "links": [65536]}',
    "too many": b'{"schema": 1, "links": %s}' % str(list(range(1, MOST_LINKS + 2))).encode(),
}


@table("data", list(BAD.values()), ids=list(BAD))
def test_request_that_cannot_be_read_is_nothing(world: World, data: bytes) -> None:
    (world.settings.state_dir / LOOKS_FILE).write_bytes(data)
    world.files.is_touched = True
    assert counted_for(world, 2) == []
    assert world.codes() == []
    with pytest.raises(StoreError):
        read_request(world.settings.state_dir)
