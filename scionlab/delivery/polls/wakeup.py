"""When to check the hosts of waiting polls: on a message through Redis, and by the clock.

Messages may be lost (Redis restarts, a connection dies unnoticed), so the clock always runs, every few seconds; without
messages (no Redis, or unavailable) every quarter of a second. It checks the hosts in turns (`Round`): a message's delay
does not grow with their number, and the rows read per second are bounded.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from scionlab.delivery.polls.calls import CALLS, called_by
from scionlab.platform.wake import CHANNEL, woken_by

logger = logging.getLogger(__name__)

SAFETY_NET_S: Final = 5.0
WITHOUT_MESSAGES_S: Final = 0.25
DATABASE_AWAY_S: Final = 1.0
PIECE: Final = 250  # hosts that the clock checks together: 5 to 15 ms of a database
PAUSE_S: Final = 0.05  # minimum between two pieces: 5000 rows a second and process, for any number of polls
RECONNECT_S: Final = 1.0
QUIET_S: Final = 10.0  # after this much silence the connection is checked


class Messages:
    """Listens while `run` runs; `is_listening` is true while published messages arrive. `on_call` gets a host's uid and
    its links with an open page."""

    def __init__(
        self,
        url: str,
        on_change: Callable[[Collection[int] | None], None],
        on_call: Callable[[str, Sequence[int]], None],
    ) -> None:
        self._url = url
        self._on_change, self._on_call = on_change, on_call
        self.is_listening = False

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except (RedisError, OSError) as exc:
                if self.is_listening:
                    logger.warning("polls.messages_lost error=%r", exc)
                self.is_listening = False
            await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        client = Redis.from_url(self._url, socket_connect_timeout=RECONNECT_S, retry=Retry(NoBackoff(), 0))
        async with client, client.pubsub() as channel:
            await channel.subscribe(CHANNEL, CALLS)
            is_asked = False
            while True:
                message: dict[str, Any] | None = await channel.get_message(timeout=QUIET_S)
                if message is not None:
                    is_asked = False
                    self._take(message)
                elif is_asked:
                    raise RedisConnectionError(f"no answer to PING within {QUIET_S:g} s")
                else:
                    is_asked = True
                    await channel.ping()

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            if not self.is_listening:
                logger.info("polls.listening channel=%s", CHANNEL)
            self.is_listening = True
            self._on_change(None)  # earlier messages are not repeated
        elif message["channel"] == CALLS.encode():
            if (called := called_by(message["data"])) is not None:
                self._on_call(*called)
        elif message["type"] == "message":
            self._on_change(woken_by(message["data"]))


class Round:
    """Everyone once, in pieces. New polls are in the next round."""

    def __init__(self) -> None:
        self._left: list[str] = []

    def piece(self, waiting: Iterable[str]) -> list[str]:
        """At most `PIECE` of those that waited when the round began."""
        if not self._left:
            self._left = list(waiting)
        piece = self._left[-PIECE:]
        del self._left[-PIECE:]
        return piece


def pause_s(round_s: float, waiting: int) -> float:
    """Between two pieces, so that a round takes this time; longer if too much would be read per second."""
    pieces = max(1, math.ceil(waiting / PIECE))
    return max(min(PAUSE_S, round_s), round_s / pieces)


async def every(interval_s: Callable[[], float], act: Callable[[], Awaitable[None]]) -> None:
    """Call `act` for ever, with this pause; the interval is read again a few times a second."""
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        while loop.time() - began < interval_s():
            await asyncio.sleep(min(WITHOUT_MESSAGES_S, interval_s()))
        await act()
