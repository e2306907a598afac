"""The effect of an operation on the defaults of attachment points or the site: pure, so that preview and application
cannot differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal

from bandwidth_config import (
    MAX_BANDWIDTH_KBIT,
    RuleError,
    check_bandwidth,
    default_in_force,
    format_kbit,
    format_number,
)

MAX_PERCENT: Final = 10_000
SITE: Final = 0  # the site default, among keys of attachment points

Kind = Literal["set", "cap", "scale", "site", "put_back"]
SAME, TOO_HIGH, CHANGED_SINCE = "same", "too_high", "changed_since"
SKIPPED: Final[Mapping[str, str]] = {
    SAME: "already has this default",
    TOO_HIGH: f"would exceed {format_kbit(MAX_BANDWIDTH_KBIT)}",
    CHANGED_SINCE: "has been changed since",
}


@dataclass(frozen=True)
class Operation:
    """How a new default follows from the old one. `value`: kbit/s, for "scale" per cent; not used by "put_back" and
    "site" (follow the site default)."""

    kind: Kind
    value: int = 0

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
        words = {
            "set": f"set to {format_kbit(self.value)}",
            "cap": f"cap at {format_kbit(self.value)}",
            "scale": f"scale to {format_number(self.value)} %",
            "site": "follow the site default",
            "put_back": "undo",
        }
        return words[self.kind]


@dataclass(frozen=True)
class Line:
    """One default before and after, and the defaults in force [kbit/s]. None: an attachment point follows the site.
    `skipped`: why it does not change (`SKIPPED`)."""

    key: int
    old: int | None
    new: int | None
    old_in_force: int
    new_in_force: int
    skipped: str = ""

    def stored(self) -> list[Any]:
        """`Line(*stored)` is its inverse."""
        return list(astuple(self))

    @property
    def is_change(self) -> bool:
        return not self.skipped


def plan(
    keys: Collection[int],
    own: Mapping[int, int | None],
    site_kbit: int,
    operation: Operation,
    targets: Mapping[int, Line],
) -> list[Line]:
    """Lines for the attachment points `keys`, or for `SITE` and all that follow it. `own`: own default of each
    attachment point; `targets`: the lines to undo."""
    if SITE not in keys:
        return [
            _line(key, own[key], site_kbit, operation=operation, target=targets.get(key))
            for key in sorted(keys)
            if key in own
        ]
    site = _line(SITE, site_kbit, site_kbit, operation=operation, target=targets.get(SITE))
    followers = sorted(key for key, kbit in own.items() if kbit is None and site.is_change)
    return [site, *(Line(key, None, None, site.old_in_force, site.new_in_force) for key in followers)]


def _line(key: int, old: int | None, site_kbit: int, *, operation: Operation, target: Line | None) -> Line:
    new = _changed(key, old, site_kbit, operation) if target is None else target.old
    skipped = ""
    if new == old:
        skipped = SAME
    elif target is not None and target.new != old:
        skipped = CHANGED_SINCE
    elif new is not None and new > MAX_BANDWIDTH_KBIT:
        skipped = TOO_HIGH
    new = old if skipped else new
    return Line(key, old, new, default_in_force(site_kbit, old), default_in_force(site_kbit, new), skipped)


def _changed(key: int, old: int | None, site_kbit: int, operation: Operation) -> int | None:
    """Result of set, cap, scale and site."""
    if operation.kind == "site":
        return old if key == SITE else None
    in_force = default_in_force(site_kbit, old)
    new = operation.of_kbit(in_force)
    return new if operation.kind == "set" or new != in_force else old


def differing(old: Iterable[Line], new: Iterable[Line]) -> list[int]:
    """Keys whose lines differ."""
    was, becomes = ({line.key: line for line in lines} for lines in (old, new))
    return sorted(key for key in was.keys() | becomes.keys() if was.get(key) != becomes.get(key))
