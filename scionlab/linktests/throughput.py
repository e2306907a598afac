"""Explains a Link's throughput: each step from the requested limit to the measured traffic, with a sentence.

Uses only rows: unknown values have no number. Figures are upper bounds, as other traffic is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from bandwidth_config import Limits, format_kbit, format_number
from scionlab.enforcement.directions import DIRECTIONS, WORDS, DirectionName
from scionlab.enforcement.status import LinkStatus
from scionlab.limits.framing import Framing
from scionlab.limits.measured import DirectionUsage, UsagePoint
from scionlab.linktests.verdict import FULL_FROM_PERCENT, IDLE_BELOW_PERCENT, percent
from scionlab.platform.notation.local_time import say_time

SMALL_BYTES: Final = 200  # SCION packet shown beside the largest one

Code = Literal["limit", "at_times", "elsewhere", "idle", "blocked", "not_limited", "unknown"]
NO_COUNTERS: Final = "the attachment point sent no counters for the last hour."
NOT_MEASURED: Final = "this service does not measure traffic. A watch counts what passes."


@dataclass(frozen=True)
class Step:
    """`kbit` is the most that is left after the step [kbit/s], None if unknown; `unit` says what it counts. `amount` is
    shown if there is no rate."""

    name: str
    kbit: float | None
    text: str
    unit: Literal["counted", "SCION"] = "counted"
    amount: str = ""


@dataclass(frozen=True)
class LastHour:
    """One direction, measured in steps of 10 s. `busiest` has the highest rate; `peak_percent` is the highest share of
    the limit. While a link was observed, `drops` passed."""

    measured_s: float
    at_limit_s: float
    drops: int
    peak_percent: float
    busiest_at: datetime
    busiest: DirectionUsage


@dataclass(frozen=True)
class Side:
    """One direction. `limit_kbit` is the limit in force, None if unknown or none."""

    direction: DirectionName
    code: Code
    text: str
    limit_kbit: float | None
    steps: list[Step]


def explain(status: LinkStatus, points: Sequence[UsagePoint] | None) -> tuple[Side, Side]:
    """`points`: the last hour in steps of 10 s (`limits.measured`), None where traffic is not measured. No SQL
    statement."""
    to_user, from_user = (_side(status, index, points) for index in range(2))
    return to_user, from_user


def _side(status: LinkStatus, index: int, points: Sequence[UsagePoint] | None) -> Side:
    direction, framing = DIRECTIONS[index], Framing.of(status.link)
    enforced = _enforced(status, index)
    total = _total(status, index, enforced.kbit)
    heartbeats = _heartbeats(framing, total.kbit)
    hour = last_hour(direction, points or [])
    no_hour = NOT_MEASURED if points is None else NO_COUNTERS
    is_observed = status.stage == "observed"
    steps = [
        Step("Requested", status.requested[index], f"You requested {format_kbit(status.requested[index])}."),
        _maximum(status, index),
        _temporary(status, index),
        enforced,
        total,
        heartbeats,
        _headers(framing, heartbeats.kbit),
        _passed(framing, hour, no_hour),
        _dropped(hour, no_hour, is_observed=is_observed),
        _elsewhere(status, index),
    ]
    code, text = _verdict(direction, status, total.kbit, hour, is_measured=points is not None)
    return Side(direction, code, text, total.kbit, steps)


# --- what the limit allows ------------------------------------------------------------------------------------


def _maximum(status: LinkStatus, index: int) -> Step:
    asked, maximum = status.requested[index], format_kbit(status.maximum_kbit)
    if asked > status.maximum_kbit:
        text = f"The administrators allow {maximum} at this attachment point, so your limit is clamped to it."
    else:
        text = f"The administrators allow {maximum} at this attachment point; this does not reduce your limit."
    return Step("Maximum", min(asked, status.maximum_kbit), text)


def _temporary(status: LinkStatus, index: int) -> Step:
    kbit = status.wanted[index]
    if status.running is None:
        return Step("Temporary limit", kbit, "None is running.")
    until = say_time(status.running.ends_at)
    return Step("Temporary limit", kbit, f"One is running until {until}; it sets {format_kbit(kbit)} now.")


def _known(status: LinkStatus) -> Limits | None:
    if status.stage == "silent":
        return status.last_known
    return status.enforced


def _enforced(status: LinkStatus, index: int) -> Step:
    known = _known(status)
    if known is None:
        return Step("Enforced", None, status.text, amount="no limit" if status.stage == "observed" else "")
    text = status.text
    if known[index] != status.wanted[index]:
        text += f" The newest report has {format_kbit(known[index])} in this direction."
    return Step("Enforced", known[index], text)


def _total(status: LinkStatus, index: int, limit: float | None) -> Step:
    total = status.total
    if total is None:
        return Step("Total of all links", limit, "No total is set for all links of the attachment point together.")
    if total.in_force is None:
        return Step("Total of all links", limit, total.text)
    most = total.in_force[index]
    left = None if limit is None else min(limit, most)
    text = f"{total.text} Competing links share it in proportion to their limits; what others send is not shown here."
    return Step("Total of all links", left, text)


def _heartbeats(framing: Framing, limit: float | None) -> Step:
    least, most = framing.heartbeat_kbit
    text = (
        f"While SCION runs at both ends, border routers send a heartbeat every 150 to 200 ms. Each counts as "
        f"{framing.heartbeat_bytes} bytes, so heartbeats take {least:.1f} to {most:.1f}\N{NO-BREAK SPACE}kbit/s of the "
        "limit. SCION's control messages count as well; how much they take is not known."
    )
    return Step("Heartbeats", None if limit is None else max(0.0, limit - least), text)


def _headers(framing: Framing, limit: float | None) -> Step:
    def left(packet: int) -> float | None:
        return None if limit is None else limit * packet / (packet + framing.header_bytes)

    largest, parts = framing.largest_bytes, ", ".join(f"{name} {size}" for name, size in framing.parts)
    text = (
        f"Each SCION packet counts with {framing.header_bytes} bytes of headers ({parts}): one of "
        f"{format_number(largest)} bytes as {format_number(largest + framing.header_bytes)}."
    )
    small = left(SMALL_BYTES)
    if small is not None and largest > SMALL_BYTES:
        text += f" Packets of {SMALL_BYTES} bytes leave {tenths(small)}."
    return Step("Headers", left(largest), f"{text} SCION's own headers are inside the packet.", "SCION")


# --- what was measured ----------------------------------------------------------------------------------------


def last_hour(direction: DirectionName, points: Sequence[UsagePoint]) -> LastHour | None:
    """None without measurements."""
    every = [(one.begins_at, usage) for one in points if (usage := getattr(one, direction)) is not None]
    known = [(at, usage) for at, usage in every if usage.covered_s]
    if not known:
        return None
    busiest_at, busiest = max(known, key=lambda one: one[1].kbit or 0)
    return LastHour(
        measured_s=sum(usage.covered_s for _, usage in known),
        at_limit_s=sum(usage.at_limit_s for _, usage in known),
        drops=sum(usage.drops for _, usage in every),
        peak_percent=max(100 * (usage.kbit or 0) / usage.limit_kbit if usage.limit_kbit else 0.0 for _, usage in known),
        busiest_at=busiest_at,
        busiest=busiest,
    )


def _passed(framing: Framing, hour: LastHour | None, no_hour: str) -> Step:
    if hour is None:
        return Step("Passed", None, f"Not known: {no_hour}", "SCION")
    one, kbit = hour.busiest, hour.busiest.kbit or 0
    if not one.packets:
        return Step("Passed", 0.0, "Nothing passed in the last hour, as far as it was measured.", "SCION")
    packet = max(0.0, one.bytes / one.packets - framing.header_bytes)
    share = packet / (one.bytes / one.packets)
    text = (
        f"The busiest 10 s of the last hour began at {say_time(hour.busiest_at)}: {format_kbit(kbit)} "
        f"passed as the limit counts, in packets of {format_number(round(packet))} bytes on average and "
        f"{framing.header_bytes} bytes of headers. The limit was {format_kbit(one.limit_kbit)}."
    )
    return Step("Passed", kbit * share, text, "SCION")


def _dropped(hour: LastHour | None, no_hour: str, *, is_observed: bool) -> Step:
    name = "Dropped by the limit"
    if hour is None:
        return Step(name, None, f"{no_hour[:1].upper()}{no_hour[1:]}")
    packets = f"{format_number(hour.drops)}\N{NO-BREAK SPACE}{'packet' if hour.drops == 1 else 'packets'}"
    if not hour.drops:
        return Step(name, None, "In the last hour, as far as it was measured.", amount=packets)
    text = f"In the last hour, {format_number(hour.busiest.drops)} of them in the busiest 10 s."
    if is_observed:
        text = "The limit would have dropped them in the last hour; nothing is limited now."
    return Step(name, None, f"{text} Their bytes are not known here; a watch counts them.", amount=packets)


def _elsewhere(status: LinkStatus, index: int) -> Step:
    text = (
        "Other possible bottlenecks: your own connection, other links of the SCION path, the hosts at both ends, and "
        "a sender that slows down after losses."
    )
    ap = status.link.attachment_point
    if ap is not None and ap.uplink_kbit is not None:
        narrow = " less than this limit" if ap.uplink_kbit < status.wanted[index] else ""
        text += f" The attachment point's uplink is entered as {format_kbit(ap.uplink_kbit)}"
        text += f",{narrow}, for all it carries." if narrow else ", for all it carries."
    return Step("Elsewhere", None, text, amount="not measured")


# --- the answer -----------------------------------------------------------------------------------------------


def _verdict(
    direction: DirectionName, status: LinkStatus, limit: float | None, hour: LastHour | None, *, is_measured: bool
) -> tuple[Code, str]:
    where = WORDS[direction]
    if status.stage in {"inactive", "observed"}:
        return "not_limited", status.text
    if limit is None:
        return "unknown", f"Not known: {status.text[:1].lower()}{status.text[1:]}"
    if limit == 0:
        return "blocked", f"The limit is 0: nothing passes {where}."
    if hour is None:
        why = f"nothing was measured {where} in the last hour." if is_measured else NOT_MEASURED
        return "unknown", f"Not known: {why}"
    return _at_limit(where, hour) if hour.at_limit_s or hour.drops else _below(where, hour)


def _below(where: str, hour: LastHour) -> tuple[Code, str]:
    used = percent(hour.peak_percent)
    if hour.peak_percent < IDLE_BELOW_PERCENT:
        return "idle", f"Not enough was sent {where} to tell: at most {used} of the limit was used in any 10 s."
    return "elsewhere", (
        f"Not this limit: at most {used} of it was used {where} in any 10 s of the last hour, and it dropped nothing."
    )


def _at_limit(where: str, hour: LastHour) -> tuple[Code, str]:
    is_most = hour.at_limit_s * 100 >= hour.measured_s * FULL_FROM_PERCENT
    dropped = f"{format_number(hour.drops)} {'packet was' if hour.drops == 1 else 'packets were'} counted as dropped"
    return "limit" if is_most else "at_times", (
        f"{'The limit' if is_most else 'At times the limit'}: for {_seconds(hour.at_limit_s)} of the "
        f"{_seconds(hour.measured_s)} measured in the last hour the link was at its limit {where}, and {dropped}."
    )


def _seconds(value: float) -> str:
    return f"{format_number(round(value))}\N{NO-BREAK SPACE}s"


def tenths(kbit: float) -> str:
    """Return `413.2 kbit/s`: a computed value, to compare with a measurement."""
    whole, tenth = divmod(round(kbit * 10), 10)
    return f"{format_number(whole)}.{tenth}\N{NO-BREAK SPACE}kbit/s"
