"""The scionlab-config.json that a host reports, without its secret (docs/api.md). It may come from any program."""

from __future__ import annotations

from typing import Final

from scionlab.delivery.host_api.documents import DocumentError, Kind
from scionlab.delivery.installed import Manifest

MAX_MANIFEST_BYTES: Final = 1024 * 1024
MANIFEST: Final = Kind(Manifest, "manifest_invalid", "The scionlab-config.json")


def parse_manifest(content: bytes) -> Manifest:
    """`{}` means that the host has none. Raises only `DocumentError`, for any bytes."""
    try:
        return MANIFEST.read(content)
    except DocumentError as exc:
        if exc.code == "not_json" or "" in exc.fields:
            text = "Send the scionlab-config.json of the host, or {} if it has none."
            raise DocumentError("request_invalid", text) from exc
        raise
