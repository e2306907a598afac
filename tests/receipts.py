"""Receipts as values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from scionlab.enforcement.receipt_format import Direction, LinkReceipt, Receipt


def enforced_entry(kbit: int) -> LinkReceipt:
    seen = Direction(dev="eth0", rate_kbit=kbit, bytes=1, packets=1, drops=0, backlog_bytes=0)
    return LinkReceipt(kbit, "enforced", seen, seen)


def receipt_at(
    at: datetime,
    links: Mapping[int, LinkReceipt],
    *,
    version: str | None = None,
    limits_version: int | None = None,
) -> Receipt:
    return Receipt(
        schema=1,
        agent_version="0.1.0",
        written_version=version,
        limits_version=limits_version,
        written_at=at.isoformat(),
        writes=0,
        links=dict(links),
        problems=[],
    )
