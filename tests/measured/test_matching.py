"""What belongs to a link and what does not: fragments, and the unmatched rest."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lab.witness import classes, received_bytes
from measuring.framing import Wire
from measuring.judge import FRAME_BYTES, NS, bucket_bytes, rate_tolerance
from measuring.netns import Namespace
from measuring.traffic import TrafficRun, data, ends, heartbeats, run_traffic
from tests.measured.testbed import (
    AP_ADDRESS,
    Testbed,
    TestLink,
    assert_limit,
    assert_never_exceeded,
    report,
    user_address,
)


@pytest.mark.parametrize(("family", "payload_bytes"), [(4, 10_000), (6, 3_000)])
def test_fragments_do_not_escape_the_limit(bed: Testbed, family: int, payload_bytes: int) -> None:
    link = TestLink(1, kbit=2_000, user=1, family=family)
    beside = TestLink(2, kbit=4_000, user=1, family=family)
    bed.enforce([link, beside])
    whole = 1472 if family == 4 else 1452
    plan = bed.plan(
        [
            (link, link.ends((data(10_000, payload_bytes),))),
            (beside, beside.ends((data(3_200, whole), heartbeats()))),
        ]
    )
    run = TrafficRun(plan, seconds=3.5).go()
    run.sleep_until(0.8)
    growth = {
        # All that the user's interface gets is these two links' (and some ARP or ND: less than a frame).
        "to_user": Growth(lambda: received_bytes(bed.user(1), "eth0")),
        # The attachment point's interface counts what is not limited yet; behind the limit, tc counts.
        "from_user": Growth(lambda: sum(classes(bed.ap, "slbw1")[f"51b0:100{n}"].sent_bytes for n in (1, 2))),
    }
    run.sleep_until(3.2)
    for one in growth.values():
        one.stop()
    results = run.finish()
    for direction, host, sender in (("to_user", bed.user(1), bed.ap), ("from_user", bed.ap, bed.user(1))):
        # Datagrams within the MTU of the link beside, at 80 % of its limit, do not suffer from the fragments.
        assert results.lost(host, beside.name) == 0
        assert results.lost(host, beside.name, "heartbeat") == 0
        # Whatever was put together again is within the limit too.
        largest = Wire(family).bytes(payload_bytes)
        assert_never_exceeded(results, host, link, largest_bytes=largest)
        one, wire = growth[direction], Wire(family)
        inside = results.all_arrivals(host, beside.name)
        least = one.count - wire.total(inside.between(*one.outer_ns))
        most = one.count - wire.total(inside.between(*one.inner_ns))
        report(
            family=family,
            payload=payload_bytes,
            direction=direction,
            whole_datagrams=len(results.at(host, link.name).data),
            link_kbit=f"{_kbit(least, one.outer_ns):.0f}..{_kbit(most, one.inner_ns):.0f}",
        )
        # The counter was read at some moment inside each reading, so the true window is between inner and outer.
        # Fragments of refused datagrams never reach the wire.
        assert least <= _bytes(2_000, one.outer_ns) + bucket_bytes(2_000) + FRAME_BYTES
        # And the link is really full of fragments: it lacks at most a frame, and what `rate_tolerance` allows.
        seconds = (one.inner_ns[1] - one.inner_ns[0]) / NS
        stood_still_s = sum(end - begin for begin, end in results.pauses_of[sender.name]) / NS
        least_share = 1 - rate_tolerance(2_000, seconds) - stood_still_s / seconds
        assert most >= _bytes(least_share * 2_000, one.inner_ns) - FRAME_BYTES


class Growth:
    """How much a byte counter grew between two readings, and between which moments that was."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._first = self._reading()

    def stop(self) -> None:
        last = self._reading()
        self.count = last[1] - self._first[1]
        self.outer_ns = self._first[0], last[2]
        self.inner_ns = self._first[2], last[0]

    def _reading(self) -> tuple[int, int, int]:
        """Time before, count, time after."""
        return time.monotonic_ns(), self._read(), time.monotonic_ns()


def _kbit(count: int, window_ns: tuple[int, int]) -> float:
    return count * 8_000_000 / (window_ns[1] - window_ns[0])


def _bytes(kbit: float, window_ns: tuple[int, int]) -> float:
    return kbit * (window_ns[1] - window_ns[0]) / 8_000_000


def test_below_the_limit_fragments_and_whole_datagrams_of_one_link_all_arrive(bed: Testbed) -> None:
    links = {TestLink(1, kbit=4_000, user=1): 1472, TestLink(2, kbit=4_000, user=2, family=6): 1452}
    bed.enforce(links)
    plan = ((link, link.ends((heartbeats(), data(1_500, whole), data(1_000, 3_000)))) for link, whole in links.items())
    results = run_traffic(bed.plan(plan), seconds=2)
    for link, whole in links.items():
        for host in (bed.ap, bed.user(link.user)):
            end, sender = results.at(host, link.name), results.other_end(host, link.name)
            report(family=link.family, at=host.short, sent=sender.sent(), arrived=len(end.data))
            assert (len(end.data), len(end.heartbeats)) == (sender.sent(), sender.sent("heartbeat"))
            assert set(end.data.payload_bytes) == {whole, 3_000}


def test_the_unmatched_rest_shares_the_default_and_neighbours_are_still_found(bed: Testbed) -> None:
    link = TestLink(1, kbit=1_000, user=1)
    bed.enforce([link], unmatched_kbit=2_000)
    quiet = {"quiet4": user_address(4), "quiet6": user_address(3, 6)}
    rest = {
        "flood": (ends("flood", (AP_ADDRESS[4], 40_000), (user_address(2), 40_000), (data(8_000),)), bed.user(2)),
        "quiet4": (
            ends("quiet4", (AP_ADDRESS[4], 40_001), (quiet["quiet4"], 40_000), (data(200, 150),)),
            bed.user(4),
        ),
        "quiet6": (
            ends("quiet6", (AP_ADDRESS[6], 40_002), (quiet["quiet6"], 40_000), (data(200, 150),)),
            bed.user(3),
        ),
    }
    plan = bed.flood([link], times=4)
    for (at_ap, at_user), host in rest.values():
        plan[bed.ap].append(at_ap)
        plan[host] = [at_user]
    run = TrafficRun(plan, seconds=4.5).go()
    found_s: dict[str, list[float]] = {name: [] for name in quiet}
    for round_ in range(6):
        for name, address in quiet.items():
            run.sleep_until(1.2 + round_ * 0.5 + (0.25 if name == "quiet6" else 0))
            found_s[name].append(_seconds_to_find(bed.ap, address))
    results = run.finish()
    for host in (bed.ap, bed.user(1)):
        measured = assert_limit(results, host, link)
        report(host=host.short, link_kbit=f"{measured:.1f}")
    for direction in ("to_users", "from_users"):
        start_ns, stop_ns = results.start_ns + NS, results.stop_ns
        kbit = []
        for name, (_, host) in rest.items():
            end = results.at(host if direction == "to_users" else bed.ap, name)
            kbit.append(end.wire.total(end.data.between(start_ns, stop_ns)) * 8_000_000 / (stop_ns - start_ns))
        report(direction=direction, kbit=[f"{one:.1f}" for one in kbit], together=f"{sum(kbit):.1f}")
        # A window that is not cut at arrivals may hold a frame more or less of each flow, and a bucket.
        loose_kbit = (bucket_bytes(2_000) + 3 * FRAME_BYTES) * 8 / 3.5 / 1000
        stood_still = max(sum(end - begin for begin, end in one) for one in results.pauses_of.values())
        least_share = 1 - stood_still / (stop_ns - start_ns)
        allowed_kbit = 2_000 * rate_tolerance(2_000, 3.5) + loose_kbit
        assert 2_000 * least_share - allowed_kbit <= sum(kbit) <= 2_000 + allowed_kbit
    # In the shared class a question or its answer would wait behind the flood: the queue is full, 100 ms of the rate
    # less a frame, 94 ms in each direction. What is exempt is found while the flood waits.
    for name, times in found_s.items():
        report(neighbour=name, found_ms=[round(one * 1000) for one in times])
        assert min(times) < 0.094


def _seconds_to_find(host: Namespace, address: str) -> float:
    """Make the host forget a neighbour that it talks to, and wait until it has asked for it and got the answer."""
    begin = time.monotonic()
    host.ip("neigh", "flush", "to", address)
    while "lladdr" not in host.ip("neigh", "show", "to", address):
        assert time.monotonic() < begin + 0.9, (
            f"{host.short} does not find {address}"
        )  # the kernel asks again after 1 s
    return time.monotonic() - begin
