"""In whose turn the rows of waiting hosts are read: by the clock in pieces, and who is told to have changed first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

from django.db import DatabaseError

from scionlab.delivery.polls import wakeup
from scionlab.delivery.polls.known import MOST_PER_STATEMENT, HostState, Known


def state(number: int) -> HostState:
    return HostState(number, f"h{number}", "", "", None, 1, 1, 1, 1, None)


class Rows:
    """A table that has every host; `read` are the statements."""

    def __init__(self) -> None:
        self.read: list[list[str]] = []
        self.is_away = False
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, uids: Collection[str]) -> dict[str, HostState]:
        if self.is_away:
            raise DatabaseError
        self.read.append(list(uids))
        assert self.may_end.wait(20)
        return {uid: state(int(uid[1:])) for uid in uids}


def test_who_is_told_to_have_changed_waits_for_one_piece_of_those_that_the_clock_looks_at() -> None:
    rows = Rows()

    async def work() -> None:
        known = Known(lambda *_: None, read=rows)
        everybody = [f"h{number}" for number in range(2_000)]
        await known.fresh("h7", lambda _: True)
        rows.read.clear()
        rows.may_end.clear()
        known.refresh(everybody)
        while not rows.read:
            await asyncio.sleep(0)
        known.changed([7], set(everybody))
        arrived = asyncio.create_task(known.fresh("h9999", lambda _: True))
        await asyncio.sleep(0)
        rows.may_end.set()
        await settled(known)
        await arrived
        await known.close()

    asyncio.run(work())
    assert max(map(len, rows.read)) == MOST_PER_STATEMENT
    assert rows.read[1][:2] == ["h9999", "h7"], "in the next statement, before 1500 others"
    assert {uid for piece in rows.read for uid in piece} >= {f"h{number}" for number in range(2_000)}


def test_a_database_that_is_back_is_asked_for_everybody_who_is_known() -> None:
    rows = Rows()

    async def work() -> None:
        known = Known(lambda *_: None, read=rows)
        await asyncio.gather(*(known.fresh(f"h{number}", lambda _: True) for number in range(9)))
        rows.read.clear()
        for rows.is_away in (True, False):
            known.refresh(["h1"])
            await settled(known)
        await known.close()

    asyncio.run(work())
    assert sorted({uid for piece in rows.read for uid in piece}) == [f"h{number}" for number in range(9)]


async def settled(known: Known) -> None:
    while known._reader is not None:
        await asyncio.sleep(0)


def test_a_round_looks_at_everybody_once() -> None:
    turns, everybody = wakeup.Round(), [f"h{number}" for number in range(2 * wakeup.PIECE + 1)]
    pieces = [turns.piece(everybody) for _ in range(4)]
    assert [len(piece) for piece in pieces] == [wakeup.PIECE, wakeup.PIECE, 1, wakeup.PIECE]
    assert sorted(pieces[0] + pieces[1] + pieces[2]) == sorted(everybody)
    assert wakeup.Round().piece([]) == []
