"""A change in the history of a Link, and what another app draws of the minute around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scionlab.testbed.models import BandwidthChange, Link
from scionlab.web.pages.plots import UsagePlot


@dataclass(frozen=True)
class Line:
    """One direction of the minute; `words` describe the plot."""

    name: str
    plot: UsagePlot
    words: str


@dataclass(frozen=True)
class ChangeLine:
    """A change and its minute; no lines without measurements. `save_x` marks the save, `kernel_x` its confirmation by a
    receipt, `kernel_after_s` later; unknown for older changes."""

    change: BandwidthChange
    lines: list[Line] = field(default_factory=list)
    save_x: str = ""
    kernel_x: str = ""
    kernel_after_s: float | None = None


# Of another app, appended in `AppConfig.ready`: the same changes, with their minutes.
DRAWN: Final[list[Callable[[Link, Sequence[BandwidthChange]], list[ChangeLine]]]] = []


def change_lines(link: Link, changes: Iterable[BandwidthChange]) -> list[ChangeLine]:
    """In the order of the changes."""
    rows = list(changes)
    for draw in DRAWN:
        return draw(link, rows)
    return [ChangeLine(one) for one in rows]
