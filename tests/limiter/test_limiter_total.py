"""The arithmetic of the cap: one factor that shares it in proportion to the limits, and what follows from counters."""

from __future__ import annotations

import pytest

from ap_agent.document.state import Counters, Direction
from ap_agent.limiter.total import TICK_S, Cap, factor_for
from bandwidth_config import Limits


@pytest.mark.parametrize(
    ("total", "demands", "factor"),
    [
        (1000, [(500, 500), (400, 400)], 1.0),  # it fits
        (1000, [(2000, 2000), (200, 200)], 2.2),
        (1000, [(1000, 200), (1000, 1000)], 1.25),  # the modest one has all it wants, the other one 800
        (1000, [(1000, 5000), (1000, 5000)], 2.0),  # nobody counts above the own limit
        (1000, [(0, 500), (2000, 2000)], 2.0),  # a blocked one does not count
        (1, [(100, 100)], 100.0),
    ],
)
def test_factor_shares_the_cap(total: float, demands: list[tuple[float, float]], factor: float) -> None:
    assert factor_for(total, demands) == pytest.approx(factor)


class Links:
    """Links that send at a rate, as the program would count them with the factors in force."""

    def __init__(self, total_kbit: int, **limits: int) -> None:
        self.total_kbit, self.cap, self.now = total_kbit, Cap(), 100.0
        self.limits = {int(name[1:]): Limits(kbit, kbit) for name, kbit in limits.items()}
        self.passed = dict.fromkeys(self.limits, 0.0)
        self.refused = dict.fromkeys(self.limits, 0.0)
        self.factor = 1.0

    def send(self, seconds: float, **offered: float) -> dict[int, float]:
        """The rate that each link had, kbit/s."""
        before, began = dict(self.passed), self.now
        while self.now < began + seconds:
            self.now += TICK_S
            for name, kbit in offered.items():
                number = int(name[1:])
                share = min(kbit, self.limits[number].to_user_kbit / self.factor)
                self.passed[number] += share * 125 * TICK_S
                self.refused[number] += (kbit - share) * 125 * TICK_S
            self.factor, other = self.cap.factors(self.now, self.total_kbit, self.limits, self._counted())
            assert other == 1.0
        return {n: (self.passed[n] - before[n]) / 125 / (self.now - began) for n in self.limits}

    def _counted(self) -> dict[tuple[int, Direction], tuple[int, Counters]]:
        nothing = Counters(0, 0, 0, 0, 0, 0)
        found: dict[tuple[int, Direction], tuple[int, Counters]] = {}
        for n in self.limits:
            found[n, "to_user"] = (n, Counters(round(self.passed[n]), 0, round(self.refused[n]), 0, 0, 0))
            found[n, "from_user"] = (n, nothing)
        return found


def test_silent_link_leaves_its_share_and_has_it_back_within_a_second() -> None:
    links = Links(1000, l1=1000, l2=1000)
    links.send(5, l1=3000, l2=3000)
    assert links.send(5, l1=3000, l2=3000) == pytest.approx({1: 500, 2: 500}, rel=0.01)
    links.send(4, l1=3000)
    assert links.send(5, l1=3000) == pytest.approx({1: 1000, 2: 0}, rel=0.01)
    links.send(1, l1=3000, l2=3000)
    assert links.send(5, l1=3000, l2=3000) == pytest.approx({1: 500, 2: 500}, rel=0.01)


def test_cap_is_never_exceeded_for_longer_than_two_ticks_when_links_come_and_go() -> None:
    links = Links(1000, l1=1000, l2=1000, l3=500)
    links.send(5, l1=3000)
    for _ in range(6):
        links.send(2 * TICK_S, l1=3000, l2=3000, l3=3000)
        assert sum(links.send(1, l1=3000, l2=3000, l3=3000).values()) <= 1001
        links.send(1, l1=3000)


def test_link_that_backs_off_from_refusals_keeps_its_share() -> None:
    """As TCP does: it sends less than its share for a moment, and would have more if nothing were refused."""
    links = Links(1000, l1=1000, l2=1000)
    links.send(5, l1=3000, l2=3000)
    for _ in range(10):
        links.send(TICK_S, l1=501, l2=3000)
        links.send(1, l1=300, l2=3000)
        assert links.factor == pytest.approx(2.0)


def sent(tick: int, kbit: int) -> Counters:
    """Of a link that has passed this rate since the first tick."""
    return Counters(round(tick * TICK_S * kbit * 125), 0, 0, 0, 0, 0)


def test_segment_that_begins_anew_is_no_negative_rate() -> None:
    """Link 1 was counted anew and sends nothing: it leaves link 2 the cap of 500, and not 500 less a negative rate."""
    cap, limits = Cap(), {1: Limits(1000, 1000), 2: Limits(1000, 1000)}
    for tick, (segment, passed) in enumerate([(1, 10_000_000), (1, 10_000_000), (2, 0), (2, 0)]):
        one = Counters(passed, 0, 0, 0, 0, 0)
        counted: dict[tuple[int, Direction], tuple[int, Counters]] = {
            (1, "to_user"): (segment, one),
            (2, "to_user"): (7, sent(tick, 1000)),
        }
        assert cap.factors(tick * TICK_S, 500, limits, counted) == (1.0 if tick == 0 else 2.0, 1.0)


def test_each_direction_has_the_limits_of_its_own() -> None:
    """Both links send all they may: 2 * 1000 to the users and 2 * 300 from them, of 500."""
    cap, limits = Cap(), {1: Limits(1000, 300), 2: Limits(1000, 300)}
    for tick in range(3):
        counted: dict[tuple[int, Direction], tuple[int, Counters]] = {}
        for link in limits:
            counted[link, "to_user"], counted[link, "from_user"] = (7, sent(tick, 1000)), (7, sent(tick, 300))
        factors = cap.factors(tick * TICK_S, 500, limits, counted)
    assert factors == pytest.approx((4.0, 1.2))
