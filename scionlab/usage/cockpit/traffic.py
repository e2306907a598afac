"""The cost of a month's traffic: bytes of the usage report times the cost of a GB of egress.

1 GB is 10^9 bytes. Costs are exact decimals, rounded half up to 0.01 only for output, so a total may differ from the
sum of its rounded rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint
from scionlab.usage.report import TrafficRow, monthly_traffic
from scionlab.web.csv_files import csv_text

BYTES_PER_GB: Final = 10**9
_CENT: Final = Decimal("0.01")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # characters that start a formula in a spreadsheet


@dataclass(frozen=True)
class Billed:
    """A row of the report with its cost; None without a cost per GB."""

    row: TrafficRow
    cost_per_gb: Decimal | None

    @property
    def exact_cost(self) -> Decimal | None:
        return None if self.cost_per_gb is None else Decimal(self.row.to_user_bytes) / BYTES_PER_GB * self.cost_per_gb

    @property
    def cost(self) -> Decimal | None:
        return None if self.exact_cost is None else rounded(self.exact_cost)

    @property
    def egress_gb(self) -> Decimal:
        return Decimal(self.row.to_user_bytes) / BYTES_PER_GB

    @property
    def ingress_gb(self) -> Decimal:
        return Decimal(self.row.from_user_bytes) / BYTES_PER_GB


@dataclass(frozen=True)
class Bill:
    """A month. `cost` is None if no row has one; `is_complete` is false if some row has none."""

    year: int
    month: int
    currency: str
    attachment_points: list[Billed]
    ases: list[Billed]

    @property
    def name(self) -> str:
        return f"{self.year:04}-{self.month:02}"

    @property
    def to_user_bytes(self) -> int:
        return sum(one.row.to_user_bytes for one in self.attachment_points)

    @property
    def from_user_bytes(self) -> int:
        return sum(one.row.from_user_bytes for one in self.attachment_points)

    @property
    def cost(self) -> Decimal | None:
        known = [one.exact_cost for one in self.attachment_points if one.exact_cost is not None]
        return rounded(sum(known, Decimal(0))) if known else None

    @property
    def is_complete(self) -> bool:
        return all(one.cost_per_gb is not None for one in self.attachment_points if one.row.to_user_bytes)


def rounded(cost: Decimal) -> Decimal:
    return cost.quantize(_CENT, rounding=ROUND_HALF_UP)


def bill_of(year: int, month: int) -> Bill:
    """Build the bill; four SQL statements. Deleted attachment points use the site's cost."""
    policy = selectors.policy()
    own = {ap.pk: ap.cost_per_gb for ap in AttachmentPoint.objects.exclude(cost_per_gb=None).only("cost_per_gb")}
    traffic = monthly_traffic(year, month)

    def billed(rows: Iterable[TrafficRow]) -> list[Billed]:
        return [Billed(row, own.get(row.attachment_point_id or 0, policy.cost_per_gb)) for row in rows]

    return Bill(year, month, policy.currency, billed(traffic.attachment_points), billed(traffic.ases))


# --- CSV --------------------------------------------------------------------------------------------------------

COLUMNS: Final = (
    "month",
    "attachment_point",
    "user_as",
    "owner",
    "to_user_bytes",
    "to_user_gb",
    "from_user_bytes",
    "from_user_gb",
    "to_user_p95_kbit_s",
    "from_user_p95_kbit_s",
    "to_user_p95_values",
    "from_user_p95_values",
    "cost_per_gb",
    "cost",
    "currency",
)


def bill_csv(bill: Bill) -> str:
    """All rows: each attachment point with an empty `user_as`, then each AS there. Unknown values are empty."""
    rows = ([_cell(value) for value in _values(bill, one)] for one in (*bill.attachment_points, *bill.ases))
    return csv_text([COLUMNS, *rows])


def _values(bill: Bill, billed: Billed) -> tuple[object, ...]:
    row = billed.row
    return (
        bill.name,
        row.ap_isd_as,
        row.isd_as,
        row.owner_email,
        row.to_user_bytes,
        f"{billed.egress_gb:f}",
        row.from_user_bytes,
        f"{billed.ingress_gb:f}",
        row.to_user_p95_kbit,
        row.from_user_p95_kbit,
        row.to_user_slots,
        row.from_user_slots,
        billed.cost_per_gb,
        billed.cost,
        "" if billed.cost is None else bill.currency,
    )


def _cell(value: object) -> object:
    """Escape text that a spreadsheet would run as a formula: users choose their email addresses."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
