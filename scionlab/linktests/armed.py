"""Which tests the agent of an attachment point has armed, from its receipts."""

from __future__ import annotations

from datetime import datetime

from scionlab.enforcement.receipt_format import Receipt
from scionlab.linktests.models import LinkTest


def note_armed(host_id: int, receipt: Receipt, received_at: datetime) -> None:
    """Only tests of Links of this host, and not while its limiter is silent."""
    if receipt.tests and not receipt.is_limiter_silent:
        armed = LinkTest.objects.filter(test_id__in=set(receipt.tests), link__interface_a__host=host_id, armed_at=None)
        armed.update(armed_at=received_at)
