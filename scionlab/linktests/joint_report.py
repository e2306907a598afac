"""Result of a joint test: its state and the capacity of its Links together. Computed from its parts when read.

    passed    counted by each Link's limit at its attachment point (`TestResult.samples`), with all other traffic
    arrived   counted by the receiver of each part (`station.report`), in whole seconds after the first one
    dropped   at the limits, as a share of what reached them: traffic above the limits

Rates are of frames, as limits count them. Passed, limit and dropped of a direction are sums over the Links in the
seconds in which all of them were loaded in it; seconds are those of the attachment points' clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple

from django.db.models import Prefetch

from bandwidth_config import format_kbit
from contract.link_rules import AT_LIMIT_PERCENT
from scionlab.enforcement.directions import DIRECTIONS, NAMES, DirectionName
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.linktests.sending_steps import Step
from scionlab.linktests.sending_verdict import SendingVerdict
from scionlab.linktests.test_status import OPEN, State, TestStatus, status_of_test, with_results
from scionlab.linktests.verdict import Interval, intervals_of, percent
from station.plan import STREAM


class Second(NamedTuple):
    """One Link in one direction. None: not measured."""

    kbit: float | None
    limit_kbit: int | None
    dropped_bytes: int


@dataclass(frozen=True)
class Load:
    """One part in one direction: the seconds in which its Link was loaded, numbered from the start of the joint test.
    `step` is the judged phase."""

    part: TestStatus
    step: Step | None
    loaded: dict[int, Interval]

    @property
    def link_id(self) -> int:
        return self.part.test.link_id

    @property
    def attachment_point(self) -> str:
        return str(self.part.test.link.interface_a.AS.isd_as)

    @property
    def arrived_kbit(self) -> float | None:
        return None if self.step is None or self.step.is_contradicted else self.step.received_kbit

    @property
    def sum(self) -> Sum:
        return Sum.of([self], set(self.loaded))


@dataclass(frozen=True)
class Sum:
    """Some Links over `seconds`. Rates are means; None without seconds or counts."""

    seconds: int
    limit_kbit: float | None
    passed_kbit: Annotated[float | None, "Counted by the limits at the attachment points, with all other traffic."]
    arrived_kbit: Annotated[float | None, "Counted by the receiving ends, in the whole seconds after the first one."]
    dropped_percent: Annotated[
        float | None, "At the limits, of all that came there: the waste of a load above the limit."
    ]

    @classmethod
    def of(cls, loads: Sequence[Load], seconds: set[int]) -> Sum:
        arrived = [one.arrived_kbit for one in loads]
        known = [one for one in arrived if one is not None]
        arrived_kbit = sum(known) if known and len(known) == len(arrived) else None
        if not seconds:
            return cls(0, None, None, arrived_kbit, None)
        rows = [[load.loaded[second] for second in sorted(seconds)] for load in loads]
        flat = [one for row in rows for one in row]
        offered, dropped = sum(one.offered_bytes for one in flat), sum(one.dropped_bytes for one in flat)
        return cls(
            seconds=len(seconds),
            limit_kbit=sum(_mean([one.limit_kbit for one in row], row) for row in rows),
            passed_kbit=sum(_mean([one.kbit for one in row], row) for row in rows),
            arrived_kbit=arrived_kbit,
            dropped_percent=100 * dropped / offered if offered else None,
        )

    @property
    def passed_percent(self) -> float | None:
        """Share of the limits that passed."""
        return 100 * self.passed_kbit / self.limit_kbit if self.limit_kbit and self.passed_kbit is not None else None


def _mean(values: Sequence[float], row: Sequence[Interval]) -> float:
    return sum(value * one.took_ms for value, one in zip(values, row, strict=True)) / sum(one.took_ms for one in row)


@dataclass(frozen=True)
class JointSide:
    """One direction. `alone` are parts with a single Link, `loads` those of all together, `total` their sum."""

    direction: DirectionName
    alone: tuple[Load, ...]
    loads: tuple[Load, ...]
    total: Sum

    @property
    def alone_kbit(self) -> float | None:
        """Sum of what each Link passed alone; None if one is missing."""
        passed = [one.sum.passed_kbit for one in self.alone]
        known = [one for one in passed if one is not None]
        return sum(known) if known and len(known) == len(passed) else None

    @property
    def is_good(self) -> bool:
        return (self.total.passed_percent or 0) >= AT_LIMIT_PERCENT

    @property
    def text(self) -> str:
        total, name = self.total, NAMES[self.direction]
        if total.passed_kbit is None or total.limit_kbit is None:
            return f"{name}: no result. The links were not measured under load at the same time."
        passed, limit = (format_kbit(round(one)) for one in (total.passed_kbit, total.limit_kbit))
        text = f"{name}: together the {len(self.loads)} links passed {passed} of {limit}"
        text += f" ({percent(total.passed_percent or 0)})"
        if total.arrived_kbit is not None:
            text += f", and {format_kbit(round(total.arrived_kbit))} arrived"
        if total.dropped_percent:
            text += f"; {percent(total.dropped_percent)} of the traffic was dropped at the limits"
        text += "."
        if self.alone_kbit is not None:
            text += f" One after the other they passed {format_kbit(round(self.alone_kbit))} in all."
        return text


@dataclass(frozen=True)
class JointStatus:
    """`why` is a sentence, or empty. The report covers what has arrived so far."""

    joint: JointTest
    parts: tuple[TestStatus, ...]
    state: State
    why: str

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def together(self) -> tuple[TestStatus, ...]:
        """The parts that begin last; those of single Links come before."""
        last_at = max((one.test.begins_at for one in self.parts), default=None)
        return tuple(one for one in self.parts if one.test.begins_at == last_at)

    @property
    def alone(self) -> tuple[TestStatus, ...]:
        return tuple(one for one in self.parts if one not in self.together)

    @cached_property
    def sides(self) -> tuple[JointSide, JointSide]:
        to_user, from_user = (self._side(one) for one in DIRECTIONS)
        return to_user, from_user

    @property
    def to_user(self) -> JointSide:
        return self.sides[0]

    @property
    def from_user(self) -> JointSide:
        return self.sides[1]

    @property
    def is_good(self) -> bool:
        """Whether each part is good, and together they passed their limits."""
        parts = [one.verdict for one in self.parts]
        are_good = all(isinstance(one, SendingVerdict) and one.is_good for one in parts)
        return self.state == "finished" and are_good and all(one.is_good for one in self.sides)

    @property
    def text(self) -> str:
        """The result in some sentences, or why there is none yet."""
        if self.state == "finished":
            return " ".join(one.text for one in self.sides)
        return self.why or _TEXTS[self.state]

    def _side(self, direction: DirectionName) -> JointSide:
        alone, loads = (
            tuple(_load(self.joint, one, direction) for one in several) for several in (self.alone, self.together)
        )
        seconds = set.intersection(*(set(one.loaded) for one in loads)) if loads else set()
        return JointSide(direction, alone, loads, Sum.of(loads, seconds))

    def series(self, direction: DirectionName) -> dict[int, list[Second]]:
        """By Link: each second of the joint test."""
        found: dict[int, list[Second]] = {}
        for part in self.parts:
            row = found.setdefault(part.test.link_id, [_NOTHING] * self.joint.duration_s)
            for number, one in _measured(self.joint, part, direction).items():
                if one.is_second and 0 <= number < len(row):
                    dropped = one.dropped_bytes if one.in_force else 0
                    row[number] = Second(one.kbit, one.limit_kbit if one.in_force else None, dropped)
        return found


_NOTHING: Final = Second(None, None, 0)
_TEXTS: Final[dict[State, str]] = {  # the others have results, or say why not
    "scheduled": "Scheduled.",
    "armed": "Scheduled; the attachment points confirmed it.",
    "running": "Running.",
    "cancelled": "Cancelled.",
}


def with_parts(joints: Any) -> Any:
    """Query of joint tests with all that `status_of_joint` reads; three statements."""
    parts = with_results(LinkTest.objects.order_by("begins_at", "link", "pk"))
    return joints.select_related("created_by", "user_as__isd").prefetch_related(Prefetch("parts", parts))


def status_of_joint(joint: JointTest, *, now: datetime) -> JointStatus:
    """Judge a joint test of `with_parts`; no SQL statement."""
    parts = tuple(status_of_test(one, now=now) for one in joint.parts.all())
    return JointStatus(joint, parts, *_judge(joint, parts, now))


def _judge(joint: JointTest, parts: Sequence[TestStatus], now: datetime) -> tuple[State, str]:
    states = {one.state for one in parts}
    if joint.cancelled_at is not None or "cancelled" in states:
        return "cancelled", ""
    if states & OPEN:
        if now >= joint.begins_at:
            return "running", ""
        obstacle = next((one.why for one in parts if one.why), "")
        return ("armed", "") if states == {"armed"} else ("scheduled", obstacle)
    if states == {"finished"}:
        return "finished", ""
    failed = next((one for one in parts if one.state != "finished"), None)
    if failed is None:
        return "failed", "No result: the links of its parts were removed."
    where = failed.test.link.interface_a.AS.isd_as
    return ("missed" if states == {"missed"} else "failed"), f"The link to {where}: {failed.text}"


# --- seconds --------------------------------------------------------------------------------------------------------


def _measured(joint: JointTest, part: TestStatus, direction: DirectionName) -> dict[int, Interval]:
    if part.result is None:
        return {}
    began_ms = round(joint.begins_at.timestamp() * 1000)
    intervals = intervals_of(part.result.samples, direction)
    return {(one.begins_at_ms - began_ms) // 1000: one for one in intervals}


def _load(joint: JointTest, part: TestStatus, direction: DirectionName) -> Load:
    verdict = part.verdict
    steps = getattr(verdict, direction).steps if isinstance(verdict, SendingVerdict) else ()
    report = None if part.result is None else part.result.report
    planned = next((one for one in part.test.phases or () if _loads(one, direction)), None)
    counted = next((one for one in (report or {"phases": ()})["phases"] if _loads(one, direction)), None)
    loaded: dict[int, Interval] = {}
    if planned is not None and counted is not None:
        first_ms, last_ms = counted["begins_at_ms"], counted["begins_at_ms"] + planned["duration_ms"]
        for number, one in _measured(joint, part, direction).items():
            if one.is_second and one.in_force and first_ms <= one.begins_at_ms <= last_ms - one.took_ms:
                loaded[number] = one
    return Load(part, steps[0] if steps else None, loaded)


def _loads(phase: Any, direction: DirectionName) -> bool:
    return bool(phase["kind"] == STREAM and phase["direction"] == direction)
