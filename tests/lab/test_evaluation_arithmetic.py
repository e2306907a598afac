"""The arithmetic under the verdicts of the evaluation."""

from __future__ import annotations

import pytest

from lab.evaluation import together
from lab.evaluation.core import EvaluationScale
from lab.evaluation.fragment_runs import all_slots
from lab.evaluation.holding import Change, hold_after_s
from lab.evaluation.suites import beside, gigabit, latency, protocols
from measuring.arrivals import Arrivals
from measuring.framing import Wire as FrameWire
from measuring.judge import NS, highest_level

FULL = EvaluationScale()
MS = 1_000_000


def test_bounds_are_a_frame_and_what_is_sent_late() -> None:
    frame_s = 1514 / (100 * 125)
    assert together.ratio_bound(100, 10) == pytest.approx((frame_s + 0.008) / 10)
    assert together.ratio_bound(100, 10, [(0, NS // 10), (NS, NS + NS // 20)]) == pytest.approx((frame_s + 0.158) / 10)
    assert gigabit.tolerance(1.0) == pytest.approx(0.008 + 68_000 / 125e6)
    assert beside.allowed_delay_ms() == pytest.approx((20_000 + 1042 + 1514) * 8 / 500 + 8)
    # the room, the frame that was admitted last, and one on its way
    assert [latency.delay_bound_ms(kbit) for kbit in (32, 100, 10_000)] == pytest.approx(
        [(14_000 + 3028) * 8 / 32, (20_000 + 3028) * 8 / 100, 100 + 3028 * 8 / 10_000]
    )


def test_headers_leave_so_much_of_a_limit_for_payload() -> None:
    kinds = (protocols.UDP6, protocols.TCP_8, protocols.TCP6_1, protocols.QUIC)
    assert list(map(protocols.header_share, kinds)) == pytest.approx(
        [1452 / 1514, 1448 / 1514, 1428 / 1514, 1200 / 1242]
    )
    slot = next(one for one in all_slots(FULL) if one.payload_bytes == 10_000)
    assert slot.bound_kbit == pytest.approx(500 * 10_000 / 10_246)
    assert gigabit.BOUND_KBIT == pytest.approx(956_407, abs=1)  # noqa: SIM300  a constant of theirs


def test_excess_is_what_a_bucket_that_leaks_at_the_rate_held_at_most() -> None:
    at_the_rate = range(0, 1000 * MS, 24 * MS)  # 1500 bytes every 24 ms are 500 kbit/s
    assert highest_level(at_the_rate, [1500] * len(at_the_rate), 500) == 1500
    assert highest_level([0, 0, 0, 24 * MS], [1500] * 4, 500) == 4500
    assert highest_level([0, 1000 * MS, 1000 * MS], [1500] * 3, 500) == 3000
    assert highest_level([], [], 500) == 0


def at_rates(*phases: tuple[int, float]) -> Arrivals:
    """Full frames: so many kbit/s for so many seconds, one phase after the other, from 1 s on."""
    arrivals, now_s = Arrivals(), 1.0
    for kbit, lasts_s in phases:
        end_s = now_s + lasts_s
        step_s = 1514 * 8 / (kbit * 1000) if kbit else lasts_s
        while now_s + step_s <= end_s + 1e-9 and kbit:
            now_s += step_s
            arrivals.arrived_ns.append(round(now_s * NS))
            arrivals.payload_bytes.append(1472)
            arrivals.sequence.append(len(arrivals.sequence))
            arrivals.sent_ns.append(round(now_s * NS))
        now_s = end_s
    return arrivals


@pytest.mark.parametrize(
    ("phases", "old", "new", "least", "most"),
    [
        ([(500, 0.2), (1_000, 2.8)], 500, 1_000, 0.17, 0.3),
        ([(1_000, 0.7), (250, 2.3)], 1_000, 250, 0.68, 0.86),
        ([(500, 3.0)], 500, 1_000, None, None),  # never comes
        ([(1_000, 1.0), (4_000, 0.3), (1_000, 1.7)], 500, 1_000, 1.25, 1.4),  # from the last disturbance on
        ([(500, 2.7), (1_000, 0.3)], 500, 1_000, None, None),  # only at the very end
        ([(250, 0.5), (0, 2.5)], 250, 0, 0.45, 0.5),  # a blocked link: its last packet
        ([], 500, 1_000, None, None),
    ],
)
def test_the_moment_from_which_a_rate_holds(
    phases: list[tuple[int, float]], old: int, new: int, least: float | None, most: float | None
) -> None:
    found = hold_after_s(at_rates(*phases), FrameWire(4), Change(1, old, new, NS, 4 * NS), 0.008)
    if least is None or most is None:
        assert found is None
    else:
        assert found is not None
        assert least <= found <= most
