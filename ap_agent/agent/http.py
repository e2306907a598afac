"""One HTTP request, bounded in every way. What the answers mean is said where they are asked for (`fetch`, `enrol`).

Nothing here believes the network: timeouts are explicit, the whole conversation has a deadline of its own (a server
that sends a byte a minute never runs into a read timeout), a body has a byte cap, and a redirect is not followed,
because it would carry a secret to wherever it points. Proxies, certificates and `.netrc` of the environment do not
count: what the agent talks to is in its configuration.

Every request has a connection of its own: one that idled between two polls may be dead without anybody having told us.
A request may be held open by the service for a while (`wait_s`). Keepalive probes show then that the other side is
still there, and keep a NAT box on the way from forgetting the connection.
"""

from __future__ import annotations

import contextlib
import email.utils
import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path
from urllib.parse import urlsplit

from ap_agent import __version__
from ap_agent.common import threads
from ap_agent.common.errors import AgentError, FetchError

_SLOWEST_ROUND_TRIP_S = 2.0  # a held question, or a service that is busy: nobody knows when in it the date was written
_MAX_SKEW_MS = 2**31 - 1  # what a receipt can carry: 24 days
_CHUNK_BYTES = 64 * 1024
_MAX_RETRY_AFTER_S = 3600.0  # a service that asks for more is asked again after an hour all the same

# tcp(7). NAT boxes forget what was silent for 30 to 60 s, so the first probe comes well before. Whoever answers none
# in USER_TIMEOUT, counted from what it said last, is gone: then the poll ends, not when its wait would be over.
PROBE_AFTER_S = 10
PROBE_EVERY_S = 5
USER_TIMEOUT_S = 20
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, USER_TIMEOUT_S // PROBE_EVERY_S),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_S * 1000),
)


@dataclass(frozen=True)
class Bounds:
    """How long a request may take: until the connection stands, in silence, and altogether. Seconds."""

    connect_timeout_s: float
    read_timeout_s: float
    deadline_s: float


class ClockComparison:
    """How far this host's clock is from the service's, by the Date header of its newest answer. Any thread may note
    one, any may read it.

    The header has whole seconds (RFC 9110, 6.6.1), rounded down, so the middle of its second counts. Half the round
    trip is subtracted. The result is right to half a second and half a round trip.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.skew_ms: int | None = None

    def note(self, date: datetime | None, round_trip_s: float) -> None:
        """An answer with this date has just arrived, so long after its request was begun."""
        if date is None or not 0 <= round_trip_s <= _SLOWEST_ROUND_TRIP_S:
            return
        ours_s = self._now() - round_trip_s / 2
        measured_ms = round((ours_s - (date.timestamp() + 0.5)) * 1000)
        self.skew_ms = max(-_MAX_SKEW_MS, min(measured_ms, _MAX_SKEW_MS))


class WebClient:
    """Requests to one address. One client serves one thread; `close` may come from any."""

    def __init__(
        self, url: str, bounds: Bounds, *, ca_file: Path | None = None, clock: ClockComparison | None = None
    ) -> None:
        self._url, self._bounds, self._ca_file = url, bounds, ca_file
        self._clock = clock if clock is not None else ClockComparison()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None  # of the request under way
        self._is_overdue = self._is_closed = False

    def close(self) -> None:
        """A request that is under way ends at once, with an error; there will be no other."""
        with self._lock:
            self._is_closed = True
            self._shut()

    @contextmanager
    def request(
        self, method: str, path: str, *, body: bytes | None = None, wait_s: float = 0.0, **headers: str
    ) -> Iterator[HTTPResponse]:
        """One request whose answer is to be read inside the `with` block (`read_body`); the deadline covers both.

        `wait_s` is how long the service was asked to hold it open: so much more time than usual is allowed. A header's
        name has `_` for `-`. Raises `FetchError` for whatever the network does; a status is no error here.
        """
        bounds = self._bounds
        allowed = Bounds(bounds.connect_timeout_s, bounds.read_timeout_s + wait_s, bounds.deadline_s + wait_s)
        headers |= {
            "User-Agent": f"scionlab-bw-agent/{__version__}",
            "Accept": "*/*",
            "Accept-Encoding": "identity",  # whoever unpacks an encoding does so outside of our byte cap
            "Connection": "close",
        }
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        connection: _Connection | None = None
        with self._deadline(allowed.deadline_s):
            began = time.monotonic()
            try:
                connection = _Connection(self._url, allowed, self._ca_file, self._note)
                connection.connect()
                target = urlsplit(self._url).path + path
                with contextlib.suppress(BrokenPipeError):  # it may refuse a body before it has read it
                    connection.request(method, target, body, said)
                with connection.getresponse() as answer:
                    self._clock.note(_parse_date(answer.headers.get("Date")), time.monotonic() - began)
                    yield answer
                if self._is_cut:  # a body without a length ends like a complete one when its socket is shut
                    raise self._overdue(allowed)
            except AgentError as exc:
                if self._is_cut:  # headers that were cut off look like headers without a content type
                    raise self._overdue(allowed) from exc
                raise
            except (OSError, HTTPException, UnicodeError) as exc:  # the last one: a name that no DNS knows
                if self._is_cut:
                    raise self._overdue(allowed) from exc
                is_connected = connection is not None and connection.is_ready
                raise _network_error(exc, self._url, allowed, is_connected=is_connected) from exc
            finally:
                if connection is not None:
                    connection.close()

    @property
    def _is_cut(self) -> bool:
        return self._is_overdue or self._is_closed

    def _overdue(self, allowed: Bounds) -> FetchError:
        if self._is_closed:
            return FetchError(f"The request to {self._url} was given up by this agent.")
        return FetchError(f"{self._url} did not finish its answer within {allowed.deadline_s:g} s.")

    # --- a deadline for the whole conversation: shut the socket from beside, and a blocked read ends at once ---

    @contextmanager
    def _deadline(self, seconds: float) -> Iterator[None]:
        self._is_overdue = False
        is_over = threading.Event()
        threads.start("deadline", lambda: None if is_over.wait(seconds) else self._expire())
        try:
            yield
        finally:
            is_over.set()
            with self._lock:
                if self._socket is not None:
                    self._socket.close()
                self._socket = None

    def _note(self, made: socket.socket) -> None:
        """Keep a second descriptor of the same socket: TLS takes the first one away from where it is made."""
        with self._lock:
            self._socket = made.dup()
            if self._is_cut:
                self._shut()

    def _expire(self) -> None:
        with self._lock:
            self._is_overdue = True
            self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the other side was first
                self._socket.shutdown(socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    """One that tells of its socket before TLS, whose handshake can be drawn out as well, and sends keepalive probes.

    Raises `OSError` for certificates that cannot be read.
    """

    def __init__(self, url: str, allowed: Bounds, ca_file: Path | None, made: Callable[[socket.socket], None]) -> None:
        address = urlsplit(url)
        self.default_port = 443 if address.scheme == "https" else 80
        super().__init__(address.hostname or "", address.port)
        self._allowed, self._made = allowed, made
        self._tls = _trusting(ca_file) if address.scheme == "https" else None
        self.is_ready = False

    def connect(self) -> None:
        self.sock = socket.create_connection((self.host, self.port), self._allowed.connect_timeout_s)
        for option in _SOCKET_OPTIONS:
            self.sock.setsockopt(*option)
        self._made(self.sock)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
        self.sock.settimeout(self._allowed.read_timeout_s)
        self.is_ready = True


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Whom to believe: `ca_file`, or the system's certificates, whatever SSL_CERT_FILE says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
        return context
    usual = ssl.get_default_verify_paths()
    found = [one if Path(one).exists() else None for one in (usual.openssl_cafile, usual.openssl_capath)]
    if any(found):
        context.load_verify_locations(*found)
    return context


# --- reading an answer ----------------------------------------------------------------------------------------------


def read_body(answer: HTTPResponse, max_bytes: int, *, limit: str) -> bytes:
    """The body, of at most `max_bytes`; `limit` is that number's name. Raises `FetchError`, before it reads more."""
    announced = answer.headers.get("Content-Length")
    if announced is not None and announced.isascii() and announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise FetchError(f"The answer has {announced[:20]} bytes, more than the {max_bytes} of {limit}.")
    body = bytearray()
    while chunk := answer.read(_CHUNK_BYTES):
        body += chunk
        if len(body) > max_bytes:
            raise FetchError(f"The answer has more than the {max_bytes} bytes of {limit}.")
    if answer.length:  # as much is missing
        raise IncompleteRead(b"", answer.length)
    return bytes(body)


def error_of(answer: HTTPResponse, *, address: str, check: str) -> FetchError:
    """The one place that says what an unwelcome status means, and whether it may pass by itself.

    `address` is what was asked, `check` names the settings that it is made of. 401 and 403 are the caller's.
    """
    status = answer.status
    if 300 <= status < 400 and status != 304:
        target = shown(answer.headers.get("Location", "nowhere"))
        return FetchError(
            f"The service redirects ({status}) to {target}; redirects are not followed, because a secret would go "
            "there. Set url to the service's real address.",
            retryable=False,
        )
    if status >= 500 or status in {408, 429}:
        retry_after_s = parse_retry_after(answer.headers.get("Retry-After"), _parse_date(answer.headers.get("Date")))
        return FetchError(f"The service answered {status}; trying again later.", retry_after_s=retry_after_s)
    if status == 404:
        return FetchError(f"The service has no such address (404): {address}. Check {check}.", retryable=False)
    return FetchError(
        f"The service gave the answer {status}, which the host API v4 does not have here. Check url.", retryable=False
    )


def parse_retry_after(header: str | None, answered_at: datetime | None) -> float | None:
    """Seconds to wait: the header has seconds or a date (RFC 9110, 10.2.3). None where it says nothing sensible.

    `answered_at` is the answer's own date, so that a wrong clock of this host counts for nothing.
    """
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:10]), _MAX_RETRY_AFTER_S)
    when = _parse_date(text)
    if when is None or answered_at is None:
        return None
    return min(max(when.timestamp() - answered_at.timestamp(), 0.0), _MAX_RETRY_AFTER_S)


def _parse_date(text: str | None) -> datetime | None:
    try:
        when = email.utils.parsedate_to_datetime(text) if text is not None else None
    except (ValueError, OverflowError):
        return None
    return when.replace(tzinfo=UTC) if when is not None and when.tzinfo is None else when


def shown(text: str) -> str:
    """Somebody else's text for our log: nothing unprintable, at most 120 characters."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= 120 else clean[:117] + "..."


# --- what went wrong on the way -------------------------------------------------------------------------------------


def _network_error(exc: Exception, url: str, allowed: Bounds, *, is_connected: bool) -> FetchError:
    if isinstance(exc, ssl.SSLCertVerificationError):
        said = shown(exc.verify_message)
    elif isinstance(exc, OSError) and exc.strerror:
        said = shown(exc.strerror)
    else:
        said = type(exc).__name__
    if isinstance(exc, ssl.SSLError):
        return FetchError(f"No trusted connection to {url}: {said}. Check the certificate and ca_file.")
    if isinstance(exc, TimeoutError) and exc.errno == errno.ETIMEDOUT and is_connected:
        return FetchError(f"{url} does not answer the kernel's probes any longer; the connection is dead.")
    if isinstance(exc, TimeoutError) and is_connected:
        return FetchError(f"{url} was silent for {allowed.read_timeout_s:g} s.")
    if isinstance(exc, TimeoutError):
        return FetchError(f"{url} did not accept a connection within {allowed.connect_timeout_s:g} s.")
    if isinstance(exc, IncompleteRead):
        return FetchError(f"{url} closed the connection before the end of its answer.")
    return FetchError(f"{url} cannot be reached: {said}.")
