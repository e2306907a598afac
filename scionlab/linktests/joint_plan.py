"""Plan of a joint test: its stages, their times, and the congestion of Links. Pure; `linktests.joint_test` reserves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from bandwidth_config import Limits
from scionlab.limits.profiles import Profile, square_wave
from scionlab.linktests.models import JointTest
from scionlab.linktests.test_slots import Slot, Taken, first_free
from scionlab.platform.field_errors import FieldRuleError

TOOL: Final = "quick"  # of each part
SINGLES, CONGEST_ONE, CONGEST_BOTH = JointTest.Kind.values
MIN_S, MAX_S, DEFAULT_S = 3, 20, 5  # for each direction of a part
MIN_CONGESTED_S, DEFAULT_CONGESTED_S = 8, 12  # if Links are congested: at least four halves of 2 s
MIN_PERCENT, MAX_PERCENT, DEFAULT_PERCENT = 10, 90, 50  # of its limit, kept by a congested Link


@dataclass(frozen=True)
class Choice:
    """A person's choice, parsed. `percent` and `link_id` are None without congestion; `link_id` also if all Links, or
    the fastest one, are congested."""

    kind: str
    seconds: int
    percent: int | None
    link_id: int | None

    @property
    def half_s(self) -> int:
        """Duration of each half of the congestion cycle."""
        return self.seconds // 4

    def to_json(self) -> dict[str, int]:
        chosen = {"seconds": self.seconds, "congested_percent": self.percent, "congested_link_id": self.link_id}
        return {name: value for name, value in chosen.items() if value is not None}


def read_choice(kind: str, *, seconds: int | None, percent: int | None, link_id: int | None) -> Choice:
    """Parse a choice. `kind` is one of `JointTest.Kind`; None: the default. Raises `FieldRuleError` (`joint_seconds`,
    `joint_percent`, `joint_no_congestion`, `joint_all_congested`)."""
    congests = kind != SINGLES
    low, default = (MIN_CONGESTED_S, DEFAULT_CONGESTED_S) if congests else (MIN_S, DEFAULT_S)
    seconds = default if seconds is None else seconds
    if not low <= seconds <= MAX_S:
        text = f"{seconds} s for each direction are outside {low} to {MAX_S} s, which {kind} may take. Choose another."
        raise FieldRuleError("joint_seconds", text, "seconds")
    if not congests:
        for name, value in (("congested_percent", percent), ("congested_link_id", link_id)):
            if value is not None:
                text = f"{kind} congests no link. Leave this out, or choose {CONGEST_ONE}."
                raise FieldRuleError("joint_no_congestion", text, name)
        return Choice(kind, seconds, None, None)
    if kind == CONGEST_BOTH and link_id is not None:
        text = f"{kind} congests all links. Leave this out, or choose {CONGEST_ONE}."
        raise FieldRuleError("joint_all_congested", text, "congested_link_id")
    percent = DEFAULT_PERCENT if percent is None else percent
    if not MIN_PERCENT <= percent <= MAX_PERCENT:
        text = f"{percent} % is outside {MIN_PERCENT} to {MAX_PERCENT} %, which a congested link may keep of its limit."
        raise FieldRuleError("joint_percent", f"{text} Choose another share.", "congested_percent")
    return Choice(kind, seconds, percent, link_id)


def congestion(limits: Limits, choice: Choice, length: timedelta) -> Profile:
    """Square wave of a congested Link with these limits, from `half_s` after the start of the test: low and high in
    turn, as often as fits into its length."""
    percent = 100 if choice.percent is None else choice.percent
    low = Limits(*(max(1, one * percent // 100) for one in limits))
    cycles = (length // timedelta(seconds=1) - choice.half_s) // (2 * choice.half_s)
    return square_wave(low, limits, choice.half_s, max(1, cycles))


# --- times ----------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A test of one Link."""

    link_id: int
    ap_id: int
    length: timedelta


Stage = Sequence[Part]  # they begin together


def stages_of(kind: str, parts: Sequence[Part]) -> list[Stage]:
    return [*([[one] for one in parts] if kind == SINGLES else []), parts]


def free_slots(
    stages: Sequence[Stage], taken: Mapping[int, Sequence[Taken]], begins_at: datetime, *, now: datetime
) -> list[list[Slot]]:
    """By stage and part: the first time from `begins_at` on at which all can follow each other without another test in
    between. `taken`: by attachment point. At most `TEST_LANES` parts of a stage are at one attachment point."""
    nobody: Mapping[int, Sequence[Taken]] = dict.fromkeys(taken, ())
    while True:
        own, found = (_placed(stages, rows, begins_at, now) for rows in (nobody, taken))
        delay = max(late[0].begins_at - slots[0].begins_at for late, slots in zip(found, own, strict=True))
        if delay <= timedelta(0):
            return found
        begins_at += delay


def _placed(
    stages: Sequence[Stage], taken: Mapping[int, Sequence[Taken]], begins_at: datetime, now: datetime
) -> list[list[Slot]]:
    """Place each stage as early as all its parts can begin, after the end of the previous one."""
    busy = {ap_id: list(rows) for ap_id, rows in taken.items()}
    placed = []
    for stage in stages:
        slots = _at_once(stage, busy, begins_at, now)
        for part, slot in zip(stage, slots, strict=True):
            busy[part.ap_id].append(_taken(part, slot))
        begins_at = max(slot.begins_at + part.length for part, slot in zip(stage, slots, strict=True))
        placed.append(slots)
    return placed


def _at_once(stage: Stage, busy: Mapping[int, list[Taken]], begins_at: datetime, now: datetime) -> list[Slot]:
    while True:
        trial = {ap_id: list(rows) for ap_id, rows in busy.items()}
        slots = []
        for part in stage:
            slot = first_free(trial[part.ap_id], part.link_id, begins_at, part.length, now=now, sends=True)
            trial[part.ap_id].append(_taken(part, slot))
            slots.append(slot)
        latest = max(one.begins_at for one in slots)
        if latest == begins_at:
            return slots
        begins_at = latest


def _taken(part: Part, slot: Slot) -> Taken:
    return Taken(part.link_id, slot.lane, slot.begins_at, slot.begins_at + part.length)
