"""The ASGI application of the service: answers polls with 304, immediately or after waiting; Django handles the rest.

Only `GET /api/v4/host/<uid>/config` with valid credentials and the newest versions is answered here. Django handles all
other polls from the database: rejected, malformed, and the tarball.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

from django.conf import settings

from scionlab.delivery.host_api.auth import password_for
from scionlab.delivery.host_api.poll_versions import Held, is_digest, is_number, is_version
from scionlab.delivery.last_contact import CONTACTS
from scionlab.delivery.polls import wakeup
from scionlab.delivery.polls.answers import disconnected, not_modified, nothing_more, send_away
from scionlab.delivery.polls.calls import called_since
from scionlab.delivery.polls.connections import RECEIPT_THREADS
from scionlab.delivery.polls.known import DatabaseAwayError, HostState, Known
from scionlab.delivery.polls.threads import Django, Receive, Scope, Send, Threads, close_pool
from scionlab.delivery.polls.uploads import AtOnce, Uploads, read_upload, would_reach_a_view
from scionlab.delivery.polls.waiting import Ended, Place, WaitingRoom
from scionlab.platform.clock import database_now
from scionlab.platform.last_contact import HAND_OVER_S
from scionlab.platform.metrics.names import POLLS, PROCESSES, WAITING, WAKES

logger = logging.getLogger(__name__)

MAX_WAIT_S: Final = 60
OTHER_FILES: Final = 200  # of this process, other than connections of polls
DELIVERY_S: Final = 8.0  # the stock client gives up after 10 s
TARBALLS_PER_S: Final = 20  # of one process, conservatively; rendering takes 15 ms of CPU (bench service)
RETURNS_PER_S: Final = 500  # of reconnecting clients when a process exits; a connection takes 0.3 ms of CPU
_PATH = re.compile(r"/api/v4/host/([^/]+)/config", flags=re.ASCII)
_WAIT = re.compile(r"[0-9]{1,6}", flags=re.ASCII)


@dataclass(frozen=True, slots=True)
class Poll:
    """A well-formed poll that may be answered 304."""

    uid: str
    password: bytes = field(repr=False)
    has: Held
    wait_s: int
    may_be_called: bool  # the agent reports live rates of open pages

    def is_up_to_date(self, state: HostState | None) -> bool:
        """Whether 304 is the response: credentials, versions and digest match."""
        return (
            state is not None
            and state.as_id is not None
            and self.has.is_newest(state)
            and state.has_secret(self.password)
        )


def read_poll(scope: Scope) -> Poll | None:
    """None for a request that Django handles."""
    path = _PATH.fullmatch(scope["path"])
    if scope["method"] != "GET" or path is None:
        return None
    headers = dict(scope["headers"])
    if not would_reach_a_view(headers):
        return None
    password = password_for(path[1], headers.get(b"authorization", b"").decode("latin-1"))
    if password is None:
        return None
    try:
        query = parse_qs(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return None
    version, limits, digest, wait = (query.get(name, [""])[-1] for name in ("version", "limits", "digest", "wait"))
    if not is_version(version) or (limits and not is_number(limits)) or (digest and not is_digest(digest)):
        return None
    wait_s = min(int(wait), MAX_WAIT_S) if _WAIT.fullmatch(wait) else 0
    return Poll(path[1], password, Held(version, limits, digest), wait_s, query.get("live") == ["1"])


class Application:
    """One per process. Started and stopped by ASGI's lifespan; `stop_waiting` is called before the stop."""

    def __init__(self) -> None:
        self._django = Django()
        self._pages = Threads(settings.WEB_THREADS, "pages")
        # Separate threads: a stampede of polls must not delay pages.
        self._tarballs = Threads(settings.POLL_THREADS, "polls")
        self._delivering = asyncio.Semaphore(settings.POLL_THREADS)
        # A large receipt takes a second and 300 MB to read: a host that floods us must not occupy all threads.
        self._receipts = Threads(RECEIPT_THREADS, "receipts")
        self._room = WaitingRoom()
        self._round = wakeup.Round()
        self._uploads = Uploads(self._django)
        self._places = 0
        self._queued = 0  # for a tarball
        self._delivering_to = AtOnce()  # tarballs
        self._known: Known | None = None
        self._messages: wakeup.Messages | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._called_at = database_now().timestamp()  # the last call that was received, without Redis
        self._sent_away_together = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"This server speaks HTTP only, not {scope['type']}.")
        poll = read_poll(scope)
        upload = read_upload(scope)
        if upload is not None:
            threads = self._receipts if upload.is_receipt else self._pages
            await self._uploads.answer(upload, scope, receive, send, known=self._running(), threads=threads)
        elif poll is None:
            await self._django.answer(scope, receive, send, self._pages)
        else:
            await self._answer(poll, scope, receive, send)

    # --- polls --------------------------------------------------------------------------------------------------

    async def _answer(self, poll: Poll, scope: Scope, receive: Receive, send: Send) -> None:
        known = self._running()
        try:
            state = await known.fresh(poll.uid, poll.is_up_to_date)
        except DatabaseAwayError:
            # The state is unknown: hosts known to be up to date keep waiting, others wait for the database.
            state = known.last(poll.uid)
            if not poll.is_up_to_date(state):
                await send_away(send)
                return
        if state is None or not poll.is_up_to_date(state):
            is_of_host = state is not None and state.has_secret(poll.password)  # others must not take a host's places
            if is_of_host and self._delivering_to.is_full(poll.uid):
                await send_away(send)
                return
            with self._delivering_to.one(poll.uid) if is_of_host else nullcontext():
                await self._deliver(scope, send)
            return
        CONTACTS.note([state.host_id])
        if not poll.wait_s:
            POLLS.labels("not_modified").inc()
            await not_modified(send)
            return
        if self._is_stopping or (len(self._room) >= self._places and poll.uid not in self._room):
            await send_away(send)
            return
        await self._conclude(*await self._wait(poll, known, receive), scope, send)

    async def _wait(self, poll: Poll, known: Known, receive: Receive) -> tuple[Ended, Sequence[int]]:
        loop = asyncio.get_running_loop()
        # Register first, then compare, then wait. Later changes are delivered to the registration; earlier ones, since
        # the row was read, are found by comparing.
        with Place(self._room, poll.uid, poll.is_up_to_date, may_be_called=poll.may_be_called) as place:
            known.confirm(poll.uid)
            clock = loop.call_later(poll.wait_s, place.end, Ended.TIME_IS_OVER)
            watch = loop.create_task(disconnected(receive))
            watch.add_done_callback(lambda _: place.end(Ended.DISCONNECTED))
            try:
                return await place.ended, place.looked_at
            finally:
                clock.cancel()
                watch.cancel()

    async def _conclude(self, ended: Ended, looked_at: Sequence[int], scope: Scope, send: Send) -> None:
        match ended:
            case Ended.SOMETHING_NEWER:
                woken_at = asyncio.get_running_loop().time()
                await self._deliver(scope, send)
                WAKES.observe(asyncio.get_running_loop().time() - woken_at)
            case Ended.STOPPING:
                await send_away(send, after=int(self._sent_away_together / RETURNS_PER_S))
            case Ended.TIME_IS_OVER | Ended.NEWER_POLL | Ended.LOOKED_AT:
                POLLS.labels("not_modified").inc()
                await not_modified(send, looked_at=looked_at)
            case Ended.DISCONNECTED:
                pass

    async def _deliver(self, scope: Scope, send: Send) -> None:
        """Django's response; 503 if the client would time out before it."""
        self._queued += 1
        try:
            async with asyncio.timeout(DELIVERY_S):
                await self._delivering.acquire()
        except TimeoutError:
            await send_away(send, after=self._queued // TARBALLS_PER_S)
            return
        finally:
            self._queued -= 1
        POLLS.labels("delivered").inc()
        try:
            await self._django.answer(scope, nothing_more, send, self._tarballs)
        finally:
            self._delivering.release()

    # --- from start to end --------------------------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def start(self) -> None:
        """Start reading and listening; in the serving loop."""
        PROCESSES.labels("web").set(1)
        self._places = min(settings.POLL_PLACES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES)
        known = self._known = Known(self._room.compare)
        if settings.REDIS_URL:
            on_change = partial(known.changed, waiting=self._room)
            self._messages = wakeup.Messages(settings.REDIS_URL, on_change, self._room.call)
            self._keep(self._messages.run())
        self._keep(wakeup.every(self._check_interval_s, self._check))
        self._keep(wakeup.every(lambda: HAND_OVER_S, self._hand_over))

    def stop_waiting(self) -> None:
        """Answer all waiting polls; new ones do not wait."""
        self._is_stopping = True
        self._sent_away_together = len(self._room)
        self._room.end_all(Ended.STOPPING)

    async def stop(self) -> None:
        self.stop_waiting()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self._hand_over(at_once=True)
        await self._running().close()
        await self._pages.close()
        await self._tarballs.close()
        await self._receipts.close()
        await asyncio.to_thread(close_pool)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_complain)
        self._keepers.append(task)

    def _running(self) -> Known:
        if self._known is None:
            raise RuntimeError("The server does not speak ASGI's lifespan protocol: start it with lifespan on.")
        return self._known

    def _check_interval_s(self) -> float:
        if self._running().is_away:
            return wakeup.DATABASE_AWAY_S
        is_told = self._messages is not None and self._messages.is_listening
        round_s = wakeup.SAFETY_NET_S if is_told else wakeup.WITHOUT_MESSAGES_S
        return wakeup.pause_s(round_s, len(self._room))

    async def _check(self) -> None:
        if self._room and not settings.REDIS_URL:
            loop = asyncio.get_running_loop()
            self._called_at, called = await loop.run_in_executor(self._tarballs, called_since, self._called_at)
            for uid, links in called.items():
                self._room.call(uid, links)
        known = self._running()
        if not known.is_behind:  # a slow database is not asked more often
            known.refresh(self._round.piece(self._room.uids))

    async def _hand_over(self, *, at_once: bool = False) -> None:
        known = self._running()
        waiting: Iterable[HostState | None] = map(known.last, self._room.uids)
        CONTACTS.note([state.host_id for state in waiting if state is not None])  # waiting polls count
        WAITING.set(len(self._room))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._tarballs, lambda: CONTACTS.hand_over(at_once=at_once))


def _complain(task: asyncio.Task[None]) -> None:
    """A background task ends only with the server: anything else is a bug, and polls would never be woken."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("polls.keeper_died", exc_info=task.exception())
