"""The effect of a bulk change on each Link or default: pure, so that preview and application cannot differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from bandwidth_config import (
    MAX_BANDWIDTH_KBIT,
    Limits,
    RuleError,
    check_bandwidth,
    check_change,
    default_in_force,
    format_kbit,
    format_number,
)

MAX_PERCENT: Final = 10_000
SITE: Final = 0  # the site default, among keys of attachment points

Kind = Literal["set", "cap", "scale", "site", "put_back"]
Direction = Literal["both", "to_user", "from_user"]
DIRECTIONS: Final[dict[str, str]] = {
    "both": "in both directions",
    "to_user": "to the user AS",
    "from_user": "from the user AS",
}
SAME, TOO_HIGH, CHANGED_SINCE = "same", "too_high", "changed_since"

Value = TypeVar("Value")
InForce = TypeVar("InForce")


@dataclass(frozen=True)
class Operation:
    """How a new number follows from the old one. `value`: kbit/s, for "scale" per cent; not used by "put_back" and
    "site" (follow the site default). `direction` applies to limits."""

    kind: Kind
    value: int = 0
    direction: Direction = "both"

    def __post_init__(self) -> None:
        if self.kind == "scale" and not 0 <= self.value <= MAX_PERCENT:
            text = f"{self.value} % is not between 0 and {format_number(MAX_PERCENT)} %. Choose a number between them."
            raise RuleError("scale_range", text)
        if self.kind in {"set", "cap"}:
            check_bandwidth(self.value)

    def of_kbit(self, old: int) -> int:
        """Apply set, cap or scale to one number; scaling rounds half up to kbit/s, but never to 0."""
        if self.kind == "set":
            return self.value
        if self.kind == "cap":
            return min(old, self.value)
        found = (old * self.value + 50) // 100
        return max(found, 1) if old and self.value else found

    @property
    def text(self) -> str:
        where = "" if self.direction == "both" else f" {DIRECTIONS[self.direction]}"
        words = {
            "set": f"Set to {format_kbit(self.value)}",
            "cap": f"Cap at {format_kbit(self.value)}",
            "scale": f"Scale to {format_number(self.value)} %",
            "site": "Follow the site default",
            "put_back": "Undo",
        }
        return words[self.kind] + where


@dataclass(frozen=True)
class Line(Generic[Value, InForce]):
    """One Link or default before and after. `skipped`: why it does not change. For a Link: requested and enforced
    limits. For an attachment point: its own default (None: follows the site) and the default in force. For the site
    both are its default."""

    key: int
    old: Value
    new: Value
    old_in_force: InForce
    new_in_force: InForce
    skipped: str = ""

    def stored(self) -> list[Any]:
        values: list[Any] = []
        for one in (self.old, self.new, self.old_in_force, self.new_in_force):
            values += one if isinstance(one, Limits) else [one]
        return [self.key, *values, self.skipped]

    @property
    def is_change(self) -> bool:
        return not self.skipped


LimitsLine = Line[Limits, Limits]
DefaultLine = Line[int | None, int]


def read_line(stored: list[Any]) -> Line[Any, Any]:
    """Inverse of `Line.stored`."""
    key, *values, skipped = stored
    if len(values) > 4:  # limits, two numbers each
        values = [Limits(*values[at : at + 2]) for at in (0, 2, 4, 6)]
    old, new, old_in_force, new_in_force = values
    return Line(key, old, new, old_in_force, new_in_force, skipped)


@dataclass(frozen=True)
class Present(ABC, Generic[Value, InForce]):
    """The present value of a Link or a default."""

    key: int
    value: Value

    @abstractmethod
    def changed(self, operation: Operation) -> Value:
        """Result of set, cap, scale and site."""

    @abstractmethod
    def in_force(self, value: Value) -> InForce:
        """What is in force if `value` is stored."""

    @abstractmethod
    def is_too_high(self, new: Value) -> bool: ...


@dataclass(frozen=True)
class PresentLimits(Present[Limits, Limits]):
    maximum_kbit: int  # the default in force at the Link's attachment point, or an exception above it

    def changed(self, operation: Operation) -> Limits:
        to_user, from_user = (operation.of_kbit(one) for one in self.value)
        return Limits(
            self.value.to_user_kbit if operation.direction == "from_user" else to_user,
            self.value.from_user_kbit if operation.direction == "to_user" else from_user,
        )

    def in_force(self, value: Limits) -> Limits:
        return value.clamped(self.maximum_kbit)

    def is_too_high(self, new: Limits) -> bool:
        return bool(check_change(self.value, new, self.maximum_kbit))


@dataclass(frozen=True)
class PresentDefault(Present[int | None, int]):
    """The default of an attachment point (None: follows the site) or of the site."""

    site_kbit: int

    def changed(self, operation: Operation) -> int | None:
        if operation.kind == "site":
            return self.value if self.key == SITE else None
        old = self.in_force(self.value)
        new = operation.of_kbit(old)
        return new if operation.kind == "set" or new != old else self.value

    def in_force(self, value: int | None) -> int:
        return default_in_force(self.site_kbit, value)

    def is_too_high(self, new: int | None) -> bool:
        return new is not None and new > MAX_BANDWIDTH_KBIT


def plan(
    present: Iterable[Present[Value, InForce]], operation: Operation, targets: Mapping[int, Line[Value, InForce]]
) -> list[Line[Value, InForce]]:
    """Return a line for each. `targets`: values to restore."""
    return [_line(one, operation, targets.get(one.key)) for one in present]


def _line(
    present: Present[Value, InForce], operation: Operation, target: Line[Value, InForce] | None
) -> Line[Value, InForce]:
    old = present.value
    new = present.changed(operation) if target is None else target.old
    skipped = ""
    if new == old:
        skipped = SAME
    elif target is not None and target.new != old:
        skipped = CHANGED_SINCE
    elif target is None and present.is_too_high(new):
        skipped = TOO_HIGH
    # Clamped requests may be restored: the maximum still applies.
    new = old if skipped else new
    return Line(present.key, old, new, present.in_force(old), present.in_force(new), skipped)


def plan_defaults(
    keys: Collection[int],
    own: Mapping[int, int | None],
    site_kbit: int,
    operation: Operation,
    targets: Mapping[int, DefaultLine],
) -> list[DefaultLine]:
    """Lines for the attachment points `keys`, or for `SITE` and all that follow it. `own`: own default of each
    attachment point."""
    if SITE not in keys:
        present = [PresentDefault(key, own[key], site_kbit) for key in sorted(keys) if key in own]
        return plan(present, operation, targets)
    (site,) = plan([PresentDefault(SITE, site_kbit, site_kbit)], operation, targets)
    followers = sorted(key for key, kbit in own.items() if kbit is None and site.is_change)
    return [site, *(DefaultLine(key, None, None, site.old_in_force, site.new_in_force) for key in followers)]


def differing(old: Iterable[Line[Any, Any]], new: Iterable[Line[Any, Any]]) -> list[int]:
    """Keys whose lines differ."""
    was, becomes = ({line.key: line for line in lines} for lines in (old, new))
    return sorted(key for key in was.keys() | becomes.keys() if was.get(key) != becomes.get(key))
