"""A name with several addresses: each client tries the next one where the first does not answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ap_agent.agent.http import ClockComparison, WebClient
from ap_agent.common.settings import Settings
from multipath.paths import Path
from multipath.transfer import Connection
from scionlab_bw.client import Service
from scionlab_bw.errors import Unreachable

NAME = "several.example.org"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(206)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Range", "bytes 0-1/2")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None: ...


class Server6(HTTPServer):
    address_family = socket.AF_INET6


def by_agent(url: str) -> None:
    client = WebClient(
        url, Settings(connect_timeout_s=2.0, read_timeout_s=2.0, fetch_deadline_s=5.0), ClockComparison()
    )
    with client.request("GET", "/") as answer:
        assert answer.status_code == 206
    client.close()


def by_client(url: str) -> None:
    service = Service(url)
    with pytest.raises(Unreachable, match="does not answer as the service does"):  # but it was reached
        service.get("ases/")
    service._session.close()


def by_mpget(url: str, device: str | None = None) -> None:
    connection = Connection(Path(url + "/file", device=device))
    facts, response = connection.get(0, 2)
    assert (facts.size, response.read()) == (2, b"{}")
    connection.close()


@pytest.fixture(params=["127.0.0.1", "::1"])
def port(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server at one of the two addresses of NAME, of which the other comes first."""
    server = (Server6 if ":" in request.param else HTTPServer)((request.param, 0), Handler)
    addresses = [("127.0.0.1", "::1"), ("::1", "127.0.0.1")][request.param == "127.0.0.1"]
    resolve = socket.getaddrinfo

    def resolved(host: str, *more: object, **named: object) -> list[object]:
        hosts = addresses if host == NAME else (host,)
        return [found for one in hosts for found in resolve(one, *more, **named)]  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "client",
    [by_agent, by_client, by_mpget, lambda url: by_mpget(url, "lo")],
    ids=["agent", "client", "mpget", "device"],
)
def test_all_addresses_of_a_name_are_tried(client: Callable[[str], None], port: int) -> None:
    client(f"http://{NAME}:{port}")
