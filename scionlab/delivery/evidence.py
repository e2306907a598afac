"""Evidence that a host has a configuration that this service signed but its database does not contain: a backup was
restored, and the generation must be raised (docs/adr/0023).

Only a signed text is evidence. Other claims of a host prove nothing: every user has the credentials of a host.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Annotated

from django.db import transaction
from msgspec import Meta

from bandwidth_config import LINK_INFO_PATH
from config_tar import SIGNED_SCHEMA, SIGNED_TYPE
from scionlab.delivery.host_api.documents import Document, Hex32
from scionlab.delivery.issued import is_issued
from scionlab.delivery.signing import is_signed_here
from scionlab.testbed import locks, selectors
from scionlab.testbed.models import Host

logger = logging.getLogger(__name__)

Version = tuple[int, int, int]  # G, H, L


class Signature(Document, frozen=True):
    key_id: Hex32
    signature: Annotated[bytes, Meta(min_length=64, max_length=64, title="64 bytes in base64")]  # Ed25519


class Evidence(Document, frozen=True):
    """The signed text of the manifest in force, within agents' own limits (ap_agent/document/signed_text.py)."""

    signed: Annotated[str, Meta(max_length=1024 * 1024, pattern=r"^[^\x00]*$")]
    signatures: Annotated[list[Signature], Meta(min_length=1, max_length=32)]


@transaction.atomic
def evidence_note(*, host_id: int, evidence: Evidence, now: datetime) -> bool:
    """Store the version that the evidence proves, if it shows that a backup was restored. Return whether it does. It
    does if the host's version is newer than ours, or equal with a document that we did not issue for it."""
    locks.lock_hosts([host_id])
    host = Host.objects.get(pk=host_id)
    held = _proven(host, evidence)
    if held is None or not _is_lost(host, *held):
        logger.info("evidence.of_nothing host=%s held=%s", host_id, held)
        return False
    version, _ = held
    if version > (noted_version(host) or (0, 0, 0)):
        host.ahead_generation, host.ahead_config_version, host.ahead_limits_version = version
        host.ahead_at = now
        host.save(update_fields=["ahead_generation", "ahead_config_version", "ahead_limits_version", "ahead_at"])
        logger.warning('evidence.noted host=%s version=%s remedy="manage.py raise_generation"', host_id, version)
    return True


def noted_version(host: Host) -> Version | None:
    """(G, H, L) that the host has proven and this database does not know; None without evidence."""
    noted = (host.ahead_generation, host.ahead_config_version, host.ahead_limits_version)
    return None if None in noted else noted  # type: ignore[return-value]  # none of them is None


def _proven(host: Host, evidence: Evidence) -> tuple[Version, str] | None:
    """(G, H, L) and the digest of the limits, if we signed them for this host; otherwise None."""
    if not is_signed_here(evidence.signed, {one.key_id: one.signature for one in evidence.signatures}):
        return None
    text = json.loads(evidence.signed)
    if (text.get("type"), text.get("schema"), text.get("host_id")) != (SIGNED_TYPE, SIGNED_SCHEMA, host.uid):
        return None
    version = (text["generation"], text["config_version"], text["limits_version"])
    return version, text["sha256"].get(LINK_INFO_PATH, "")


def _is_lost(host: Host, version: Version, digest: str) -> bool:
    generation, config_version, limits_version = version
    ours = (selectors.generation(), host.config_version, host.limits_version)
    if generation != ours[0]:
        return generation > ours[0]
    if config_version > host.config_version or limits_version > host.limits_version:
        return True
    # Nothing issued for this version yet, so there is no document to compare with.
    is_other = bool(digest) and is_issued(host_id=host.pk, version=version)
    return version == ours and is_other and not is_issued(host_id=host.pk, version=version, digest=digest)
