"""The agent's document for the limiter: the configuration in force."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ap_agent.common.errors import StoreError
from ap_agent.common.files import identity_of, read_plain
from ap_agent.common.ownership import as_owner_of
from ap_agent.document.handover import FILE_NAME, MAX_BYTES, document_bytes, write_document
from bandwidth_config import LINK_INFO_PATH

if TYPE_CHECKING:
    from ap_agent.agent.bundle import Bundle


class HandOver:
    """document.json of one state directory."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        # The bundle's name, and the identity of its file.
        self._written: tuple[str, tuple[int, ...] | None] | None = None

    def put(self, bundle: Bundle) -> bool:
        """Write the document for the limiter; return whether it changed. Raises `StoreError`. An unchanged file is not
        written, so that the limiter is not woken; a modified one is replaced."""
        if self._written is not None and self._written == (bundle.name, identity_of(self.path)):
            return False
        evidence = bundle.evidence() if bundle.signed is not None else None
        data = document_bytes(
            evidence,
            bundle.host_id,
            bundle.order,
            bundle.members[LINK_INFO_PATH],
            total_kbit=bundle.total_kbit,
            is_observe_only=bundle.is_observe_only,
        )
        is_new = _content(self.path) != data
        if is_new:
            if len(data) > MAX_BYTES:
                raise StoreError(
                    f"Configuration {bundle.version} makes a document of {len(data)} bytes; the limiter takes at most "
                    f"{MAX_BYTES}. Remove links at the service.",
                    retryable=False,
                )
            try:
                with as_owner_of(self.path.parent):
                    write_document(self.path, data)
            except OSError as exc:
                raise StoreError(
                    f"{self.path} cannot be written: {exc.strerror}. The limiter keeps its previous document."
                ) from exc
        self._written = (bundle.name, identity_of(self.path))
        return is_new


def _content(path: Path) -> bytes | None:
    try:
        return None if path.is_symlink() else read_plain(path, MAX_BYTES)[0]
    except OSError:
        return None
