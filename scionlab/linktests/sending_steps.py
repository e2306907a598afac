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
from typing import Annotated, Any, Final, Literal, NamedTuple

from bandwidth_config import format_kbit
from contract.link_rules import AT_LIMIT_PERCENT
from scionlab.enforcement.directions import DirectionName
from scionlab.linktests.tcp_found import TcpFound, found_by_tcp, took_ms
from scionlab.linktests.verdict import Interval
from station.plan import TCP, frame_bytes, segments_bytes

Code = Literal["over_the_limit", "mixed", "limited_elsewhere", "not_enough", "no_result", "enforced"]
COUNTED_PERCENT: Final = 90  # share of the attachment point's traffic that the class counts at least
DROPS_PERCENT: Final = 1  # share of what reached the class: from here on the class is what dropped
CONTRADICTED_PERCENT: Final = 102
_TAIL_MS: Final = 1000  # what is in the queue arrives after the phase
_SETTLE_MS: Final = 1000  # slow start of TCP
_DATAGRAM_BYTES: Final = 70_000  # the largest one with the headers of all its fragments: it is admitted whole


class Window(NamedTuple):
    """Sum of intervals of the class; `budget_bytes` is what the limit carries, including changes of the limit."""

    took_ms: int
    budget_bytes: float
    passed_bytes: int
    dropped_bytes: int
    lost_packets: int
    limits: tuple[int, ...]

    @classmethod
    def of(cls, intervals: Sequence[Interval]) -> Window:
        return cls(
            took_ms=sum(one.took_ms for one in intervals),
            budget_bytes=sum(one.limit_kbit * one.took_ms / 8 for one in intervals),
            passed_bytes=sum(one.passed_bytes for one in intervals),
            dropped_bytes=sum(one.dropped_bytes for one in intervals),
            lost_packets=sum(one.lost_packets for one in intervals),
            limits=tuple(dict.fromkeys(one.limit_kbit for one in intervals)),
        )

    @property
    def offered_bytes(self) -> int:
        return self.passed_bytes + self.dropped_bytes

    @property
    def dropped_percent(self) -> float | None:
        return 100 * self.dropped_bytes / self.offered_bytes if self.offered_bytes else None

    def kbit(self, count: float) -> float:
        return count * 8 / self.took_ms if self.took_ms else 0.0

    def allowed_bytes(self, largest: float) -> float:
        """Upper bound of what is admitted: limit, bucket, queue and the largest datagram (docs/agent.md)."""
        highest = max(self.limits, default=0)
        return self.budget_bytes * 1.02 + max(4000, highest / 2) + max(20_000, highest * 100 / 8) + largest


@dataclass(frozen=True)
class Evidence:
    """One phase and direction. `planned` is the phase; `ap` and `user` are the reports of both ends, None if they did
    not begin it; `version` is that of IP. Over the VPN limits count the inner packets."""

    direction: DirectionName
    planned: Mapping[str, Any]
    version: int
    intervals: Sequence[Interval]
    ap: Mapping[str, Any] | None
    user: Mapping[str, Any] | None
    is_vpn: bool = False

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
        limits = self.window.limits
        limit_kbit = limits[0] if len(limits) == 1 else None
        return found_by_tcp(
            self.planned, self.ends[0], receiver, limit_kbit=limit_kbit, version=self.version, is_vpn=self.is_vpn
        )

    @property
    def ends(self) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        return (self.ap, self.user) if self.direction == "to_user" else (self.user, self.ap)

    @property
    def sent_kbit(self) -> float | None:
        """For TCP as `received_kbit`, with retransmissions."""
        sender = self.ends[0]
        return self._settled_kbit(sender, 0) if self.is_tcp else self._kbit(sender, "sent")

    @property
    def received_kbit(self) -> float | None:
        """In the whole seconds after the first one, which includes the filling of the queue."""
        return self._settled_kbit(self.ends[1], 2)

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

    @property
    def all_received_kbit(self) -> float | None:
        """Includes what waited in the queue and arrived after the phase; for TCP as `received_kbit`."""
        return self.received_kbit if self.is_tcp else self._kbit(self.ends[1], "received")

    def _settled_kbit(self, end: Mapping[str, Any] | None, at: int) -> float | None:
        rows = (end or {"seconds": []})["seconds"][1 : self.duration_ms // 1000]
        packets, payload = (sum(row[column] for row in rows) for column in (at, at + 1))
        counted = self._segments_bytes(payload) if self.is_tcp else float(packets * self.frame)
        return counted * 8 / 1000 / len(rows) if rows else None

    def _kbit(self, end: Mapping[str, Any] | None, what: str) -> float | None:
        if end is None or not end["seconds"]:
            return None
        took_ms = min(self.duration_ms, 1000 * len(end["seconds"]))  # it may have been cut short
        return self._all(end, what) * 8 / took_ms

    def _all(self, end: Mapping[str, Any], what: str) -> float:
        """Bytes as limits count them; TCP fills its segments."""
        if self.is_tcp:
            return self._segments_bytes(end[f"{what}_bytes"])
        return float(end[f"{what}_packets"] * self.frame)

    def _segments_bytes(self, payload_bytes: int) -> float:
        return segments_bytes(payload_bytes, self.version, is_vpn=self.is_vpn)

    @cached_property
    def _inside(self) -> list[Interval]:
        if self.ap is None:
            return []
        last_ms = self.ap["begins_at_ms"] + self.duration_ms
        begin_ms = self.ap["begins_at_ms"] + (_SETTLE_MS if self.is_tcp else 0)
        return [
            one for one in self.intervals if one.is_second and begin_ms <= one.begins_at_ms <= last_ms - one.took_ms
        ]

    @cached_property
    def window(self) -> Window:
        return Window.of([one for one in self._inside if one.in_force])

    @cached_property
    def spanned(self) -> Window:
        """The limits of the phase to the millisecond, for the time that the ends count; no bytes. If the limit steps,
        their mean differs from that of the whole seconds."""
        if self.ap is None:
            return Window.of(())
        begin_ms = self.ap["begins_at_ms"]
        last_ms = begin_ms + self.planned["duration_ms"]
        clipped = [
            one._replace(took_ms=took_ms, passed_bytes=0, dropped_bytes=0, lost_packets=0)
            for one in self.intervals
            if one.is_second
            and one.in_force
            and (took_ms := min(last_ms, one.begins_at_ms + one.took_ms) - max(begin_ms, one.begins_at_ms)) > 0
        ]
        return Window.of(clipped)

    @property
    def is_observed(self) -> bool:
        return bool(self._inside) and not self.window.took_ms

    @property
    def passed_kbit(self) -> float | None:
        return self.window.kbit(self.window.passed_bytes) if self.window.took_ms else None

    @property
    def other_kbit(self) -> float | None:
        """The part of passed that is certainly other traffic: the class received more than was sent."""
        if self.passed_kbit is None or self.sent_kbit is None:
            return None
        return max(0.0, min(self.passed_kbit, self.window.kbit(self.window.offered_bytes) - self.sent_kbit))

    @cached_property
    def is_contradicted(self) -> bool:
        """Whether the user's end claims to have received more than the class passed in all seconds that touch the
        phase."""
        if self.direction != "to_user" or self.user is None or self.ap is None:
            return False
        begin_ms = self.ap["begins_at_ms"]
        end_ms = begin_ms + self.duration_ms + _TAIL_MS
        passed = sum(
            one.passed_bytes
            for one in self.intervals
            if one.begins_at_ms < end_ms and one.begins_at_ms + one.took_ms > begin_ms
        )
        claimed = self._all(self.user, "received")
        return bool(claimed > passed * CONTRADICTED_PERCENT / 100 + 2 * self.frame)


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
        limits_kbit=evidence.window.limits,
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
    window, sent_kbit = evidence.window, evidence.sent_kbit
    if evidence.is_observed:
        return "the limit was not enforced then"
    if not window.took_ms:
        is_missing = evidence.is_tcp and not evidence.duration_ms
        return "no TCP connection was made" if is_missing else "the attachment point counted nothing in that time"
    if _is_over(evidence):
        return ""
    offered_kbit = window.kbit(window.offered_bytes + 2 * evidence.frame)
    if evidence.direction == "to_user" and (sent_kbit or 0) * COUNTED_PERCENT / 100 > offered_kbit:
        return f"the limiter counted {format_kbit(round(offered_kbit))} of {format_kbit(round(sent_kbit or 0))} sent"
    if sent_kbit is None and not _is_full(evidence):
        return "the sending end did not report what it sent"
    return ""


def _code(evidence: Evidence) -> Code:
    window = evidence.window
    if _is_over(evidence):
        return "over_the_limit"
    if _is_lost_behind(evidence):
        return "limited_elsewhere"
    if _is_full(evidence):
        return "enforced"
    if window.lost_packets or (window.dropped_percent or 0) > (0 if evidence.is_tcp else DROPS_PERCENT):
        # TCP adapts to any limit
        return "mixed"
    offered_kbit = evidence.planned["kbit"] if evidence.is_tcp else evidence.sent_kbit or 0
    is_enough = offered_kbit * 100 >= window.kbit(window.budget_bytes) * AT_LIMIT_PERCENT
    return "limited_elsewhere" if is_enough else "not_enough"


def _is_over(evidence: Evidence) -> bool:
    window, spanned = evidence.window, evidence.spanned
    at_ap_kbit = (evidence.all_received_kbit or 0) if evidence.direction == "from_user" else 0
    is_over_behind = at_ap_kbit > spanned.kbit(spanned.allowed_bytes(evidence.frame))
    return window.passed_bytes > window.allowed_bytes(evidence.frame + _others_datagram(evidence)) or is_over_behind


def _others_datagram(evidence: Evidence) -> float:
    """Bytes of the largest datagram that others can have sent on the link beside the test."""
    window, sent_kbit = evidence.window, evidence.sent_kbit
    of_test = 0.0 if sent_kbit is None else sent_kbit * window.took_ms / 8
    return max(0.0, min(_DATAGRAM_BYTES, window.offered_bytes - of_test))


def _is_full(evidence: Evidence) -> bool:
    window = evidence.window
    return (window.passed_bytes + 2 * evidence.frame) * 100 >= window.budget_bytes * AT_LIMIT_PERCENT


def _is_lost_behind(evidence: Evidence) -> bool:
    """Whether the user's end received clearly less of the test than the class passed."""
    received_kbit, passed_kbit = evidence.all_received_kbit, evidence.passed_kbit
    if evidence.direction != "to_user" or received_kbit is None or passed_kbit is None or evidence.is_contradicted:
        return False
    window, spanned = evidence.window, evidence.spanned
    own_kbit = passed_kbit - (evidence.other_kbit or 0) - window.kbit(window.lost_packets * evidence.frame)
    if window.budget_bytes and _is_full(evidence):  # it follows the limit, which may differ at the edges
        own_kbit *= spanned.kbit(spanned.budget_bytes) / window.kbit(window.budget_bytes)
    return (received_kbit + evidence.window.kbit(2 * evidence.frame)) * 100 < own_kbit * AT_LIMIT_PERCENT
