"""Profiles: limits over time, relative to their start. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bandwidth_config import Limits, LinkStep, RuleError, check_limits, format_number
from contract.link_rules import MAX_STEPS, check_steps

Kind = Literal["constant", "stair", "square", "outage"]


@dataclass(frozen=True)
class Profile:
    """Limits from second 0 until `duration_s`, when the Link's own limits apply again. The kinds are named as in the
    API."""

    kind: Kind
    steps: tuple[LinkStep, ...]
    duration_s: int


def constant(limits: Limits, duration_s: int) -> Profile:
    """The same limits all the time. All profiles raise `RuleError` (`bandwidth_negative`, `bandwidth_too_high`,
    `timed_steps`, `timed_step_short`, `timed_long`)."""
    return _profile("constant", [limits], duration_s)


def outage(duration_s: int) -> Profile:
    return _profile("outage", [Limits.both(0)], duration_s)


def stair(start: Limits, end: Limits, count: int, step_s: int) -> Profile:
    """`count` steps of `step_s` each, from `start` to `end` inclusive, as even as whole kbit/s allow."""
    if count < 2:
        raise RuleError(
            "timed_steps", f"A staircase cannot have {format_number(count)} steps. Choose 2 to {MAX_STEPS}."
        )
    _check_count(count)
    for limits in (start, end):
        check_limits(limits)  # before the division, which fails above 2^1024
    last = count - 1
    levels = [
        Limits(*(round((a * (last - index) + b * index) / last) for a, b in zip(start, end, strict=True)))
        for index in range(count)
    ]
    return _profile("stair", levels, step_s)


def square_wave(low: Limits, high: Limits, half_period_s: int, cycles: int) -> Profile:
    """`cycles` times `low` and then `high`, each for `half_period_s`."""
    if cycles < 1:
        raise RuleError(
            "timed_steps",
            f"A square wave cannot have {format_number(cycles)} cycles. Choose 1 to {MAX_STEPS // 2}, of two "
            "steps each.",
        )
    _check_count(2 * cycles)
    return _profile("square", [low, high] * cycles, half_period_s)


def _check_count(count: int) -> None:
    """Check before a list of that length is created."""
    if count > MAX_STEPS:
        raise RuleError(
            "timed_steps",
            f"{format_number(count)} steps are above the limit of {MAX_STEPS} per temporary limit. Choose fewer, "
            "longer steps.",
        )


def _profile(kind: Kind, levels: Sequence[Limits], step_s: int) -> Profile:
    for limits in levels:
        check_limits(limits)
    steps = tuple(LinkStep(index * step_s, limits) for index, limits in enumerate(levels))
    check_steps(steps, len(levels) * step_s)
    return Profile(kind, steps, len(levels) * step_s)
