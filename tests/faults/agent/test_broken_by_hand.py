"""What somebody does to a limited host by hand: the limiter hears of it from the kernel, and repairs or reports it.

Each fault of `lab.faults` under traffic; nothing polls or compares during a run, so a fault that the kernel does not
tell of stays. The faults share a host: what a repair leaves changed is undone before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from lab.fault_world import NETS, FaultWorld
from lab.faults import DEVICES, FAULTS, measure
from tests.support.namespaces import need_namespaces

PREFIX = "slbwb"
REPAIRED_MS = 3_000
UNDO_DEADLINE_S = 10.0


def _take_third_card_away(world: FaultWorld) -> None:
    world.route_over(NETS["eth0"])
    world.ap.ip("link", "del", "eth2")


def _move_addresses_back(world: FaultWorld) -> None:
    for host, address in ((world.user, "192.0.2.11/24"), (world.ap, "192.0.2.1/24")):
        host.ip_batch([f"addr del {address} dev eth1", f"addr add {address} dev eth0"])
    world.route_over(NETS["eth0"])


# For the faults that change more than what the limiter made.
UNDO: dict[str, Callable[[FaultWorld], object]] = {
    "the interface gets another name": lambda world: world.ap.ip("link", "set", "wan0", "name", "eth0"),
    "the interface gets another MTU": lambda world: world.ap.ip("link", "set", "eth0", "mtu", "1500"),
    "there is another card, and a link moves there": _take_third_card_away,
    "the address moves": _move_addresses_back,
    "the route moves": lambda world: world.route_over(NETS["eth0"]),
    "a rule moves the route": lambda world: world.ap.ip_batch(
        ["rule del to 203.0.113.11 lookup 77", "route del 203.0.113.11 table 77"]
    ),
    "the card's root is another tool's": lambda world: world.tc("qdisc", "del", "dev", "eth0", "root"),
}
# Their programs stay in front of the limiter's for as long as the device is there.
LAST_OF_A_HOST = {"a tcx program is in front", "a filter in front sets the priority"}


class Hosts:
    """The host that the faults share, a new one where the last fault left it unusable."""

    def __init__(self) -> None:
        self._closing = ExitStack()
        self._world: FaultWorld | None = None

    def world(self) -> FaultWorld:
        if self._world is None:
            self._world = self._closing.enter_context(FaultWorld(PREFIX))
        return self._world

    def close(self) -> None:
        self._world = None
        self._closing.close()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    need_namespaces(PREFIX)
    made = Hosts()
    yield made
    made.close()


@pytest.mark.measured
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_repaired_or_reported(hosts: Hosts, name: str) -> None:
    fault, is_whole = FAULTS[name], False
    try:
        world = hosts.world()
        for who, one in measure(world, fault).items():
            assert one.unlimited_ms < REPAIRED_MS or fault.leaves_unlimited, who
            assert one.silent_ms < REPAIRED_MS or fault.leaves_silent, who
            assert one.limited_at_end or fault.leaves_unlimited, who
            assert one.flows_at_end or fault.leaves_silent, who
        assert world.programs.planned_writes() == 0
        if name in UNDO:
            UNDO[name](world)
            world.programs.until(lambda: world.stands(*DEVICES), UNDO_DEADLINE_S)
        is_whole = name not in LAST_OF_A_HOST
    finally:
        if not is_whole:
            hosts.close()
