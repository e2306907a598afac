"""State of polling hosts: the row that a poll is compared with, read for many polls in one statement.

A row is used for `FRESH_S`, and only for 304: for any other response Django reads the database. A message about a
change removes the row. While the database is unavailable the last known row still answers 304; no host is
rejected because of it.
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

from scionlab.delivery.host_api.auth import hosts_with_newest
from scionlab.delivery.polls.connections import READING_THREADS
from scionlab.delivery.polls.threads import Threads
from scionlab.platform.clock import database_now
from scionlab.testbed.models.host import secret_fits

logger = logging.getLogger(__name__)

FRESH_S: Final = 1.0
READ_DEADLINE_S: Final = 4.0  # a database that hangs counts as unavailable
MOST_PER_STATEMENT: Final = 500  # later requests wait for the statement: 5000 rows would take a third of a second
MOST_KNOWN: Final = 20_000
NEVER: Final = float("-inf")


class DatabaseAwayError(Exception):
    """The database did not respond."""


@dataclass(frozen=True, slots=True)
class HostState:
    """Credentials and newest configuration of a host."""

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

    def has_secret(self, password: bytes) -> bool:
        """Whether it is this host's, by the database's clock."""
        return secret_fits(
            password,
            secret=self.secret,
            previous=self.previous_secret,
            previous_until=self.previous_secret_until,
            now=database_now(),
        )


_WHOSE: Final = ("pk", "uid", "secret", "previous_secret", "previous_secret_until", "AS_id")
_NEWEST: Final = ("generation", "config_version", "limits_version", "issued_digests")


def read_states(uids: Collection[str]) -> dict[str, HostState]:
    """Read the rows of these hosts; one statement, blocking. Raises `DatabaseError`, `InterfaceError`. Reopens a
    connection that the server closed once."""
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
    read_at: float  # start of the statement, on the loop's clock


class Known:
    """For one event loop. `on_read` is called with each row, None for a deleted host."""

    def __init__(
        self,
        on_read: Callable[[str, HostState | None], None],
        *,
        read: Callable[[Collection[str]], Mapping[str, HostState]] = read_states,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_read = on_read
        self._read = read
        # One thread, so one connection; concurrent requests share the next statement.
        self._executor = Threads(READING_THREADS, "polls-read")
        self._entries: dict[str, _Entry] = {}
        self._uids: dict[int, str] = {}
        self._asked: dict[str, list[asyncio.Future[HostState | None]]] = {}
        self._urgent: set[str] = set()  # changed, by message
        self._due: set[str] = set()  # due by the clock
        self._told: set[int] | None = set()  # changed while a statement ran; None: all
        self._reader: asyncio.Task[None] | None = None
        self._is_stuck = False
        self.is_away = False

    async def fresh(self, uid: str, suffices: Callable[[HostState], bool]) -> HostState | None:
        """The host's row: at most `FRESH_S` old if that `suffices`, otherwise a new one. None for an unknown host. A
        wrong password takes equally long for known and unknown hosts. Raises `DatabaseAwayError`."""
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
        """The row as last read, however old."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.state

    @property
    def is_behind(self) -> bool:
        """Whether some rows of `refresh` are still to be read."""
        return bool(self._due)

    def refresh(self, uids: Iterable[str], *, is_urgent: bool = False) -> None:
        """Read these rows and call `on_read`; urgent ones first, and new polls before both."""
        (self._urgent if is_urgent else self._due).update(uids)
        self._start()

    def changed(self, host_ids: Collection[int] | None, waiting: Container[str]) -> None:
        """These hosts changed (None: all): drop their rows, and compare waiting polls with new ones. A running
        statement may have read old rows: those are read again."""
        if host_ids is None or self._told is None:
            self._told = None
        else:
            self._told.update(host_ids)
        uids = list(self._entries) if host_ids is None else [self._uids[pk] for pk in host_ids if pk in self._uids]
        for uid in uids:
            self._entries[uid].read_at = NEVER
        self.refresh((uid for uid in uids if uid in waiting), is_urgent=host_ids is not None)

    def confirm(self, uid: str) -> None:
        """Call `on_read` with the known row; one that was dropped meanwhile is read again."""
        entry = self._entries.get(uid)
        if entry is None or entry.read_at == NEVER:
            self.refresh([uid], is_urgent=True)
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
                logger.exception("polls.read_failed")  # a bug: callers must not wait for ever
            self._fail([future for futures in asked.values() for future in futures])
            return
        if self.is_away:
            self.is_away = False
            logger.warning("polls.database_back")
            self._due.update(self._entries)  # the due rows were not read
        for uid in batch:
            self._take(uid, states.get(uid), began)
            for future in asked.get(uid, ()):
                if not future.done():
                    future.set_result(states.get(uid))

    def _take(self, uid: str, state: HostState | None, began: float) -> None:
        self._forget(uid)
        if state is not None:
            if self._told is None or state.host_id in self._told:
                began = NEVER  # changed while reading: may be old or new
                self._urgent.add(uid)
            self._entries[uid] = _Entry(state, began)
            self._uids[state.host_id] = uid
            if len(self._entries) > MOST_KNOWN:
                self._forget(next(iter(self._entries)))  # least recently read
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
