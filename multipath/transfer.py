"""Executes `core`'s decisions: kept-alive HTTP connections, a thread per running range, and one lock around decisions
and writes."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from email.utils import mktime_tz, parsedate_tz
from functools import partial
from urllib.parse import urljoin, urlsplit

from multipath import AllPathsDeadError, LocalError, UsageError
from multipath.core import Download, Task
from multipath.part import Part
from multipath.paths import Path, check_url
from multipath.state import Facts, State

TIMEOUT_S = 10.0  # to connect, and without a byte
MAX_REDIRECTS = 5
AGAIN_LATER = {408, 425, 429, 500, 502, 503, 504}
CHUNK_BYTES = 256 << 10
TICK_S, SAVE_S = 0.1, 2.0


class RefusedError(Exception):
    """The path is unusable for this file, permanently."""


class Connection:
    """Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, path.url
        self.handshake_s = 0.0
        self.ends: tuple[str, str, int] | None = None  # local address, remote address and port
        self._client: http.client.HTTPConnection | None = None

    def get(self, start: int, end: int) -> tuple[Facts, http.client.HTTPResponse]:
        """Request `[start, end)`. Raises `RefusedError`; `OSError` and `HTTPException` for temporary failures."""
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
        return self._ask(wanted)  # the server had closed the kept connection

    def _connect(self) -> http.client.HTTPConnection:
        parts, path = urlsplit(self.url), self.path
        secure = parts.scheme == "https"
        there = (parts.hostname or "", parts.port or (443 if secure else 80))
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection  # which verifies certificates
        own = (path.source, 0) if path.source else None
        client = kind(*(path.proxy or there), timeout=TIMEOUT_S, source_address=own)
        if path.proxy and secure:
            client.set_tunnel(*there)
        if (device := path.device) is not None:  # replaces http.client's own connect
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
        etag, modified = _validators(response)
        length = response.getheader("Content-Length", "")
        if status in AGAIN_LATER:
            raise http.client.HTTPException(f"HTTP {status}")
        if status not in {200, 206, 416} or response.getheader("Content-Encoding", "identity") != "identity":
            raise RefusedError(f"HTTP {status} {response.getheader('Content-Encoding', '')}".rstrip())
        if status == 200:
            if not re.fullmatch(r"[0-9]{1,18}", length):
                raise RefusedError("does not report the length of the file")
            return Facts(self.path.url, int(length), etag, modified, ranged=int(length) == 0)
        found = re.fullmatch(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18})", ranged)
        if found is None or (status == 416) != (found[1] is None) or (status == 416 and found[3] != "0"):
            raise RefusedError(f"HTTP {status}, Content-Range {ranged[:60]!r}")
        size = int(found[3])
        sent = (int(found[1]), int(found[2]) + 1) if found[1] else (0, 0)
        if size and (sent != (start, min(end, size)) or length not in {"", str(sent[1] - sent[0])}):
            raise RefusedError(f"requested bytes {start} to {end - 1}, got {ranged!r} and {length} bytes")
        return Facts(self.path.url, size, etag, modified)


def _validators(response: http.client.HTTPResponse) -> tuple[str | None, str | None]:
    """The ETag and the Last-Modified, if strong: equal ones mean equal bytes (RFC 9110, 8.8.1 and 8.8.2.2)."""
    etag, modified = response.getheader("ETag"), response.getheader("Last-Modified")
    if etag is not None and etag.startswith("W/"):
        etag = None
    sent_s, modified_s = _seconds(response.getheader("Date")), _seconds(modified)
    if sent_s is None or modified_s is None or sent_s - modified_s < 1:
        modified = None
    return etag, modified


def _seconds(date: str | None) -> int | None:
    """Unix time of an HTTP date, None if it is none."""
    found = parsedate_tz(date) if date is not None else None
    try:
        return None if found is None else mktime_tz(found)
    except (ValueError, OverflowError):
        return None


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
    """The device by which packets from this source leave, if the source belongs to another one. None also without the
    program `ip`."""
    found = []
    for asked in (["route", "get", destination, "from", source], ["address", "show", "to", source]):
        try:
            done = subprocess.run(["ip", "-j", *asked], capture_output=True, check=True, timeout=TIMEOUT_S)
            (entry, *_) = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        found.append(str(entry.get("dev") or entry.get("ifname")))
    return found[0] if found[0] not in {found[1], "lo"} else None


class Transfer:
    """`say` prints a sentence, `draw` is called a few times a second."""

    def __init__(
        self, paths: Sequence[Path], core: Download, part: Part, say: Callable[[str], None], draw: Callable[[], None]
    ) -> None:
        self._paths, self._core, self._part, self._say, self._draw = paths, core, part, say, draw
        self._lock = threading.Condition()
        self._is_over = False
        self._error: BaseException | None = None
        self._checking: set[int] = set()
        self._ends: dict[tuple[object, ...], int] = {}  # what identifies a path -> its number
        self._asking: list[threading.Thread] = []  # device by which a path leaves

    def run(self) -> None:
        """Fetch all of it. Raises `AllPathsDeadError` and `LocalError`; the map then has what was received."""
        for index in range(len(self._paths)):
            self._start(self._open, index)
        saved_s = time.monotonic()
        try:
            while self._goes_on():
                self._draw()
                if time.monotonic() - saved_s >= SAVE_S:
                    self._save()
                    saved_s = time.monotonic()
        finally:
            with self._lock:
                self._is_over = True
                self._core.abandoned += sum(one.end - one.pos for one in self._core.tasks)
            self._save(is_last=True)
        for one in self._asking:
            one.join(TIMEOUT_S)
        if not self._core.is_complete:
            raise AllPathsDeadError(f"All paths are dead. {self.kept}")

    @property
    def kept(self) -> str:
        """What is left of an incomplete download, as a sentence."""
        if not self._core.done.total:
            return "Nothing was received."
        how = (
            "continues"
            if self._core.is_resumable
            else "begins again: the server lacks Range, or ETag and Last-Modified"
        )
        return f"{self._part.path} has what was received; --resume {how}."

    def _goes_on(self) -> bool:
        with self._lock:
            self._lock.wait(TICK_S)
            if self._error is not None:
                raise self._error
            self._core.tick(time.monotonic())
            return not (self._core.is_complete or self._core.is_dead)

    def _save(self, *, is_last: bool = False) -> None:
        with self._lock:
            reference, done = self._core.reference, [(s, e) for s, e, _ in self._core.done]
        if reference is not None:
            self._part.save(reference, done, may_cut=is_last)

    # --- threads of a path ----------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=self._guard, args=(work, *arguments), daemon=True)
        thread.start()
        return thread

    def _guard(self, work: Callable[..., None], *arguments: object) -> None:
        """An error other than a path's ends the download."""
        try:
            work(*arguments)
        except BaseException as exc:
            with self._lock:
                self._error = self._error or exc
                self._lock.notify_all()

    def _is_left(self, index: int) -> bool:
        return self._is_over or self._core.paths[index].state is State.OUT

    def _open(self, index: int) -> None:
        """Request one byte for the file's facts; then fetch ranges over as many connections as useful."""
        connection = Connection(self._paths[index])
        while not self._succeeds(index, partial(self._first, index, connection)):
            connection.close()
            with self._lock:
                while not self._is_left(index) and time.monotonic() < self._core.paths[index].retry_at_s:
                    self._lock.wait(TICK_S)
                if self._is_left(index):
                    return
        for _ in range(self._core.paths[index].under_way - 1):
            self._start(self._work, index, Connection(self._paths[index]))
        self._work(index, connection)

    def _succeeds(self, index: int, function: Callable[[], None]) -> bool:
        """Return success; failures are reported to the core."""
        try:
            function()
            return True
        except ssl.SSLCertVerificationError as exc:
            tell, reason = self._core.leave, f"its certificate does not verify: {exc.verify_message}"
        except RefusedError as exc:
            tell, reason = self._core.leave, str(exc)
        except (OSError, http.client.HTTPException) as exc:
            tell, reason = self._core.failed, str(exc) or type(exc).__name__
        with self._lock:
            tell(index, reason, time.monotonic())
        return False

    def _first(self, index: int, connection: Connection) -> None:
        facts, response = connection.get(0, 1)
        if facts.ranged and response.length == 1:
            response.read()
        else:  # also an answer without a length, which might not end
            connection.close()
        path, ends = self._paths[index], connection.ends
        if path.source and ends:  # concurrent: it takes longer than the first response
            self._asking.append(self._start(self._tell_device, path, path.source, ends[1]))
        with self._lock:
            twin = self._ends.setdefault((path.device, path.proxy, ends, connection.url), index)
            if twin != index:
                raise RefusedError(f"it has the addresses and the URL of {self._paths[twin]}")
            self._core.opened(index, facts, connection.handshake_s, time.monotonic())
            self._lock.notify_all()

    def _tell_device(self, path: Path, source: str, destination: str) -> None:
        device = other_device(source, destination)
        if device is not None:
            self._say(f"{path}: packets from this source leave by another device, {device}.")

    def _work(self, index: int, connection: Connection) -> None:
        with closing(connection):
            while True:
                with self._lock:
                    while (task := self._core.take(index, time.monotonic())) is None:
                        if self._is_left(index):
                            return
                        self._lock.wait(TICK_S)
                if not self._succeeds(index, partial(self._fetch, task, connection)):
                    connection.close()
                with self._lock:
                    self._core.drop(task)
                    self._lock.notify_all()

    def _fetch(self, task: Task, connection: Connection) -> None:
        left = task.end - task.pos
        facts, response = connection.get(task.pos, task.end)
        with self._lock:
            reason = self._core.differs(facts)
            opened = self._core.paths[task.path].facts
            if opened is not None and facts.ranged != opened.ranged:
                reason = "it answers some requests with Range and some without"
        if reason is not None:
            raise RefusedError(reason)
        while task.is_live:
            data = response.read1(min(CHUNK_BYTES, left))
            if not data:
                raise http.client.HTTPException(f"the answer ended {left} bytes early")
            left -= len(data)
            self._keep(task, data)
        if left:
            connection.close()
        elif response.read(1):  # nothing; only then http.client can reuse the connection
            raise RefusedError("it sends more than it was asked for")

    def _keep(self, task: Task, data: bytes) -> None:
        with self._lock:
            if self._is_over:  # the map that was saved last must not be behind a write that cuts
                return
            at = task.pos
            new = self._core.arrived(task, len(data), time.monotonic())
            try:
                for start, end in new:
                    self._part.write(start, memoryview(data)[start - at : end - at])
            except LocalError:
                for start, end in new:  # the map is never ahead of the data
                    self._core.done.cut(start, end)
                raise
            todo = self._core.unchecked - self._checking
            self._checking |= todo
        for piece in todo:
            is_right = self._part.is_right(piece)
            with self._lock:
                self._checking.discard(piece)
                self._core.checked(piece, is_right, self._part.digest, time.monotonic())
