"""nginx as `lab.nginx` starts it, before web tiers that are named by their ports, and one who asks it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from pathlib import Path

import pytest

from lab import nginx
from tests.faults.service.site import Answer


class Nginx(nginx.Nginx):
    """In front of the web tiers at these ports."""

    def __init__(self, *web_ports: int) -> None:
        if nginx.program() is None:
            pytest.skip("no nginx: apt-get install nginx")
        # max_fails=0: as with names that are looked up, nobody who was away a moment ago is left out for 10 s.
        tiers = " ".join(f"server 127.0.0.1:{port} max_fails=0;" for port in web_ports)
        super().__init__({
            "$web web:8000;": "$web web_tiers;",
            "    server_tokens off;\n": f"    server_tokens off;\n    upstream web_tiers {{ {tiers} }}\n"
            # Who asks is told by a header here, so that one machine can be several networks.
            "    set_real_ip_from 127.0.0.1;\n    real_ip_header X-Test-Address;\n",
        })  # fmt: skip

    def ask(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None, host: str = "",
        port: int | None = None,
    ) -> Answer:  # fmt: skip
        """One request; over TLS unless `port` is another one's. The certificate is our own and is not checked."""
        port = port or self.tls_port
        if port == self.tls_port:
            context = ssl._create_unverified_context()  # noqa: S323  the certificate was made above
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=100, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)  # type: ignore[assignment]
        try:
            begun = time.monotonic()
            named = {"Host": host or "lab.example.org", **(headers or {})}
            connection.request(method, path, body=body or None, headers=named)
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read(), time.monotonic() - begun)
        finally:
            connection.close()


def unfinished(
    nginx: Nginx, path: str, *, length: int, sent: int, address: str, credentials: str = ""
) -> socket.socket:
    """An upload whose last bytes never come."""
    context = ssl._create_unverified_context()  # noqa: S323  the certificate is the test's own
    line = context.wrap_socket(socket.create_connection(("127.0.0.1", nginx.tls_port)))
    head = f"POST {path} HTTP/1.1\r\nHost: lab.example.org\r\nX-Test-Address: {address}\r\nContent-Length: {length}\r\n"
    with contextlib.suppress(OSError):  # refused already
        line.sendall(f"{head}{credentials}\r\n".encode() + bytes(sent))
    return line


def bodies_on_disk(nginx: Nginx) -> int:
    """Files of bodies that nginx's workers have open: it unlinks them when it makes them."""
    workers = Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children").read_text().split()
    opened = []
    for fd in (fd for worker in workers for fd in Path(f"/proc/{worker}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            opened.append(str(fd.readlink()))
    return sum("/nginx-body/" in path for path in opened)
