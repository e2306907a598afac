"""The tools that send: what a test costs at most, and what a wrong value is told."""

from __future__ import annotations

from itertools import product

import pytest

from bandwidth_config import RuleError
from measuring.framing import wire_bytes
from station.plan import (
    MAX_PAYLOAD_BYTES,
    MIN_PAYLOAD_BYTES,
    Phase,
    ap_bytes,
    ap_kbit,
    frame_bytes,
    from_json,
    read_phases,
    total_s,
)
from station.tools import TOOLS, Tool

LIMITS = (100, 500, 10_000, 100_000, 1_000_000)
STREAM = Phase(0, "stream", "to_user", 750, 1452, 5000, 0)


def extremes(tool: Tool) -> list[dict[str, int]]:
    """Every combination of lowest, default and highest values that the tool accepts."""
    found = []
    for values in product(*((one.low, one.default, one.high) for one in tool.parameters)):
        given = dict(zip((one.name for one in tool.parameters), values, strict=True))
        try:
            found.append(tool.read(given))
        except RuleError:  # the lowest value is above the highest one
            continue
    return found


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_no_parameters_make_a_test_that_breaks_a_cap(tool: Tool) -> None:
    """60 s, 1 Gbit/s; 2 GB up to a limit of 50 Mbit/s (the rules refuse more)."""
    for limit_kbit, parameters in product(LIMITS, extremes(tool)):
        try:
            phases = tool.phases(parameters, limit_kbit, limit_kbit)
        except RuleError:
            assert parameters != tool.read({})
            continue
        assert total_s(phases) <= 60, (limit_kbit, parameters)
        assert ap_kbit(phases) <= 1_000_000
        assert limit_kbit > 50_000 or ap_bytes(phases) <= 2_000_000_000
        assert read_phases([one.to_json() for one in phases]) == phases


def test_reach_sends_at_most_40_kb_in_all() -> None:
    for limit_kbit in LIMITS:
        assert 2 * ap_bytes(TOOLS["reach"].phases({}, limit_kbit, limit_kbit)) <= 40_000


def test_quick_sends_half_as_much_again_as_the_limit_of_each_direction() -> None:
    tool = TOOLS["quick"]
    assert tool.phases(tool.read({}), 500, 2000) == (
        Phase(0, "stream", "to_user", 750, 1452, 5000, 0),
        Phase(1, "stream", "from_user", 3000, 1452, 5000, 0),
    )


def test_tcp_is_given_a_quarter_more_than_the_limit_and_at_most_what_any_test_may_send() -> None:
    """Bytes with those sent again: 625 kbit/s for 10 s."""
    tool = TOOLS["tcp"]
    phases = tool.phases(tool.read({"flows": 2}), 500, 900_000)
    assert phases == (
        Phase(0, "tcp", "to_user", 625, 1448, 10_000, 2),
        Phase(1, "tcp", "from_user", 1_000_000, 1448, 10_000, 2),
    )
    assert (ap_bytes(phases), ap_kbit(phases)) == (781_250, 625)


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("tcp", {"flows": 3}, '"flows" is 3. Choose a whole number from 1 to 2 connections.'),
        ("quick", {"seconds": 21}, '"seconds" is 21. Choose a whole number from 3 to 20 s.'),
        ("quick", {"seconds": True}, '"seconds" is True. Choose a whole number from 3 to 20 s.'),
        ("quick", {"rate": 5}, '"rate" is not a parameter of quick. It has seconds, percent, payload_bytes.'),
        (
            "sizes",
            {"from_bytes": 5000, "to_bytes": 5000},
            '"from_bytes" is 5000, which is not below "to_bytes", 5000. Choose a lower one.',
        ),
    ],
)
def test_a_wrong_parameter_is_told_its_bounds(tool: str, given: dict[str, object], words: str) -> None:
    with pytest.raises(RuleError) as caught:
        TOOLS[tool].read(given)
    assert (caught.value.code, caught.value.message) == ("test_parameter", words)


def test_a_blocked_link_and_too_many_packets_are_refused_with_a_remedy() -> None:
    quick = TOOLS["quick"]
    with pytest.raises(RuleError, match="Set a limit above 0") as caught:
        quick.phases(quick.read({}), 0, 500)
    assert caught.value.code == "test_blocked"
    with pytest.raises(RuleError, match=r"takes 70 s, more than 60 s\. Choose fewer steps"):
        TOOLS["sizes"].phases(TOOLS["sizes"].read({"percent": 100, "steps": 5, "seconds": 2}), 32, 32)
    with pytest.raises(RuleError, match="choose larger packets") as caught:
        quick.phases(quick.read({"payload_bytes": 64, "seconds": 20}), 1_000_000, 1_000_000)
    assert caught.value.code == "test_parameter"


@pytest.mark.parametrize("version", [4, 6])
def test_a_frame_costs_what_the_measuring_library_says(version: int) -> None:
    for payload_bytes in range(MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES + 1):
        assert frame_bytes(payload_bytes, version) == wire_bytes(payload_bytes, family=version)
    assert frame_bytes(1452, version, is_vpn=True) == frame_bytes(1452, version) - 14
    assert frame_bytes(10_000, version, is_vpn=True) == frame_bytes(10_000, version) - 7 * 14


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kind": "flood"}, "kind is 'flood' and not one of echo, stream, mtu, tcp"),
        ({"direction": "both"}, "direction is 'both' and not one of to_user, from_user"),
        ({"kbit": 0}, "kbit is 0 and not a whole number from 1 to 1000000"),
        ({"count": 1}, "count is 1 and not"),
        ({"number": None}, "number is None and not"),
        ({"more": 1}, "is not an object with exactly number, kind"),
    ],
)
def test_a_phase_that_is_none_names_its_place(changed: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=r"phase\[3\]") as caught:
        from_json({**STREAM.to_json(), **changed}, "phase[3]")
    assert words in str(caught.value)
