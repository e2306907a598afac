"""Metalink 4 (RFC 5854): mirrors of a file, its size and its hashes. Without DTDs, so without entities."""

from __future__ import annotations

import hashlib
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

from multipath import UsageError
from multipath.paths import MAX_PATHS, check_url

MAX_DOCUMENT_BYTES = 8 << 20
NAMESPACE = {"": "urn:ietf:params:xml:ns:metalink"}
# Names of IANA's registry, the strongest first -> those of hashlib. MD5 proves nothing and is passed over.
HASHES = {"sha-512": "sha512", "sha-384": "sha384", "sha-256": "sha256", "sha-1": "sha1"}
LOWEST_PRIORITY = "999999"  # RFC 5854, 4.2.16.2: of a URL that names none


@dataclass(frozen=True)
class Pieces:
    """Hexadecimal hashes of the file's pieces, which have `length` bytes each but for the last one."""

    length: int
    algorithm: str
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Metalink:
    """What one `<file>` says. `whole` is (algorithm, hexadecimal hash)."""

    name: str = ""
    mirrors: tuple[str, ...] = ()
    size: int | None = None
    whole: tuple[str, str] | None = None
    pieces: Pieces | None = None


class _WithoutDoctype(ET.TreeBuilder):
    def doctype(self, name: str, _public: str | None, _system: str | None) -> None:
        raise UsageError(f"The Metalink has a DTD ({name[:40]!r}), and those are refused. Remove <!DOCTYPE …>.")


def parse(document: bytes) -> Metalink:
    """Raises `UsageError`: of a document that is no Metalink 4, has a DTD, more than one file, or too many mirrors."""
    if len(document) > MAX_DOCUMENT_BYTES:
        raise UsageError(f"The Metalink is larger than {MAX_DOCUMENT_BYTES} bytes. Give one of a single file.")
    try:
        root = ET.fromstring(document, ET.XMLParser(target=_WithoutDoctype()))  # noqa: S314  no DTD, and bounded
    except (ET.ParseError, LookupError, ValueError) as exc:
        raise UsageError(f"The Metalink is not XML: {exc}.") from None
    files = root.findall("file", NAMESPACE)
    if root.tag != f"{{{NAMESPACE['']}}}metalink" or len(files) != 1:
        raise UsageError(
            f"{root.tag[:80]!r} with {len(files)} files is not what mpget reads: Metalink 4 with one file."
        )
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
    text, digits = (
        (element.text or "").strip().lower(),
        2 * hashlib.new(HASHES[kind], usedforsecurity=False).digest_size,
    )
    if len(text) != digits or not re.fullmatch(r"[0-9a-f]+", text):
        raise UsageError(f"A hash in the Metalink is {text[:140]!r}: {kind} has {digits} hexadecimal digits.")
    return text
