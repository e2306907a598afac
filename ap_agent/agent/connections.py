"""Connections of a client: closed at a deadline by another thread, and probed while waiting."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ap_agent.common import threads

# tcp(7). NAT boxes forget silent connections after 30 to 60 s, so probes start earlier. A peer that answers none within
# USER_TIMEOUT is dead: then the poll ends early.
PROBE_AFTER_S = 10
PROBE_EVERY_S = 5
USER_TIMEOUT_S = 20
_SOCKET_OPTIONS = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, USER_TIMEOUT_S // PROBE_EVERY_S),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_S * 1000),
]


class Connections:
    """The sockets of a client, so that a deadline can shut them from another thread: a blocked read then ends at once.

    Every request has its own connection: one that idled between two polls may be dead unnoticed. The header
    `Connection: close` is not sufficient: a server that obeys silently leaves a dying connection in the library's pool
    (measured: 116 failures in 3000 rounds of fetch and receipt on loopback). A kept connection is for requests within
    seconds, whose callers handle a failure.
    """

    def __init__(self, *, is_kept: bool = False) -> None:
        self._is_kept = is_kept
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._overdue = False
        self.is_closed = False

    def add(self, connection: socket.socket) -> None:
        """Keep a duplicate of the socket: TLS detaches the first descriptor."""
        with self._lock:
            self._open.append(connection.dup())
            if self._overdue or self.is_closed:
                self._shut_all()

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self._shut_all()
        if self._is_kept:
            self._forget()

    def _expire(self) -> None:
        with self._lock:
            self._overdue = True
            self._shut_all()

    def _shut_all(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):  # the peer was first
                one.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[Callable[[], bool]]:
        """Shut every connection after `seconds`. Yields a function that returns whether that has happened."""
        self._overdue = False
        is_over = threading.Event()
        threads.start(lambda: None if is_over.wait(seconds) else self._expire())
        try:
            yield lambda: self._overdue or self.is_closed
        finally:
            is_over.set()
            if not self._is_kept:
                self._forget()

    def _forget(self) -> None:
        with self._lock:
            for one in self._open:
                one.close()
            self._open.clear()


class Adapter(HTTPAdapter):
    """requests' adapter with keepalive probes, whose connections are registered."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, socket_options=_SOCKET_OPTIONS, **options)
        connections = self._connections

        class Known:
            def _new_conn(self) -> socket.socket:  # before TLS: a handshake can be slow, too
                made: socket.socket = super()._new_conn()  # type: ignore[misc]  # of the connection that it is mixed into
                connections.add(made)
                return made

        pools: dict[str, type[HTTPConnectionPool]] = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        self.poolmanager.pool_classes_by_scheme = {
            scheme: type("Pool", (pool,), {"ConnectionCls": type("Connection", (Known, pool.ConnectionCls), {})})
            for scheme, pool in pools.items()
        }
