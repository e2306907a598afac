"""Requests to the service: error handling, retries during outages, idempotent changes.

Changes carry the ETag that they are based on (If-Match), and creations an Idempotency-Key. So they can be retried
without a response: the service executes them once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import requests

from scionlab_bw import VERSION
from scionlab_bw.credentials import Credentials
from scionlab_bw.errors import NotAllowed, Refused, Unreachable

TIMEOUT_S = (5.0, 30.0)  # to connect, and between two bytes
PATIENCE_S = 30.0  # total time for retries
_AGAIN = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
_LONGEST_WAIT_S = 30.0
HELD_S = 20  # how long the service may hold a response; below the read timeout
_FIRST_WAIT_S = 0.5


@dataclass(frozen=True)
class Document:
    """Response to a GET, with its ETag."""

    content: dict[str, Any]
    etag: str


class Service:
    """The REST API at one address, with a token."""

    def __init__(
        self, url: str, token: str = "", *, patience_s: float = PATIENCE_S, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = url
        self.patience_s = patience_s
        self._sleep = sleep
        self._session = requests.Session()
        self._session.trust_env = True  # proxies and REQUESTS_CA_BUNDLE; a .netrc must not replace the token
        self._session.auth = _Bearer(token)
        self._session.headers.update(
            {"Accept": "application/json, text/csv;q=0.9", "User-Agent": f"scionlab-bw/{VERSION}"}
        )

    @classmethod
    def of(cls, credentials: Credentials) -> Service:
        return cls(credentials.url, credentials.token)

    # --- verbs ----------------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Document:
        response = self._send("GET", path, params=_without_none(query))
        return Document(_json(response), response.headers.get("ETag", ""))

    def newer(self, path: str, etag: str, *, wait_s: int | None = None) -> Document | None:
        """Return None while the ETag is current. With `wait_s` (for tests) the service holds the request until it is
        not, or for so many seconds."""
        response = self._send("GET", path, headers={"If-None-Match": etag}, params=_without_none({"wait": wait_s}))
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            return None
        return Document(_json(response), response.headers.get("ETag", ""))

    def text(self, path: str, **query: Any) -> str:
        return self._send("GET", path, params=_without_none(query)).text

    def all_of(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        offset = 0
        while True:
            page = self.get(path, **query, limit=1000, offset=offset).content
            yield from page["results"]
            offset += len(page["results"])
            if page["next"] is None or not page["results"]:
                return

    def post(self, path: str, body: dict[str, Any], *, is_repeatable: bool = True) -> dict[str, Any]:
        headers = {"Idempotency-Key": str(uuid.uuid4())} if is_repeatable else {}
        return _json(self._send("POST", path, json=body, headers=headers, is_repeatable=is_repeatable))

    def patch(self, path: str, body: dict[str, Any], *, etag: str) -> dict[str, Any]:
        """Raises `Refused` (`stale`) after a concurrent change."""
        try:
            return _json(self._send("PATCH", path, json=body, headers={"If-Match": etag}))
        except Refused as exc:
            current = exc.document.get("current", {})
            # After a retry, the ETag may differ because the first attempt succeeded.
            if exc.code == "stale" and all(current.get(name) == value for name, value in body.items()):
                return dict(current)
            raise

    def delete(self, path: str) -> None:
        self._send("DELETE", path)

    # --- one request, as often as it takes --------------------------------------------------------------------

    def _send(self, method: str, path: str, *, is_repeatable: bool = True, **arguments: Any) -> requests.Response:
        deadline = time.monotonic() + self.patience_s
        wait_s = _FIRST_WAIT_S
        while True:
            response, reason = self._once(method, path, arguments)
            if response is not None and response.status_code not in _AGAIN:
                return _checked(response)
            wait_s = _asked_wait_s(response) or wait_s * 2
            if not is_repeatable or time.monotonic() + wait_s > deadline:
                raise Unreachable(_why(self.url, response, reason))
            self._sleep(wait_s)

    def _once(self, method: str, path: str, arguments: dict[str, Any]) -> tuple[requests.Response | None, str]:
        try:
            address = path if path.startswith(f"{self.url}/") else f"{self.url}/api/v1/{path}"
            # Redirects are not followed: the token must not go elsewhere.
            return self._session.request(method, address, timeout=TIMEOUT_S, allow_redirects=False, **arguments), ""
        except requests.exceptions.SSLError as exc:
            raise Unreachable(f"The certificate of {self.url} is not trusted: {_short(exc)}") from exc
        except (requests.ConnectionError, requests.Timeout) as exc:
            return None, _short(exc)
        except requests.RequestException as exc:
            raise Unreachable(f"Request to {self.url} failed: {_short(exc)}") from exc


class _Bearer(requests.auth.AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Token {self._token}"
        return request


def _checked(response: requests.Response) -> requests.Response:
    """Raises `Refused`, `NotAllowed`, `Unreachable` unless successful."""
    status = response.status_code
    if status < HTTPStatus.BAD_REQUEST and not response.is_redirect:
        return response
    if response.is_redirect or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Unreachable(f"{response.url} answers {status} {response.reason}. Is this the URL of the service?")
    document = _error(response)
    message, code = str(document.get("message", "")), str(document.get("code", ""))
    if not message:
        raise Unreachable(f"{response.url} answers {status} {response.reason}, which is not a response of the service.")
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise NotAllowed(message)
    raise Refused(message, code=code, document=document)


def _error(response: requests.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _json(response: requests.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError as exc:
        raise Unreachable(f"{response.url} does not answer with JSON. Is this the URL of the service?") from exc
    if not isinstance(found, dict):
        raise Unreachable(f"{response.url} is not the API of the service.")
    return found


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


def _without_none(query: dict[str, Any]) -> dict[str, Any]:
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }
