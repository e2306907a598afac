"""`enrol`: exchanges a one-time token for this host's credentials, and pins the service's key (docs/adr/0010).

    slbw1.<random>.<key_id>     the token, copied from the host's page in the service's admin

The random part is sent once. The key id is not sent: the response must contain the key with that id, and only that key
is pinned. An impostor can prevent the enrolment, but cannot plant a key. Further keys arrive signed, with the first
configuration.

Everything that can fail locally is tried before the token is used: the file is created, and must not contain another
enrolment.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import requests
from urllib3.exceptions import NewConnectionError

from ap_agent.agent.http import ClockComparison, WebClient, chain, error_of, has_cause, read_body
from ap_agent.agent.settings import check_transport
from ap_agent.common.credentials import Credentials, check_url, parse_credentials, read_credentials
from ap_agent.common.errors import AgentError, FetchError, NotPermittedError, SettingsError
from ap_agent.common.files import parse_object, sync_folder
from ap_agent.common.settings import Settings, set_by_hand
from ap_agent.common.text import duration_words, time_words
from ap_agent.common.times import time_text

PATH = "/api/v4/enrol"
_MAX_ANSWER_BYTES = 64 * 1024
_CLOCK_OFF_MS = 5_000  # larger offsets are reported; as on the service's pages
_CERTIFICATE_TIMES = {9, 10}  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED (openssl/x509_vfy.h)
_TOKEN = re.compile(r"slbw1\.([A-Za-z0-9_-]{32,128})\.([0-9a-f]{32})", re.ASCII)


@dataclass(frozen=True)
class Token:
    """A one-time token. `secret` is sent; `key_id` identifies the service's key."""

    secret: str = field(repr=False)
    key_id: str


@dataclass(frozen=True)
class Enrolled:
    credentials: Credentials
    path: Path
    clock_skew_ms: int | None  # offset to the service, None: not measured


def parse_token(text: str) -> Token:
    """Raises `SettingsError`, which does not quote the token."""
    match = _TOKEN.fullmatch(text.strip())
    if match is None:
        raise SettingsError(
            "This is not an enrolment token; a token has the form slbw1.<random>.<key id>. Copy the whole token "
            "from the host's page in the admin.",
            key="token",
        )
    return Token(match[1], match[2])


def enrol(url: str, token: Token, settings: Settings, path: Path, *, replaces: bool) -> Enrolled:
    """Use the token and write the credentials to `path`. `settings` are for the connection. Raises `SettingsError` and
    `NotPermittedError` before the token is used; `FetchError` if the service does not respond or rejects it;
    `AgentError` if the response cannot be trusted."""
    url = _checked_url(url, settings)
    _refuse_to_overwrite(path, settings, replaces=replaces)
    with _reserved(path) as new:
        clock = ClockComparison()
        found = _ask(url, token, settings, clock)
        _write(new, found.to_json())
        new.replace(path)
        sync_folder(path.parent)
    return Enrolled(found, path, clock.skew_ms)


def words(enrolled: Enrolled) -> list[str]:
    """What was done, and the next command."""
    found = enrolled.credentials
    return [
        f"This host is enrolled at {found.url} as {found.host_id}.",
        *(f"Pinned key: {one.key_id}, valid until {time_text(one.not_after)}." for one in found.keys),
        f"Credentials: {enrolled.path} (only its owner may read it).",
        *_clock_words(enrolled.clock_skew_ms),
        "A running agent uses them within poll_interval_s (10 s); otherwise start it with `systemctl enable --now "
        "scionlab-bw-agent`. Check with `scionlab-bw-agent status`.",
    ]


def _clock_words(skew_ms: int | None) -> list[str]:
    if skew_ms is None or abs(skew_ms) <= _CLOCK_OFF_MS:
        return []
    by = duration_words(timedelta(milliseconds=abs(skew_ms)))
    return [
        f"The clock of this host is {by} {'ahead of' if skew_ms > 0 else 'behind'} the service's. Set it (NTP): "
        "the end of keys and the steps of temporary limits follow this host's clock."
    ]


# --- before the token is spent --------------------------------------------------------------------------------------


def _checked_url(url: str, settings: Settings) -> str:
    try:
        checked = check_url(url)
    except ValueError as exc:
        raise SettingsError(f"The URL is invalid: {exc}.", key="url") from None
    check_transport(checked, allow_plain_http=settings.allow_plain_http, ca_file=settings.ca_file)
    return checked


def _refuse_to_overwrite(path: Path, settings: Settings, *, replaces: bool) -> None:
    by_hand = set_by_hand(settings)
    if by_hand:
        raise SettingsError(
            f"The configuration sets {', '.join(by_hand)} by hand, which conflicts with an enrolment. Remove it "
            "from agent.toml first.",
            key=by_hand[0],
        )
    if os.path.lexists(path) and not path.is_file():
        raise SettingsError(
            f"{path} is not a regular file and is not replaced. Move it away, or name a file with --credentials.",
            key="credentials_file",
        )
    if replaces or not os.path.lexists(path):
        return
    try:
        there = read_credentials(path)
        whose = f"the credentials of host {there.host_id} at {there.url}"
    except SettingsError:
        whose = "other data"
    raise SettingsError(f"{path} holds {whose}. To replace it, run `enrol` with --replace.", key="credentials_file")


def _write(new: Path, data: bytes, flags: int = 0) -> None:
    descriptor = os.open(new, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    with open(descriptor, "wb") as stream:  # noqa: PTH123  # of a descriptor
        stream.write(data)
        stream.truncate()
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def _reserved(path: Path) -> Iterator[Path]:
    """Reserve a temporary file of the maximum size, so that a full disk is noticed now; removed at the end."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _write(new, b" " * _MAX_ANSWER_BYTES, os.O_CREAT | os.O_EXCL)
        except OSError as exc:
            text = f"{path} cannot be written: {exc.strerror}. The token was not used."
            if isinstance(exc, PermissionError):
                raise NotPermittedError(f"{text} Run as root.") from exc
            raise AgentError(f"{text} Repair that, and try again.") from exc
        try:
            yield new
        except OSError as exc:
            raise AgentError(
                f"{path} could not be written: {exc.strerror}. The token was consumed; create another one on the "
                "host's page in the admin."
            ) from exc
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


# --- the service ----------------------------------------------------------------------------------------------------


def _ask(url: str, token: Token, settings: Settings, clock: ClockComparison) -> Credentials:
    client = WebClient(url, settings, clock)
    try:
        with client.request("POST", PATH, json={"token": token.secret}) as answer:
            if answer.status_code == 403:
                raise AgentError(
                    "The service rejects the token: it is unknown, used or expired. Create another one on the host's "
                    "page in the admin."
                )
            if answer.status_code == 429:
                raise AgentError("Too many attempts from this address; wait some minutes and try again.")
            if answer.status_code != 200:
                raise error_of(answer, address=f"{url}{PATH}", check="the address")
            body = read_body(answer, _MAX_ANSWER_BYTES, limit="an enrolment")
    except FetchError as exc:
        raise FetchError(f"{exc.message} Nothing was written. {_remedy(exc)}", retryable=False) from exc
    finally:
        client.close()
    try:
        document = parse_object(body)
        found = parse_credentials(document, url)
    except ValueError as exc:
        raise FetchError(
            f"{url} did not answer with an enrolment ({exc}). Nothing was written.", retryable=False
        ) from exc
    pinned = tuple(one for one in found.keys if one.key_id == token.key_id)
    revoked = document.get("revoked")
    if not pinned or (isinstance(revoked, list) and token.key_id in revoked):
        raise AgentError(
            f"{url} does not have the key {token.key_id} of the token: this may be another server. Nothing was "
            "written; the token was consumed if it was the right service. Check the URL, and create another token."
        )
    return replace(found, keys=pinned)


def _remedy(error: FetchError) -> str:
    """What to correct: address, clock or token, as far as known."""
    refused = next((one for one in chain(error) if isinstance(one, ssl.SSLCertVerificationError)), None)
    if refused is not None and refused.verify_code in _CERTIFICATE_TIMES:
        now = time_words(datetime.now(UTC))
        return f"The token was not used. The clock of this host says {now}; set it if that is wrong, and try again."
    if refused is not None or has_cause(error, NewConnectionError) or has_cause(error, requests.ConnectTimeout):
        return "The token was not used. Check the URL, and whether this host reaches other services; then try again."
    return "Try again; if the token is rejected, it was consumed: create another one on the host's page in the admin."
