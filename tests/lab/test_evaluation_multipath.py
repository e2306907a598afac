"""The suite `multipath`: what it downloads, the arithmetic of its rows, and claims that can fail."""

from __future__ import annotations

import pytest

from lab.bench.core import Outcome
from lab.evaluation import congestion
from lab.evaluation.downloads import ALONE, MPGET, MPTCP, ROUND_ROBIN, SPRAYING, Task, bound_kb, labels
from lab.evaluation.several_paths import COLUMNS, TABLE, needed
from lab.evaluation.suites import multipath
from tests.cases import case


def test_a_file_is_what_headers_leave_of_the_links_in_the_time() -> None:
    task = Task("5.1b", MPGET, (100_000, 50_000), 10, files=2)
    assert bound_kb(task.limits_kbit) == pytest.approx(150_000 / 8 * 1448 / 1514)
    assert task.size_bytes == int(bound_kb(task.limits_kbit) * 1000 * 10 / 2)
    alone = Task("4.4", ALONE, (800, 160), 10)
    assert alone.sizes == [int(bound_kb([kbit]) * 10_000) for kbit in (800, 160)]
    assert task.sizes == [task.size_bytes]


# --- claims -------------------------------------------------------------------------------------------------------


def outcome_of(**changed: float) -> Outcome:
    """Everything just good enough; `changed` multiplies the rates of a row of `mpget`."""
    found = Outcome(multipath.NAME)

    def add(task: Task, rate: float) -> None:
        found.add(rate, "kB/s", **task.labels, what="rate")

    def row(name: str) -> float:
        return changed.get("row_" + name.replace(".", "_"), 1.0)

    unequal = Task("5.1b", MPGET, (100_000, 50_000), 10)
    add(unequal, 17_626 * row("5.1b"))
    found.add(changed.get("ratio", 2.0), "ratio", **unequal.labels, what="ratio")
    add(Task("5.1", MPGET, (10_000,), 20), 1000)
    add(Task("5.1", MPGET, (10_000, 10_000), 10), 1901 * row("5.1"))
    for files in multipath.FILES:
        add(Task("5.5", MPGET, (6000, 3000), 10, files=files), 0.951 * bound_kb((9000,)) * row("5.5"))
    for times, share in ((1, 1.0), (20, 0.991 * row("5.6"))):
        add(Task("5.6", MPGET, (2000, 1000), 10 * times), 300 * share)
    for paths in TABLE:
        for column in COLUMNS:
            plain = paths * column * 0.96
            limits = (column * 8,) * paths
            add(Task("4.4", ALONE, limits, 20, column), plain)
            add(Task("4.4", MPGET, limits, 20, column), needed(paths, column, plain) * 1.0001 * row("4.4"))
    for name, others in (("4.6", 1), ("4.7", 4)):
        for column in COLUMNS:
            add(Task(name, MPGET, (column * 8, *[100_000] * others), 10, column), 11_801 * row(name))
            add(Task("4.6", MPGET, (100_000,), 10, column), 11_800)
    for name, share, others in (("4.10", 0.93, 1), ("4.11", 0.95, 4)):
        for column in COLUMNS:
            limits = (column * 8, *[800] * others)
            add(Task(name, MPGET, limits, 20, column), share * (column + 100 * others) * row(name))
    for who in (ROUND_ROBIN, MPTCP, SPRAYING):
        for column in (20, 500):
            add(Task("4.10", who, (column * 8, 800), 10, column), 50 * changed.get(who.partition(" ")[0], 1.0))
    for leaf in (0, 5_000, 50_000):
        add(Task("4.12", MPGET, (2000, 1000), 10, leaf_bytes=leaf), 300 * (row("4.12") if leaf == 5_000 else 1.0))
    of_each = {congestion.MULTI_FREE: (14.0, 950), congestion.MULTI_ONE: (14.4, 905),
               congestion.SINGLE: (19.0, 170), congestion.MULTI_BOTH: (12.0, 273)}  # fmt: skip
    for number, (who, (seconds, rate)) in enumerate(of_each.items()):
        slower = changed.get(f"seconds_{number}", 1.0)
        found.add(seconds * slower, "s", **labels(congestion.ROW, who), what="seconds")
        found.add(rate * changed.get(f"window_{number}", 1.0), "kB/s", **labels(congestion.ROW, who),
                  what=congestion.DURING)  # fmt: skip
    return found


def broken(**changed: float) -> list[str]:
    """Which claims do not hold, by the beginning of their sentences."""
    return [one.sentence.partition(":")[0] for one in multipath.claims(outcome_of(**changed)) if not one.holds]


def test_what_is_just_good_enough_holds_and_all_of_it_is_shown() -> None:
    assert broken() == []
    assert len(multipath.claims(outcome_of())) == 13
    assert [one.name for one in multipath.plots(outcome_of())] == ["multipath-beside"]


def test_each_claim_breaks_where_its_row_is_missed(subtests: pytest.Subtests) -> None:
    table: list[tuple[dict[str, float], list[str]]] = [
        ({"row_5_1b": 0.999}, ["5.1b"]),
        ({"ratio": 2.11}, ["5.1b"]),
        ({"row_5_1": 0.999}, ["5.1"]),
        ({"seconds_1": 1.01}, ["5.2"]),
        ({"window_1": 0.99}, ["5.2"]),
        ({"window_3": 0.99}, ["5.3"]),
        ({"seconds_3": 1.6}, ["5.3"]),
        ({"row_5_5": 0.998}, ["5.5"]),
        ({"row_5_6": 0.998}, ["5.6"]),
        ({"row_4_4": 0.999}, ["4.4"]),
        ({"row_4_6": 0.999}, ["4.6, 4.7"]),
        ({"row_4_7": 0.9}, ["4.6, 4.7"]),
        ({"row_4_10": 0.98}, ["4.10"]),
        ({"row_4_11": 0.94}, ["4.11"]),
        ({"row_4_12": 0.95}, ["4.12"]),
        ({"round": 2.5}, ["4.10"]),
        ({"MPTCP": 2.5}, ["4.10"]),
        ({"packets": 2.5}, ["4.10"]),
    ]
    for changed, rows in table:
        with case(subtests, str(changed)):
            assert broken(**changed) == rows


def test_a_quick_run_claims_the_rows_that_it_measures_and_nothing_measured_holds_nowhere() -> None:
    full = outcome_of()
    quick = Outcome(multipath.NAME)
    quick.series = [one for one in full.series if one.labels["experiment"] in ("5.1b", "5.1", congestion.ROW, "4.10")]
    assert [one.sentence.partition(":")[0] for one in multipath.claims(quick) if not one.holds] == ["4.4"]
    empty = Outcome(multipath.NAME)
    assert len(multipath.claims(empty)) == 13
    assert not any(one.holds for one in multipath.claims(empty))
    assert multipath.plots(empty) == []
