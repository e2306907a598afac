"""A real HTTP server that receives a webhook, on loopback."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver(ThreadingHTTPServer):
    """Keeps what it got, and answers `status`; `drips`: a byte now and then instead, without an end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status, self.drips = 204, False
        self.stopped = threading.Event()

    def url(self, scheme: str = "http", host: str = "localhost") -> str:
        return f"{scheme}://{host}:{self.server_port}/hook?room=1"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        if self.server.drips:
            try:
                while not self.server.stopped.wait(0.05):
                    self.wfile.write(b"x")
            except OSError:
                return
        self.send_response(self.server.status)
        if 300 <= self.server.status < 400:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    with Receiver() as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            server.shutdown()
            thread.join()
