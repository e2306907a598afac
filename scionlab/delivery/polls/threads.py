"""Django behind an ASGI server, on a fixed number of threads: each keeps its database connection.

Django's own ASGI handler would use a thread, and a connection, per request of a synchronous view. A request is read
completely before it takes a thread, so slow senders block nobody, and an incomplete body reaches no view.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import IO, Any, Final, TypeVar, cast

from django.conf import settings
from django.core import signals
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpResponseBase
from django.urls import set_script_prefix
from django.utils.http import parse_header_parameters

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
T = TypeVar("T")

MAX_UPLOAD_BYTES: Final = 9 * 2**20  # of a host that showed its credentials; a receipt has at most 8 MiB
MAX_BODY_BYTES: Final = 264 * 1024  # of anybody: a user's report of a test; nginx allows forms 128 kB
BODY_DEADLINE_S: Final = 60.0
SMALL_BODY_BYTES: Final = 64 * 1024
MAX_LARGE_BYTES: Final = 64 * 2**20  # of all larger ones in a process
CROWDED_RETRY_AFTER_S: Final = 5
USUAL_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1"})


class DisconnectedError(Exception):
    """The client disconnected, or its request is incomplete."""


class CrowdedError(Exception):
    """The process holds the maximum of large bodies."""


class LargeBodies:
    """Limits the total of large bodies, so that clients cannot fill memory. For one event loop."""

    def __init__(self) -> None:
        self._held_bytes = 0

    @contextlib.contextmanager
    def one(self) -> Iterator[Callable[[int], None]]:
        """Yields a function to report the size of a body; it raises `CrowdedError`."""
        held = 0

        def grown(size: int) -> None:
            nonlocal held
            more = max(0, size - SMALL_BODY_BYTES) - held
            if more > 0 and self._held_bytes + more > MAX_LARGE_BYTES:
                raise CrowdedError
            held += more
            self._held_bytes += more

        try:
            yield grown
        finally:
            self._held_bytes -= held


class Threads(ThreadPoolExecutor):
    """A fixed number of threads, each with its own connection, or with one of the pool while it works."""

    def __init__(self, count: int, name: str) -> None:
        self._connections: list[BaseDatabaseWrapper] = []
        super().__init__(count, thread_name_prefix=name, initializer=self._begin)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(_giving_back, fn, *args, **kwargs)

    def _begin(self) -> None:
        self._connections.append(connections[DEFAULT_DB_ALIAS])  # of this thread

    async def close(self) -> None:
        """End the threads and close their connections; work that exceeds the grace period fails."""
        self.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._close_connections)  # Django refuses to do it in the loop's thread

    def _close_connections(self) -> None:
        for connection in self._connections:
            connection.inc_thread_sharing()  # or Django refuses to have it closed by another thread
            connection.close()


def _giving_back(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """For work other than requests, after which Django does it."""
    try:
        return fn(*args, **kwargs)
    finally:
        close_old_connections()


def close_pool() -> None:
    """Of this process, if it has one."""
    connection: Any = connections[DEFAULT_DB_ALIAS]
    if getattr(connection, "pool", None):
        connection.close_pool()


class Django(ASGIHandler):
    """Django's handler for an ASGI server, with synchronous middleware."""

    def __init__(self) -> None:
        self._bodies, self._uploads = LargeBodies(), LargeBodies()  # strangers take nothing from hosts
        self.load_middleware(is_async=False)

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, executor: Executor, *, most_bytes: int = MAX_BODY_BYTES
    ) -> None:
        """Handle one request on one of these threads."""
        if not has_usual_charset(scope):
            await respond(send, 415, b"Send it in UTF-8.\n")
            return
        with (self._bodies if most_bytes == MAX_BODY_BYTES else self._uploads).one() as grown:
            body = await self._body(receive, send, grown, most_bytes)
            if body is None:
                return
            loop = asyncio.get_running_loop()
            status, headers, content = await loop.run_in_executor(executor, self._in_thread, scope, body)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    @staticmethod
    async def _body(receive: Receive, send: Send, grown: Callable[[int], None], most_bytes: int) -> IO[bytes] | None:
        """The whole body; None if the request is already answered, or the client disconnected."""
        try:
            async with asyncio.timeout(BODY_DEADLINE_S):
                body = await read_body_of(receive, grown, most_bytes)
        except DisconnectedError:
            return None
        except TimeoutError:
            await respond(send, 408, b"The request did not arrive in time. Send it again.\n", CLOSE)
            return None
        except CrowdedError:
            later = (b"retry-after", b"%d" % CROWDED_RETRY_AFTER_S)
            await respond(send, 503, b"Too much is being sent at once. Send it again.\n", later, CLOSE)
            return None
        if body is None:
            await respond(send, 413, f"A request has at most {most_bytes} bytes here.\n".encode(), CLOSE)
        return body

    def _in_thread(self, scope: Scope, body: IO[bytes]) -> tuple[int, Headers, bytes]:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, error = self.create_request(scope, body)
        response: Any = error if request is None else self._response(request)
        try:
            # Streaming responses are static files: all fit into memory.
            content = b"".join(response) if response.streaming else response.content
            return response.status_code, headers_of(response, len(content)), content
        finally:
            response.close()  # ends the request for Django: closes connections that are too old
            body.close()

    def _response(self, request: ASGIRequest) -> HttpResponseBase:
        response = BaseHandler.get_response(self, request)
        response._handler_class = self.__class__  # type: ignore[attr-defined]  # `close` tells it to `request_finished`
        return response


CLOSE: Final = (b"connection", b"close")


async def respond(
    send: Send, status: int, text: bytes, *headers: tuple[bytes, bytes], kind: bytes = b"text/plain; charset=utf-8"
) -> None:
    """A small response that is not Django's."""
    fixed = [(b"content-type", kind), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": text})


def has_usual_charset(scope: Scope) -> bool:
    """False if Content-Type has an encoding that no browser or client of ours sends. Django decodes even the query
    string with it before any middleware. Python knows codecs that decode nothing (`rot13`, `undefined`), which would be
    a server error at every URL."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            try:
                charset = parse_header_parameters(value.decode("latin-1"))[1].get("charset", "utf-8")
            except ValueError:  # too long to be one
                return False
            if charset.lower() not in USUAL_CHARSETS:
                return False
    return True


async def read_body_of(receive: Receive, grown: Callable[[int], None], most_bytes: int) -> IO[bytes] | None:
    """The whole body, in a temporary file if large; None if too large. `grown` is called with its size first, and may
    raise. Raises `DisconnectedError` for an incomplete one."""
    body = tempfile.SpooledTemporaryFile(max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE)  # noqa: SIM115  the caller closes it
    with contextlib.ExitStack() as unless_whole:
        unless_whole.callback(body.close)
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            size += len(message.get("body", b""))
            if size > most_bytes:
                return None
            grown(size)
            body.write(message.get("body", b""))
            more = message.get("more_body", False)
        unless_whole.pop_all()
    body.seek(0)
    return cast(IO[bytes], body)


def headers_of(response: HttpResponseBase, length: int) -> Headers:
    found = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()]
    found += [(b"Set-Cookie", one.output(header="").strip().encode("ascii")) for one in response.cookies.values()]
    if not response.has_header("Content-Length") and response.status_code not in {204, 304}:
        found.append((b"Content-Length", b"%d" % length))
    return found
