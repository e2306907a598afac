"""Bodies of uploads with many samples, compressed or not."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from scionlab.delivery.host_api.documents import DocumentError, TooLargeError

MAX_SENT_BYTES: Final = 4 * 1024 * 1024
MAX_BYTES: Final = 32 * 1024 * 1024  # unpacked


def read_at_most(read: Callable[[int], bytes], most: int, what: str, remedy: str = "") -> bytes:
    """The body from `read(n)`. Raises `TooLargeError`."""
    content = read(most + 1)
    if len(content) > most:
        raise TooLargeError("too_large", f"{what} has at most {most} bytes.{remedy}")
    return content


def read_body(read: Callable[[int], bytes], encoding: str) -> bytes:
    """Return the decompressed document from `read(n)`. Raises `DocumentError`, `TooLargeError`. Reads at most 4 MiB and
    unpacks at most 32 MiB, even of a small gzip body."""
    content = read_at_most(read, MAX_SENT_BYTES, "A body as sent", " Send fewer samples at once.")
    if encoding in {"", "identity"}:
        return content
    if encoding != "gzip":
        raise DocumentError("encoding_unknown", f"Content-Encoding {encoding[:20]!r} is not known. Use gzip, or none.")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: gzip
    try:
        document = unpacker.decompress(content, MAX_BYTES + 1)
    except zlib.error as exc:
        raise DocumentError("not_gzip", "The body is not gzip, as its Content-Encoding says.") from exc
    if len(document) > MAX_BYTES:
        raise TooLargeError(
            "too_large", f"The body has at most {MAX_BYTES} bytes unpacked. Send fewer samples at once."
        )
    if not unpacker.eof or unpacker.unused_data:
        raise DocumentError("not_gzip", "The gzip body is cut short, or something follows it.")
    return document
