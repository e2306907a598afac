"""What a bulk change makes of each attachment point's default: pure, so that the preview and the carrying out cannot
differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from bandwidth_config import (
    MAX_BANDWIDTH_KBIT,
    RuleError,
    check_bandwidth,
    default_in_force,
    format_kbit,
    format_number,
)
from scionlab.links.bulk_plan import CHANGED_SINCE, MAX_PERCENT, SAME, TOO_HIGH, scaled

DefaultKind = Literal["set", "cap", "scale", "site", "put_back"]
SKIPPED: Final = {
    SAME: "already has this default",
    TOO_HIGH: f"would exceed {format_kbit(MAX_BANDWIDTH_KBIT)}",
    CHANGED_SINCE: "has been changed since",
}


@dataclass(frozen=True)
class DefaultOperation:
    """How a new default follows from the one in force. `value`: kbit/s, of "scale" per cent; "site" (the site's default
    applies again) and "put_back" do not use it."""

    kind: DefaultKind
    value: int = 0

    def __post_init__(self) -> None:
        if self.kind == "scale" and not 0 <= self.value <= MAX_PERCENT:
            text = f"{self.value} % is not between 0 and {format_number(MAX_PERCENT)} %. Choose a number between them."
            raise RuleError("scale_range", text)
        if self.kind in {"set", "cap"}:
            check_bandwidth(self.value)

    def applied_to(self, own_kbit: int | None, in_force_kbit: int) -> int | None:
        """The new default of its own; None: the site's counts."""
        match self.kind:
            case "set":
                return self.value
            case "cap":
                return own_kbit if in_force_kbit <= self.value else self.value
            case "scale":
                new = scaled(in_force_kbit, self.value)
                return own_kbit if new == in_force_kbit else new
            case _:
                return None

    @property
    def text(self) -> str:
        words = {
            "set": f"Defaults: set to {format_kbit(self.value)}",
            "cap": f"Defaults: cap at {format_kbit(self.value)}",
            "scale": f"Defaults: scale to {format_number(self.value)} %",
            "site": "Defaults: follow the site default",
            "put_back": "Defaults: undo",
        }
        return words[self.kind]


@dataclass(frozen=True)
class DefaultLine:
    """One chosen attachment point: its own default (None: the site's counts), and the one in force, before and after.
    `skipped`: why not."""

    ap_id: int
    old_kbit: int | None
    new_kbit: int | None
    old_maximum_kbit: int
    new_maximum_kbit: int
    skipped: str = ""

    def stored(self) -> list[Any]:
        return [
            self.ap_id,
            self.old_kbit,
            self.new_kbit,
            self.old_maximum_kbit,
            self.new_maximum_kbit,
            self.skipped,
        ]

    @classmethod
    def read(cls, stored: list[Any]) -> Self:
        return cls(*stored)

    @property
    def is_change(self) -> bool:
        return not self.skipped

    @property
    def why_skipped(self) -> str:
        return SKIPPED.get(self.skipped, self.skipped)


def plan_defaults(
    own: Mapping[int, int | None], site_kbit: int, operation: DefaultOperation, targets: Mapping[int, DefaultLine]
) -> list[DefaultLine]:
    """`own`: the default of each attachment point's own. `targets`: what a change did that is to be put back."""
    return [_line(ap_id, kbit, site_kbit, operation, targets.get(ap_id)) for ap_id, kbit in sorted(own.items())]


def _line(
    ap_id: int, own_kbit: int | None, site_kbit: int, operation: DefaultOperation, target: DefaultLine | None
) -> DefaultLine:
    maximum = default_in_force(site_kbit, own_kbit)
    new = operation.applied_to(own_kbit, maximum) if target is None else target.old_kbit
    line = DefaultLine(ap_id, own_kbit, new, maximum, default_in_force(site_kbit, new))
    if new == own_kbit:
        return replace(line, skipped=SAME)
    if target is not None and target.new_kbit != own_kbit:
        return replace(line, skipped=CHANGED_SINCE, new_kbit=own_kbit, new_maximum_kbit=maximum)
    if new is not None and new > MAX_BANDWIDTH_KBIT:
        return replace(line, skipped=TOO_HIGH, new_kbit=own_kbit, new_maximum_kbit=maximum)
    return line


def differing_defaults(old: Iterable[DefaultLine], new: Iterable[DefaultLine]) -> list[int]:
    was, becomes = ({line.ap_id: line for line in lines} for lines in (old, new))
    return sorted(pk for pk in was.keys() | becomes.keys() if was.get(pk) != becomes.get(pk))
