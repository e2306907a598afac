"""Compares a throughput that a user measured with the limit: counted to the byte, and whether the limit explains it.

Pure. The measurement is of payload; a limit counts frames (`framing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from bandwidth_config import RuleError, format_kbit, format_number
from scionlab.links.framing import Framing
from scionlab.links.throughput import tenths
from scionlab.links.verdict import percent
from scionlab.usage.totals import AT_LIMIT_PERCENT

# SCION's common header and the shortest addresses (IPv4) are 36 bytes; the header's length field ends at 1020.
SHORTEST_PACKET: Final = 36
LONGEST_SCION_HEADERS: Final = 1028  # including those of UDP
ABOVE_PERCENT: Final = 101  # limits hold to 1 % in the long run (docs/performance.md)

Code = Literal["limit", "below", "above", "blocked", "unknown"]


@dataclass(frozen=True)
class Measured:
    """`kbit` of payload in packets of `payload_bytes`, inside SCION packets with `scion_bytes` of headers. `limit_kbit`
    None: unknown."""

    kbit: int
    payload_bytes: int
    scion_bytes: int
    limit_kbit: float | None
    framing: Framing

    @property
    def packet_bytes(self) -> int:
        return self.payload_bytes + self.scion_bytes

    @property
    def counted_bytes(self) -> int:
        return self.packet_bytes + self.framing.header_bytes

    @property
    def parts(self) -> list[tuple[str, int]]:
        """What counts for one packet: names and bytes, innermost first."""
        scion = [("Headers of SCION", self.scion_bytes)] if self.scion_bytes else []
        return [("What you measured", self.payload_bytes), *scion, *self.framing.parts]

    @property
    def packets_per_s(self) -> float:
        return self.kbit * 1000 / 8 / self.payload_bytes

    @property
    def counted_kbit(self) -> float:
        return self.kbit * self.counted_bytes / self.payload_bytes

    @property
    def used_percent(self) -> float:
        return 100 * self.counted_kbit / self.limit_kbit if self.limit_kbit else 0.0

    @property
    def code(self) -> Code:
        if self.limit_kbit is None:
            return "unknown"
        if self.limit_kbit == 0:
            return "blocked"
        if self.used_percent > ABOVE_PERCENT:
            return "above"
        return "limit" if self.used_percent >= AT_LIMIT_PERCENT else "below"

    @property
    def most_kbit(self) -> tuple[float, float]:
        """Payload rate left by the limit for packets of this size, with the highest rate of heartbeats and without
        any."""
        limit = self.limit_kbit or 0.0
        share = self.payload_bytes / self.counted_bytes
        return max(0.0, limit - self.framing.heartbeat_kbit[1]) * share, limit * share

    @property
    def missing_bytes(self) -> int | None:
        """Additional header bytes per packet that would explain the measurement; None if a SCION packet cannot have
        that many, or they would not fit the Link."""
        if self.code != "below" or not self.kbit:
            return None
        more = round((self.limit_kbit or 0.0) * self.payload_bytes / self.kbit) - self.counted_bytes
        is_possible = self.scion_bytes + more <= LONGEST_SCION_HEADERS
        return more if is_possible and self.packet_bytes + more <= self.framing.largest_bytes else None

    @property
    def text(self) -> str:
        if self.limit_kbit is None:
            return "No limit is known to be in force, so there is nothing to compare this measurement with."
        counted = f"{format_kbit(self.kbit)} in packets of {format_number(self.payload_bytes)} bytes "
        counted += f"are {tenths(self.counted_kbit)} as the limit counts"
        limit = f"the limit of {tenths(self.limit_kbit)}"
        match self.code:
            case "blocked":
                return "The limit is 0: what you measured passed at another time, or not over this link."
            case "limit":
                return f"This is the limit: {counted}, {percent(self.used_percent)} of {limit}."
            case "above":
                return (
                    f"More than the limit allows: {counted}, {percent(self.used_percent)} of {limit}. The "
                    "measurement was short or at another time, its sizes differ, or it did not go over this link."
                )
        free = (self.limit_kbit or 0.0) - self.counted_kbit
        text = f"Not this limit alone: {counted}, so {tenths(free)} of {limit} were left for other traffic."
        if (more := self.missing_bytes) is not None:
            text += f" It would be the limit with {format_number(more)} more bytes of headers in each packet."
        return text


def check_measured(payload_bytes: int, scion_bytes: int, framing: Framing) -> None:
    """Check that the Link carries such a SCION packet without fragments. Raises `RuleError` (`packet_size`)."""
    packet = payload_bytes + scion_bytes
    if not SHORTEST_PACKET <= packet <= framing.largest_bytes:
        raise RuleError(
            "packet_size",
            f"A SCION packet of {format_number(packet)} bytes is not between {SHORTEST_PACKET} and "
            f"{format_number(framing.largest_bytes)}, which this link carries in one frame. Enter the size of one "
            "packet.",
        )
