"""URL and token: from the environment, otherwise from a file that only its owner can read."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from scionlab_bw.errors import NotAllowed, UsageError

URL_VARIABLE, TOKEN_VARIABLE = "SCIONLAB_BW_URL", "SCIONLAB_BW_TOKEN"


@dataclass(frozen=True)
class Credentials:
    url: str
    token: str = field(repr=False)


def path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "scionlab-bw" / "credentials.json"


def load() -> Credentials:
    """Raises `NotAllowed` if not logged in, `UsageError` if others can read the file."""
    url, token = os.environ.get(URL_VARIABLE, ""), os.environ.get(TOKEN_VARIABLE, "")
    if url and token:
        return Credentials(checked_url(url), token)
    try:
        _refuse_readable(path())
        found = json.loads(path().read_text())
        return Credentials(checked_url(str(found["url"])), str(found["token"]))
    except FileNotFoundError:
        raise NotAllowed(f"Not logged in. Run: scionlab-bw login {url or 'https://<service>'}") from None
    except (ValueError, KeyError, TypeError):
        raise NotAllowed(f"{path()} cannot be read. Log in again: scionlab-bw login https://<service>") from None


def save(credentials: Credentials) -> None:
    """Atomically: the file is never incomplete or readable by others."""
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump({"url": credentials.url, "token": credentials.token}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)


def forget() -> None:
    path().unlink(missing_ok=True)


def checked_url(url: str) -> str:
    """Without a trailing slash. Raises `UsageError` if the token would be sent unencrypted."""
    parts = urlsplit(url if "//" in url else f"https://{url}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise UsageError(f'"{url[:80]}" is not the URL of a service. Use one like https://scionlab.example.org.')
    if parts.scheme == "http" and not _is_here(parts.hostname):
        raise UsageError("http would send the token unencrypted. Use https://.")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_readable(file: Path) -> None:
    mode = file.stat().st_mode
    if mode & 0o077:
        raise UsageError(f"Other users can read the token in {file}. Run: chmod 600 {file}")
