"""The downloads of the suite `multipath` on a real kernel: whoever loads over two links really uses both."""

from __future__ import annotations

import pytest

from lab.bench.core import Outcome
from lab.evaluation import downloads
from lab.evaluation.bonding import has_mptcp
from lab.evaluation.downloads import ALONE, MPGET, MPTCP, ROUND_ROBIN, SPRAYING, Task, bound_kb, run
from tests.cases import case
from tests.kernel.conftest import MISSING

pytestmark = pytest.mark.kernel

EQUAL = (1600, 1600)


def test_each_way_to_load_over_two_links_uses_both_and_a_plain_download_gets_each_alone(
    subtests: pytest.Subtests,
) -> None:
    if MISSING is not None:
        pytest.skip(MISSING)
    outcome = Outcome("any")
    whose = (MPGET, ROUND_ROBIN, ALONE, SPRAYING, *([MPTCP] if has_mptcp() else []))
    run([Task("any", who, EQUAL, 4) for who in whose], outcome)
    for who in whose:
        with case(subtests, who):
            rate = outcome.median(who=who, what="rate")
            assert rate is not None
            assert 1.2 * bound_kb(EQUAL[:1]) < rate < 1.05 * bound_kb(EQUAL)
    assert outcome.median(who=MPGET, what="ratio") == pytest.approx(1, abs=0.2)


def test_a_queue_of_its_own_limits_in_the_place_of_ours_and_a_kernel_without_mptcp_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if MISSING is not None:
        pytest.skip(MISSING)
    monkeypatch.setattr(downloads, "has_mptcp", lambda: False)
    outcome = Outcome("any")
    run([Task("any", MPGET, (1600, 800), 2, leaf_bytes=20_000), Task("any", MPTCP, EQUAL, 2)], outcome)
    assert outcome.notes == ["MPTCP was not measured: this kernel has none."]
    rate = outcome.median(what="rate")
    assert rate is not None
    assert 0.8 * bound_kb((2400,)) < rate < 1.1 * bound_kb((2400,))
