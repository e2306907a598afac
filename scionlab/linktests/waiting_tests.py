"""Waiting GETs of a test: `GET /api/v1/tests/<id>/?wait=`.

Django decides on access and changes. Its 304 is held back here until a row of the test changes or one of its times is
reached; then Django is asked again. A waiting request is a coroutine; one statement checks the tests of all of them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone

from scionlab.delivery.polls.answers import disconnected, nothing_more, unavailable
from scionlab.delivery.polls.threads import Django, Message, Receive, Scope, Send, Threads
from scionlab.delivery.polls.waiting import Ended
from scionlab.linktests.models import LinkTest
from scionlab.linktests.rest.queries import MAX_WAIT_S
from scionlab.linktests.test_status import GRACE

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.25
PLACES_PER_TOKEN: Final = 10
_PATH = re.compile(r"/api/v1/tests/([0-9]{1,18})/", flags=re.ASCII)
_WAIT = re.compile(r"[0-9]{1,6}", flags=re.ASCII)

Mark = frozenset[tuple[Any, ...]]  # of a test: equal while unchanged; empty if deleted


@dataclass(frozen=True, slots=True)
class Asked:
    """`token` is the credential of the request."""

    test_id: int
    token: bytes = field(repr=False)
    wait_s: int


def read_request(scope: Scope) -> Asked | None:
    """None for a request that Django answers immediately."""
    path = _PATH.fullmatch(scope["path"])
    if scope["method"] != "GET" or path is None:
        return None
    headers = dict(scope["headers"])
    written = headers.get(b"authorization", b"").split()
    if b"if-none-match" not in headers or len(written) != 2:
        return None
    try:
        query = parse_qs(scope["query_string"].decode("ascii"), max_num_fields=20)
    except ValueError:
        return None
    wait = query.get("wait", [""])[-1]
    wait_s = min(int(wait), MAX_WAIT_S) if _WAIT.fullmatch(wait) else 0
    return Asked(int(path[1]), written[1], wait_s) if wait_s else None


def read_marks(test_ids: Collection[int]) -> dict[int, Mark]:
    """Everything that `links.test_status` reads of these tests; one statement, blocking. Raises `DatabaseError`,
    `InterfaceError`."""
    now = timezone.now()
    receipt = "link__interface_a__host__receipt__received_at"
    columns = ("pk", "begins_at", "ends_at", "cancelled_at", "armed_at", receipt, "results__received_at")
    found: dict[int, set[tuple[Any, ...]]] = {}
    for pk, begins_at, ends_at, *rest in LinkTest.objects.filter(pk__in=test_ids).values_list(*columns):
        found.setdefault(pk, set()).add((now >= begins_at, now >= ends_at + GRACE, *rest))
    return {pk: frozenset(rows) for pk, rows in found.items()}


@dataclass(eq=False, slots=True)
class _Place:
    test_id: int
    mark: Mark
    ended: asyncio.Future[Ended]

    def end(self, why: Ended) -> None:
        if not self.ended.done():
            self.ended.set_result(why)


class WaitingTests:
    """For one event loop. Statements run on `threads`, like Django. `most`: maximum number of waiting requests."""

    def __init__(self, django: Django, threads: Threads) -> None:
        self._django = django
        self._threads = threads
        self.most = 0
        self._places: set[_Place] = set()
        self._of_token: Counter[bytes] = Counter()
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._places)

    async def answer(self, asked: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        """Without a free place, return Django's 304 immediately."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + asked.wait_s
        body = receive
        while True:
            try:
                # Before Django is called, so that any later change differs from the mark.
                mark = (await self._marks([asked.test_id])).get(asked.test_id, frozenset())
            except (DatabaseError, InterfaceError):
                await self._django.answer(scope, body, send, self._threads)
                return
            messages = await self._django_messages(scope, body)
            is_new = not messages or messages[0]["status"] != HTTPStatus.NOT_MODIFIED
            if is_new or loop.time() >= deadline or not self._has_place(asked):
                for message in messages:
                    await send(message)
                return
            ended = await self._wait(asked, mark, deadline, receive)
            if ended is Ended.STOPPING:
                await unavailable(send)
            if ended in {Ended.STOPPING, Ended.DISCONNECTED}:
                return
            body = nothing_more

    async def check(self) -> None:
        """Wake requests whose test changed."""
        if not self._places:
            return
        try:
            marks = await self._marks({one.test_id for one in self._places})
        except (DatabaseError, InterfaceError) as exc:
            logger.debug("polls.tests_not_read error=%r", exc)  # Django will report it
            return
        for one in self._places:
            if marks.get(one.test_id, frozenset()) != one.mark:
                one.end(Ended.SOMETHING_NEWER)

    def stop(self) -> None:
        self._is_stopping = True
        for one in self._places:
            one.end(Ended.STOPPING)

    def _has_place(self, asked: Asked) -> bool:
        return len(self._places) < self.most and self._of_token[asked.token] < PLACES_PER_TOKEN

    async def _wait(self, asked: Asked, mark: Mark, deadline: float, receive: Receive) -> Ended:
        loop = asyncio.get_running_loop()
        place = _Place(asked.test_id, mark, loop.create_future())
        clock = loop.call_at(deadline, place.end, Ended.TIME_IS_OVER)
        watch = loop.create_task(disconnected(receive))
        watch.add_done_callback(lambda _: place.end(Ended.DISCONNECTED))
        self._places.add(place)
        self._of_token[asked.token] += 1
        if self._is_stopping:
            place.end(Ended.STOPPING)
        try:
            return await place.ended
        finally:
            clock.cancel()
            watch.cancel()
            self._places.discard(place)
            self._of_token -= Counter([asked.token])

    async def _django_messages(self, scope: Scope, receive: Receive) -> list[Message]:
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self._django.answer(scope, receive, keep, self._threads)
        return messages

    async def _marks(self, test_ids: Collection[int]) -> Mapping[int, Mark]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _read, test_ids)


def _read(test_ids: Collection[int]) -> dict[int, Mark]:
    """Reopens a connection that the server closed once."""
    try:
        return read_marks(test_ids)
    except (DatabaseError, InterfaceError):
        connection.close()
        return read_marks(test_ids)
