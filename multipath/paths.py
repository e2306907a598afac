"""What a path is: where from (an address, a device or an HTTP proxy), and a URL."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from multipath import UsageError

MAX_PATHS = 64  # candidates; each is asked once
FORMS = "ADDRESS>URL, dev=NAME>URL, proxy=http://HOST:PORT>URL or a URL"


@dataclass(frozen=True)
class Path:
    """At most one of the three is set; without any, the kernel chooses."""

    url: str
    source: str | None = None
    device: str | None = None
    proxy: tuple[str, int] | None = None

    def __str__(self) -> str:
        proxy = f"proxy {self.proxy[0]}:{self.proxy[1]}" if self.proxy else ""
        return f"{proxy or self.source or (f'dev {self.device}' if self.device else 'default')} > {self.url}"


def parse_path(text: str, mirrors: Sequence[str] = ()) -> list[Path]:
    """One of the `FORMS`; without its URL it stands for every mirror. Raises `UsageError`."""
    if text.startswith(("http://", "https://")):
        return [Path(check_url(text))]
    where, mark, url = text.partition(">")
    urls = [check_url(url)] if mark else mirrors
    if not urls:
        raise UsageError(f"The path {where!r} has no URL. Write {FORMS}, quoted; or give --metalink.")
    if where.startswith("proxy="):
        parts = urlsplit(check_url(where[6:]))
        if parts.scheme != "http" or parts.path not in ("", "/") or parts.query:
            raise UsageError(f"{where[6:]!r} is not an HTTP proxy. Write proxy=http://HOST:PORT>URL.")
        return [Path(one, proxy=(parts.hostname or "", parts.port or 80)) for one in urls]
    if where.startswith("dev="):
        if not re.fullmatch(r"[^\s/]{1,15}", where[4:]):  # IFNAMSIZ of <linux/if.h>
            raise UsageError(f"{where[4:]!r} is not a device: a name has 1 to 15 characters. See `ip link`.")
        return [Path(one, device=where[4:]) for one in urls]
    try:
        return [Path(one, source=str(ipaddress.ip_address(where))) for one in urls]
    except ValueError:
        raise UsageError(f"{where!r} is not a source. Write {FORMS}, quoted.") from None


def check_url(url: str) -> str:
    """The URL without its fragment. Raises `UsageError` for what no web server is asked."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not re.fullmatch(r"[!-~]+", url):
        raise UsageError(f"{url[:200]!r} is not a URL. Write http://HOST/FILE or https://HOST/FILE, percent-encoded.")
    if parts.username is not None:
        raise UsageError(f"The URL at {parts.hostname} has a user name, and mpget sends none. Remove it.")
    return url.partition("#")[0]


def candidates(given: Sequence[str], mirrors: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Paths in order, and those that were given twice; the mirrors by themselves where nothing is given. Raises
    `UsageError`."""
    found = Counter(path for text in given or mirrors for path in parse_path(text, mirrors))
    if not 0 < len(found) <= MAX_PATHS:
        raise UsageError(f"There are {len(found)} paths. Give 1 to {MAX_PATHS} with --path or --metalink.")
    return list(found), [path for path, times in found.items() if times > 1]
