"""The tools that send: question, parameters, and phases.

Texts and bounds of a tool are in `tools/NAME.toml`; form, API, validation and documentation are generated from it. A
tool is `TOOLS[name]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bandwidth_config import RuleError
from station.plan import (
    BOTH,
    ECHO,
    FROM_USER,
    FULL_PAYLOAD_BYTES,
    MAX_KBIT,
    MAX_TOTAL_S,
    MTU,
    SEGMENT_BYTES,
    STREAM,
    TCP,
    TO_USER,
    Phase,
    total_s,
)

_PROBES, _PROBE_BYTES, _PROBE_EVERY_MS, _PROBE_KBIT = 20, 48, 100, 16
_SEARCH_KBIT, _SEARCH_MIN_KBIT = 200, 16  # a packet of 1500 bytes takes 60 ms at the one, 0.8 s at the other
_SEARCH_PROBES = 16  # of the longest search; each waits for 0.25 s plus twice the time of a packet (rounds)

_TCP_PERCENT = 125  # of the limit: upper bound for TCP's rate, so that the limit decides, including retransmissions

Limits = tuple[int, int]  # kbit/s to the user AS, from the user AS


@dataclass(frozen=True, slots=True)
class Parameter:
    """A whole number from `low` to `high`."""

    name: str
    label: str
    unit: str
    default: int
    low: int
    high: int

    def read(self, value: object) -> int:
        """Raises `RuleError` (`test_parameter`)."""
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return value
        raise RuleError(
            "test_parameter",
            f'"{self.name}" is {value!r:.40}. Choose a whole number from {self.low} to {self.high} {self.unit}.',
        )


@dataclass(frozen=True, slots=True)
class Tool:
    """One kind of test. `question`: what it answers; `kind`: as in the signed document."""

    name: str
    title: str
    question: str
    kind: str
    parameters: tuple[Parameter, ...]

    def read(self, given: Mapping[str, object]) -> dict[str, int]:
        """Parameters with defaults. Raises `RuleError` (`test_parameter`)."""
        names = [one.name for one in self.parameters]
        if unknown := sorted(set(given) - set(names)):
            known = f"It has {', '.join(names)}." if names else "It has none."
            raise RuleError("test_parameter", f'"{unknown[0]!s:.40}" is not a parameter of {self.name}. {known}')
        read = {one.name: one.read(given.get(one.name, one.default)) for one in self.parameters}
        for low, high in (("from_bytes", "to_bytes"), ("from_percent", "to_percent")):
            if low in read and read[low] >= read[high]:
                raise RuleError(
                    "test_parameter",
                    f'"{low}" is {read[low]}, which is not below "{high}", {read[high]}. Choose a lower one.',
                )
        return read

    def phases(self, parameters: Mapping[str, int], to_user_kbit: int, from_user_kbit: int) -> tuple[Phase, ...]:
        """Phases for a Link with these limits; `parameters` as `read` returns them. Raises `RuleError`: `test_blocked`
        if a direction is blocked, `test_parameter` if it takes too long or has too many packets."""
        if min(to_user_kbit, from_user_kbit) < 1:
            raise RuleError(
                "test_blocked", "This link is blocked in a direction. Set a limit above 0, and test it then."
            )
        try:
            phases = _PLANS[self.name](parameters, (to_user_kbit, from_user_kbit))
        except ValueError as exc:
            raise RuleError("test_parameter", f"{self.title}: {exc}.") from exc
        if (needs_s := total_s(phases)) > MAX_TOTAL_S:
            raise RuleError(
                "test_parameter",
                f"At this limit the test takes {needs_s} s, more than {MAX_TOTAL_S} s. Choose fewer steps or seconds.",
            )
        return phases


def _reach(_parameters: Mapping[str, int], limits: Limits) -> tuple[Phase, ...]:
    search_kbit = max(_SEARCH_MIN_KBIT, min(*limits, _SEARCH_KBIT))
    search_ms = _SEARCH_PROBES * (250 + 2 * 1514 * 8 // search_kbit)
    return (
        Phase(0, ECHO, BOTH, _PROBE_KBIT, _PROBE_BYTES, _PROBES * _PROBE_EVERY_MS, _PROBES),
        Phase(1, MTU, BOTH, search_kbit, FULL_PAYLOAD_BYTES, search_ms, 0),
    )


def _quick(parameters: Mapping[str, int], limits: Limits) -> tuple[Phase, ...]:
    return _streams([(parameters["percent"], parameters["payload_bytes"])], parameters["seconds"], limits)


def _sizes(parameters: Mapping[str, int], limits: Limits) -> tuple[Phase, ...]:
    sizes = _spread(parameters["from_bytes"], parameters["to_bytes"], parameters["steps"])
    return _streams([(parameters["percent"], one) for one in sizes], parameters["seconds"], limits)


def _rates(parameters: Mapping[str, int], limits: Limits) -> tuple[Phase, ...]:
    shares = _spread(parameters["from_percent"], parameters["to_percent"], parameters["steps"])
    return _streams([(one, parameters["payload_bytes"]) for one in shares], parameters["seconds"], limits)


def _tcp(parameters: Mapping[str, int], limits: Limits) -> tuple[Phase, ...]:
    duration_ms, flows = parameters["seconds"] * 1000, parameters["flows"]
    rates = [min(MAX_KBIT, max(1, limit_kbit * _TCP_PERCENT // 100)) for limit_kbit in limits]
    return tuple(
        Phase(number, TCP, direction, kbit, SEGMENT_BYTES, duration_ms, flows)
        for number, (direction, kbit) in enumerate(zip((TO_USER, FROM_USER), rates, strict=True))
    )


def _streams(steps: list[tuple[int, int]], seconds: int, limits: Limits) -> tuple[Phase, ...]:
    """All steps (percent of the limit, payload) to the user AS, then all from it."""
    found: list[Phase] = []
    for direction, limit_kbit in zip((TO_USER, FROM_USER), limits, strict=True):
        for percent, payload_bytes in steps:
            kbit = min(MAX_KBIT, max(1, limit_kbit * percent // 100))
            found.append(Phase(len(found), STREAM, direction, kbit, payload_bytes, seconds * 1000, 0))
    return tuple(found)


def _spread(low: int, high: int, steps: int) -> list[int]:
    """`steps` evenly spaced numbers from low to high."""
    return [low + (high - low) * step // (steps - 1) for step in range(steps)]


_PLANS: Mapping[str, Callable[[Mapping[str, int], Limits], tuple[Phase, ...]]] = {
    "reach": _reach,
    "quick": _quick,
    "sizes": _sizes,
    "rates": _rates,
    "tcp": _tcp,
}


def _read(name: str) -> Tool:
    words = tomllib.loads((Path(__file__).parent / "tools" / f"{name}.toml").read_text(encoding="utf-8"))
    parameters = tuple(Parameter(key, **value) for key, value in words.get("parameters", {}).items())
    return Tool(name, words["title"], words["question"], words.get("kind", "udp"), parameters)


TOOLS: Mapping[str, Tool] = {name: _read(name) for name in _PLANS}
