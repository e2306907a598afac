"""Responses that are not Django's, and ASGI helpers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any, Final

from scionlab.delivery.polls.threads import Receive, Send, respond
from scionlab.platform.metrics.names import POLLS

RETRY_AFTER_S: Final = (1, 3)  # spread, so that clients do not return together
MOST_RETRY_AFTER_S: Final = 60
_NO_STORE: Final = (b"cache-control", b"no-store, private")


async def not_modified(send: Send, *, looked_at: Sequence[int] = ()) -> None:
    """304; `looked_at`: interface ids of the host's links whose page is open."""
    headers = [_NO_STORE]
    if looked_at:
        headers.append((b"scionlab-looked-at", ",".join(map(str, looked_at)).encode()))
    await send({"type": "http.response.start", "status": 304, "headers": headers})
    await send({"type": "http.response.body"})


_BUSY = (
    b'{"code": "unavailable", "message": "The service cannot answer now. Ask again after the seconds of Retry-After.", '
    b'"fields": {}}'
)


async def send_away(send: Send, *, after: int = 0) -> None:
    """503 with a Retry-After spread from 1 s to 3 s, or to `after` if that is later."""
    POLLS.labels("sent_away").inc()
    soonest, latest = RETRY_AFTER_S
    seconds = random.randint(soonest, min(MOST_RETRY_AFTER_S, max(latest, after)))  # noqa: S311  nobody gains by guessing
    await respond(send, 503, _BUSY, (b"retry-after", b"%d" % seconds), _NO_STORE, kind=b"application/json")


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass


async def nothing_more() -> dict[str, Any]:
    """The empty body of a GET, for Django."""
    return {"type": "http.request", "body": b"", "more_body": False}
