"""A web server that does wrong what its URL says, and a proxy: for tests of `mpget`.

    python -m tests.mpget_server serve FILE ADDRESS PORT [CERTIFICATE KEY]
    python -m tests.mpget_server proxy ADDRESS PORT

The query of a URL is the fault: `wrong` (every byte above 100,000 is), `longer` (by one byte, in Content-Range), `etag`
(another one), `early` (every answer ends after 20,000 bytes), `away` (redirects to another host), `moved` (redirects to
the file on this host), `elsewhere` (answers another range), `busy` (503), `gone` (404), `gzip`. Both print `ready`.
"""

from __future__ import annotations

import http.server
import re
import select
import signal
import socket
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

LIFE_S = 300
WRONG_FROM = 100_000
EARLY_BYTES = 20_000
SLOW_S = 0.1  # before each answer that is wrong: a good path is known first
NO_PROXY = build_opener(ProxyHandler({}))


def handler(content: bytes) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fault = urlsplit(self.path).query
            time.sleep(SLOW_S if fault else 0)
            status = {"busy": 503, "gone": 404, "away": 302, "moved": 302}.get(fault)
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if status is not None:
                self.send_response(status)
                self.send_header("Location", "http://other.invalid/file" if fault == "away" else "/file")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start, end = (int(asked[1]), min(int(asked[2]) + 1, len(content))) if asked else (0, len(content))
            start += fault == "elsewhere"
            body = content[start:end]
            if fault == "wrong":
                body = bytes(one ^ (start + at >= WRONG_FROM) for at, one in enumerate(body))
            self.send_response(206 if asked else 200)
            size = len(content) + (fault == "longer")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.send_header("ETag", '"other"' if fault == "etag" else '"one"')
            if fault == "gzip":
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(body[:EARLY_BYTES] if fault == "early" else body)
            self.close_connection = fault == "early" and len(body) > EARLY_BYTES

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    return Handler


class Proxy(http.server.BaseHTTPRequestHandler):
    """Says on stdout what it is asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        print(f"GET {self.path}", flush=True)
        asked = Request(self.path, headers={"Range": self.headers["Range"]})  # noqa: S310  as a test wrote it
        with NO_PROXY.open(asked, timeout=10) as answer:
            body = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Range", "Content-Length", "ETag", "Last-Modified"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        print(f"CONNECT {self.path}", flush=True)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as there:
            self.send_response(200)
            self.end_headers()
            pair = {self.connection: there, there: self.connection}
            while ready := select.select(list(pair), [], [], 10)[0]:
                for one in ready:
                    data = one.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    pair[one].sendall(data)

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


def main(arguments: list[str]) -> None:
    signal.alarm(LIFE_S)
    kind = Proxy if arguments[0] == "proxy" else handler(Path(arguments[1]).read_bytes())
    address, port, *tls = arguments[1 if arguments[0] == "proxy" else 2 :]
    with http.server.ThreadingHTTPServer((address, int(port)), kind) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
