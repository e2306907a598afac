"""Reads settings from environment variables; an error names the variable, the value and the remedy."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str | None = None) -> str:
    """Raises `ImproperlyConfigured` when the variable is not set and there is no default."""
    value = os.environ.get(name, default)
    if value is None:
        raise ImproperlyConfigured(f"The environment variable {name} is not set, and it has no default. Set it.")
    return value


def integer(name: str, default: int, *, low: int = 0, high: int = 2**31 - 1) -> int:
    written = os.environ.get(name)
    if written is None:
        return default
    if not (written.isascii() and written.isdigit()) or not low <= int(written) <= high:
        raise ImproperlyConfigured(f'{name} is "{written}". Set it to a whole number from {low} to {high}.')
    return int(written)


def boolean(name: str, default: bool) -> bool:
    written = os.environ.get(name)
    if written is None:
        return default
    known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if written.lower() not in known:
        raise ImproperlyConfigured(f'{name} is "{written}". Set it to 1 or 0.')
    return known[written.lower()]


def words(name: str, default: str = "") -> list[str]:
    """A comma-separated list."""
    return [word.strip() for word in os.environ.get(name, default).split(",") if word.strip()]


def database(name: str, embedded_file: str) -> dict[str, object]:
    """`postgres://user:password@host:port/name` (`?host=/folder` for a socket), or SQLite in `embedded_file`."""
    url = os.environ.get(name, "")
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": embedded_file,
            "OPTIONS": {
                # Writers queue up for the lock at BEGIN instead of failing in the middle; readers never wait.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"} or not parts.path.strip("/"):
        raise ImproperlyConfigured(
            f'{name} is not of the form postgres://user:password@host:5432/name (its scheme is "{parts.scheme}"). '
            "Correct it, or unset it for SQLite."
        )
    try:
        port = parts.port
    except ValueError as exc:
        raise ImproperlyConfigured(f"{name} has a port that is no number. Correct it.") from exc
    host = parts.hostname or ""
    for pair in parts.query.split("&"):
        key, _, value = pair.partition("=")
        if key == "host":
            host = unquote(value)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(port or ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }
