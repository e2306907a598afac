"""Output for a terminal. Text of the service is shown without control characters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from scionlab_bw.units import format_bandwidth

STATES = ("failed", "no_report", "waiting", "delivered", "observed", "clamped", "blocked", "enforced", "inactive")


def state(status: dict[str, Any]) -> str:
    """The word for the state: its code, as the service sent it, with spaces."""
    found = str(status.get("state") or status["stage"])  # an older service has only the stage
    return found.replace("_", " ")


def clean(value: Any) -> str:
    """One line, printable."""
    text = "-" if value is None else str(value)
    return "".join(one if one.isprintable() else " " for one in text.replace("\N{NO-BREAK SPACE}", " "))


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> str:
    """Columns as wide as their content; `right` are those with numbers."""
    cells = [list(headers), *([clean(one) for one in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(headers))]
    lines = []
    for row in cells:
        padded = [
            one.rjust(width) if index in right else one.ljust(width)
            for index, (one, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def facts(rows: Sequence[tuple[str, Any]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {clean(value)}".rstrip() for name, value in rows)


def moment(text: str | None) -> str:
    """A time of the service in the zone of this machine."""
    return "-" if text is None else f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def limits(found: dict[str, Any] | None) -> str:
    """`500 kbit/s`, or both directions where they differ."""
    if found is None:
        return "-"
    to_user, from_user = found["to_user_kbit"], found["from_user_kbit"]
    if to_user == from_user:
        return format_bandwidth(to_user) + (" (blocked)" if to_user == 0 else "")
    return f"{format_bandwidth(to_user)} to the user AS, {format_bandwidth(from_user)} from it"
