"""The scionlab-config.json that a host reports, without its secret (docs/api.md). It may come from any program."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from scionlab.delivery.host_api.documents import Document, DocumentError, Kind, Text200
from scionlab.delivery.installed import Manifest

MAX_MANIFEST_BYTES: Final = 1024 * 1024

Text40 = Annotated[str, Meta(max_length=40, pattern=r"^[^\x00]*$")]
Text100 = Annotated[str, Meta(max_length=100, pattern=r"^[^\x00]*$")]
Text300 = Annotated[str, Meta(max_length=300, pattern=r"^[^\x00]*$")]


class InstalledDocument(Document, frozen=True):
    host_id: Text100 | None = None
    url: Text200 | None = None
    version: Text40 | int | float | None = None
    files: Annotated[dict[Text300, Any], Meta(max_length=10_000)] | None = None
    systemd_units: Annotated[list[Text300], Meta(max_length=1000)] | None = None


INSTALLED: Final = Kind(InstalledDocument, "manifest_invalid", "The scionlab-config.json")


def parse_manifest(content: bytes) -> Manifest:
    """`{}` means that the host has none. Raises only `DocumentError`, for any bytes."""
    try:
        said = INSTALLED.read(content)
    except DocumentError as exc:
        if exc.code == "not_json" or "" in exc.fields:
            text = "Send the scionlab-config.json of the host, or {} if it has none."
            raise DocumentError("request_invalid", text) from exc
        raise
    version = "" if said.version is None else str(said.version)
    return Manifest(
        said.host_id or "", said.url or "", version, tuple(said.files or ()), tuple(said.systemd_units or ())
    )
