"""Waiting polls: one place per host, and the reasons to end the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, KeysView, Sequence
from enum import Enum
from types import TracebackType

from scionlab.delivery.polls.known import HostState


class Ended(Enum):
    """Why the waiting ended."""

    TIME_IS_OVER = "time is over"
    SOMETHING_NEWER = "something newer"  # or deleted, or its credentials changed: Django responds
    LOOKED_AT = "looked at"  # a page of the host's links is open
    NEWER_POLL = "newer poll"  # of the same host
    STOPPING = "stopping"  # of this process
    DISCONNECTED = "disconnected"


class Place:
    """A poll's place, held inside `with`; `ended` says when to respond, and `looked_at` which links have an open page,
    if the agent `may_be_called`."""

    __slots__ = ("_room", "ended", "is_up_to_date", "looked_at", "may_be_called", "uid")

    def __init__(
        self,
        room: WaitingRoom,
        uid: str,
        is_up_to_date: Callable[[HostState | None], bool],
        *,
        may_be_called: bool = False,
    ) -> None:
        self._room = room
        self.uid, self.may_be_called = uid, may_be_called
        self.looked_at: Sequence[int] = ()
        self.is_up_to_date = is_up_to_date
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def end(self, why: Ended) -> None:
        if not self.ended.done():
            self.ended.set_result(why)

    def __enter__(self) -> Place:
        self._room.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._room.leave(self)


class WaitingRoom:
    """At most one place per host: a new poll ends the older one, whose client is likely gone."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, uid: object) -> bool:
        return uid in self._places

    @property
    def uids(self) -> KeysView[str]:
        return self._places.keys()

    def enter(self, place: Place) -> None:
        older = self._places.pop(place.uid, None)
        self._places[place.uid] = place
        if older is not None:
            older.end(Ended.NEWER_POLL)

    def leave(self, place: Place) -> None:
        if self._places.get(place.uid) is place:
            del self._places[place.uid]

    def compare(self, uid: str, state: HostState | None) -> None:
        """End the waiting of this host's poll if it is outdated."""
        place = self._places.get(uid)
        if place is not None and not place.is_up_to_date(state):
            place.end(Ended.SOMETHING_NEWER)

    def call(self, uid: str, links: Sequence[int]) -> None:
        """A page with these links of the host is open."""
        place = self._places.get(uid)
        if place is not None and place.may_be_called and links:
            place.looked_at = links
            place.end(Ended.LOOKED_AT)

    def end_all(self, why: Ended) -> None:
        for place in list(self._places.values()):
            place.end(why)
