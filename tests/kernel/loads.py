"""Flows between an attachment point and its users, and what of them may arrive."""

from __future__ import annotations

from collections.abc import Sequence

from measuring.judge import FRAME_BYTES, bucket_bytes, room_bytes
from measuring.netns import Namespace
from measuring.traffic import Endpoint, Results, data, ends, run_traffic

AP, USER, OTHER = "192.0.2.1", "192.0.2.11", "192.0.2.12"
AP6, USER6, OTHER6 = "2001:db8::1", "2001:db8::11", "2001:db8::12"
SECONDS = 1.2
KBIT = 500
Pair = tuple[Endpoint, Endpoint]


def flow(name: str, local: tuple[str, int], remote: tuple[str, int], kbit: float = 4_000, size: int = 1400) -> Pair:
    """The same load in both directions."""
    return ends(name, local, remote, (data(kbit, size),))


FREE = flow("free", (AP, 51_099), (USER, 50_099), 500)  # another port of the address, of no link


def run(ap: Namespace, *flows: tuple[Namespace, Pair], seconds: float = SECONDS) -> Results:
    plan: dict[Namespace, list[Endpoint]] = {}
    for host, (at_ap, at_user) in flows:
        plan.setdefault(ap, []).append(at_ap)
        plan.setdefault(host, []).append(at_user)
    return run_traffic(plan, seconds=seconds)


def arrived_bytes(results: Results, host: Namespace, *names: str) -> int:
    return sum(results.at(host, name).wire.total(results.all_arrivals(host, name)) for name in names)


def assert_limited(
    results: Results, hosts: Sequence[Namespace], *names: str, kbit: int = KBIT, behind_s: float = 0.0
) -> None:
    """All flows of these names together, at each of these hosts: what the queue had room for and what flows in the
    time that it was filled, `behind_s` longer than something was sent. Less than 0.8 of the limit would be another
    fault: charged twice, for example."""
    for host in hosts:
        carried, flowed = arrived_bytes(results, host, *names), kbit * 125 * (SECONDS + behind_s)
        most = flowed + room_bytes(kbit) + bucket_bytes(kbit) + FRAME_BYTES * (1 + len(names))
        assert 0.8 * flowed <= carried <= most, f"{host.short}: {carried} B of {flowed:.0f}"


def assert_free(results: Results, hosts: Sequence[Namespace], *names: str) -> None:
    for host in hosts:
        for name in names:
            assert results.lost(host, name) == 0, f"{name} at {host.short}"
