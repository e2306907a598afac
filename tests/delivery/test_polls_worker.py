"""A web process that ends answers everybody who is connected."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
import uvicorn

from scionlab.delivery.polls.worker import PollServer, Worker

REQUEST = b"PATCH /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class App:
    """Answers 200. The first request keeps the event loop busy, as a processor that others use does."""

    def __init__(self) -> None:
        self.is_busy, self.may_go_on = threading.Event(), threading.Event()

    def stop_waiting(self) -> None:
        """Nobody waits here."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        if not self.is_busy.is_set():
            self.is_busy.set()
            self.may_go_on.wait(20)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def answer(client: socket.socket) -> bytes:
    with client:
        return client.recv(100)[:15]


@pytest.mark.parametrize("asks_late", [False, True])
def test_who_came_before_the_end_is_answered(*, asks_late: bool) -> None:
    """nginx does not repeat a save that it has sent."""
    app, listener = App(), socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = PollServer(uvicorn.Config(app, log_config=None, **Worker.CONFIG_KWARGS))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    first = connected(port)
    first.sendall(REQUEST)
    assert app.is_busy.wait(20)
    clients = [connected(port) for _ in range(20)]
    if not asks_late:
        for one in clients:
            one.sendall(REQUEST)
    server.should_exit = True
    time.sleep(0.2)  # longer than the server's own pause: it looks whether to end before it takes who came
    app.may_go_on.set()
    if asks_late:
        time.sleep(0.3)
        for one in clients:
            one.sendall(REQUEST)
    found = [answer(one) for one in [first, *clients]]
    thread.join(20)
    assert found == [b"HTTP/1.1 200 OK"] * 21
    with pytest.raises(ConnectionRefusedError):
        connected(port)
