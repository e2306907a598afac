"""The application in a real web server of this process, and clients with real connections."""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import uvicorn

from scionlab.delivery.polls.application import Application
from scionlab.delivery.polls.worker import PollServer, Worker
from scionlab.testbed.models import Host

WRONG = "0" * 32


AGENT = {"User-Agent": "scionlab-bw-agent/0.9.0"}


def basic(user: str, password: str) -> dict[str, str]:
    """As our agent sends them: it gets its tarball whatever else is installed (test_beside_another_service.py)."""
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"} | AGENT


def credentials(host: Host) -> dict[str, str]:
    return basic(host.uid, host.secret)


DEADLINE_S = 20.0
LONG_S = 45  # longer than any test takes: who is answered was woken
NEVER_S = 3600.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    took_s: float


class WebServer:
    """The application, served by our worker's server in a thread of this process."""

    def __init__(self) -> None:
        self.application = Application()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._server = PollServer(uvicorn.Config(self.application, log_config=None, **Worker.CONFIG_KWARGS))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._clients = ThreadPoolExecutor(40)

    def __enter__(self) -> WebServer:
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._clients.shutdown()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    @property
    def waiting(self) -> int:
        return len(self.application._room)

    @property
    def is_listening(self) -> bool:
        return self.application._messages is not None and self.application._messages.is_listening

    def ask(self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: Any = None) -> Answer:
        began = time.monotonic()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            link.request(method, path, headers=headers or {}, body=body)
            response = link.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read(), time.monotonic() - began)
        finally:
            link.close()

    def poll(self, host: Host, *, wait: int = 0, method: str = "GET", **others: Any) -> Answer:
        """What `host` as it was read is answered; `secret`, `limits`, `uid`, `digest` to differ from it."""
        limits = others.get("limits", host.limits_version)
        path = f"/api/v4/host/{others.get('uid', host.uid)}/config?version=1.{host.config_version}&limits={limits}"
        path += "".join(f"&{name}={others[name]}" for name in ("digest", "live") if name in others)
        headers = basic(others["secret_of"], others["secret"]) if "secret_of" in others else credentials(host)
        return self.ask(f"{path}&wait={wait}" if wait else path, method=method, headers=headers)

    def wait(self, host: Host, *, seconds: int = LONG_S, **others: Any) -> Future[Answer]:
        """A poll that has its place."""
        before = self.waiting
        future = self._clients.submit(self.poll, host, wait=seconds, **others)
        until(lambda: self.waiting > before or future.done())
        return future


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def versions_of(answer: Answer) -> tuple[str, int]:
    assert answer.status == 200
    manifest = json.loads(config_members(answer.body)["scionlab-config.json"])
    return manifest["version"], manifest["limits_version"]


def config_members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        return {one.name: tar.extractfile(one).read() for one in tar.getmembers()}  # type: ignore[union-attr]


def raw_poll(host: Host) -> bytes:
    query = f"version=1.{host.config_version}&limits={host.limits_version}&wait={LONG_S}"
    header = credentials(host)["Authorization"]
    return f"GET /api/v4/host/{host.uid}/config?{query} HTTP/1.1\r\nHost: x\r\nAuthorization: {header}\r\n\r\n".encode()


def serve() -> Iterator[WebServer]:
    with WebServer() as running:
        if running.application._messages is not None:
            until(lambda: running.is_listening)
        yield running
