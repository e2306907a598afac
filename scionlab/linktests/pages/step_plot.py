"""Phases of one direction side by side, by size of packets or rate sent: what arrived of each, as in figures 6.1, 6.2
and 6.6 to 6.8 of the thesis."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bandwidth_config import format_kbit, format_number
from scionlab.enforcement.directions import DirectionName
from scionlab.linktests.sending_steps import Step
from scionlab.linktests.sending_verdict import SendingVerdict
from scionlab.web.pages.plots import Slot, UsagePlot, scale_of, usage_plot


@dataclass(frozen=True)
class StepPlot:
    """`by`: how the phases differ, `names`: the value of each. Red marks: a second without a complete packet."""

    key: DirectionName
    by: str
    words: str
    plot: UsagePlot
    names: list[str]


def step_plots(verdict: SendingVerdict, begins_at: datetime) -> dict[DirectionName, StepPlot]:
    """By direction, on one scale; none for tools with one phase per direction."""
    slots = {side.direction: [_slot(one, begins_at) for one in side.steps] for side in verdict.sides}
    top = scale_of(list(slots.values()))
    return {
        side.direction: _plot(side.direction, side.steps, usage_plot(slots[side.direction], top_kbit=top))
        for side in verdict.sides
        if len(side.steps) > 1
    }


def _slot(step: Step, begins_at: datetime) -> Slot:
    """A phase as a slot of the plot; its width is not a time."""
    limit = max(step.limits_kbit, default=None)
    arrived = None if step.is_contradicted else step.received_kbit
    return Slot(begins_at, arrived, limit, bytes=0, drops=step.silent_s or 0, at_limit_s=0.0, covered_s=1.0)


def _plot(key: DirectionName, steps: tuple[Step, ...], plot: UsagePlot) -> StepPlot:
    is_by_size = len({one.payload_bytes for one in steps}) > 1
    names = [
        f"{format_number(one.payload_bytes)} bytes" if is_by_size else format_kbit(one.planned_kbit) for one in steps
    ]
    silent = [f"{one.silent_s} s at {name}" for one, name in zip(steps, names, strict=True) if one.silent_s]
    words = f"No complete packet arrived for {', '.join(silent)}." if silent else "Packets arrived in every second."
    if any(one.silent_s is None for one in steps):
        words = "The rate of arrival is not known for every phase."
    by = "the size of packets (payload)" if is_by_size else "the rate that was sent"
    return StepPlot(key, by, words, plot, names)
