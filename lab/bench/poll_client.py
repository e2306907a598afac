"""Hosts that poll, many in one process, over connections that stay open. Bodies are counted and not kept."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")
END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"content-length:"


@dataclass(frozen=True)
class PollingHost:
    """Who polls, and with which credentials."""

    host_id: int
    uid: str
    secret: str

    def request(self, port: int, query: str) -> bytes:
        token = base64.b64encode(f"{self.uid}:{self.secret}".encode()).decode()
        return (
            f"GET /api/v4/host/{self.uid}/config?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Basic {token}\r\nUser-Agent: scionlab-bw-agent/bench\r\nAccept: */*\r\n\r\n"
        ).encode()


@dataclass(frozen=True)
class Said:
    """An answer: its status, how many bytes its body had, and when its last byte came (monotonic)."""

    status: int
    length: int
    at: float


class Line(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Said] | None = None
        self._head = b""
        self._status = 0
        self._length = self._left = -1

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[Said]:
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._answer.set_exception(ConnectionError("the server closed the connection"))
        else:
            self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            self._head += data
            end = self._head.find(END_OF_HEAD)
            if end < 0:
                return
            head, data, self._head = self._head[:end].lower(), self._head[end + 4 :], b""
            self._status = int(head[9:12])
            self._length = _number(head, LENGTH) or 0
            self._left = 0 if self._status in {204, 304} else self._length
        self._left -= len(data)
        if self._left <= 0:
            self._left = -1
            answer, self._answer = self._answer, None
            if answer is not None and not answer.done():
                answer.set_result(Said(self._status, self._length, time.monotonic()))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _number(head: bytes, name: bytes) -> int | None:
    found = head.find(b"\r\n" + name)
    return int(head[found + len(name) + 2 :].split(b"\r\n", 1)[0]) if found >= 0 else None


async def connect(port: int, count: int) -> list[Line]:
    """Some at a time: the server's queue of connections is finite."""
    loop = asyncio.get_running_loop()
    lines: list[Line] = []
    while len(lines) < count:
        some = range(min(500, count - len(lines)))
        made = await asyncio.gather(*(loop.create_connection(Line, "127.0.0.1", port) for _ in some))
        lines += [line for _, line in made]
    return lines


async def keep_asking(lines: Sequence[Line], requests: Iterator[bytes], seconds: float) -> list[Said]:
    """Each connection asks as soon as it was answered; what was answered until the time was over."""
    until = time.monotonic() + seconds
    said: list[Said] = []

    async def one(line: Line) -> None:
        while time.monotonic() < until:
            said.append(await line.ask(next(requests)))

    await asyncio.gather(*(one(line) for line in lines))
    return said


def run(work: Callable[[], Any]) -> Any:
    """Run a coroutine function to its end, on a loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())
