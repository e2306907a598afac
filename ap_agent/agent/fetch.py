"""Client of the Coordination Service: each response becomes a typed result, or an error of the family.

`http` bounds requests, `bundle` checks bundles, `backoff` schedules.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import requests

from ap_agent.agent.http import ClockComparison, WebClient, error_of, read_body
from ap_agent.common.errors import AgentError, AuthError, FetchError
from ap_agent.common.files import parse_object
from ap_agent.common.settings import Settings
from ap_agent.common.text import shown
from ap_agent.document.live import MOST_LINKS
from contract.link_rules import MAX_INTERFACE_ID

if TYPE_CHECKING:
    from ap_agent.agent.bundle import Bundle

GZIP_TYPES = frozenset({"application/gzip", "application/x-gzip"})
_INTERFACE_ID = re.compile(r"[1-9][0-9]{0,3}", flags=re.ASCII)
_MAX_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True)
class Have:
    """What this host has: `version` is G.H, L if the manifest had one, and the digest of the limits."""

    version: str
    limits_version: int | None
    limits_digest: str

    @classmethod
    def of(cls, bundle: Bundle | None) -> Have | None:
        return cls(bundle.version, bundle.limits_version, bundle.limits_digest) if bundle is not None else None


@dataclass(frozen=True)
class ReceiptAnswer:
    """Response to a receipt. `stored` false: ignored as outdated. `evidence_wanted`: the service does not know these
    limits, and asks for the signed text in force."""

    is_stored: bool = True
    evidence_wanted: bool = False


@dataclass(frozen=True)
class NewBundle:
    """The service has something else than we have. `data` is unchecked."""

    data: bytes


@dataclass(frozen=True)
class NotModified:
    """Up to date. `looked_at`: links with an open page."""

    looked_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class NoAS:
    """This host has no AS. Only reported; limits are kept (DOMAIN section 4)."""


class UploadRefusedError(AgentError):
    """The service permanently rejects the upload."""


class NotEnabledError(FetchError):
    """The service is installed without the part that takes the upload (`SCIONLAB_EXTENSIONS`)."""


FetchResult = NewBundle | NotModified | NoAS


class Client:
    """The Coordination Service as this host sees it. One thread may poll while another one sends receipts and usage,
    and a third one live rates. Two threads must not do the same."""

    def __init__(self, settings: Settings) -> None:
        if settings.url is None or settings.host_id is None or settings.host_secret is None:
            raise ValueError("a client needs url, host_id and host_secret")
        self._settings = settings
        self._host_id = settings.host_id
        self._path = f"/api/v4/host/{settings.host_id}"
        self._enrolled_secret = settings.host_secret
        self._secrets: tuple[str, ...] = (settings.host_secret,)
        self._clock = ClockComparison()
        self._polls, self._reports = self._web_client(), self._web_client()
        self._live = self._web_client(is_kept=True)

    def _web_client(self, *, is_kept: bool = False) -> WebClient:
        return WebClient(self._settings.url or "", self._settings, self._clock, is_kept=is_kept)

    @property
    def clock_skew_ms(self) -> int | None:
        """This host's clock minus the service's, by the newest response with a date; None: not measured yet."""
        return self._clock.skew_ms

    @property
    def secret(self) -> str:
        """The secret that is sent first: the newest one that this host has confirmed, or is about to."""
        return self._secrets[0]

    def use_secret(self, secret: str | None) -> None:
        """Send this secret first: that of the current bundle, which may have changed since the enrolment. The enrolled
        one is the fallback after a 401."""
        ordered = (secret, self._enrolled_secret) if secret is not None else (self._enrolled_secret,)
        self._secrets = tuple(dict.fromkeys(ordered))

    def close(self) -> None:
        """Abort running requests of all threads."""
        for one in (self._polls, self._reports, self._live):
            one.close()

    def fetch_config(self, have: Have | None, *, wait_s: int = 0) -> FetchResult:
        """Fetch something newer than `have`; the service may hold the request for `wait_s`. Raises `AuthError` (401,
        403) and `FetchError` (everything else)."""
        query: dict[str, str] = {}
        if have is not None:
            query["version"] = have.version
            query["digest"] = have.limits_digest
            if have.limits_version is not None:
                query["limits"] = str(have.limits_version)
            if wait_s > 0:
                query |= {"wait": str(wait_s), "live": "1"}
        with self._request(self._polls, "GET", "/config", params=query, wait_s=wait_s) as answer:
            if answer.status_code == 200:
                _check_is_gzip(answer)
                return NewBundle(read_body(answer, self._settings.max_bundle_bytes, limit="max_bundle_bytes"))
            if answer.status_code == 304 and have is not None:
                return NotModified(_interface_ids(answer.headers.get("Scionlab-Looked-At", "").split(",")))
            if answer.status_code == 204:
                return NoAS()
            raise self._error_of(answer)

    def send_receipt(self, receipt: Mapping[str, Any]) -> ReceiptAnswer:
        """POST one enforcement receipt (docs/api.md). Raises `AuthError`, `FetchError`."""
        with self._request(self._reports, "POST", "/enforcement", json=receipt) as answer:
            if answer.status_code != 200:
                raise self._error_of(answer)
            return _receipt_answer(_short_body(answer))

    def confirm_config(self, version: str) -> None:
        """Report `version` (G.H) as installed. 304 means already known. Raises as above."""
        with self._request(self._reports, "POST", "/deployed_config_version", data={"version": version}) as answer:
            if answer.status_code not in {200, 304}:
                raise self._error_of(answer)

    def send_usage(self, data: bytes) -> None:
        """POST one batch of usage, gzipped JSON (docs/api.md). A duplicate counts as stored. Raises
        `UploadRefusedError` if a retry cannot help, `NotEnabledError`, and as above."""
        self._upload("/usage", data)

    def send_test_result(self, result: Mapping[str, Any]) -> None:
        """POST samples of a test of a link (docs/api.md). Raises as `send_usage`."""
        self._upload("/test_results", gzip.compress(json.dumps(result).encode(), 1))

    def send_live(self, rates: Mapping[str, Any]) -> tuple[int, ...]:
        """POST live rates, each second on one connection until `end_live`; return the links with an open page. Raises
        `AuthError`, `FetchError`."""
        with self._request(self._live, "POST", "/live", json=rates) as answer:
            if answer.status_code != 200:
                raise self._error_of(answer)
            try:
                said = parse_object(_short_body(answer))
                return _interface_ids(said["links"])
            except (ValueError, KeyError, TypeError) as exc:
                raise FetchError(f"The answer to live rates cannot be read ({exc}).") from exc

    def end_live(self) -> None:
        self._live.close()
        self._live = self._web_client(is_kept=True)

    def _upload(self, path: str, data: bytes) -> None:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        with self._request(self._reports, "POST", path, data=data, headers=headers) as answer:
            if answer.status_code == 200:
                _short_body(answer)
                return
            if answer.status_code in {400, 413}:
                said = _short_body(answer)
                raise UploadRefusedError(
                    f"The service rejected the request ({answer.status_code}): {_message_of(said)}"
                )
            if answer.status_code == 404:  # host and secret are right: the same client fetches with them
                raise NotEnabledError("The service does not take this kind of report.", retryable=False)
            raise self._error_of(answer)

    @contextmanager
    def _request(self, client: WebClient, method: str, path: str, **options: Any) -> Iterator[requests.Response]:
        """With the last working secret; if rejected, with the other one."""
        tried = self._secrets
        for secret in tried[:-1]:
            with client.request(method, self._path + path, auth=(self._host_id, secret), **options) as answer:
                if answer.status_code != 401:
                    yield answer
                    return
        with client.request(method, self._path + path, auth=(self._host_id, tried[-1]), **options) as answer:
            if answer.status_code != 401 and self._secrets == tried:  # unless another one was set meanwhile
                self._secrets = (tried[-1], *tried[:-1])
            yield answer

    def _error_of(self, answer: requests.Response) -> AgentError:
        if answer.status_code in {401, 403}:
            return AuthError(
                f"The service rejects the credentials of this host ({answer.status_code}); compare host_id "
                f"{self._host_id} and the host secret with the host's page in the admin."
            )
        return error_of(answer, address=f"{self._settings.url}{self._path}", check="url and host_id")


def _short_body(answer: requests.Response) -> bytes:
    """The body of a response that is not a bundle."""
    return read_body(answer, _MAX_ANSWER_BYTES, limit="an answer that is no tarball")


def _interface_ids(written: Iterable[str]) -> tuple[int, ...]:
    """The valid ids, at most `MOST_LINKS`; raises `TypeError` if it is not text."""
    ids = [int(one) for one in written if _INTERFACE_ID.fullmatch(one) and int(one) <= MAX_INTERFACE_ID]
    return tuple(ids[:MOST_LINKS])


def _receipt_answer(body: bytes) -> ReceiptAnswer:
    try:
        said = parse_object(body, allows_fractions=True)
    except ValueError as exc:
        raise FetchError(
            f"The answer to the receipt cannot be read ({exc}); something else than the Coordination Service answers "
            "there, check url."
        ) from exc
    return ReceiptAnswer(said.get("stored") is not False, said.get("evidence_wanted") is True)


def _message_of(body: bytes) -> str:
    """Message of the service's error format; otherwise a hint that it is something else."""
    try:
        return shown(str(parse_object(body, allows_fractions=True)["message"]))
    except (ValueError, KeyError):
        return "without a reason."


def _check_is_gzip(answer: requests.Response) -> None:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in GZIP_TYPES:
        hint = "; this is not the Coordination Service; check url" if kind == "text/html" else ""
        raise FetchError(f"The service answered with {shown(kind) or 'no content type'} instead of a tarball{hint}.")
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity":
        raise FetchError(f"The service answered with the content encoding {shown(encoding)}, which was not requested.")


def make_client(settings: Settings) -> Client | None:
    """None without a configured service."""
    return Client(settings) if settings.url is not None else None
