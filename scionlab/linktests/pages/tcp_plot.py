"""Plot of a TCP phase: the received rate of each connection per 250 ms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scionlab.enforcement.directions import DirectionName
from scionlab.linktests.sending_verdict import SendingVerdict
from scionlab.linktests.tcp_found import Moment, TcpFound
from scionlab.web.pages.plots import HEADROOM, HEIGHT, WIDTH


@dataclass(frozen=True)
class TcpPlot:
    """One direction; `lines` are SVG paths, one per connection; `rows` are its number and a moment."""

    key: DirectionName
    found: TcpFound
    top_kbit: float
    lines: list[str]

    @property
    def rows(self) -> list[tuple[int, Moment]]:
        return [(number, one) for number, moments in enumerate(self.found.connections, start=1) for one in moments]


def tcp_plots(verdict: SendingVerdict) -> list[TcpPlot]:
    """Both directions on one scale; none for other tools, or without a connection."""
    found = {side.direction: step.tcp for side in verdict.sides for step in side.steps if step.tcp is not None}
    several = [moments for one in found.values() for moments in one.connections]
    top = HEADROOM * max((one.kbit for moments in several for one in moments), default=1.0) or 1.0
    return [
        TcpPlot(name, one, top, [_line(moments, one.took_ms, top) for moments in one.connections])
        for name, one in found.items()
    ]


def _line(moments: Sequence[Moment], took_ms: int, top_kbit: float) -> str:
    """In steps: a rate is that since the previous moment."""
    path = ""
    for one in moments:
        y = f"{HEIGHT - HEIGHT * one.kbit / top_kbit:.1f}"
        path += f"{'V' if path else 'M0 '}{y}H{WIDTH * one.until_ms / took_ms:.1f}"
    return path
