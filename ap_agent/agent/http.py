"""One bounded HTTP request. `fetch` and `enrol` interpret the responses.

The network is not trusted: timeouts are explicit, the whole exchange has a deadline (a server that sends a byte a
minute never hits a read timeout), a body has a byte limit, and redirects, which would forward a secret, are not
followed. Proxies, certificates and `.netrc` of the environment are ignored.

The service may hold a request for a while (`wait_s`). Keepalive probes then detect a dead peer, and keep NAT entries
alive.
"""

from __future__ import annotations

import email.utils
import errno
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import requests
import urllib3

from ap_agent import __version__
from ap_agent.agent.connections import Adapter, Connections
from ap_agent.common.errors import AgentError, FetchError
from ap_agent.common.settings import Settings
from ap_agent.common.text import shown

_SLOWEST_ROUND_TRIP_S = 2.0  # a held poll, or a busy service: the date may have been written at any time in between
_MAX_SKEW_MS = 2**31 - 1  # range of a receipt's field: 24 days
_CHUNK_BYTES = 64 * 1024
_MAX_RETRY_AFTER_S = 3600.0  # larger values of Retry-After are capped at an hour


class ClockComparison:
    """Offset of this host's clock to the service's, by the Date header of the newest response. Thread-safe. The header
    has whole seconds (RFC 9110, 6.6.1), rounded down, so the middle of its second is used. Half the round trip is
    subtracted. The result is accurate to half a second and half a round trip."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.skew_ms: int | None = None

    def note(self, date: datetime | None, round_trip_s: float) -> None:
        """Record the date of a response that took this long."""
        if date is None or not 0 <= round_trip_s <= _SLOWEST_ROUND_TRIP_S:
            return
        ours_s = self._now() - round_trip_s / 2
        measured_ms = round((ours_s - (date.timestamp() + 0.5)) * 1000)
        self.skew_ms = max(-_MAX_SKEW_MS, min(measured_ms, _MAX_SKEW_MS))


class WebClient:
    """Requests to one address. One client per thread; any thread may `close`."""

    def __init__(self, url: str, settings: Settings, clock: ClockComparison, *, is_kept: bool = False) -> None:
        """`settings` have the timeouts and `ca_file`. `is_kept`: one connection for all requests until `close`, for one
        each second."""
        self._url, self._settings, self._clock, self._is_kept = url, settings, clock, is_kept
        self._connections = Connections(is_kept=is_kept)
        self._session = _Session()
        self._session.trust_env = False
        self._session.verify = str(settings.ca_file) if settings.ca_file is not None else True
        self._session.headers["User-Agent"] = f"scionlab-bw-agent/{__version__}"
        # The library would unpack a content encoding beyond our byte limit.
        self._session.headers["Accept-Encoding"] = "identity"
        if not is_kept:
            self._session.headers["Connection"] = "close"
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, Adapter(self._connections))

    def close(self) -> None:
        """Abort a running request with an error, and prevent further ones."""
        self._connections.close()
        if self._is_kept:
            self._session.close()

    @contextmanager
    def request(self, method: str, path: str, *, wait_s: float = 0.0, **options: Any) -> Iterator[requests.Response]:
        """One request whose response is read inside the `with` block (`read_body`); the deadline covers both. `wait_s`
        is how long the service may hold it, added to the timeouts. `options` are those of `requests` (`params`, `json`,
        `data`, `auth`). Raises `FetchError` for network errors; statuses are not errors here."""
        timeouts_s = self._settings.connect_timeout_s, self._settings.read_timeout_s + wait_s
        deadline_s = self._settings.fetch_deadline_s + wait_s
        with self._connections.deadline(deadline_s) as is_overdue:
            began = time.monotonic()
            try:
                answer = self._session.request(
                    method,
                    self._url + path,
                    timeout=timeouts_s,
                    allow_redirects=False,
                    stream=True,
                    **options,
                )
                self._clock.note(_parse_date(answer.headers.get("Date")), time.monotonic() - began)
                with answer:
                    yield answer
                    if is_overdue():  # a body without a length ends like a complete one when its socket is shut
                        raise self._overdue(deadline_s)
            except AgentError as exc:
                if is_overdue():  # truncated headers look like headers without a content type
                    raise self._overdue(deadline_s) from exc
                raise
            # urllib3 and ssl errors come through when the body is read without requests.
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as exc:
                if is_overdue():
                    raise self._overdue(deadline_s) from exc
                raise _network_error(exc, self._url, *timeouts_s) from exc
            finally:
                if not self._is_kept:
                    self._session.close()  # the connections, not the session: see `Connections`

    def _overdue(self, deadline_s: float) -> FetchError:
        if self._connections.is_closed:
            return FetchError(f"The request to {self._url} was cancelled by this agent.")
        return FetchError(f"{self._url} did not finish its answer within {deadline_s:g} s.")


class _Session(requests.Session):
    """Ignores redirects. Even without following them requests prepares the next request: it reads the body without a
    limit, and fails on a Location that is not UTF-8 with a foreign exception."""

    def get_redirect_target(self, _resp: requests.Response) -> None:
        return None


# --- reading an answer ----------------------------------------------------------------------------------------------


def read_body(answer: requests.Response, max_bytes: int, *, limit: str) -> bytes:
    """The body, of at most `max_bytes`; `limit` names that number. Raises `FetchError` before it reads more."""
    announced = answer.headers.get("Content-Length")
    if announced is not None and announced.isascii() and announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise FetchError(f"The answer has {announced[:20]} bytes, more than the {max_bytes} of {limit}.")
    answer.raw.enforce_content_length = True  # otherwise urllib3 before 2 (Debian 12) accepts a truncated body
    body = bytearray()
    while chunk := answer.raw.read(_CHUNK_BYTES, decode_content=False):
        body += chunk
        if len(body) > max_bytes:
            raise FetchError(f"The answer has more than the {max_bytes} bytes of {limit}.")
    return bytes(body)


def error_of(answer: requests.Response, *, address: str, check: str) -> FetchError:
    """Map an error status to an exception, and whether it is retryable. `address` is the URL, `check` names its
    settings. Callers handle 401 and 403."""
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
    """Seconds to wait: the header has seconds or a date (RFC 9110, 10.2.3). None if invalid. `answered_at` is the
    response's own date, so that a wrong clock of this host does not matter."""
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


def _network_error(exc: Exception, url: str, connect_timeout_s: float, read_timeout_s: float) -> FetchError:
    if isinstance(exc, requests.exceptions.SSLError) or has_cause(exc, ssl.SSLError):
        return FetchError(f"No trusted connection to {url}: {_reason(exc)}. Check the certificate and ca_file.")
    if isinstance(exc, requests.exceptions.ConnectTimeout):
        return FetchError(f"{url} did not accept a connection within {connect_timeout_s:g} s.")
    if isinstance(exc, requests.exceptions.Timeout | urllib3.exceptions.TimeoutError) or has_cause(exc, TimeoutError):
        if any(isinstance(one, OSError) and one.errno == errno.ETIMEDOUT for one in chain(exc)):
            return FetchError(f"{url} does not answer TCP keepalive probes; the connection is dead.")
        return FetchError(f"{url} sent no data for {read_timeout_s:g} s.")
    if has_cause(exc, urllib3.exceptions.IncompleteRead):
        return FetchError(f"{url} closed the connection before the end of its answer.")
    return FetchError(f"{url} cannot be reached: {_reason(exc)}.")


def chain(exc: BaseException) -> Iterator[BaseException]:
    """An exception with its causes: the libraries use `__cause__`, `__context__`, `reason` or `args`."""
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
    """Text of the innermost system error; requests' own texts are long and contain the URL."""
    for one in chain(exc):
        if isinstance(one, ssl.SSLCertVerificationError):
            return shown(one.verify_message)
        if isinstance(one, OSError) and one.strerror:
            return shown(one.strerror)
    return type(exc).__name__
