"""Counters of one direction of a Link, each declared once. The reader of receipts and its description, the columns of
`LinkEnforcement`, states, and the REST API go by this declaration; `enforcement/parts/kernel.html` shows them. Those of
`Kept` are also added up over time: the batches of agents, their sums, rows and files (`scionlab.usage`) go by it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from bandwidth_config import format_number
from scionlab.delivery.host_api.documents import Document

MAX_COUNT: Final = 2**63 - 1  # of the database's columns

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class Counters(Document, frozen=True, gc=False):
    """In the kernel's class. An optional one is None if the agent does not count it separately. On an observed Link
    those packets passed that a limit would have dropped."""

    bytes: Annotated[Count, Meta(description="Passed.")]
    packets: Annotated[Count, Meta(description="Passed.")]
    drops: Annotated[Count, Meta(description="Dropped packets: the sum of refused and dropped.")]
    refused: Annotated[Count | None, Meta(description="Dropped before the queue; null: not counted separately.")] = None
    dropped: Annotated[Count | None, Meta(description="Dropped from the queue; null: not counted separately.")] = None

    @classmethod
    def of(cls, row: Any, direction: str) -> Counters | None:
        """Of the columns of a `LinkEnforcement`; None if the kernel lacks the direction."""
        if getattr(row, f"{direction}_rate_kbit") is None:
            return None
        found = {name: getattr(row, f"{direction}_{name}") for name in COUNTERS}
        return cls(**{name: 0 if one is None and name in REQUIRED else one for name, one in found.items()})

    @property
    def parts(self) -> str:
        """Return `10 refused, 2 dropped from the queue`; empty if there are none or they are not separated."""
        if self.refused is None or self.dropped is None or self.drops == 0:
            return ""
        return f"{format_number(self.refused)} refused, {format_number(self.dropped)} dropped from the queue"


class Kept(msgspec.Struct, gc=False):
    """Counters that are kept over time; a new one is the last, with a new version of what is packed (`kept_in`)."""

    bytes: int = 0
    packets: int = 0
    drops: int = 0


KEPT: Final = Kept.__struct_fields__
counts_of = attrgetter(*KEPT)  # their values, of anything that has them
VERSION: Final = 1
_KEPT_IN: Final = {1: 3}  # how many of them each version of a packed row has


def kept_in(version: int) -> int:
    """Raises `ValueError`."""
    if version not in _KEPT_IN:
        raise ValueError(f"A row was packed by version {version}, this service knows up to {VERSION}. Update it.")
    return _KEPT_IN[version]


_FIELDS: Final = msgspec.json.schema_components([Counters])[1]["Counters"]
# What each counts.
COUNTERS: Final[dict[str, str]] = {name: one["description"] for name, one in _FIELDS["properties"].items()}
REQUIRED: Final[list[str]] = _FIELDS["required"]
