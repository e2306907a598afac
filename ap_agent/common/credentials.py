"""Credentials of an enrolment: service, host id and secret, and trusted keys. One file, for root only.

    /etc/scionlab-bw/credentials.json      mode 0600
    {"schema": 1, "url": …, "host_id": …, "host_secret": …, "keys": [{"key_id", "public_key", "not_after"}]}

`enrol` writes it, `settings` reads it. Under systemd the agent's user cannot read the file: systemd provides a copy
that only the service sees (LoadCredential=, systemd.exec(5)). The secret is in no `repr` and no message.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ap_agent.common.errors import SettingsError
from ap_agent.common.files import identity_of, parse_object, read_plain
from ap_agent.common.keys import TrustedKey, parse_keys

DEFAULT_CREDENTIALS = Path("/etc/scionlab-bw/credentials.json")
_NONE = b"{}"
SYSTEMD_NAME = "scionlab-bw"  # LoadCredential=scionlab-bw:/etc/scionlab-bw/credentials.json
SCHEMA = 1
_MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Credentials:
    """An enrolment. `keys` are the pinned public keys of the service."""

    url: str
    host_id: str
    host_secret: str = field(repr=False)
    keys: tuple[TrustedKey, ...]

    def to_json(self) -> bytes:
        document = {
            "schema": SCHEMA,
            "url": self.url,
            "host_id": self.host_id,
            "host_secret": self.host_secret,
            "keys": [one.to_json() for one in self.keys],
        }
        return json.dumps(document, indent=1).encode() + b"\n"


def credentials_path(named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file in use: the configured one, otherwise systemd's copy, otherwise the default if it exists. None: not
    enrolled, or manually."""
    if named is not None:
        return named
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    for path in (Path(folder) / SYSTEMD_NAME if folder else None, DEFAULT_CREDENTIALS):
        if path is not None and os.path.lexists(path) and not _stands_for_none(path):
            return path
    return None


class NewCredentials:
    """Notices that `enrol` wrote new credentials, which a running process then uses. `need_restart`: under systemd only
    a restart gets a copy of them."""

    def __init__(self, named: Path | None, environment: Mapping[str, str], *, is_enrolled: bool) -> None:
        self.path = named or DEFAULT_CREDENTIALS
        self.need_restart = "CREDENTIALS_DIRECTORY" in environment
        # Without an enrolment any file is new, including one written while this process started.
        self._known = identity_of(self.path) if is_enrolled else None

    def are_there(self) -> bool:
        found = identity_of(self.path)
        if found in {None, self._known}:
            return False
        self._known = found
        return True


def _stands_for_none(path: Path) -> bool:
    """Whether this is the unit's `SetCredential=scionlab-bw:{}`: systemd's copy of a missing file."""
    try:
        return read_plain(path, len(_NONE))[0] == _NONE
    except OSError:
        return False  # reported by the reader


def read_credentials(path: Path) -> Credentials:
    """Raises `SettingsError` with the remedy."""
    try:
        data, found = read_plain(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        raise _refused(f"{path} does not exist. Enrol this host: `scionlab-bw-agent enrol URL`.") from None
    except OSError as exc:
        raise _refused(f"{path} cannot be read: {exc.strerror}. Run as root, or enrol this host again.") from exc
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o007:
        raise _refused(f"{path}: all users can read it (mode {mode:04o}); run `chmod 600 {path}`.")
    if mode & 0o020:
        raise _refused(f"{path}: its group can write to it (mode {mode:04o}); run `chmod 600 {path}`.")
    if found.st_uid not in {0, os.geteuid()}:
        raise _refused(f"{path} belongs to user {found.st_uid}, who could replace it; run `chown root {path}`.")
    try:
        return _parse(data)
    except ValueError as exc:
        raise _refused(f"{path} cannot be used: {str(exc).rstrip('.')}. Enrol this host again.") from None


def _refused(message: str) -> SettingsError:
    return SettingsError(message, key="credentials_file")


def _parse(data: bytes) -> Credentials:
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {_MAX_FILE_BYTES} bytes")
    document = parse_object(data)
    if document.get("schema") != SCHEMA:
        raise ValueError(f"it is not a credentials file of schema {SCHEMA}")
    return parse_credentials(document, check_url(document.get("url")))


def parse_credentials(document: Mapping[str, object], url: str) -> Credentials:
    """`host_id`, `host_secret` and `keys` of a file or the service's response. Raises `ValueError` with the reason,
    which quotes no secret."""
    return Credentials(
        url,
        check_host_id(document.get("host_id")),
        check_secret(document.get("host_secret")),
        parse_keys(document.get("keys")),
    )


# --- values, wherever they come from --------------------------------------------------------------------------------


def check_host_id(value: object) -> str:
    """Raises `ValueError` with the remedy."""
    # It is part of a URL and the user name of HTTP Basic, which ends at the first colon.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value) or set(value) == {"."}:
        raise ValueError("copy the host id from the host's page in the admin, for example 4f1c...")
    return value


def check_secret(value: object) -> str:
    """Raises `ValueError` with the remedy."""
    if not isinstance(value, str) or not re.fullmatch(r"[\x21-\x7e]{1,256}", value):
        raise ValueError("copy the host secret from the host's page in the admin: printable characters, no spaces")
    return value


def check_url(value: object) -> str:
    """The address without a trailing slash. Raises `ValueError` with the remedy."""
    if not isinstance(value, str) or not value:
        raise ValueError("write a string in quotes")
    text = value.rstrip("/")
    remedy = "write the URL of the Coordination Service, for example https://www.scionlab.org"
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError if invalid
    except ValueError as exc:
        raise ValueError(remedy) from exc
    if parts.scheme not in {"https", "http"} or not parts.hostname or re.search(r"[\s\x00-\x1f]", text):
        raise ValueError(remedy)
    if "@" in parts.netloc:
        raise ValueError("omit user and password; use host_id and host_secret")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError(f"{remedy}, without ? and #")
    return text
