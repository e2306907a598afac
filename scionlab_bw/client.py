"""Requests to the service: error handling, retries during outages, idempotent changes.

Changes carry the ETag that they are based on (If-Match), and creations an Idempotency-Key. So they can be retried
without a response: the service executes them once.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import requests

from scionlab_bw import VERSION
from scionlab_bw.answers import LIMITS, REFUSAL, wrong, wrong_answer
from scionlab_bw.credentials import Credentials, is_loopback
from scionlab_bw.errors import NotAllowed, Refused, Unreachable, UsageError

TIMEOUT_S = (5.0, 30.0)  # to connect, and between two bytes
PATIENCE_S = 30.0  # total time for retries
_AGAIN = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
_LONGEST_WAIT_S = 30.0
FOLLOW_S = 1.0  # between two questions for the state of a test
_FIRST_WAIT_S = 0.5
MAX_PAGES = 100  # of a list
CLOCK_SLACK_S = 10  # below it nothing is said; the resolution of Date is a second
_DIRECT = {"http": None, "https": None, "all": None}


@dataclass(frozen=True)
class Document:
    """Response to a GET, with its ETag."""

    content: dict[str, Any]
    etag: str


class Service:
    """The REST API at one address, with a token."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self.clock_off_s = 0.0  # the service's clock minus this host's
        self._session = _Session()  # takes proxies and REQUESTS_CA_BUNDLE from the environment
        # What is sent to this host unencrypted, the token and a password, is nothing for a proxy elsewhere.
        self._proxies = _DIRECT if is_loopback(urlsplit(url).hostname or "") else {}
        self._session.auth = _Bearer(token)  # which a .netrc does not replace
        self._session.headers.update(
            {"Accept": "application/json, text/csv;q=0.9", "User-Agent": f"scionlab-bw/{VERSION}"}
        )

    @classmethod
    def of(cls, credentials: Credentials) -> Service:
        return cls(credentials.url, credentials.token)

    def now(self) -> datetime:
        """By the service's clock, if this host's is far off."""
        return datetime.now(UTC) + timedelta(seconds=self.clock_off_s)

    # --- verbs ----------------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Document:
        response = self._send("GET", path, params=query)
        return Document(_json(response, "GET", path), response.headers.get("ETag", ""))

    def newer(self, path: str, etag: str) -> Document | None:
        """Return None while the ETag is current."""
        response = self._send("GET", path, headers={"If-None-Match": etag})
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            return None
        return Document(_json(response, "GET", path), response.headers.get("ETag", ""))

    def text(self, path: str, **query: Any) -> str:
        return self._send("GET", path, params=query).text

    def all_of(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        offset = 0
        for _ in range(MAX_PAGES):
            page = self.get(path, **query, limit=1000, offset=offset).content
            yield from page["results"]
            offset += len(page["results"])
            if page["next"] is None or not page["results"]:
                return
        raise Unreachable(f"{self.url} sends more than {MAX_PAGES} pages of {path}. Is this the URL of the service?")

    def post(self, path: str, body: dict[str, Any], *, is_repeatable: bool = True) -> dict[str, Any]:
        headers = {"Idempotency-Key": str(uuid.uuid4())} if is_repeatable else {}
        return _json(self._send("POST", path, json=body, headers=headers, is_repeatable=is_repeatable), "POST", path)

    def patch(self, path: str, body: dict[str, Any], *, etag: str) -> dict[str, Any]:
        """Raises `Refused` (`stale`) after a concurrent change."""
        try:
            return _json(self._send("PATCH", path, json=body, headers={"If-Match": etag}), "PATCH", path)
        except Refused as exc:
            current = exc.document.get("current") or {}
            # After a retry, the ETag may differ because the first attempt succeeded.
            if exc.code == "stale" and wrong_answer("PATCH", path, current) is None and _has(current, body):
                return dict(current)
            raise

    def delete(self, path: str) -> None:
        self._send("DELETE", path)

    # --- one request, as often as it takes --------------------------------------------------------------------

    def _send(self, method: str, path: str, *, is_repeatable: bool = True, **arguments: Any) -> requests.Response:
        deadline = time.monotonic() + PATIENCE_S
        wait_s = _FIRST_WAIT_S
        while True:
            response, reason = self._once(method, path, arguments)
            if response is not None and response.status_code not in _AGAIN:
                return _checked(response)
            wait_s = _asked_wait_s(response) or wait_s * 2
            if not is_repeatable or time.monotonic() + wait_s > deadline:
                raise Unreachable(_why(self.url, response, reason))
            time.sleep(wait_s)

    def _once(self, method: str, path: str, arguments: dict[str, Any]) -> tuple[requests.Response | None, str]:
        asked_at = datetime.now(UTC)
        try:
            address = f"{self.url}/api/v1/{path}"
            arguments = {"timeout": TIMEOUT_S, "allow_redirects": False, "proxies": dict(self._proxies), **arguments}
            response = self._session.request(method, address, **arguments)
            self._compare_clocks(response, asked_at)
            return response, ""
        except requests.exceptions.SSLError as exc:
            raise Unreachable(f"The certificate of {self.url} is not trusted: {_short(exc)}") from exc
        except (requests.ConnectionError, requests.Timeout) as exc:
            return None, _short(exc)
        except requests.RequestException as exc:
            raise Unreachable(f"Request to {self.url} failed: {_short(exc)}") from exc
        except (OSError, ValueError) as exc:  # of a file or a proxy that the environment names
            named = [name for name in _ENVIRONMENT if os.environ.get(name)]
            raise UsageError(f"Request to {self.url} failed: {_short(exc)}. Check {', '.join(named)}.") from None

    def _compare_clocks(self, response: requests.Response, asked_at: datetime) -> None:
        """By its date, of any moment between question and answer."""
        try:
            date = parsedate_to_datetime(response.headers.get("Date", ""))
            off = date - max(asked_at, min(date, datetime.now(UTC)))
        except (ValueError, TypeError, OverflowError):  # none, or without a zone
            return
        self.clock_off_s = off.total_seconds() if abs(off.total_seconds()) > CLOCK_SLACK_S else 0.0


_ENVIRONMENT = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "http_proxy", "https_proxy", "all_proxy",
                "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")  # fmt: skip


class _Session(requests.Session):
    """Redirects are not followed: the token must not go elsewhere. Nor is their address read, which may be no text."""

    def get_redirect_target(self, _resp: requests.Response) -> None:
        return None


class _Bearer(requests.auth.AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Token {self._token}"
        return request


def _has(found: dict[str, Any], body: dict[str, Any]) -> bool:
    """Whether a change has been made. One limit for an AS is that of each of its Links, in both directions."""
    if "bandwidth_kbit" in body:
        return all(
            one["status"]["requested"][name] == body["bandwidth_kbit"] for one in found["links"] for name in LIMITS
        )
    return all(found.get(name) == value for name, value in body.items())


def _checked(response: requests.Response) -> requests.Response:
    """Raises `Refused`, `NotAllowed`, `Unreachable` unless successful."""
    status = response.status_code
    if status < HTTPStatus.MULTIPLE_CHOICES or status == HTTPStatus.NOT_MODIFIED:
        return response
    if status < HTTPStatus.BAD_REQUEST or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Unreachable(f"{response.url} answers {status} {response.reason}. Is this the URL of the service?")
    document = _error(response)
    if not document:
        raise Unreachable(f"{response.url} answers {status} {response.reason}, which is not a response of the service.")
    message = document["message"]
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise NotAllowed(message, is_ended=status == HTTPStatus.UNAUTHORIZED)
    raise Refused(message, code=document.get("code", ""), document=document)


def _error(response: requests.Response) -> dict[str, Any]:
    """Empty if it is none of the service."""
    try:
        found = response.json()
    except (ValueError, RecursionError):
        return {}
    return {} if wrong(found, REFUSAL) else dict(found)


def _json(response: requests.Response, method: str, path: str) -> dict[str, Any]:
    try:
        found = response.json()
    except (ValueError, RecursionError):
        raise Unreachable(f"{response.url} does not answer with JSON. Is this the URL of the service?") from None
    reason = wrong_answer(method, path, found)
    if reason is not None:
        raise Unreachable(
            f"{response.url} does not answer as the service does: {reason}. "
            f"Check the URL, and whether scionlab-bw {VERSION} is older than the service."
        )
    return dict(found)


def _asked_wait_s(response: requests.Response | None) -> float | None:
    """Retry-After in seconds, None if unusable."""
    written = "" if response is None else response.headers.get("Retry-After", "")
    return min(max(float(written), 0.1), _LONGEST_WAIT_S + 1) if written.isascii() and written.isdigit() else None


def _why(url: str, response: requests.Response | None, reason: str) -> str:
    if response is None:
        return f"{url} does not answer: {reason}"
    message = _error(response).get("message") or f"{response.status_code} {response.reason}"
    return f"{url} is unavailable: {message}"


def _short(error: Exception) -> str:
    """Short text of the innermost cause; requests wraps it three times."""
    cause: BaseException = error
    while cause.args and isinstance(cause.args[0], BaseException):
        cause = cause.args[0]
    inner = getattr(cause, "reason", None)
    return str(inner or cause)[:200]
