"""Documents as the agent hands them to the limiter, signed by the tests' service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ap_agent.document.handover import document_bytes
from ap_agent.document.signed_text import Version
from bandwidth_config import LINK_INFO_PATH
from tests.agent_bundles import HOST_ID, KEY, SigningKey, entry, files_of, signed_manifest


def handed(
    links: Mapping[str, Any] | None = None,
    *,
    version: str = "1.18",
    limits: int = 7,
    signers: tuple[SigningKey, ...] = (KEY,),
    is_signed: bool = True,
    host_id: str = HOST_ID,
    total_kbit: int | None = None,
    is_observe_only: bool = False,
    **options: Any,
) -> bytes:
    """A good document with these links (by default one at 500 kbit/s); `options` as in `signed_manifest`."""
    files = files_of({"1": entry(500)} if links is None else links)
    text: dict[str, Any] = {**options.pop("text", {})}
    if total_kbit is not None:
        text["total_kbit"] = total_kbit
    if is_observe_only:
        text["observe_only"] = True
    manifest = signed_manifest(
        files, signers=signers, version=version, limits_version=limits, host_id=host_id, text=text, **options
    )
    evidence = {key: manifest[key] for key in ("signed", "signatures")} if is_signed else None
    generation, config_version = map(int, version.split("."))
    return document_bytes(
        evidence,
        host_id,
        Version(generation, config_version, limits),
        files[LINK_INFO_PATH],
        total_kbit=total_kbit,
        is_observe_only=is_observe_only,
    )


def changed(document: bytes, **changes: Any) -> bytes:
    """The same with other values in the head beside the signed text (None takes a key out), or another `link_info`."""
    head, _, link_info = document.partition(b"\n")
    link_info = changes.pop("link_info").encode() if "link_info" in changes else link_info
    fields = {**json.loads(head), **changes}
    return json.dumps({key: value for key, value in fields.items() if value is not None}).encode() + b"\n" + link_info
