"""Free times for tests: of the Link, the attachment point, and its lanes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from bandwidth_config import time_text
from contract.link_tests import ARMED_AHEAD_S, MAX_WATCHES_AT_ONCE, TEST_LANES
from scionlab.linktests.models import LinkTest
from scionlab.linktests.test_hours import Hours, next_begin, say_hours
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.models import AttachmentPoint

# The sending process opens its port as soon as the test is armed, and keeps it for up to a second after the end.
LANE_AHEAD: Final = timedelta(seconds=ARMED_AHEAD_S)
LANE_REST: Final = timedelta(seconds=2)
_SECOND: Final = timedelta(seconds=1)


class SlotTakenError(FieldRuleError):
    """Another test is reserved then; `next_free_at` is the first free start."""

    def __init__(self, duration_s: int, next_free_at: datetime) -> None:
        message = (
            f"Another test is scheduled at that time. The next free {duration_s} s begin at {say_time(next_free_at)}."
        )
        super().__init__("test_slot_taken", message, "begins_at")
        self.next_free_at = next_free_at
        self.more = {"next_free_at": time_text(next_free_at)}


class HoursError(FieldRuleError):
    """Outside the person's hours; `next_allowed_at` is the first start within them."""

    def __init__(self, hours: Sequence[Hours], next_allowed_at: datetime | None, duration_s: int) -> None:
        if next_allowed_at is None:
            rest = f"A test of {duration_s} s does not fit into that. Choose a shorter one."
        else:
            rest = f"Such a test of {duration_s} s may begin at {say_time(next_allowed_at)}."
        super().__init__("test_hours", f"You may test from {say_hours(hours)}. {rest}", "begins_at")
        self.more = {} if next_allowed_at is None else {"next_allowed_at": time_text(next_allowed_at)}


def check_hours(hours: Sequence[Hours], begins_at: datetime, length: timedelta) -> None:
    """Raises `HoursError`."""
    allowed_at = next_begin(hours, begins_at, length)
    if allowed_at != begins_at:
        raise HoursError(hours, allowed_at, length // _SECOND)


class Slot(NamedTuple):
    """`lane` is None for a watch."""

    begins_at: datetime
    lane: int | None


class Taken(NamedTuple):
    """A reserved time at an attachment point."""

    link_id: int
    lane: int | None
    begins_at: datetime
    ends_at: datetime


def reserved(ap: AttachmentPoint) -> Any:
    """Everything in the document of the attachment point."""
    return LinkTest.objects.filter(link__interface_a__host=ap.host_id, cancelled_at=None, retired_at=None)


def taken_at(ap: AttachmentPoint, now: datetime) -> list[Taken]:
    """Reserved times there from now on."""
    rows = reserved(ap).filter(ends_at__gt=now - LANE_REST)
    return [Taken(*row) for row in rows.values_list("link_id", "lane", "begins_at", "ends_at")]


def first_free(
    taken: Collection[Taken],
    link_id: int,
    begins_at: datetime,
    length: timedelta,
    *,
    now: datetime,
    sends: bool,
) -> Slot:
    """First start, from `begins_at` on, at which the Link has no other test and its attachment point, with `taken`
    reserved, has room for another; for a test that sends also a lane."""
    while True:
        ends_at = begins_at + length
        beside = [one for one in taken if one.begins_at < ends_at and one.ends_at > begins_at]
        own = [one.ends_at for one in beside if one.link_id == link_id]
        if own:
            begins_at = max(own)
        elif len(beside) >= MAX_WATCHES_AT_ONCE:
            begins_at = min(one.ends_at for one in beside)
        elif not sends:
            return Slot(begins_at, None)
        else:
            held_from = max(now, begins_at - LANE_AHEAD)
            held = [
                (one.lane, one.ends_at + LANE_REST)
                for one in taken
                if one.lane is not None
                and one.begins_at - LANE_AHEAD < ends_at + LANE_REST
                and one.ends_at + LANE_REST > held_from
            ]
            free = set(range(TEST_LANES)) - {lane for lane, _ in held}
            if free:
                return Slot(begins_at, min(free))
            begins_at = max(begins_at + _SECOND, min(end for _, end in held) + LANE_AHEAD)
