"""A short run of the packet fuzzer; `python -m tests.dataplane.fuzz` sends a million frames."""

from __future__ import annotations

import pytest

from tests.dataplane import fuzz
from tests.dataplane.bed import Bed

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("from_user", [True, False], ids=["from the user", "to the user"])
def test_no_frame_leaks_harms_or_ends_the_program(ap: Bed, from_user: bool) -> None:
    fuzz.links(ap)
    found = fuzz.run(ap, 20_000, seed=20_261_122, from_user=from_user)
    assert fuzz.verdicts(found) == []
    assert found.probes > 100
    assert found.arrived[fuzz.LIMITED] > 0
