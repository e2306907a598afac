"""Text for a terminal, as all our commands print it: printable, in columns, within its width. Standard library only."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

_BROKEN = 8  # least width of a column whose words are broken
_NO_BREAK = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line


def clean(value: object) -> str:
    """One line, printable: text of others must not steer the terminal."""
    return _printable(value).replace(_NO_BREAK, " ")


def _printable(value: object) -> str:
    text = "-" if value is None else str(value)
    return "".join(one if one.isprintable() or one == _NO_BREAK else " " for one in text)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = ()) -> str:
    """Columns as wide as their content; those with a header in `right` are numeric. On a terminal the widest of the
    others are wrapped so that the table fits, and long words of them are broken if nothing else helps."""
    cells = [list(headers), *([_printable(one) for one in row] for row in rows)]
    is_right = [header in right for header in headers]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    least = [_least(column, number) for column, number in zip(zip(*cells, strict=True), is_right, strict=True)]
    room = columns() or sys.maxsize
    _narrow(widths, least, room)
    _narrow(widths, [one if number else min(one, _BROKEN) for one, number in zip(least, is_right, strict=True)], room)
    lines = []
    for row in cells:
        wrapped = [textwrap.wrap(one, max(1, width)) for one, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            sides = zip(parts, widths, is_right, strict=True)
            padded = [one.rjust(width) if number else one.ljust(width) for one, width, number in sides]
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines).replace(_NO_BREAK, " ")


def _least(column: Sequence[str], is_number: bool) -> int:
    """Width of the longest part that is not wrapped: of a word, or a number with its unit."""
    header, *rest = column
    parts = [*header.split(), *(part for cell in rest for part in ([cell] if is_number else cell.split(" ")))]
    return max(map(len, parts), default=0)


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    too_wide = sum(widths) + 2 * (len(widths) - 1) - room
    while too_wide > 0:
        slack, index = max((widths[one] - least[one], one) for one in range(len(widths)))
        if slack == 0:
            return
        cut = min(slack, too_wide, max(1, slack // 2))
        widths[index], too_wide = widths[index] - cut, too_wide - cut


def columns() -> int | None:
    """Of the terminal; None if the output goes elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return None
