"""Locks of receipts; `testbed.locks` has the order of all."""

from __future__ import annotations

from scionlab.enforcement.models import HostReceipt
from scionlab.platform.locks import lock_rows


def lock_receipts() -> None:
    """Lock all receipts: none can be stored."""
    lock_rows(HostReceipt.objects.all())
