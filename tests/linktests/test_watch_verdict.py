"""The verdict of a watch at its bounds: seconds that are full, limits that step, gaps, counters that began anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scionlab.linktests.verdict import intervals_of, percent, verdict_of

LIMIT = 800  # kbit/s: 100 000 bytes a second
SECOND = 100_000


def samples(
    passed: Sequence[int], dropped: Sequence[int] = (), limits: Sequence[int] = (), **first: Any
) -> list[list[Any]]:
    """One a second; `passed` and `dropped` bytes of each second to the user AS, nothing from it. A packet has 1000
    bytes."""
    rows, total, lost = [], 0, 0
    for number in range(len(passed) + 1):
        if number:
            total += passed[number - 1]
            lost += dropped[number - 1] if dropped else 0
        limit = (limits or [LIMIT] * (len(passed) + 1))[min(number, len(limits or passed) - 1)]
        side = ["07", limit, total, total // 1000, lost, -(-lost // 1000), 0]
        rows.append([1000 * number, 5000 + 1000 * number, True, side, ["08", LIMIT, 0, 0, 0, 0, 0]])
    return rows


@pytest.mark.parametrize(
    ("rows", "code", "text"),
    [
        (samples([94_999] * 10), "free", "No: at most 95 % of the limit was used; the bottleneck is elsewhere."),
        (samples([95_000, 0, 0]), "at_times", "At times: for 1 of 3 s this link was full to your AS; 0 %"),
        (samples([95_000, 0]), "full", "Yes: for 1 of 2 s this link was full to your AS; 0 %"),
        (samples([4_999] * 4), "idle", "Not enough was sent to tell: at most 5 % of the limit was used."),
        (samples([5_000] * 4), "free", "No: at most 5 %"),
        (samples([1_000] * 4, [0, 0, 0, 1]), "at_times", "At times: for 1 of 4 s this link was full to your AS; < 1 %"),
        (samples([88_000] * 60, [12_000] * 41 + [0] * 19), "full", "Yes: for 41 of 60 s this link was full to your AS"),
        (samples([100_000] * 4, [100_000] * 4), "full", "; 50 % of what was sent to your AS was dropped."),
        # a timed limit halves it after two seconds: the same rate is full then
        (samples([50_000] * 4, limits=[LIMIT, LIMIT, LIMIT // 2, LIMIT // 2]), "full", "Yes: for 2 of 4 s"),
        # saved after the second sample: what passed is allowed by the new limit
        (samples([40_000, 160_000, 160_000], limits=[LIMIT, LIMIT, 2 * LIMIT]), "free", "No: at most 80 %"),
        (samples([0] * 4, [1_000] * 4, limits=[0]), "full", "Yes: for 4 of 4 s this link was full to your AS; 100 %"),
        (samples([]), "no_result", "No verdict: nothing was measured."),
    ],
)
def test_verdict_of_one_direction(rows: list[list[Any]], code: str, text: str) -> None:
    found = verdict_of(rows)
    assert found.code == code
    assert text in found.text.replace("\N{NO-BREAK SPACE}", " ")


def test_packets_that_the_queue_lost_are_told_where_the_limit_refused_none() -> None:
    """The first sample is of an agent that did not tell them; of another class they are counted anew."""
    rows = samples([50_000] * 6)
    for row, lost in zip(rows, [4, 4, 4, 69, 2, 2, 2], strict=True):
        row[3][6] = lost
    found = verdict_of(rows)
    assert found.code == "at_times"
    assert found.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "At times: for 1 of 6 s this link was full to your AS; 0 % of what was sent to your AS was dropped. Packets "
        "lost in the queue behind it: 65."
    )


def test_worse_direction_is_told() -> None:
    rows = samples([50_000] * 4)
    for number, row in enumerate(rows):
        row[4] = ["08", LIMIT, SECOND * number, 100 * number, 12_000 * number, 12 * number, 0]
    found = verdict_of(rows)
    assert [side.code for side in found.sides] == ["free", "full"]
    assert "this link was full from your AS; 11" in found.text
    assert "of what you offered was dropped" in found.text


def test_gap_counts_in_the_sums_and_in_no_second() -> None:
    rows = samples([SECOND] * 10)
    found = verdict_of(rows[:3] + rows[8:]).sides[0]
    assert (found.measured_s, found.full_s, found.passed_bytes) == (4, 4, 10 * SECOND)


@pytest.mark.parametrize(("took_ms", "measured"), [(1500, 1), (1501, 0)])
def test_longest_interval_that_is_a_second(took_ms: int, measured: int) -> None:
    rows = samples([SECOND])
    rows[1][1] = rows[0][1] + took_ms
    assert verdict_of(rows).sides[0].measured_s == measured


def test_rate_is_by_the_clock_that_nobody_sets() -> None:
    rows = samples([SECOND // 2] * 2)
    rows[2][0] += 3_600_000
    assert [one.kbit for one in intervals_of(rows, "to_user")] == [400, 400]


def test_nothing_is_made_up_between_two_lives_of_the_counters() -> None:
    rows = samples([SECOND] * 4)
    for row in rows[2:]:
        row[3] = ["99", LIMIT, 10, 1, 0, 0, 0]
    assert [one.passed_bytes for one in intervals_of(rows, "to_user")] == [SECOND, 0, 0]
    rows[3][3] = ["99", LIMIT, 5, 1, 0, 0, 0]  # below what it was: whatever that is, it is no count
    assert [one.passed_bytes for one in intervals_of(rows, "to_user")] == [SECOND, 5]


def test_observed_link_has_no_verdict() -> None:
    rows = samples([2 * SECOND] * 4, [SECOND] * 4)
    for row in rows:
        row[2] = False
    found = verdict_of(rows)
    assert (found.code, found.sides[0].dropped_percent) == ("not_enforced", None)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 %"), (0.4, "< 1 %"), (0.5, "0 %"), (12.4, "12 %"), (99.6, "> 99 %"), (100, "100 %")]
)
def test_percent_is_not_rounded_to_nothing_or_all(value: float, text: str) -> None:
    assert percent(value).replace("\N{NO-BREAK SPACE}", " ") == text
