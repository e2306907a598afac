"""Stages of tests and their times; a single test is one stage of one part. Pure; `linktests.link_test` reserves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from scionlab.linktests.test_slots import Slot, Taken, first_free
from scionlab.platform.field_errors import FieldRuleError

TOOL: Final = "quick"  # of each part
MIN_S, MAX_S, DEFAULT_S = 3, 20, 5  # for each direction of a part


def read_seconds(seconds: int | None) -> int:
    """None: the default. Raises `FieldRuleError` (`joint_seconds`)."""
    seconds = DEFAULT_S if seconds is None else seconds
    if not MIN_S <= seconds <= MAX_S:
        text = f"{seconds} s for each direction are outside {MIN_S} to {MAX_S} s. Choose another time."
        raise FieldRuleError("joint_seconds", text, "seconds")
    return seconds


class Part(NamedTuple):
    """A test of one Link."""

    link_id: int
    ap_id: int
    length: timedelta
    sends: bool = True


Stage = Sequence[Part]  # they begin together


def stages_of(parts: Sequence[Part]) -> list[Stage]:
    """Each alone, then all together."""
    return [*([one] for one in parts), parts]


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
            slot = first_free(trial[part.ap_id], part.link_id, begins_at, part.length, now=now, sends=part.sends)
            trial[part.ap_id].append(_taken(part, slot))
            slots.append(slot)
        latest = max(one.begins_at for one in slots)
        if latest == begins_at:
            return slots
        begins_at = latest


def _taken(part: Part, slot: Slot) -> Taken:
    return Taken(part.link_id, slot.lane, slot.begins_at, slot.begins_at + part.length)
