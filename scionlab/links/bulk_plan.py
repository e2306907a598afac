"""What a bulk change makes of each Link: pure, so that the preview and the carrying out cannot differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from bandwidth_config import Limits, RuleError, check_bandwidth, check_change, format_kbit, format_number

MAX_PERCENT: Final = 10_000

Kind = Literal["set", "cap", "scale", "put_back"]
Direction = Literal["both", "to_user", "from_user"]
DIRECTIONS: Final[dict[str, str]] = {
    "both": "in both directions",
    "to_user": "to the user AS",
    "from_user": "from the user AS",
}

SAME, TOO_HIGH, CHANGED_SINCE = "same", "too_high", "changed_since"
SKIPPED: Final = {
    SAME: "already has this limit",
    TOO_HIGH: "would exceed the maximum",
    CHANGED_SINCE: "has been changed since",
}


@dataclass(frozen=True)
class Operation:
    """How a new limit follows from the old one. `value`: kbit/s, of "scale" per cent; of "put_back" it is not used."""

    kind: Kind
    value: int = 0
    direction: Direction = "both"

    def __post_init__(self) -> None:
        if self.kind == "scale" and not 0 <= self.value <= MAX_PERCENT:
            text = f"{self.value} % is not between 0 and {format_number(MAX_PERCENT)} %. Choose a number between them."
            raise RuleError("scale_range", text)
        if self.kind in {"set", "cap"}:
            check_bandwidth(self.value)

    def applied_to(self, old: Limits) -> Limits:
        """The new limits of a Link; the direction that is not meant keeps its own."""
        to_user, from_user = (self._one(one) for one in old)
        return Limits(
            old.to_user_kbit if self.direction == "from_user" else to_user,
            old.from_user_kbit if self.direction == "to_user" else from_user,
        )

    def _one(self, old: int) -> int:
        if self.kind == "set":
            return self.value
        if self.kind == "cap":
            return min(old, self.value)
        return scaled(old, self.value)

    @property
    def text(self) -> str:
        where = "" if self.direction == "both" else f" {DIRECTIONS[self.direction]}"
        words = {
            "set": f"Set to {format_kbit(self.value)}",
            "cap": f"Cap at {format_kbit(self.value)}",
            "scale": f"Scale to {format_number(self.value)} %",
            "put_back": "Undo",
        }
        return words[self.kind] + where


def scaled(kbit: int, percent: int) -> int:
    """The nearest kbit/s, a half rounded up; rounding alone blocks nobody."""
    found = (kbit * percent + 50) // 100
    return max(found, 1) if kbit and percent else found


@dataclass(frozen=True)
class Line:
    """One chosen Link: what its owner has asked for and what is enforced, before and after. `skipped`: why not."""

    link_id: int
    old: Limits
    new: Limits
    old_enforced: Limits
    new_enforced: Limits
    skipped: str = ""

    def stored(self) -> list[Any]:
        return [self.link_id, *self.old, *self.new, *self.old_enforced, *self.new_enforced, self.skipped]

    @classmethod
    def read(cls, stored: list[Any]) -> Self:
        link_id, *kbit, skipped = stored
        old, new, old_enforced, new_enforced = (Limits(*kbit[at : at + 2]) for at in (0, 2, 4, 6))
        return cls(link_id, old, new, old_enforced, new_enforced, skipped)

    @property
    def is_change(self) -> bool:
        return not self.skipped

    @property
    def why_skipped(self) -> str:
        return SKIPPED.get(self.skipped, self.skipped)


@dataclass(frozen=True)
class Present:
    """A Link as it is now. `maximum_kbit` is the default in force there; an inactive Link enforces nothing."""

    link_id: int
    requested: Limits
    maximum_kbit: int


def plan(links: Iterable[Present], operation: Operation, targets: Mapping[int, Line]) -> list[Line]:
    return [_line(link, operation, targets.get(link.link_id)) for link in links]


def _line(link: Present, operation: Operation, target: Line | None) -> Line:
    old, enforced = link.requested, link.requested.clamped(link.maximum_kbit)
    new = operation.applied_to(old) if target is None else target.old
    line = Line(link.link_id, old, new, enforced, new.clamped(link.maximum_kbit))
    skipped = ""
    if new == old:
        skipped = SAME
    elif target is not None and target.new != old:
        skipped = CHANGED_SINCE
    elif target is None and check_change(old, new, link.maximum_kbit):
        skipped = TOO_HIGH
    # What was clamped may be put back: nobody gets more than the maximum by it.
    return replace(line, skipped=skipped, new=old, new_enforced=enforced) if skipped else line


def differing(old: Iterable[Line], new: Iterable[Line]) -> list[int]:
    was, becomes = ({line.link_id: line for line in lines} for lines in (old, new))
    return sorted(pk for pk in was.keys() | becomes.keys() if was.get(pk) != becomes.get(pk))
