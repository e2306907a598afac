"""What is known of the hosts that poll: the row that a poll is compared with, read for many polls in one statement.

A row serves polls for `FRESH_S`, and only those that it answers with 304: whoever gets anything else was looked up by
Django at that moment. A message that a host changed takes its row away at once. While the database is away the last
known row still says that a host has the newest configuration; nobody is refused because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import Final

from django.db import DatabaseError, InterfaceError, connection

from scionlab.host_api.auth import hosts_with_newest
from scionlab.polls.connections import READING_THREADS
from scionlab.polls.threads import Threads

logger = logging.getLogger(__name__)

FRESH_S: Final = 1.0
READ_DEADLINE_S: Final = 4.0  # a database that hangs is away
MOST_PER_STATEMENT: Final = 500  # what comes while it runs waits for it: 5000 rows would be a third of a second
MOST_KNOWN: Final = 20_000
NEVER: Final = float("-inf")


class DatabaseAwayError(Exception):
    """The database did not answer."""


@dataclass(frozen=True, slots=True)
class HostState:
    """Whose poll it is, and what the newest configuration of that host is."""

    host_id: int
    uid: str
    secret: str = field(repr=False)
    previous_secret: str = field(repr=False)
    previous_secret_until: datetime | None
    as_id: int | None
    generation: int
    config_version: int
    limits_version: int
    issued_digests: str | None


_WHOSE: Final = ("pk", "uid", "secret", "previous_secret", "previous_secret_until", "AS_id")
_NEWEST: Final = ("generation", "config_version", "limits_version", "issued_digests")


def read_states(uids: Collection[str]) -> dict[str, HostState]:
    """The rows of these hosts; one statement, blocking. Raises `DatabaseError`, `InterfaceError`.

    A connection that the server closed (restarted meanwhile) is opened again once.
    """
    try:
        return _read(uids)
    except (DatabaseError, InterfaceError):
        connection.close()
        return _read(uids)


def _read(uids: Collection[str]) -> dict[str, HostState]:
    rows = hosts_with_newest().filter(uid__in=uids).values_list(*_WHOSE, *_NEWEST)
    return {row[1]: HostState(*row) for row in rows}


@dataclass(slots=True)
class _Entry:
    state: HostState
    read_at: float  # when the statement began, on the loop's clock


class Known:
    """Belongs to one event loop. `on_read` is told each row that was read, None for a host that is gone."""

    def __init__(
        self,
        on_read: Callable[[str, HostState | None], None],
        *,
        read: Callable[[Collection[str]], Mapping[str, HostState]] = read_states,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_read = on_read
        self._read = read
        # One thread, so one connection; what is asked for meanwhile is the next statement.
        self._executor = Threads(READING_THREADS, "polls-read")
        self._entries: dict[str, _Entry] = {}
        self._uids: dict[int, str] = {}
        self._asked: dict[str, list[asyncio.Future[HostState | None]]] = {}
        self._urgent: set[str] = set()  # told to have changed
        self._due: set[str] = set()  # looked at by the clock
        self._told: set[int] | None = set()  # changed while a statement ran; None: all
        self._reader: asyncio.Task[None] | None = None
        self._is_stuck = False
        self.is_away = False

    async def fresh(self, uid: str, suffices: Callable[[HostState], bool]) -> HostState | None:
        """The host's row: of at most `FRESH_S` ago if that `suffices`, else a new one. None for no such host.

        A wrong password takes as long whether or not there is such a host. Raises `DatabaseAwayError`.
        """
        entry = self._entries.get(uid)
        if entry is not None and self._loop.time() - entry.read_at <= FRESH_S and suffices(entry.state):
            return entry.state
        if self._is_stuck:
            raise DatabaseAwayError
        future: asyncio.Future[HostState | None] = self._loop.create_future()
        self._asked.setdefault(uid, []).append(future)
        self._start()
        return await future

    def last(self, uid: str) -> HostState | None:
        """The row as it was last read, however long ago."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.state

    @property
    def is_behind(self) -> bool:
        """True while some of those that `look_again` was told are still to be read."""
        return bool(self._due)

    def look_again(self, uids: Iterable[str], *, is_urgent: bool = False) -> None:
        """Read these, and tell `on_read`; urgent ones before the others, and polls that arrive before both."""
        (self._urgent if is_urgent else self._due).update(uids)
        self._start()

    def changed(self, host_ids: Collection[int] | None, waiting: Container[str]) -> None:
        """These hosts changed (None: all): no row of before serves any poll, and who waits is compared with a new one.

        A statement that runs now may have read the row of before: those are read once more.
        """
        if host_ids is None or self._told is None:
            self._told = None
        else:
            self._told.update(host_ids)
        uids = list(self._entries) if host_ids is None else [self._uids[pk] for pk in host_ids if pk in self._uids]
        for uid in uids:
            self._entries[uid].read_at = NEVER
        self.look_again((uid for uid in uids if uid in waiting), is_urgent=host_ids is not None)

    def confirm(self, uid: str) -> None:
        """Tell `on_read` the row that is known; one that a message took away meanwhile is read anew."""
        entry = self._entries.get(uid)
        if entry is None or entry.read_at == NEVER:
            self.look_again([uid], is_urgent=True)
        else:
            self._on_read(uid, entry.state)

    def _start(self) -> None:
        if self._reader is None and self._has_work:
            self._reader = self._loop.create_task(self._read_all())

    @property
    def _has_work(self) -> bool:
        return bool(self._asked or self._urgent or self._due)

    async def _read_all(self) -> None:
        try:
            while self._has_work:
                await self._read_some()
        finally:
            self._reader = None

    async def _read_some(self) -> None:
        batch = list(dict.fromkeys(islice(chain(self._asked, self._urgent, self._due), MOST_PER_STATEMENT)))
        asked = {uid: self._asked.pop(uid) for uid in batch if uid in self._asked}
        self._urgent.difference_update(batch)
        self._due.difference_update(batch)
        self._told = set()
        began = self._loop.time()
        call = self._loop.run_in_executor(self._executor, self._read, batch)
        await asyncio.wait({call}, timeout=READ_DEADLINE_S)
        if not call.done():
            self._set_away("no answer within the deadline")
            self._is_stuck = True
            self._fail([future for futures in [*asked.values(), *self._asked.values()] for future in futures])
            self._asked.clear()
            await asyncio.wait({call})
            self._is_stuck = False
            asked = {}
        try:
            states = call.result()
        except Exception as exc:
            if isinstance(exc, DatabaseError | InterfaceError):
                self._set_away(repr(exc))
            else:
                logger.exception("polls.read_failed")  # a mistake of ours: who asked is not to wait for ever
            self._fail([future for futures in asked.values() for future in futures])
            return
        if self.is_away:
            self.is_away = False
            logger.warning("polls.database_back")
            self._due.update(self._entries)  # whatever was looked at meanwhile was not read
        for uid in batch:
            self._take(uid, states.get(uid), began)
            for future in asked.get(uid, ()):
                if not future.done():
                    future.set_result(states.get(uid))

    def _take(self, uid: str, state: HostState | None, began: float) -> None:
        self._forget(uid)
        if state is not None:
            if self._told is None or state.host_id in self._told:
                began = NEVER  # somebody changed it while we read: old or new, nobody knows
                self._urgent.add(uid)
            self._entries[uid] = _Entry(state, began)
            self._uids[state.host_id] = uid
            if len(self._entries) > MOST_KNOWN:
                self._forget(next(iter(self._entries)))  # the one that was read longest ago
        self._on_read(uid, state)

    def _forget(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._uids.pop(entry.state.host_id, None)

    def _set_away(self, why: str) -> None:
        if not self.is_away:
            logger.warning("polls.database_away %s", why)
        self.is_away = True

    @staticmethod
    def _fail(futures: Iterable[asyncio.Future[HostState | None]]) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(DatabaseAwayError())

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        await self._executor.close()
