"""Parses the scionlab-config.json that a host reports, without its secret (docs/api.md).

The file may come from any program, so unknown keys are ignored.
"""

from __future__ import annotations

from typing import Any, Final

from bandwidth_config import RuleError
from scionlab.delivery.host_api.document_reader import DocumentReader
from scionlab.delivery.installed import Manifest
from scionlab.platform.notation import strict_json

MAX_MANIFEST_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 10_000
MAX_UNITS: Final = 1000


class ManifestError(RuleError):
    """Rejected; nothing was stored."""


def parse_manifest(content: bytes) -> Manifest:
    """`{}` means that the host has none. Raises only `ManifestError`, for any bytes."""
    try:
        document = strict_json.load(content)
    except strict_json.StrictJSONError as exc:
        raise ManifestError(
            "request_invalid", "Send the scionlab-config.json of the host, or {} if it has none."
        ) from exc
    if not isinstance(document, dict):
        raise ManifestError("request_invalid", "Send a JSON object: scionlab-config.json, or {} if the host has none.")
    reader = DocumentReader()
    files = _texts(reader, list(reader.mapping(document.get("files") or {}, "files")), "files", MAX_FILES)
    units = _texts(reader, document.get("systemd_units") or [], "systemd_units", MAX_UNITS)
    version = document.get("version")
    if not reader.expect(version is None or isinstance(version, (str, int, float)), "version", "a version", version):
        version = None
    manifest = Manifest(
        host_id=reader.text(document.get("host_id") or "", "host_id", 100),
        url=reader.text(document.get("url") or "", "url", 200),
        version=reader.text("" if version is None else str(version), "version", 40),
        files=files,
        units=units,
    )
    if reader.fields:
        place, errors = next(iter(reader.fields.items()))
        raise ManifestError("manifest_invalid", f"{place} of scionlab-config.json is wrong. {errors[0]['message']}")
    return manifest


def _texts(reader: DocumentReader, value: Any, place: str, most: int) -> tuple[str, ...]:
    if not reader.expect(isinstance(value, list) and len(value) <= most, place, f"at most {most} texts", value):
        return ()
    return tuple(reader.text(one, place, 300) for one in value)
