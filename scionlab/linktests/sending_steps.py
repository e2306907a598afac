"""One phase in one direction of a test that sends: sent, passed, received, and the resulting code. Pure.

The counters of the Link's class at the attachment point (`TestResult.samples`) during the phase, by the attachment
point's clock, are compared with what both ends sent and received (`station.report`). The attachment point is trusted.
The user's end can only make a verdict milder: a claim to have received more than the class passed is ignored. Rates are
of frames, as limits count them, in kbit/s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Annotated, Any, Final, Literal, NamedTuple

from bandwidth_config import format_kbit
from contract.link_rules import AT_LIMIT_PERCENT
from scionlab.enforcement.directions import DirectionName
from scionlab.linktests.tcp_found import TcpFound, found_by_tcp, took_ms
from scionlab.linktests.verdict import Interval
from station.plan import TCP, frame_bytes, segments_bytes
from station.report import MAX_SECONDS

Code = Literal["over_the_limit", "mixed", "limited_elsewhere", "not_enough", "no_result", "enforced"]
COUNTED_PERCENT: Final = 90  # share of the attachment point's traffic that the class counts at least
DROPS_PERCENT: Final = 1  # share of what reached the class: from here on the class is what dropped
CONTRADICTED_PERCENT: Final = 102
_LATE_MS: Final = 100  # a sender may be that late with what was due before the end
_SETTLE_MS: Final = 1000  # slow start of TCP
_CLOCKS_MS: Final = 20  # times may differ by so much
# The largest packet is admitted whole: a datagram with the headers of all its fragments, or TCP that the host handles
# as one packet.
_LARGEST_BYTES: Final = 70_000


class Window(NamedTuple):
    """Sum of intervals of the class; `budget_bytes` is what their limits carry."""

    took_ms: int
    budget_bytes: float
    passed_bytes: int
    dropped_bytes: int
    lost_packets: int

    @classmethod
    def of(cls, intervals: Sequence[Interval]) -> Window:
        return cls(
            took_ms=sum(one.took_ms for one in intervals),
            budget_bytes=sum(one.highest_kbit * one.took_ms / 8 for one in intervals),
            passed_bytes=sum(one.passed_bytes for one in intervals),
            dropped_bytes=sum(one.dropped_bytes for one in intervals),
            lost_packets=sum(one.lost_packets for one in intervals),
        )

    @property
    def offered_bytes(self) -> int:
        return self.passed_bytes + self.dropped_bytes

    @property
    def dropped_percent(self) -> float | None:
        return 100 * self.dropped_bytes / self.offered_bytes if self.offered_bytes else None

    def kbit(self, count: float) -> float:
        return count * 8 / self.took_ms if self.took_ms else 0.0


def allowed_bytes(intervals: Sequence[Interval], largest: float) -> float:
    """Upper bound of what is admitted in adjacent intervals: what their limits carry, and for each limit that follows
    another one a bucket, a queue and the largest packet (docs/agent.md)."""
    limits = [kbit for kbit, _ in groupby(one.highest_kbit for one in intervals)]
    return Window.of(intervals).budget_bytes * 1.02 + sum(_beyond_bytes(kbit) + largest for kbit in limits)


def _beyond_bytes(kbit: int) -> float:
    return max(4000, kbit / 2) + max(20_000, kbit * 100 / 8)


@dataclass(frozen=True)
class Evidence:
    """One phase and direction. `planned` is the phase; `ap` and `user` are the reports of both ends, None if they did
    not begin it; `version` is that of IP. Over the VPN limits count the inner packets. `is_cut`: the test ended early
    in this phase, at an unknown moment.

    Bytes of the ends are compared with those of the class over a time that surely contains them (`_around`); only of
    the class alone a rate is taken, in whole seconds under one limit (`window`)."""

    direction: DirectionName
    planned: Mapping[str, Any]
    version: int
    intervals: Sequence[Interval]
    ap: Mapping[str, Any] | None
    user: Mapping[str, Any] | None
    is_vpn: bool = False
    is_cut: bool = False

    @property
    def is_tcp(self) -> bool:
        return bool(self.planned["kind"] == TCP)

    @property
    def frame(self) -> int:
        """Bytes counted for one packet."""
        return frame_bytes(self.planned["payload_bytes"], self.version, is_vpn=self.is_vpn)

    @property
    def duration_ms(self) -> int:
        """As planned; TCP may end early."""
        return took_ms(self.ap) if self.is_tcp else int(self.planned["duration_ms"])

    @cached_property
    def tcp(self) -> TcpFound | None:
        if not self.is_tcp:
            return None
        receiver = None if self.is_contradicted else self.ends[1]
        limit_kbit = self.limits[0] if len(self.limits) == 1 else None
        return found_by_tcp(
            self.planned, self.ends[0], receiver, limit_kbit=limit_kbit, version=self.version, is_vpn=self.is_vpn
        )

    @property
    def ends(self) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        return (self.ap, self.user) if self.direction == "to_user" else (self.user, self.ap)

    # --- what the ends counted --------------------------------------------------------------------------------------

    @property
    def sent_kbit(self) -> float | None:
        """For TCP as `received_kbit`, with retransmissions."""
        return self._mean_kbit(self.ends[0], 0, first=1 if self.is_tcp else 0)

    @property
    def received_kbit(self) -> float | None:
        """In the whole seconds after the first one, which includes the filling of the queue."""
        return self._mean_kbit(self.ends[1], 2, first=1)

    @property
    def silent_s(self) -> int | None:
        """Seconds in which the sender sent and no complete packet arrived; None if one end did not report, and for
        TCP."""
        sender, receiver = self.ends
        if self.is_tcp or sender is None or receiver is None or self.is_contradicted:
            return None
        rows = receiver["seconds"]
        sent = [row[0] for row in sender["seconds"][: self.duration_ms // 1000]]
        return sum(bool(count) and not (at < len(rows) and rows[at][2]) for at, count in enumerate(sent))

    def _mean_kbit(self, end: Mapping[str, Any] | None, at: int, *, first: int) -> float | None:
        """Of the whole seconds from `first` on; a second without a row had no packet, unless the phase was cut."""
        rows = end["seconds"] if end is not None else ()
        last = min(self.duration_ms // 1000, len(rows) - 1 if self.is_cut else MAX_SECONDS)
        if not rows[first:] or last <= first:
            return None
        return sum(self._counted(row, at) for row in rows[first:last]) * 8 / 1000 / (last - first)

    def _counted(self, row: Sequence[int], at: int) -> float:
        """Bytes as limits count them; TCP fills its segments."""
        if self.is_tcp:
            return segments_bytes(row[at + 1], self.version, is_vpn=self.is_vpn)
        return float(row[at] * self.frame)

    def sent_bytes(self) -> float:
        return sum(self._counted(row, 0) for row in self.ends[0]["seconds"]) if self.ends[0] is not None else 0.0

    def received_bytes(self) -> float:
        """With what arrived after the phase."""
        return sum(self._counted(row, 2) for row in self.ends[1]["seconds"]) if self.ends[1] is not None else 0.0

    # --- what the class counted -------------------------------------------------------------------------------------

    @cached_property
    def _inside(self) -> list[Interval]:
        if self.ap is None:
            return []
        last_ms = self.ap["begins_at_ms"] + self.duration_ms
        begin_ms = self.ap["begins_at_ms"] + (_SETTLE_MS if self.is_tcp else self._idle_ms)
        return [
            one
            for one in self.intervals
            if one.is_second and begin_ms <= one.begins_at_ms and one.ends_at_ms <= last_ms
        ]

    @property
    def _idle_ms(self) -> float:
        """The part of the first second in which the user's end may not have sent yet: it begins a round trip after
        the attachment point's, and later if a message was lost."""
        rows = self.ap["seconds"][:2] if self.ap is not None and self.direction == "from_user" else []
        if len(rows) < 2 or not rows[1][2]:
            return 0.0
        return float(1000 * max(0.0, 1 - rows[0][2] / rows[1][2]))

    @cached_property
    def window(self) -> Window:
        """The seconds of the phase in which one limit was enforced."""
        return Window.of([one for one in self._inside if one.in_force and not one.is_stepped])

    @property
    def is_observed(self) -> bool:
        return bool(self._inside) and not any(one.in_force for one in self._inside)

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """Those that were certainly in force at a moment of the phase."""
        if self.ap is None:
            return ()
        first_ms, last_ms = self.ap["begins_at_ms"], self.ap["begins_at_ms"] + self.duration_ms
        moments = [
            at
            for one in self.intervals
            if one.in_force
            for at in ((one.begins_at_ms, one.limit_kbit), (one.ends_at_ms, one.next_limit_kbit))
        ]
        return tuple(dict.fromkeys(kbit for at_ms, kbit in moments if first_ms <= at_ms <= last_ms))

    @cached_property
    def _around(self) -> Window | None:
        """All that the class counted from the beginning of the phase until its last packet, and not much more; None
        if a part of it is unknown."""
        if self.ap is None:
            return None
        first_ms, took = self.ap["begins_at_ms"], self.duration_ms + _LATE_MS
        if self.direction == "from_user":
            took = max(took, 1000 * len(self.ap["seconds"]))
        found = [one for one in self.intervals if one.begins_at_ms < first_ms + took and one.ends_at_ms > first_ms]
        return Window.of(found) if _covered_ms(found, first_ms, took) >= took - _CLOCKS_MS else None

    @property
    def passed_kbit(self) -> float | None:
        return self.window.kbit(self.window.passed_bytes) if self.window.took_ms else None

    @property
    def other_kbit(self) -> float | None:
        """The part of passed that is certainly other traffic: the class received more than was sent in any second."""
        sender = self.ends[0]
        if self.passed_kbit is None or self.sent_kbit is None or sender is None:
            return None
        sent_kbit = max(self._counted(row, 0) for row in sender["seconds"]) * 8 / 1000
        return max(0.0, min(self.passed_kbit, self.window.kbit(self.window.offered_bytes) - sent_kbit))

    # --- both compared ----------------------------------------------------------------------------------------------

    @cached_property
    def is_contradicted(self) -> bool:
        """Whether the user's end claims to have received more than the class passed."""
        if self.direction != "to_user" or self.user is None or self._around is None:
            return False
        return self.received_bytes() > self._around.passed_bytes * CONTRADICTED_PERCENT / 100 + 2 * self.frame

    @property
    def is_over(self) -> bool:
        """Whether the class passed more than the limits allow, or the attachment point received more behind it."""
        largest = _LARGEST_BYTES if self.is_tcp else self.frame + min(_LARGEST_BYTES, self._others_bytes)
        in_force = [one for one in self._inside if one.in_force]
        runs = [in_force[first:last] for first, last in pairwise(_breaks(in_force))]
        return any(sum(one.passed_bytes for one in run) > allowed_bytes(run, largest) for run in runs) or (
            self._is_over_behind
        )

    @property
    def _others_bytes(self) -> float:
        """The most that others can have sent through the limit meanwhile. The user's end is not believed."""
        if self._around is None or self.ap is None:
            return _LARGEST_BYTES
        if self.direction == "to_user":
            return max(0.0, self._around.offered_bytes - self.sent_bytes())
        return max(0.0, self._around.passed_bytes - self.received_bytes())

    @property
    def _is_over_behind(self) -> bool:
        """Whether more arrived in the whole seconds of the phase than was admitted in them. TCP counts without headers:
        its packets may be larger."""
        if self.direction != "from_user" or self.ap is None:
            return False
        rows = self.ap["seconds"][: self.duration_ms // 1000]
        first_ms, took = self.ap["begins_at_ms"], 1000 * len(rows)
        seconds = [one for one in self.intervals if one.is_second and one.in_force]
        if _covered_ms(seconds, first_ms, took) < took - _CLOCKS_MS:
            return False
        clipped = [one._replace(took_ms=max(0, _overlap_ms(one, first_ms, took))) for one in seconds]
        received = sum(row[3] if self.is_tcp else self._counted(row, 2) for row in rows)
        largest = _LARGEST_BYTES if self.is_tcp else self.frame
        return received > allowed_bytes([one for one in clipped if one.took_ms], largest)

    @property
    def uncounted(self) -> str:
        """What of the attachment point's traffic the class counted, if that is too little."""
        if self.direction != "to_user" or self._around is None:
            return ""
        sent, counted = self.sent_bytes(), self._around.offered_bytes + 2 * self.frame
        if sent * COUNTED_PERCENT / 100 <= counted:
            return ""
        counted_text, sent_text = (format_kbit(round(one * 8 / self.duration_ms)) for one in (counted, sent))
        return f"the limiter counted {counted_text} of {sent_text} sent"

    @cached_property
    def _by_limit(self) -> list[tuple[Window, bool]]:
        """The seconds of `window` under each limit, and whether they are full."""
        seconds = sorted((one for one in self._inside if one.in_force and not one.is_stepped), key=_limit_of)
        windows = [Window.of(list(found)) for _, found in groupby(seconds, key=_limit_of)]
        return [
            (one, (one.passed_bytes + 2 * self.frame) * 100 >= one.budget_bytes * AT_LIMIT_PERCENT) for one in windows
        ]

    @property
    def is_full(self) -> bool:
        return any(is_full for _, is_full in self._by_limit)

    @property
    def is_dropped_below(self) -> bool:
        """Whether the class dropped packets although it passed less than a limit. TCP adapts to any limit."""
        least = 0 if self.is_tcp else DROPS_PERCENT
        return any(
            not is_full and (one.lost_packets > 0 or (one.dropped_percent or 0) > least)
            for one, is_full in self._by_limit
        )

    @property
    def is_lost_before(self) -> bool:
        """Whether clearly less reached the class than was sent."""
        around = self._around
        return around is not None and around.offered_bytes * 100 < self.sent_bytes() * AT_LIMIT_PERCENT

    @property
    def is_lost_behind(self) -> bool:
        """Whether the user's end received clearly less than was sent and not dropped by the class."""
        around, received_kbit, passed_kbit = self._around, self.received_kbit, self.passed_kbit
        if self.direction != "to_user" or self.is_contradicted or around is None:
            return False
        if received_kbit is None or passed_kbit is None or received_kbit * 100 >= passed_kbit * AT_LIMIT_PERCENT:
            return False  # a sentence compares these
        dropped = around.dropped_bytes + around.lost_packets * self.frame
        on_its_way = _beyond_bytes(max(self.limits)) + _LARGEST_BYTES if self.is_tcp else 0.0  # when TCP ends
        arrived = self.received_bytes() + 2 * self.frame + on_its_way
        return arrived * 100 < (min(self.sent_bytes(), around.offered_bytes) - dropped) * AT_LIMIT_PERCENT


def _limit_of(one: Interval) -> int:
    return one.limit_kbit


def _overlap_ms(one: Interval, first_ms: int, took: int) -> int:
    return min(first_ms + took, one.ends_at_ms) - max(first_ms, one.begins_at_ms)


def _covered_ms(intervals: Sequence[Interval], first_ms: int, took: int) -> int:
    return sum(max(0, _overlap_ms(one, first_ms, took)) for one in intervals)


def _breaks(intervals: Sequence[Interval]) -> list[int]:
    """Where adjacent intervals begin and end."""
    gaps = [
        at
        for at, (before, after) in enumerate(pairwise(intervals), 1)
        if after.begins_at_ms - before.ends_at_ms > _CLOCKS_MS
    ]
    return [0, *gaps, len(intervals)]


@dataclass(frozen=True)
class Step:
    """One judged phase; figures are None if not counted. `passed_kbit` is everything that the class admitted to its
    queue, `other_kbit` the part of it that is certainly no test traffic. `silent_s`: seconds without a complete packet.
    `why` explains a missing result. `tcp`: of a TCP phase with a connection."""

    number: int
    direction: DirectionName
    payload_bytes: int
    planned_kbit: Annotated[int, "The rate at which the sending end was to send."]
    code: Code
    why: str
    limits_kbit: Annotated[tuple[int, ...], "More than one: the limit changed meanwhile."]
    sent_kbit: Annotated[float | None, "Counted by the sending end."]
    passed_kbit: Annotated[float | None, "Admitted by the limit, with all other traffic."]
    dropped_percent: Annotated[float | None, "Share of the traffic that reached the limit."]
    received_kbit: Annotated[float | None, "Counted by the receiving end, in the whole seconds after the first one."]
    other_kbit: Annotated[float | None, "Part of passed: certainly other traffic."]
    silent_s: Annotated[int | None, "Seconds in which packets were sent and none arrived whole. null of TCP."]
    is_contradicted: Annotated[bool, "The user's end reported more than passed; its figure is ignored."]
    tcp: TcpFound | None = None

    @property
    def word(self) -> str:
        return self.code.replace("_", " ")

    @property
    def is_alone(self) -> bool:
        """Whether there is no other traffic, and the receiver is credible."""
        return not self.is_contradicted and (self.other_kbit or 0) * 50 <= (self.passed_kbit or 0)

    @property
    def is_as_limited(self) -> bool:
        """Whether what arrived is within 5 % of the limit: else a part of it came before or after these seconds."""
        if self.received_kbit is None or not self.limits_kbit:
            return False
        least, most = min(self.limits_kbit) * AT_LIMIT_PERCENT, max(self.limits_kbit) * (200 - AT_LIMIT_PERCENT)
        return least <= self.received_kbit * 100 <= most

    @property
    def is_stepped(self) -> bool:
        """Whether the limit changed meanwhile."""
        return len(self.limits_kbit) > 1


def step_of(evidence: Evidence) -> Step:
    why = _why_not(evidence)
    return Step(
        number=evidence.planned["number"],
        direction=evidence.direction,
        payload_bytes=evidence.planned["payload_bytes"],
        planned_kbit=evidence.planned["kbit"],
        code="no_result" if why else _code(evidence),
        why=why,
        limits_kbit=evidence.limits,
        sent_kbit=evidence.sent_kbit,
        passed_kbit=evidence.passed_kbit,
        dropped_percent=evidence.window.dropped_percent,
        received_kbit=evidence.received_kbit,
        other_kbit=evidence.other_kbit,
        silent_s=evidence.silent_s,
        is_contradicted=evidence.is_contradicted,
        tcp=evidence.tcp,
    )


def _why_not(evidence: Evidence) -> str:
    """Why there is no verdict; empty if there is one."""
    if evidence.is_over:
        return ""
    reasons = (
        (evidence.ap is None, "it did not begin"),
        (evidence.is_observed, "the limit was not enforced then"),
        (evidence.is_tcp and not evidence.duration_ms, "no TCP connection was made"),
        (evidence.is_cut, "the test was cut short in this phase"),
        (not evidence.window.took_ms, "the attachment point measured no whole second of it under one limit"),
        (evidence.sent_kbit is None and not evidence.is_full, "the sending end did not report what it sent"),
    )
    return next((why for is_so, why in reasons if is_so), "") or evidence.uncounted


def _code(evidence: Evidence) -> Code:
    window = evidence.window
    if evidence.is_over:
        return "over_the_limit"
    if evidence.is_lost_behind:
        return "limited_elsewhere"
    if evidence.is_dropped_below:
        return "mixed"
    if evidence.is_full:
        return "enforced"
    offered_kbit = evidence.planned["kbit"] if evidence.is_tcp else evidence.sent_kbit or 0
    is_enough = offered_kbit * 100 >= window.kbit(window.budget_bytes) * AT_LIMIT_PERCENT
    return "limited_elsewhere" if is_enough and (evidence.is_tcp or evidence.is_lost_before) else "not_enough"
