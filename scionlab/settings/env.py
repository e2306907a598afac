"""Reads settings from environment variables; errors name the variable, the value and the remedy.

Any variable can be given as a file: `SECRET_KEY_FILE=/run/secrets/secret_key` means the content of that file.
"""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import unquote

from django.core.exceptions import ImproperlyConfigured

# How long a request waits for a pooled connection, and the pool for an unavailable server; then it starts again,
# without growing back-off.
POOL_TIMEOUT_S = 5.0


def given(name: str) -> str | None:
    """The variable, or the content of the file in `<name>_FILE` without a trailing line break."""
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return os.environ.get(name)
    if os.environ.get(name):
        raise ImproperlyConfigured(f"Both {name} and {name}_FILE are set. Unset one of them.")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not UTF-8 text"
        raise ImproperlyConfigured(f'{name}_FILE is "{path}", which cannot be read: {reason}. Correct it.') from exc


def text(name: str, default: str | None = None) -> str:
    """Raises `ImproperlyConfigured` if the variable is not set and has no default."""
    value = given(name)
    value = default if value is None else value
    if value is None or (value == "" and default is None):
        raise ImproperlyConfigured(f"The environment variable {name} is not set, and it has no default. Set it.")
    return value


def secret(name: str, *, unlike: str | None = None) -> str:
    """At least 32 characters, different from `unlike`. The errors do not contain it."""
    value = text(name)
    if len(value) < 32:
        raise ImproperlyConfigured(f"{name} has {len(value)} characters. Set it to 32 or more random ones.")
    if value == unlike:
        raise ImproperlyConfigured(f"{name} is the same as another secret: a leak exposes both. Set it to its own.")
    return value


def optional_secret(name: str) -> str:
    """A `secret`, or "" if not set or empty."""
    return secret(name) if given(name) else ""


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    """A comma-separated list of addresses and networks."""
    try:
        return [ip_network(word) for word in words(name)]
    except ValueError as exc:
        raise ImproperlyConfigured(f"{name}: {exc}. Set it to networks like 192.0.2.0/24,2001:db8::/32.") from exc


def one_of(name: str, default: str, *known: str) -> str:
    written = text(name, default)
    if written not in known:
        raise ImproperlyConfigured(f'{name} is "{written}". Set it to one of {", ".join(known)}.')
    return written


def rate(name: str, default: str) -> str:
    """Requests per time: `600/min`."""
    written = text(name, default)
    if not re.fullmatch(r"[1-9][0-9]{0,8}/(s|sec|m|min|h|hour|d|day)", written, flags=re.ASCII):
        raise ImproperlyConfigured(f'{name} is "{written}". Set it to a number per s, min, hour or day, like 600/min.')
    return written


def web_address(name: str, default: str | None = None) -> str:
    """`https://host[:port][/path]` without a trailing slash. It is used in commands and files: no quotes."""
    written = text(name, default).rstrip("/")
    if not re.fullmatch(r"https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~/-]*)?", written, flags=re.ASCII):
        raise ImproperlyConfigured(f'{name} is "{written}". Set it to an address like https://lab.example.org.')
    return written


def redis_address(name: str, default: str | None = None) -> str:
    """`redis://host:6379/0`, `rediss://...` or `unix:///path`. The error does not contain it: it may have a
    password."""
    written = text(name, default)
    if written and not re.match(r"(rediss?://[^/]|unix:///)", written):
        raise ImproperlyConfigured(f"{name} is not of the form redis://host:6379/0 or unix:///path. Correct it.")
    return written


def integer(name: str, default: int, *, low: int = 0, high: int = 2**31 - 1) -> int:
    written = given(name)
    if written is None:
        return default
    if not (written.isascii() and written.isdigit()) or not low <= int(written) <= high:
        raise ImproperlyConfigured(f'{name} is "{written}". Set it to a whole number from {low} to {high}.')
    return int(written)


def boolean(name: str, default: bool) -> bool:
    written = given(name)
    if written is None:
        return default
    known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if written.lower() not in known:
        raise ImproperlyConfigured(f'{name} is "{written}". Set it to 1 or 0.')
    return known[written.lower()]


def words(name: str, default: str = "") -> list[str]:
    """A comma-separated list."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def some_of(name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Comma-separated, in the order of `known`; all of them without the variable. Raises `ImproperlyConfigured`."""
    wanted = set(words(name, ",".join(known)))
    if unknown := wanted.difference(known):
        raise ImproperlyConfigured(f"{name} has {', '.join(sorted(unknown))}. Choose from {', '.join(known)}.")
    return tuple(one for one in known if one in wanted)


def contacts(name: str) -> list[str]:
    """A comma-separated list of `mailto:`, `https:` and `tel:` addresses."""
    found = words(name)
    for contact in found:
        if not re.fullmatch(r"(mailto:[^\s@]+@[^\s@]+|https://\S+|tel:\+[0-9-]+)", contact, flags=re.ASCII):
            raise ImproperlyConfigured(
                f'{name} has "{contact}". Set it to addresses like mailto:security@example.org or https://example.org/report.'
            )
    return found


def host_names(name: str) -> list[str]:
    """At least one, and no wildcard: a request's Host header is used in redirects."""
    found = words(name) or [text(name)]
    if "*" in found:
        raise ImproperlyConfigured(f'{name} is "*", which is every name. List the host names of the site.')
    return found


def _pool(size: int) -> dict[str, object]:
    return {"min_size": 1, "max_size": size, "timeout": POOL_TIMEOUT_S, "reconnect_timeout": POOL_TIMEOUT_S}


def database(name: str, embedded_file: str, *, pool: int = 0) -> dict[str, object]:
    """`postgres://user:password@host:port/name` (`?host=/folder` for a socket), or SQLite in `embedded_file`. Of
    several hosts (`host:port,host:port`, or folders) only the one that accepts writes is used: a promoted standby is
    found, and a standby never read. POSTGRES_PASSWORD is the password if the URL has none. `pool`: connections shared
    by the threads of a process; 0: each thread keeps its own."""
    url = text(name, "")
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": embedded_file,
            "OPTIONS": {
                # Writers queue for the lock at BEGIN instead of failing later; readers never wait.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    # Not by urlsplit: Debian's and newer ones refuse several hosts with an IPv6 address among them.
    form = re.fullmatch(r"postgres(?:ql)?://(?:([^/?#]*)@)?([^/?#@]*)/([^/?#]+)/?(?:\?([^#]*))?", url)
    if form is None:
        scheme = f' (its scheme is "{url.partition("://")[0]}")' if "://" in url else ""
        raise ImproperlyConfigured(
            f"{name} is not of the form postgres://user:password@host:5432/name{scheme}. "
            "Correct it, or unset it for SQLite."
        )
    who, hosts, database_name, query = (part or "" for part in form.groups())
    user, _, password = who.partition(":")
    places = [re.fullmatch(r"(?:\[([^]]+)]|([^]:[]*))(?::([0-9]{1,5}))?", place) for place in hosts.split(",")]
    found = [(place[1] or place[2], place[3] or "") for place in places if place is not None]
    if len(found) != len(places) or any(int(port or 0) > 65535 for _, port in found):
        raise ImproperlyConfigured(
            f"{name} has a port that is not a number from 0 to 65535, or an IPv6 address without brackets. Correct it."
        )
    host, ports = ",".join(one for one, _ in found), [port for _, port in found]
    for pair in query.split("&"):
        key, _, value = pair.partition("=")
        if key == "host":
            host = unquote(value)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database_name,
        "USER": unquote(user),
        "PASSWORD": unquote(password) or text("POSTGRES_PASSWORD", ""),
        "HOST": host,
        "PORT": ",".join(port or "5432" for port in ports) if any(ports) else "",
        # With a pool each request takes a connection and returns it.
        "CONN_MAX_AGE": 0 if pool else 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **({"pool": _pool(pool)} if pool else {}),
            # An unreachable server is detected in seconds instead of TCP's quarter of an hour.
            "connect_timeout": 5,  # seconds, for each host
            "tcp_user_timeout": 20_000,  # milliseconds; of what was sent
            "keepalives_idle": 5,  # seconds; a client that waits for a response has no unacknowledged data to time out
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "target_session_attrs": "read-write" if "," in host else "any",
            # A Link with its relations is 19 tables. Finding the best join order takes the planner longer than
            # everything else (30 of 31 ms; with 4000 Links a page of 20: 153 ms, with this 34). Django puts the
            # selective joins first.
            "options": "-c join_collapse_limit=4",
        },
    }
