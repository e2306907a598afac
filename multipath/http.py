"""One kept-alive HTTP connection over one path, asked for ranges of the file."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import time
from urllib.parse import urljoin, urlsplit

from multipath import UsageError
from multipath.path_state import Facts
from multipath.paths import Path, check_url

TIMEOUT_S = 10.0  # of a connection attempt, and without a byte
MAX_REDIRECTS = 5
AGAIN_LATER = {408, 425, 429, 500, 502, 503, 504}


class RefusedError(Exception):
    """The path is no use for this file, now or later."""


class Connection:
    """Not for two threads at a time."""

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, path.url
        self.handshake_s = 0.0
        self.ends: tuple[str, str, int] | None = None  # own address, the other end's address and port
        self._client: http.client.HTTPConnection | None = None

    def get(self, start: int, end: int) -> tuple[Facts, http.client.HTTPResponse]:
        """Ask for `[start, end)`. Raises `RefusedError`; `OSError` and `HTTPException` for what may work later."""
        for _ in range(MAX_REDIRECTS + 1):
            response = self._ask(f"bytes={start}-{end - 1}")
            if response.status not in {301, 302, 303, 307, 308}:
                return self._facts(response, start, end), response
            self._follow(response.getheader("Location", ""))
        raise RefusedError(f"more than {MAX_REDIRECTS} redirects")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ask(self, wanted: str) -> http.client.HTTPResponse:
        kept = self._client is not None
        try:
            client = self._client or self._connect()
            parts = urlsplit(self.url)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            whole = self.path.proxy and parts.scheme == "http"
            client.putrequest("GET", self.url if whole else target, skip_accept_encoding=True)
            client.putheader("Range", wanted)
            client.putheader("Accept-Encoding", "identity")
            client.endheaders()
            return client.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            self.close()
            if not kept:
                raise
        except BaseException:
            self.close()
            raise
        return self._ask(wanted)  # the server had closed what was kept alive

    def _connect(self) -> http.client.HTTPConnection:
        parts, path = urlsplit(self.url), self.path
        secure = parts.scheme == "https"
        there = (parts.hostname or "", parts.port or (443 if secure else 80))
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection  # which verifies certificates
        own = (path.source, 0) if path.source else None
        client = kind(*(path.proxy or there), timeout=TIMEOUT_S, source_address=own)
        if path.proxy and secure:
            client.set_tunnel(*there)
        if (device := path.device) is not None:  # in the place of what http.client itself connects by
            client._create_connection = lambda to, *_: _dial(to, device)  # type: ignore[attr-defined]
        began = time.monotonic()
        client.connect()
        self.handshake_s = time.monotonic() - began
        self.ends = (client.sock.getsockname()[0], *client.sock.getpeername()[:2])
        self._client = client
        return client

    def _follow(self, location: str) -> None:
        """Raises `RefusedError` for a redirect that leaves the host, or HTTPS."""
        self.close()
        try:
            url = check_url(urljoin(self.url, location))
        except (UsageError, ValueError):
            raise RefusedError(f"redirects to {location[:80]!r}") from None
        old, new = urlsplit(self.url), urlsplit(url)
        if new.hostname != old.hostname or (old.scheme, new.scheme) == ("https", "http"):
            raise RefusedError(f"redirects to {new.scheme}://{new.hostname}: give that as a path, if you trust it")
        self.url = url

    def _facts(self, response: http.client.HTTPResponse, start: int, end: int) -> Facts:
        status, ranged = response.status, response.getheader("Content-Range", "")
        etag, modified = response.getheader("ETag"), response.getheader("Last-Modified")
        length = response.getheader("Content-Length", "")
        if status in AGAIN_LATER:
            raise http.client.HTTPException(f"HTTP {status}")
        if status not in {200, 206, 416} or response.getheader("Content-Encoding", "identity") != "identity":
            raise RefusedError(f"HTTP {status} {response.getheader('Content-Encoding', '')}".rstrip())
        if status == 200:
            if not re.fullmatch(r"[0-9]{1,18}", length):
                raise RefusedError("does not tell the length of the file")
            return Facts(self.path.url, int(length), etag, modified, ranged=int(length) == 0)
        found = re.fullmatch(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18})", ranged)
        if found is None or (status == 416) != (found[1] is None) or (status == 416 and found[3] != "0"):
            raise RefusedError(f"HTTP {status}, Content-Range {ranged[:60]!r}")
        size = int(found[3])
        sent = (int(found[1]), int(found[2]) + 1) if found[1] else (0, 0)
        if size and (sent != (start, min(end, size)) or length not in {"", str(sent[1] - sent[0])}):
            raise RefusedError(f"asked for bytes {start} to {end - 1}, it sends {ranged!r} and {length} bytes")
        return Facts(self.path.url, size, etag, modified)


def _dial(address: tuple[str, int], device: str) -> socket.socket:
    """A TCP connection over a device. Raises `OSError`."""
    problem = OSError(f"{address[0]} has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(TIMEOUT_S)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            sock.connect(where)
            return sock
        except OSError as exc:
            sock.close()
            problem = exc
    raise problem


def other_device(source: str, destination: str) -> str | None:
    """The device by which packets from this source leave, if the source is another one's. None also where the program
    `ip` is missing."""
    found = []
    for asked in (["route", "get", destination, "from", source], ["address", "show", "to", source]):
        try:
            done = subprocess.run(["ip", "-j", *asked], capture_output=True, check=True, timeout=TIMEOUT_S)
            (entry, *_) = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        found.append(str(entry.get("dev") or entry.get("ifname")))
    return found[0] if found[0] not in {found[1], "lo"} else None
