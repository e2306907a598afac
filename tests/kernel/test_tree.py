"""The tree in a real kernel, witnessed by tc: built, kept, changed in place, repaired, removed."""

from __future__ import annotations

import pytest

from lab import witness
from tests.kernel.conftest import Host, entry, links

pytestmark = pytest.mark.kernel

ONE = links(l1=entry("192.0.2.11", 500))


def test_a_link_gets_its_classes_in_both_directions(host: Host) -> None:
    result = host.reconcile(ONE)

    assert result.ok, result.problems
    assert result.writes == len(result.plan.ops)
    for dev, major in (("eth0", "1"), ("slbw0", "3")):
        classes = witness.classes(host.ap, dev)
        inner, data, beats = (classes[f"{major}:{minor}"] for minor in ("1", "1001", "2001"))
        assert (inner.rate_bits, inner.ceil_bits) == (500_000, 500_000)
        assert (data.rate_bits, data.ceil_bits, data.prio) == (484_000, 500_000, 1)
        assert (beats.rate_bits, beats.ceil_bits, beats.prio) == (16_000, 16_000, 0)
    (state,) = result.links
    assert (state.state, state.problem) == ("enforced", None)
    assert state.to_user is not None
    assert state.from_user is not None
    assert (state.to_user.dev, state.to_user.rate_kbit) == ("eth0", 500)
    assert (state.from_user.dev, state.from_user.rate_kbit) == ("slbw0", 500)


def test_a_second_cycle_writes_nothing(host: Host) -> None:
    host.reconcile(ONE)
    before = host.snapshot()

    result = host.reconcile(ONE)

    assert result.plan.is_empty
    assert result.writes == 0
    assert host.snapshot() == before


def test_reset_leaves_the_host_as_it_was(host: Host) -> None:
    before = host.snapshot()
    host.reconcile(ONE)
    assert host.snapshot() != before

    result = host.reset()

    assert result.ok, result.problems
    assert host.snapshot() == before
