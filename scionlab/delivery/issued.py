"""Documents of limits (link_info.json) that this service issued to a host: receipts, polls and signed texts are
compared with them (docs/adr/0023).

A restored database lacks documents issued after the backup, so it does not accept them as its own, whatever the
counters say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from bandwidth_config import LINK_INFO_PATH
from scionlab.delivery.models import IssuedLimits
from scionlab.testbed.models import Host

# An agent reports a document within seconds and polls immediately, so the last few suffice.
KEPT_PER_HOST = 256


def digest_in(members: Mapping[str, bytes]) -> str:
    """SHA-256 of the document of limits, in hexadecimal; empty without one."""
    document = members.get(LINK_INFO_PATH)
    return "" if document is None else hashlib.sha256(document).hexdigest()


def issued_note(*, host: Host, generation: int, digest: str) -> None:
    """Record what the host is about to get; in the transaction that renders it, with the host's row locked. Keeps the
    newest `KEPT_PER_HOST`, and the one of the host's newest receipt."""
    rows = IssuedLimits.objects.filter(host=host)
    versions = {"config_version": host.config_version, "limits_version": host.limits_version}
    IssuedLimits.objects.bulk_create(
        [IssuedLimits(host=host, generation=generation, digest=digest, **versions)], ignore_conflicts=True
    )
    last_kept = rows.order_by("-pk").values_list("pk", flat=True)[KEPT_PER_HOST - 1 : KEPT_PER_HOST]
    in_force = Host.objects.filter(pk=host.pk, receipt__isnull=False).values("receipt__limits_digest")
    for oldest in last_kept:
        rows.filter(pk__lt=oldest).exclude(digest__in=in_force).delete()


def is_issued(*, host_id: int, version: tuple[int, int, int], digest: str | None = None) -> bool:
    """Whether this document, or any for None, was issued for the host's (G, H, L)."""
    generation, config_version, limits_version = version
    rows = IssuedLimits.objects.filter(
        host=host_id, generation=generation, config_version=config_version, limits_version=limits_version
    )
    return (rows if digest is None else rows.filter(digest=digest)).exists()
