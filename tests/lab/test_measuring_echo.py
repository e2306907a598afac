"""Percentiles of round trips: always a value that was measured."""

from __future__ import annotations

import pytest

from measuring.echo import percentile


@pytest.mark.parametrize(("percent", "expected"), [(1, 1.0), (50, 2.0), (51, 3.0), (75, 3.0), (99, 4.0), (100, 4.0)])
def test_the_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], percent) == expected


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="not 0"):
        percentile([1.0], 0)
