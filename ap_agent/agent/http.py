"""One HTTP request, bounded in every way. What the answers mean is said where they are asked for (`fetch`, `enrol`).

Nothing here believes the network: timeouts are explicit, the whole conversation has a deadline of its own (a server
that sends a byte a minute never runs into a read timeout), a body has a byte cap, and a redirect is not followed,
because it would carry a secret to wherever it points. Proxies, certificates and `.netrc` of the environment do not
count: what the agent talks to is in its configuration.

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
from pathlib import Path
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ap_agent import __version__
from ap_agent.common import threads
from ap_agent.common.errors import AgentError, FetchError
from ap_agent.common.text import shown

_SLOWEST_ROUND_TRIP_S = 2.0  # a held question, or a service that is busy: nobody knows when in it the date was written
_MAX_SKEW_MS = 2**31 - 1  # what a receipt can carry: 24 days
_CHUNK_BYTES = 64 * 1024
_MAX_RETRY_AFTER_S = 3600.0  # a service that asks for more is asked again after an hour anyway

# tcp(7). NAT boxes forget what was silent for 30 to 60 s, so the first probe comes well before. Whoever answers none
# in USER_TIMEOUT, counted from what it said last, is gone: then the poll ends, not when its wait would be over.
PROBE_AFTER_S = 10
PROBE_EVERY_S = 5
USER_TIMEOUT_S = 20
_SOCKET_OPTIONS = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, USER_TIMEOUT_S // PROBE_EVERY_S),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_S * 1000),
]


@dataclass(frozen=True)
class Bounds:
    """How long a request may take [s]: until the connection stands, in silence, and altogether."""

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
        self._url = url
        self._clock = clock if clock is not None else ClockComparison()
        self._bounds = bounds
        self._connections = _Connections()
        self._session = _Session()
        self._session.trust_env = False
        self._session.verify = str(ca_file) if ca_file is not None else True
        self._session.headers["User-Agent"] = f"scionlab-bw-agent/{__version__}"
        # A content encoding would be unpacked by the library, outside of our byte cap.
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.headers["Connection"] = "close"
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(self._connections))

    def close(self) -> None:
        """A request that is under way ends at once, with an error; there will be no other."""
        self._connections.close()

    @contextmanager
    def request(self, method: str, path: str, *, wait_s: float = 0.0, **options: Any) -> Iterator[requests.Response]:
        """One request whose answer is to be read inside the `with` block (`read_body`); the deadline covers both.

        `wait_s` is how long the service was asked to hold it open: so much more time than usual is allowed. `options`
        are those of `requests` (`params`, `json`, `data`, `auth`). Raises `FetchError` for whatever the network does;
        a status is no error here.
        """
        bounds = self._bounds
        allowed = Bounds(bounds.connect_timeout_s, bounds.read_timeout_s + wait_s, bounds.deadline_s + wait_s)
        with self._connections.deadline(allowed.deadline_s) as is_overdue:
            began = time.monotonic()
            try:
                answer = self._session.request(
                    method,
                    self._url + path,
                    timeout=(allowed.connect_timeout_s, allowed.read_timeout_s),
                    allow_redirects=False,
                    stream=True,
                    **options,
                )
                self._clock.note(_parse_date(answer.headers.get("Date")), time.monotonic() - began)
                with answer:
                    yield answer
                    if is_overdue():  # a body without a length ends like a complete one when its socket is shut
                        raise self._overdue(allowed)
            except AgentError as exc:
                if is_overdue():  # headers that were cut off look like headers without a content type
                    raise self._overdue(allowed) from exc
                raise
            # urllib3 and ssl errors come through where the body is read beside requests.
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as exc:
                if is_overdue():
                    raise self._overdue(allowed) from exc
                raise _network_error(exc, self._url, allowed) from exc
            finally:
                self._session.close()  # the connections, not the session: see `_Connections`

    def _overdue(self, allowed: Bounds) -> FetchError:
        if self._connections.is_closed:
            return FetchError(f"The request to {self._url} was cancelled by this agent.")
        return FetchError(f"{self._url} did not finish its answer within {allowed.deadline_s:g} s.")


class _Session(requests.Session):
    """Sees no redirect at all. Where none is to be followed requests still prepares the next request: it reads the
    body without any cap, and fails on a Location that is not UTF-8 with an error that is none of its own."""

    def get_redirect_target(self, _resp: requests.Response) -> None:
        return None


# --- a deadline for the whole conversation --------------------------------------------------------------------------


class _Connections:
    """The sockets of a client, so that a deadline can shut them from beside: a blocked read then ends at once.

    Every request has a connection of its own: one that idled between two polls may be dead without anybody having told
    us. The header `Connection: close` alone does not do it: a server that obeys without saying so leaves
    a dying connection in the library's pool (measured: 116 failures in 3000 rounds of fetch and receipt on loopback).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._overdue = False
        self.is_closed = False

    def add(self, connection: socket.socket) -> None:
        """Keep a second descriptor of the same socket: TLS takes the first one away from where it is made."""
        with self._lock:
            self._open.append(connection.dup())
            if self._overdue or self.is_closed:
                self._shut_all()

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self._shut_all()

    def _expire(self) -> None:
        with self._lock:
            self._overdue = True
            self._shut_all()

    def _shut_all(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):  # the other side was first
                one.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[Callable[[], bool]]:
        """Shut every connection after `seconds`. Yields a function that says whether that has happened."""
        self._overdue = False
        is_over = threading.Event()
        threads.start("deadline", lambda: None if is_over.wait(seconds) else self._expire())
        try:
            yield lambda: self._overdue or self.is_closed
        finally:
            is_over.set()
            with self._lock:
                for one in self._open:
                    one.close()
                self._open.clear()


class _Adapter(HTTPAdapter):
    """requests' adapter whose connections are known to `_Connections` and send keepalive probes."""

    def __init__(self, connections: _Connections) -> None:
        self._connections = connections
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, socket_options=_SOCKET_OPTIONS, **options)
        connections = self._connections

        class Known:
            def _new_conn(self) -> socket.socket:  # before TLS: a handshake can be drawn out as well
                made: socket.socket = super()._new_conn()  # type: ignore[misc]  # of the connection that it is mixed into
                connections.add(made)
                return made

        pools: dict[str, type[HTTPConnectionPool]] = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        self.poolmanager.pool_classes_by_scheme = {
            scheme: type("Pool", (pool,), {"ConnectionCls": type("Connection", (Known, pool.ConnectionCls), {})})
            for scheme, pool in pools.items()
        }


# --- reading an answer ----------------------------------------------------------------------------------------------


def read_body(answer: requests.Response, max_bytes: int, *, limit: str) -> bytes:
    """The body, of at most `max_bytes`; `limit` is that number's name. Raises `FetchError`, before it reads more."""
    announced = answer.headers.get("Content-Length")
    if announced is not None and announced.isascii() and announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise FetchError(f"The answer has {announced[:20]} bytes, more than the {max_bytes} of {limit}.")
    answer.raw.enforce_content_length = True  # else urllib3 before 2 (Debian 12) takes a truncated body for a whole one
    body = bytearray()
    while chunk := answer.raw.read(_CHUNK_BYTES, decode_content=False):
        body += chunk
        if len(body) > max_bytes:
            raise FetchError(f"The answer has more than the {max_bytes} bytes of {limit}.")
    return bytes(body)


def error_of(answer: requests.Response, *, address: str, check: str) -> FetchError:
    """The one place that says what an unwelcome status means, and whether it may pass by itself.

    `address` is what was asked, `check` names the settings that it is made of. 401 and 403 are the caller's.
    """
    status = answer.status_code
    if 300 <= status < 400 and status != 304:
        target = shown(answer.headers.get("Location", "nowhere"))
        return FetchError(
            f"The service redirects ({status}) to {target}; redirects are not followed, because they would "
            "receive the secret. Set url to the final URL of the service.",
            retryable=False,
        )
    if status >= 500 or status in {408, 429}:
        retry_after_s = parse_retry_after(answer.headers.get("Retry-After"), _parse_date(answer.headers.get("Date")))
        return FetchError(f"The service answered {status}; trying again later.", retry_after_s=retry_after_s)
    if status == 404:
        return FetchError(f"The service has no such URL (404): {address}. Check {check}.", retryable=False)
    return FetchError(
        f"The service answered {status}, which is unexpected for the host API v4. Check url.", retryable=False
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


# --- what went wrong on the way -------------------------------------------------------------------------------------


def _network_error(exc: Exception, url: str, allowed: Bounds) -> FetchError:
    if isinstance(exc, requests.exceptions.SSLError) or has_cause(exc, ssl.SSLError):
        return FetchError(f"No trusted connection to {url}: {_reason(exc)}. Check the certificate and ca_file.")
    if isinstance(exc, requests.exceptions.ConnectTimeout):
        return FetchError(f"{url} did not accept a connection within {allowed.connect_timeout_s:g} s.")
    if isinstance(exc, requests.exceptions.Timeout | urllib3.exceptions.TimeoutError) or has_cause(exc, TimeoutError):
        if any(isinstance(one, OSError) and one.errno == errno.ETIMEDOUT for one in chain(exc)):
            return FetchError(f"{url} does not answer TCP keepalive probes; the connection is dead.")
        return FetchError(f"{url} sent no data for {allowed.read_timeout_s:g} s.")
    if has_cause(exc, urllib3.exceptions.IncompleteRead):
        return FetchError(f"{url} closed the connection before the end of its answer.")
    return FetchError(f"{url} cannot be reached: {_reason(exc)}.")


def chain(exc: BaseException) -> Iterator[BaseException]:
    """An error with what caused it: the libraries put it into `__cause__`, `__context__`, `reason` or `args`."""
    pending, seen = [exc], set()
    while pending:
        one = pending.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        pending.extend(cause for cause in inner if isinstance(cause, BaseException))


def has_cause(exc: BaseException, kind: type[BaseException]) -> bool:
    return any(isinstance(one, kind) for one in chain(exc))


def _reason(exc: BaseException) -> str:
    """The innermost system error in words; requests' own texts are a page long and hold the whole address."""
    for one in chain(exc):
        if isinstance(one, ssl.SSLCertVerificationError):
            return shown(one.verify_message)
        if isinstance(one, OSError) and one.strerror:
            return shown(one.strerror)
    return type(exc).__name__
