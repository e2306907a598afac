"""Talking to the Coordination Service: each answer becomes a typed result, or one error of the family.

Nothing here believes the network: timeouts are explicit, the whole answer has a deadline of its own (a server that
sends a byte a minute never runs into a read timeout), the body has a byte cap, and a redirect is not followed, because
it would carry the host's secret to wherever it points.

Not here: what a bundle must look like (`bundle`), and when to ask again (`loop`).
"""

from __future__ import annotations

import contextlib
import email.utils
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ap_agent import __version__
from ap_agent.errors import AgentError, AuthError, FetchError
from ap_agent.settings import Settings

GZIP_TYPES = frozenset({"application/gzip", "application/x-gzip"})
_CHUNK_BYTES = 64 * 1024
_MAX_ANSWER_BYTES = 64 * 1024  # of an answer that is not a bundle
_MAX_RETRY_AFTER_S = 3600.0  # a service that asks for more is asked again after an hour all the same


@dataclass(frozen=True)
class Have:
    """What this host has already: `version` is G.H, and L beside it where the manifest had one."""

    version: str
    limits_version: int | None


@dataclass(frozen=True)
class NewBundle:
    """The service has something else than we have. `data` is unchecked."""

    data: bytes


@dataclass(frozen=True)
class NotModified:
    """What we have is what the service has."""


@dataclass(frozen=True)
class NoAS:
    """This host has no AS. News to report, never an order to remove limits (DOMAIN section 4)."""


FetchResult = NewBundle | NotModified | NoAS


class ServiceClient:
    """The Coordination Service as this host sees it. One client serves one thread."""

    def __init__(self, settings: Settings) -> None:
        if settings.url is None or settings.host_id is None or settings.host_secret is None:
            raise ValueError("a client needs url, host_id and host_secret")
        self._settings = settings
        self._base = f"{settings.url}/api/v4/host/{settings.host_id}"
        self._connections = _Connections()
        self._session = _Session()
        # Proxies, certificates and netrc of the environment do not count: what the agent talks to is in agent.toml.
        self._session.trust_env = False
        self._session.auth = (settings.host_id, settings.host_secret)
        self._session.verify = str(settings.ca_file) if settings.ca_file is not None else True
        self._session.headers["User-Agent"] = f"scionlab-bw-agent/{__version__}"
        # A content encoding would be unpacked by the library, outside of our byte cap.
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.headers["Connection"] = "close"
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(self._connections))

    def close(self) -> None:
        self._session.close()

    def fetch_config(self, have: Have | None) -> FetchResult:
        """Ask for something newer than `have`. Raises `AuthError` (401, 403) and `FetchError` (everything else)."""
        query: dict[str, str] = {}
        if have is not None:
            query["version"] = have.version
            if have.limits_version is not None:
                query["limits"] = str(have.limits_version)
        with self._request("GET", "/config", params=query) as answer:
            if answer.status_code == 200:
                _check_is_gzip(answer)
                return NewBundle(_read_body(answer, self._settings.max_bundle_bytes))
            if answer.status_code == 304 and have is not None:
                return NotModified()
            if answer.status_code == 204:
                return NoAS()
            raise _error_of(answer, self._settings)

    def send_receipt(self, receipt: Mapping[str, Any]) -> None:
        """POST one enforcement receipt (docs/api.md). Raises `AuthError`, `FetchError`."""
        with self._request("POST", "/enforcement", json=receipt) as answer:
            if answer.status_code != 200:
                raise _error_of(answer, self._settings)
            _read_body(answer, _MAX_ANSWER_BYTES)

    def confirm_config(self, version: str) -> None:
        """Tell the service that `version` (G.H) is installed here. 304 means it knew. Raises as above."""
        with self._request("POST", "/deployed_config_version", data={"version": version}) as answer:
            if answer.status_code not in {200, 304}:
                raise _error_of(answer, self._settings)

    @contextmanager
    def _request(self, method: str, path: str, **options: Any) -> Iterator[requests.Response]:
        """One request whose answer is to be read inside the `with` block; the deadline covers both."""
        settings = self._settings
        with self._connections.deadline(settings.fetch_deadline_s) as is_overdue:
            try:
                answer = self._session.request(
                    method,
                    self._base + path,
                    timeout=(settings.connect_timeout_s, settings.read_timeout_s),
                    allow_redirects=False,
                    stream=True,
                    **options,
                )
                with answer:
                    yield answer
                    if is_overdue():  # a body without a length ends like a complete one when its socket is shut
                        raise _overdue_error(settings)
            except AgentError as exc:
                if is_overdue():  # headers that were cut off look like headers without a content type
                    raise _overdue_error(settings) from exc
                raise
            # urllib3 and ssl errors come through where the body is read beside requests.
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as exc:
                raise _network_error(exc, settings, overdue=is_overdue()) from exc
            finally:
                self._session.close()  # the connections, not the session: see `_Connections`


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

    def add(self, connection: socket.socket) -> None:
        """Keep a second descriptor of the same socket: TLS takes the first one away from where it is made."""
        with self._lock:
            self._open.append(connection.dup())
            if self._overdue:
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
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield lambda: self._overdue
        finally:
            timer.cancel()
            with self._lock:
                for one in self._open:
                    one.close()
                self._open.clear()


class _Adapter(HTTPAdapter):
    """requests' adapter whose connections are known to `_Connections`."""

    def __init__(self, connections: _Connections) -> None:
        self._connections = connections
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        known = self._connections

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:  # before TLS: a handshake can be drawn out as well
                made = super()._new_conn()
                known.add(made)
                return made

        class Encrypted(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                made = super()._new_conn()
                known.add(made)
                return made

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class EncryptedPool(HTTPSConnectionPool):
            ConnectionCls = Encrypted

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": EncryptedPool}


# --- reading an answer ----------------------------------------------------------------------------------------------


def _check_is_gzip(answer: requests.Response) -> None:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in GZIP_TYPES:
        hint = "; something else than the Coordination Service answers there, check url" if kind == "text/html" else ""
        raise FetchError(f"The service answered with {_shown(kind) or 'no content type'} instead of a tarball{hint}.")
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity":
        raise FetchError(f"The service answered with the content encoding {_shown(encoding)}, which was not asked for.")


def _read_body(answer: requests.Response, max_bytes: int) -> bytes:
    announced = answer.headers.get("Content-Length")
    if announced is not None and announced.isascii() and announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise FetchError(f"The answer has {announced[:20]} bytes, more than the {max_bytes} of max_bundle_bytes.")
    body = bytearray()
    while chunk := answer.raw.read(_CHUNK_BYTES, decode_content=False):
        body += chunk
        if len(body) > max_bytes:
            raise FetchError(f"The answer has more than the {max_bytes} bytes of max_bundle_bytes.")
    return bytes(body)


def _error_of(answer: requests.Response, settings: Settings) -> AgentError:
    """The one place that says what an unwelcome status means, and whether it may pass by itself."""
    status = answer.status_code
    if status in {401, 403}:
        return AuthError(
            f"The service refuses this host's credentials ({status}); compare host_id {settings.host_id} and the host "
            "secret with the host's page in the admin."
        )
    if 300 <= status < 400 and status != 304:
        target = _shown(answer.headers.get("Location", "nowhere"))
        return FetchError(
            f"The service redirects ({status}) to {target}; redirects are not followed, because the host secret would "
            "go there. Set url to the service's real address.",
            retryable=False,
        )
    retry_after_s = parse_retry_after(answer.headers.get("Retry-After"), datetime.now(UTC))
    if status >= 500 or status in {408, 429}:
        return FetchError(f"The service answered {status}; trying again later.", retry_after_s=retry_after_s)
    if status == 404:
        return FetchError(
            f"The service has no such address (404): {settings.url}/api/v4/host/{settings.host_id}. Check url and "
            "host_id.",
            retryable=False,
        )
    return FetchError(
        f"The service gave the answer {status}, which the host API v4 does not have here. Check url.", retryable=False
    )


def _network_error(exc: Exception, settings: Settings, *, overdue: bool) -> FetchError:
    where = settings.url
    if overdue:
        return _overdue_error(settings)
    if isinstance(exc, requests.exceptions.SSLError) or _has_cause(exc, ssl.SSLError):
        return FetchError(f"No trusted connection to {where}: {_reason(exc)}. Check the certificate and ca_file.")
    if isinstance(exc, requests.exceptions.ConnectTimeout):
        return FetchError(f"{where} did not accept a connection within {settings.connect_timeout_s:g} s.")
    if isinstance(exc, requests.exceptions.Timeout | urllib3.exceptions.TimeoutError) or _has_cause(exc, TimeoutError):
        return FetchError(f"{where} was silent for {settings.read_timeout_s:g} s.")
    if _has_cause(exc, urllib3.exceptions.IncompleteRead):
        return FetchError(f"{where} closed the connection before the end of its answer.")
    return FetchError(f"{where} cannot be reached: {_reason(exc)}.")


def _overdue_error(settings: Settings) -> FetchError:
    return FetchError(f"{settings.url} did not finish its answer within {settings.fetch_deadline_s:g} s.")


def _chain(exc: BaseException) -> Iterator[BaseException]:
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


def _has_cause(exc: BaseException, kind: type[BaseException]) -> bool:
    return any(isinstance(one, kind) for one in _chain(exc))


def _reason(exc: BaseException) -> str:
    """The innermost system error in words; requests' own texts are a page long and hold the whole address."""
    for one in _chain(exc):
        if isinstance(one, ssl.SSLCertVerificationError):
            return _shown(one.verify_message)
        if isinstance(one, OSError) and one.strerror:
            return _shown(one.strerror)
    return type(exc).__name__


def parse_retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds to wait: the header has seconds or a date (RFC 9110, 10.2.3). None where it says nothing sensible."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:10]), _MAX_RETRY_AFTER_S)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    seconds = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_S)


def _shown(text: str) -> str:
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= 120 else clean[:117] + "..."
