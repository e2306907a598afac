"""A Coordination Service on loopback that answers what a test tells it to: also what no good service would."""

from __future__ import annotations

import base64
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.agent_bundles import HOST_ID, SECRET

Answer = Callable[["Handler"], None]
A_DAY = timedelta(days=1)


@dataclass
class Request:
    """What the agent asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def credentials(self) -> str:
        return base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()


@dataclass
class Service:
    """`answers` says what each path below /api/v4/host/<id>/ gets; `seen` is what was asked."""

    url: str
    answers: dict[str, Answer]
    seen: list[Request] = field(default_factory=list)
    is_closing: threading.Event = field(default_factory=threading.Event)

    def asked(self, path: str) -> list[Request]:
        return [one for one in self.seen if one.path.endswith(path)]

    def receipts(self) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.asked("/enforcement")]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        request = Request(self.command, parts.path, query, dict(self.headers.items()), body)
        self.service.seen.append(request)
        self.request_seen = request
        name = parts.path.removeprefix(f"/api/v4/host/{HOST_ID}")
        answer = self.service.answers.get(name, status(404))
        answer(self)

    do_GET = do_POST = do_HEAD = _handle  # noqa: N815  # the names are the server's

    def log_message(self, *_args: object) -> None:
        """Silence."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """The client hung up, which is what many tests are about."""


@contextmanager
def service(certificate: Path | None = None) -> Iterator[Service]:
    """A running service that knows a host and has no configuration for it yet; with a certificate over TLS."""

    class BoundHandler(Handler):
        """Knows its service."""

    server = _Server(("127.0.0.1", 0), BoundHandler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The handshake belongs into the connection's own thread, not into the one that accepts.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https"
    running = Service(
        f"{scheme}://127.0.0.1:{server.server_address[1]}", {"/config": status(204), "/enforcement": stored()}
    )
    BoundHandler.service = running
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.is_closing.set()
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


# --- answers ----------------------------------------------------------------------------------------------------------


def reply(code: int, body: bytes = b"", **headers: str) -> Answer:
    """An answer with a length; underscores in header names become hyphens."""

    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if code not in {204, 304}:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def status(code: int, **headers: str) -> Answer:
    return reply(code, b"" if code in {204, 304} else b"{}", **headers)


def tarball(data: bytes) -> Answer:
    return reply(200, data, Content_Type="application/gzip", ETag='"x"')


def stored() -> Answer:
    return reply(200, b'{"stored": true}', Content_Type="application/json")


def like_the_service(data: bytes, version: str, limits: str) -> Answer:
    """304 if and only if both versions are ours, else the tarball (DOMAIN section 4); 401 for strangers."""

    def answer(handler: Handler) -> None:
        request = handler.request_seen
        if request.credentials != f"{HOST_ID}:{SECRET}":
            return status(401, WWW_Authenticate='Basic realm="host"')(handler)
        if request.query.get("version") == version and request.query.get("limits", limits) == limits:
            return status(304)(handler)
        return tarball(data)(handler)

    return answer


def truncated(data: bytes) -> Answer:
    """Announces more than it sends, then hangs up."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/gzip")
        handler.send_header("Content-Length", str(len(data) + 100))
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = True

    return answer


def never() -> Answer:
    """Takes the request and says nothing."""

    def answer(handler: Handler) -> None:
        handler.service.is_closing.wait(20)
        handler.close_connection = True

    return answer


def trickle(*, in_headers: bool = False) -> Answer:
    """A byte now and then: never silent for long, never done."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.send_response(200)
        if not in_headers:
            handler.send_header("Content-Type", "application/gzip")
            handler.end_headers()
        else:
            handler.flush_headers()
        deadline = time.monotonic() + 20
        number = 0
        while time.monotonic() < deadline and not handler.service.is_closing.is_set():
            number += 1
            handler.wfile.write(f"X-{number}: y\r\n".encode() if in_headers else b"\x1f")
            handler.service.is_closing.wait(0.05)

    return answer


def endless(code: int = 200, **headers: str) -> Answer:
    """A body without a length that does not stop."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.send_response(code)
        for name, value in (headers or {"Content-Type": "application/gzip"}).items():
            handler.send_header(name, value)
        handler.end_headers()
        while not handler.service.is_closing.is_set():
            handler.wfile.write(b"\x1f" * 65536)

    return answer


def garbage() -> Answer:
    """Something that is not HTTP."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(b"220 mail.example ESMTP\r\n")
        handler.close_connection = True

    return answer


def certificate(folder: Path, address: str, begins: timedelta = -A_DAY, ends: timedelta = A_DAY) -> Path:
    """A file with a self-signed certificate of this address, valid from and until so far from now, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "service")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "service.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return pem
