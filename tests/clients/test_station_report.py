"""Reports of the ends of a test: what is read back, and what a wrong one is told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from station.report import PhaseReport, Report, read_report

STREAM = PhaseReport(
    0, "stream", "to_user", 750, 1452, 1_795_473_861_225, 314, 455_928, 0, 0, 0, 0, ((63, 91_476, 0, 0),), None, None
)
ECHO = PhaseReport(
    1, "echo", "both", 16, 48, 1_795_473_866_000, 20, 960, 19, 912, 1, 2, ((10, 480, 9, 432),), (142, 362, 1336), None
)
MTU = PhaseReport(2, "mtu", "both", 200, 1452, 1_795_473_868_000, 2, 1492, 2, 1492, 0, 0, (), None, (1500, 0))
TCP = PhaseReport(
    3, "tcp", "to_user", 625, 1448, 1_795_473_870_000, 0, 31_856, 0, 0, 0, 0, ((0, 31_856, 0, 0),), None, None,
    (((250, 14_481, 38_000, 10, 0, 1912), (500, 28_961, 41_000, 12, 2, 1911)), ()),
)  # fmt: skip
BACK = PhaseReport(
    4, "tcp", "from_user", 625, 1448, 1_795_473_875_000, 0, 0, 0, 30_000, 0, 0, ((0, 0, 0, 30_000),), None, None,
    (((250, 15_000), (500, 30_000)),),
)  # fmt: skip
REPORT = Report(
    "ap", "cut", "Nothing arrived from the user's end for 3 s.", "192.0.2.11:50000", (STREAM, ECHO, MTU, TCP, BACK)
)


def written() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(REPORT.to_json()))
    return found


def test_a_report_is_read_as_it_was_written() -> None:
    assert read_report(written()) == REPORT
    assert read_report(REPORT.to_json()) == REPORT


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("schema", 2, "schema is 2 and not 1"),
        ("outcome", "fine", "outcome is 'fine' and not one of completed, nobody, cut, refused, error"),
        ("why", "a\nb", "why is not a printable text of at most 500 characters"),
        ("peer", "1" * 81, "peer is not a printable text of at most 80 characters"),
        ("phases", {}, "phases is not a list of at most 32"),
        ("phases.1.number", 2, "phases are not numbered from 0"),
        ("phases.0.direction", "both", "phases[0]: direction is 'both' and not one of to_user, from_user"),
        ("phases.0.sent_packets", -1, "phases[0].sent_packets is -1 and not a whole number from 0 to"),
        ("phases.0.begins_at_ms", 0, "phases[0].begins_at_ms is 0 and not a Unix time in ms from 1"),
        ("phases.4.begins_at_ms", 2**53 - 1, "phases[4].begins_at_ms is 9007199254740991 and not a Unix time in ms"),
        ("phases.0.reordered_packets", True, "phases[0].reordered_packets is True and not"),
        ("phases.0.seconds", [[0, 0, 0]], "phases[0].seconds[0] has 3 numbers and not 4"),
        ("phases.0.seconds", [[0, 0, 0, 0]] * 71, "phases[0].seconds is not a list of at most 70"),
        ("phases.2.mtu", [1500, "x"], "phases[2].mtu[1] is 'x' and not"),
        ("phases.2.more", 1, "phases[2]: more is unknown"),
        ("phases.3.tcp", [[], [], []], "phases[3].tcp is not a list of at most 2"),
        ("phases.3.tcp.0", [[1, 2]] * 301, "phases[3].tcp[0] is not a list of at most 300"),
        ("phases.4.tcp.0.1", [500, 14_999], "phases[4].tcp[0] goes back from (250, 15000) to (500, 14999)"),
    ],
)
def test_a_wrong_report_names_the_place(place: str, value: object, words: str) -> None:
    report = written()
    *way, last = place.split(".")
    at: Any = report
    for step in way:
        at = at[int(step)] if step.isdigit() else at[step]
    at[int(last) if last.isdigit() else last] = value
    with pytest.raises(ValueError, match=re.escape(words)):
        read_report(report)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
)


@given(st.sampled_from(sorted(REPORT.to_json())), JSON)
def test_any_value_is_read_or_refused(key: str, value: object) -> None:
    try:
        read_report({**written(), key: value})
    except ValueError:
        return
    assert key in {"why", "peer", "phases", "side", "outcome", "schema"}
