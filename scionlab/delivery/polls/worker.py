"""gunicorn's worker: an ASGI server that limits connections, and ends waiting polls before it stops."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import time
from contextlib import suppress
from typing import Any, Final

from gunicorn.arbiter import Arbiter
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server
from uvicorn_worker import UvicornWorker

HEADER_DEADLINE_S: Final = 10.0
MAX_HEADER_BYTES: Final = 64 * 1024
REQUEST_DEADLINE_S: Final = 1.0  # for requests of connections that were made just before the end
GRACE_S: Final = 15  # for responses in transit when the worker stops


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose request line and headers take too long, or that send too much besides bodies. uvicorn
    limits neither: a client could hold connections, and fill memory, with endless headers, pipelined requests or
    trailers. It also treats trailers as headers, which would allow a client to forge those of a proxy
    (X-Forwarded-For)."""

    _deadline: asyncio.TimerHandle | None = None
    _unread_bytes = 0  # since the parser completed something

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle:
            self._expect_headers()
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > MAX_HEADER_BYTES:
            self._refuse()

    def on_message_begin(self) -> None:
        self._expect_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._headers_are_here()
        self._unread_bytes = 0
        super().on_headers_complete()
        self.headers = []  # trailers follow; the request keeps its list of headers

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        super().on_body(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_are_here()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_DEADLINE_S, self._refuse)

    def _headers_are_here(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self) -> None:
        self._headers_are_here()
        if not self.transport.is_closing():
            self.transport.close()


class PollServer(Server):
    """Ends waiting polls before it waits for responses to be written, and answers every client that is connected.

    uvicorn closes the connections that the kernel has accepted and the process has not, and those whose request has
    not come yet. Behind nginx these are requests that were sent, of which it repeats no POST or PATCH.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.stop_waiting()  # type: ignore[union-attr]  # our Application
        await self._stop_listening(sockets or [])
        deadline = time.monotonic() + REQUEST_DEADLINE_S
        while time.monotonic() < deadline and any(one.cycle is None for one in self.server_state.connections):  # type: ignore[union-attr]  # of BoundedProtocol
            await asyncio.sleep(0.02)
        await super().shutdown()

    async def _stop_listening(self, listening: list[socket.socket]) -> None:
        """Take all connections that the kernel has, in one go with the end of listening."""
        copies = [one.dup() for one in listening]
        for server in self.servers:
            server.close()
        for one in listening:
            one.close()
        arrived = []
        for one in copies:
            one.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    arrived.append(one.accept()[0])
            one.close()
        for client in arrived:
            client.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, client)

    def _protocol(self) -> BoundedProtocol:
        return BoundedProtocol(self.config, self.server_state, self.lifespan.state)


class Worker(UvicornWorker):  # type: ignore[misc]  # ships no types
    CONFIG_KWARGS: dict[str, Any] = {
        "loop": "uvloop",
        "http": BoundedProtocol,
        "ws": "none",
        "lifespan": "on",
        "proxy_headers": False,  # scionlab.platform.client_address trusts exactly TRUSTED_PROXIES of them
        "server_header": False,
        "timeout_graceful_shutdown": GRACE_S,
    }

    def init_process(self) -> None:
        """A waiting poll is a connection: raise the file limit to the hard limit."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        super().init_process()

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        server = PollServer(config=self.config)
        self._install_sigquit_handler()
        await server.serve(sockets=self.sockets)
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
