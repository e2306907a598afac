"""URL and token: from the environment, otherwise from a file that only its owner can read."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from scionlab_bw.errors import NotAllowed, UsageError

URL_VARIABLE, TOKEN_VARIABLE = "SCIONLAB_BW_URL", "SCIONLAB_BW_TOKEN"
ROOM_BYTES = 4096


@dataclass(frozen=True)
class Credentials:
    """`name`: of the token, if `login` made it."""

    url: str
    token: str = field(repr=False)
    name: str = ""


def path() -> Path:
    """Raises `UsageError`."""
    try:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    except RuntimeError:
        raise UsageError("This user has no home folder. Set HOME or XDG_CONFIG_HOME.") from None
    return Path(base) / "scionlab-bw" / "credentials.json"


def of_environment() -> Credentials | None:
    url, token = os.environ.get(URL_VARIABLE, ""), os.environ.get(TOKEN_VARIABLE, "")
    return Credentials(checked_url(url), checked_token(token, TOKEN_VARIABLE)) if url and token else None


def load() -> Credentials:
    """Raises `NotAllowed` if not logged in, `UsageError` if others can read the file."""
    found = of_environment() or stored()
    if found is None:
        raise NotAllowed(f"Not logged in. Run: scionlab-bw login {os.environ.get(URL_VARIABLE) or 'https://<service>'}")
    return found


def stored() -> Credentials | None:
    """Those of the file; None without one. Raises `NotAllowed` and `UsageError`."""
    file = path()
    try:
        if file.stat().st_mode & 0o077:
            raise UsageError(f"Other users can read the token in {file}. Run: chmod 600 {file}")
        found = json.loads(file.read_text(encoding="utf-8-sig"))
        token = checked_token(str(found["token"]), str(file))
        return Credentials(checked_url(str(found["url"])), token, str(found.get("name", "")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        reason = f": {exc.strerror}" if isinstance(exc, OSError) else ""
        raise NotAllowed(
            f"{file} cannot be read{reason}. Delete it and log in again: scionlab-bw login https://<service>"
        ) from None


@contextmanager
def room() -> Iterator[Callable[[Credentials], None]]:
    """Check that credentials can be stored, before a token is made; gives what stores them, atomically: the file is
    never incomplete or readable by others. Raises `UsageError`."""
    target = path()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
            raise UsageError(f"{target} is no regular file. Delete it, or set XDG_CONFIG_HOME to another folder.")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:

            def store(credentials: Credentials) -> None:
                content = json.dumps(asdict(credentials)).encode()
                os.pwrite(file.fileno(), content, 0)
                os.ftruncate(file.fileno(), len(content))
                os.fsync(file.fileno())
                draft.replace(target)

            os.pwrite(file.fileno(), bytes(ROOM_BYTES), 0)
            os.fsync(file.fileno())
            yield store
    except OSError as exc:
        raise UsageError(
            f"The token cannot be stored in {target}: {exc.strerror}. Set XDG_CONFIG_HOME to a folder that can be "
            "written, and log in again."
        ) from None
    finally:
        if os.path.lexists(draft):
            draft.unlink()


def forget() -> None:
    """Raises `UsageError`."""
    try:
        path().unlink(missing_ok=True)
    except OSError as exc:
        raise UsageError(f"{path()} cannot be deleted: {exc.strerror}. Delete it by hand.") from None


def pasted(text: str) -> str:
    """Without what an editor or a terminal adds."""
    return text.removeprefix("\ufeff").rstrip("\r\n")


def checked_token(text: str, source: str) -> str:
    """Raises `UsageError`, which does not have the token."""
    token = pasted(text).strip()
    if not re.fullmatch(r"[!-~]{1,200}", token):
        raise UsageError(
            f"The token from {source} is none: tokens have 1 to 200 printable ASCII characters. Copy it again."
        )
    return token


def checked_url(url: str) -> str:
    """Without a trailing slash. Raises `UsageError` if the token would be sent unencrypted."""
    try:
        parts = urlsplit(url if "//" in url else f"https://{url}")
        host, is_usable = parts.hostname or "", parts.port != 0 and bool((parts.hostname or "").encode("idna"))
    except ValueError:  # also of a host that is no name
        host, is_usable = "", False
    if (
        not is_usable
        or parts.scheme not in {"http", "https"}
        or parts.username is not None
        or parts.query
        or parts.fragment
        or not url.isprintable()
        or " " in url
    ):
        raise UsageError(
            f"{pasted(url)[:80]!r} is not the URL of a service. Use one like https://scionlab.example.org."
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise UsageError("http would send the token unencrypted. Use https://.")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
