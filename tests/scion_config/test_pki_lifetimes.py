"""When AS certificates are renewed: on a day of their own, before two thirds of their life have gone."""

from __future__ import annotations

from datetime import UTC, datetime

from scionlab.scion_config.pki.certificates import Kind
from scionlab.scion_config.pki.lifetimes import LIFETIME, as_renewed_from

MADE = datetime(2026, 11, 23, tzinfo=UTC)


def test_as_certificates_are_renewed_on_each_of_28_days_before_two_thirds_of_their_life() -> None:
    ends = MADE + LIFETIME[Kind.AS]
    days = [(as_renewed_from(ends, f"17-ffaa:1:{number:x}") - MADE).days for number in range(1, 1001)]
    assert sorted(set(days)) == list(range(32, 60))
    assert max(days.count(day) for day in range(32, 60)) < 60


def test_the_day_of_an_as_is_the_same_each_time() -> None:
    assert as_renewed_from(MADE, "17-ffaa:1:1") == as_renewed_from(MADE, "17-ffaa:1:1")
