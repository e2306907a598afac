"""What the kernel keeps of a limit: rates, buckets, quanta and queues, exactly, from the least to the greatest.

The witness of exact values is pyroute2's decoder, which has no part in writing them; `tc` prints four digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pyroute2 import IPRoute

from lab import witness
from tests.kernel.conftest import Entry, Host, entry, links

pytestmark = pytest.mark.kernel

U1, OVER_TUN = "192.0.2.11", "10.10.1.2"
HEARTBEAT_KBIT = 16
# The least, the documented minimum and its neighbours, the greatest, and both sides of what 32 bits hold in byte/s.
RATES_KBIT = (1, 8, 31, 32, 33, 100, 500, 1_000, 34_359_737, 34_359_738, 34_359_739, 100_000_000)
TICK_S = 64e-9
LONGEST_S = TICK_S * 0xFFFF_FFFF


@dataclass(frozen=True)
class Kept:
    """One HTB class as the kernel says it, in byte and byte/s."""

    rate: int
    ceil: int
    burst: float
    cburst: float
    quantum: int


def _classes(dev: str) -> dict[str, Kept]:
    with IPRoute() as route:
        (index,) = route.link_lookup(ifname=dev)
        return {_name(one["handle"]): _class(one) for one in route.get_classes(index)}


def _name(number: int) -> str:
    return f"{number >> 16:x}:{number & 0xFFFF:x}"


def _class(message: Any) -> Kept:
    options = message.get_attr("TCA_OPTIONS")
    parms = options.get_attr("TCA_HTB_PARMS")
    rate = options.get_attr("TCA_HTB_RATE64") or parms["rate"]
    ceil = options.get_attr("TCA_HTB_CEIL64") or parms["ceil"]
    burst, cburst = parms["buffer"] * TICK_S * rate, parms["cbuffer"] * TICK_S * ceil
    return Kept(rate, ceil, burst, cburst, parms["quantum"])


def _assert_kept(
    classes: dict[str, Kept], leaves: dict[str, int], major: int, number: int, kbit: int, frame: int
) -> None:
    limit = kbit * 125
    beats = min(HEARTBEAT_KBIT * 125, limit // 2)
    inner, heartbeat, data = (classes[f"{major:x}:{part + number:x}"] for part in (0, 0x2000, 0x1000))
    assert (inner.rate, inner.ceil) == (limit, limit)
    assert (heartbeat.rate, heartbeat.ceil) == (beats, beats)
    assert (data.rate, data.ceil) == (limit - beats, limit)
    for one in (inner, heartbeat, data):
        bucket = max(2 * frame, one.ceil * 4 // 1000)
        # The kernel keeps times, in ticks: at 100 Gbit/s one is 800 bytes, and 32 bits of them are 274 s.
        assert one.burst == pytest.approx(min(bucket, one.rate * LONGEST_S), abs=one.rate * TICK_S / 2 + 1)
        assert one.cburst == pytest.approx(min(bucket, one.ceil * LONGEST_S), abs=one.ceil * TICK_S / 2 + 1)
    assert (heartbeat.quantum, data.quantum) == (frame, frame)
    assert leaves[f"{major:x}:{0x2000 + number:x}"] == max(beats // 10, 4 * frame)
    assert leaves[f"{major:x}:{0x1000 + number:x}"] == max(limit // 10, 4 * frame)


@pytest.mark.parametrize("mtu", [1280, 1500, 9000])
def test_from_1_kbit_to_100_gbit_the_kernel_keeps_what_it_was_told(host: Host, mtu: int) -> None:
    host.lab.tun(host.ap.nic("tun0", "10.10.1.1/24"), mtu_bytes=mtu)
    host.ap.ip("link", "set", "eth0", "mtu", str(mtu))
    here, there = ({n + base: kbit for n, kbit in enumerate(RATES_KBIT, 1)} for base in (0, 100))
    wanted = links(
        **{f"l{number}": entry(U1, kbit, 50_000 + number) for number, kbit in here.items()},
        **{f"l{number}": entry(OVER_TUN, kbit, 50_000 + number) for number, kbit in there.items()},
    )

    result = host.reconcile(wanted)

    assert result.ok, result.problems
    for one in result.links:
        assert one.to_user is not None
        assert one.from_user is not None
        assert (one.to_user.rate_kbit, one.from_user.rate_kbit) == one.limits
    classes = {dev: host.inside(lambda dev=dev: _classes(dev)) for dev in ("eth0", "tun0", "slbw0")}  # type: ignore[misc]
    leaves = {
        dev: {one["parent"]: one["options"]["limit"] for one in witness.qdiscs(host.ap, dev) if one["kind"] == "bfifo"}
        for dev in classes
    }
    for number, kbit in (here | there).items():
        dev, frame = ("eth0", mtu + 14) if number in here else ("tun0", mtu)
        _assert_kept(classes[dev], leaves[dev], 1, number, kbit, frame)
        # A packet of any link may come in by any interface: the greatest frame counts.
        _assert_kept(classes["slbw0"], leaves["slbw0"], 3, number, kbit, mtu + 14)
    assert witness.classes(host.ap, "eth0")["1:c"].rate_bits == 100_000_000_000
    assert witness.classes(host.ap, "tun0")["1:65"].rate_bits == 1_000
    assert host.reconcile(wanted).writes == 0


def directed(to_user_kbit: int, from_user_kbit: int) -> Entry:
    """A document's entry of link 1 with a limit for each direction."""
    both = {"Bandwidth-To-User": to_user_kbit, "Bandwidth-From-User": from_user_kbit}
    return entry(U1, min(to_user_kbit, from_user_kbit), **both)


def _rates(host: Host) -> dict[str, int]:
    found = witness.classes(host.ap, "eth0") | witness.classes(host.ap, "slbw0")
    return {name: one.rate_bits for name, one in found.items() if name in ("1:1", "3:1", "1:2", "3:2")}


def test_a_link_may_have_a_limit_for_each_direction(host: Host) -> None:
    wanted = links(l1=directed(500, 2_000), l2=entry(U1, 700, 50_001))
    result = host.reconcile(wanted)
    assert result.ok, result.problems
    assert _rates(host) == {"1:1": 500_000, "3:1": 2_000_000, "1:2": 700_000, "3:2": 700_000}
    to_user, from_user = result.links[0].to_user, result.links[0].from_user
    assert to_user is not None
    assert from_user is not None
    assert (to_user.rate_kbit, from_user.rate_kbit) == (500, 2_000)
    assert host.reconcile(wanted).writes == 0

    changed = host.reconcile(links(l1=directed(500, 3_000), l2=entry(U1, 700, 50_001)))
    assert changed.ok
    assert {op.device.name for op in changed.plan.ops} == {"slbw0"}
    assert {op.kind for op in changed.plan.ops} <= {"class-change", "leaf-change"}


def test_one_direction_may_be_blocked_alone(host: Host) -> None:
    result = host.reconcile(links(l1=directed(500, 0)))
    assert result.ok, result.problems
    to_user, from_user = result.links[0].to_user, result.links[0].from_user
    assert to_user is not None
    assert from_user is not None
    assert (to_user.rate_kbit, from_user.rate_kbit) == (500, 0)
    limits = {one["parent"]: one["options"]["limit"] for one in witness.qdiscs(host.ap) if one["kind"] == "bfifo"}
    assert {name: limit > 0 for name, limit in limits.items()} == {
        "1:1001": True,
        "1:2001": True,
        "3:1001": False,
        "3:2001": False,
    }
