"""The table of `lab.evaluation.first_path`; its runs are those of tests/scion."""

from __future__ import annotations

from lab.evaluation.first_path import Run, table


def test_a_run_without_a_path_counts_as_longer_than_all_others() -> None:
    found = [
        Run(64, 1, 30.25, 0, 100), Run(64, 1, None, 1, 50), Run(64, 1, 42.0, 0, 3),
        Run(48, 1, None, 0, 7),
        Run(100, 1, 9.0, 0, 0), Run(100, 1, None, 2, 0), Run(100, 1, None, 0, 0),
        Run(100, 3, 8.0, 0, 0),
    ]  # fmt: skip
    assert table(found, 60.0).splitlines()[2:] == [
        "| 48 | x1 | 0 of 1 | - | - | - | 0 | 7 |",
        "| 64 | x1 | 2 of 3 | 30.2 | 42.0 | 42.0 | 1 | 153 |",
        "| 100 | x1 | 1 of 3 | 9.0 | > 60 | 9.0 | 2 | 0 |",
        "| 100 | x3 | 1 of 1 | 8.0 | 8.0 | 8.0 | 0 | 0 |",
    ]
