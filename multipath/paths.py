"""Parses paths and Metalinks: a path is a source (an address, a device or an HTTP proxy) and a URL; a Metalink 4 (RFC
5854) has mirrors of a file, its size and its hashes."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from multipath import UsageError

MAX_PATHS = 64  # candidates; each is tried once
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
    """One of the `FORMS`; without a URL it stands for every mirror. Raises `UsageError`."""
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
    """The URL without its fragment. Raises `UsageError` if invalid."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not re.fullmatch(r"[!-~]+", url):
        raise UsageError(f"{url[:200]!r} is not a URL. Write http://HOST/FILE or https://HOST/FILE, percent-encoded.")
    if parts.username is not None:
        raise UsageError(f"The URL at {parts.hostname} has a user name, and mpget sends none. Remove it.")
    return url.partition("#")[0]


def candidates(given: Sequence[str], mirrors: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Paths in order, and duplicates; only the mirrors if no path is given. Raises `UsageError`."""
    found = Counter(path for text in given or mirrors for path in parse_path(text, mirrors))
    if not 0 < len(found) <= MAX_PATHS:
        raise UsageError(f"There are {len(found)} paths. Give 1 to {MAX_PATHS} with --path or --metalink.")
    return list(found), [path for path, times in found.items() if times > 1]


MAX_DOCUMENT_BYTES = 8 << 20
NAMESPACE = {"": "urn:ietf:params:xml:ns:metalink"}
# Names in IANA's registry, strongest first -> those of hashlib. MD5 is ignored.
HASHES = {"sha-512": "sha512", "sha-384": "sha384", "sha-256": "sha256", "sha-1": "sha1"}
LOWEST_PRIORITY = "999999"  # RFC 5854, 4.2.16.2: of a URL without one


@dataclass(frozen=True)
class Pieces:
    """Hexadecimal hashes of the file's pieces of `length` bytes; the last one may be shorter."""

    length: int
    algorithm: str
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Metalink:
    """Content of one `<file>`. `whole` is (algorithm, hexadecimal hash)."""

    name: str = ""
    mirrors: tuple[str, ...] = ()
    size: int | None = None
    whole: tuple[str, str] | None = None
    pieces: Pieces | None = None


class _WithoutDoctype(ET.TreeBuilder):
    def doctype(self, name: str, _public: str | None, _system: str | None) -> None:
        raise UsageError(f"The Metalink has a DTD ({name[:40]!r}), and those are refused. Remove <!DOCTYPE …>.")


def parse_metalink(document: bytes) -> Metalink:
    """Raises `UsageError` if it is not a Metalink 4, has a DTD, more than one file, or too many mirrors."""
    if len(document) > MAX_DOCUMENT_BYTES:
        raise UsageError(f"The Metalink is larger than {MAX_DOCUMENT_BYTES} bytes. Give one of a single file.")
    try:
        root = ET.fromstring(document, ET.XMLParser(target=_WithoutDoctype()))  # noqa: S314  no DTD, and bounded
    except (ET.ParseError, LookupError, ValueError) as exc:
        raise UsageError(f"The Metalink is not XML: {exc}.") from None
    files = root.findall("file", NAMESPACE)
    if root.tag != f"{{{NAMESPACE['']}}}metalink" or len(files) != 1:
        raise UsageError(f"{root.tag[:80]!r} with {len(files)} files: mpget reads Metalink 4 with one file.")
    return _file(files[0])


def _file(file: ET.Element) -> Metalink:
    urls = file.findall("url", NAMESPACE)
    if len(urls) > MAX_PATHS:
        raise UsageError(f"The Metalink has {len(urls)} mirrors; at most {MAX_PATHS} are tried. Leave some out.")
    urls.sort(key=lambda url: _number(url.get("priority", LOWEST_PRIORITY), "The priority of a <url>"))
    size = file.findtext("size", None, NAMESPACE)
    size_bytes = None if size is None else _number(size, "<size>")
    wholes = {one.get("type"): one for one in file.findall("hash", NAMESPACE)}
    cuts = {one.get("type"): one for one in file.findall("pieces", NAMESPACE)}
    mirrors = tuple(check_url(text) for one in urls if (text := (one.text or "").strip()).startswith("http"))
    whole = next(((HASHES[kind], _hash(wholes[kind], kind)) for kind in HASHES if kind in wholes), None)
    pieces = next((_pieces(cuts[kind], kind, size_bytes) for kind in HASHES if kind in cuts), None)
    return Metalink(file.get("name", ""), mirrors, size_bytes, whole, pieces)


def _pieces(element: ET.Element, kind: str, size: int | None) -> Pieces:
    length = _number(element.get("length", ""), "The length of <pieces>")
    hashes = tuple(_hash(one, kind) for one in element.findall("hash", NAMESPACE))
    if size is None or length == 0 or len(hashes) != -(-size // length):
        raise UsageError(f"The Metalink has {len(hashes)} pieces of {length} bytes for a file of {size}. Get another.")
    return Pieces(length, HASHES[kind], hashes)


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text, re.ASCII):
        raise UsageError(f"{what} in the Metalink is {text[:40]!r}, not a number below 10^18.")
    return int(text)


def _hash(element: ET.Element, kind: str) -> str:
    text = (element.text or "").strip().lower()
    digits = 2 * hashlib.new(HASHES[kind], usedforsecurity=False).digest_size
    if len(text) != digits or not re.fullmatch(r"[0-9a-f]+", text):
        raise UsageError(f"A hash in the Metalink is {text[:140]!r}: {kind} has {digits} hexadecimal digits.")
    return text
