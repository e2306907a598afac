"""From the first engine to this one: what it left in a kernel is found, counted, and taken away; nothing else is.

The first engine is real: the landed commit, run in the namespace. What happens to traffic: `test_upgrade_traffic`.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.dataplane.attributes import Message
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.rtsocket import Refusal, RtSocket
from ap_agent.document.state import ClosedSegment
from ap_agent.limiter import previous_engine, previous_objects
from ap_agent.limiter.enforcing import Enforcer, find_previous_engine
from ap_agent.limiter.previous_engine import Removed
from lab import witness
from measuring.iproute import available, cleanup_stale
from measuring.netns import Lab, Namespace
from tests.kernel.engine_bed import link, wanted
from tests.kernel.landed import FirstEngine, first_engine, landed_code
from tests.kernel.packets import SCION_DATA, SCION_HEARTBEAT, Datagram

__all__ = ["first_engine", "landed_code"]

pytestmark = pytest.mark.kernel

PREFIX = "slbwup"
U1, U2, U6 = "192.0.2.11", "192.0.2.12", "2001:db8:1::11"


def entry(ip: str, kbit: int, port: int | None = 50000, **more: object) -> dict[str, Any]:
    found: dict[str, Any] = {"AS_ID": 0xB6, "IsUserAS": True, "Bandwidth": kbit, "IP-Address": ip, **more}
    return found | ({"Port": port} if port is not None else {})


LINKS = {
    "1": entry(U1, 500),
    "2": entry(U6, 800),
    "3": entry(U2, 0),
    "4": entry(U2, 300, 50004),
    "5": entry(U1, 9, None),
}


@dataclass
class Wire:
    """An attachment point and its users behind one interface."""

    ap: Namespace
    user: Namespace

    def upgrade(self) -> Removed:
        """Without anything in the place of what goes: as `reset` does it."""
        previous = self.ap.call(previous_engine.find)
        assert previous is not None
        self.ap.call(previous.make_way)
        return self.ap.call(lambda: previous.remove(dict))

    def tc(self, line: str) -> str:
        return self.ap.run("tc", *line.split())

    def everything(self) -> str:
        """Devices, qdiscs and filters as iproute2 shows them."""
        devices = sorted(witness.links(self.ap))
        shown = {
            name: {
                "qdiscs": [
                    f"{one['kind']} {one['handle']} {one.get('options')}" for one in witness.qdiscs(self.ap, name)
                ],
                "classes": sorted(witness.classes(self.ap, name)),
                "filters": {at: self._filters(name, at) for at in ("root", "ingress", "egress")},
            }
            for name in devices
        }
        return json.dumps(shown, indent=1)

    def _filters(self, name: str, at: str) -> str:
        return self.ap.run("tc", "filter", "show", "dev", name, *([] if at == "root" else [at]), check=False)


@pytest.fixture
def wire() -> Iterator[Wire]:
    missing = available()
    if missing is not None:
        pytest.skip(missing)
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("u1")
        lab.veth(
            ap.nic("eth0", "192.0.2.1/24", "2001:db8:1::1/64"), user.nic("eth0", f"{U1}/24", f"{U2}/24", f"{U6}/64")
        )
        yield Wire(ap, user)


def test_a_host_that_never_had_the_first_engine_has_nothing_of_it(wire: Wire) -> None:
    assert wire.ap.call(previous_engine.find) is None
    wire.tc("qdisc add dev eth0 root handle 1: htb default 9999")  # the thesis' program
    wire.tc("qdisc add dev eth0 clsact")
    wire.tc("filter add dev eth0 ingress pref 110 protocol ip u32 match ip src 203.0.113.7/32 flowid 9:9")
    assert wire.ap.call(previous_engine.find) is None


@pytest.mark.parametrize(
    "settings",
    [{}, {"unmatched": "default", "default_bandwidth_kbit": 5000}, {"whole_datagrams": True}, {"interfaces": ["eth0"]}],
    ids=["plain", "with a limit of everything else", "with whole datagrams", "with a list of interfaces"],
)
def test_all_that_the_first_engine_made_goes(
    wire: Wire, first_engine: FirstEngine, settings: dict[str, object]
) -> None:
    before = wire.everything()
    first_engine.enforce(wire.ap, LINKS, **settings)
    assert wire.everything() != before

    removed = wire.upgrade()

    assert removed.problems == ()
    assert wire.everything() == before
    assert wire.ap.call(previous_engine.find) is None


def test_last_counters_of_the_old_classes_are_handed_over_with_their_marks(
    wire: Wire, first_engine: FirstEngine
) -> None:
    first_engine.enforce(wire.ap, LINKS)
    to_user, from_user = first_engine.marks(wire.ap, "eth0"), first_engine.marks(wire.ap, "slbw0")
    for payload, count in ((SCION_DATA, 7), (SCION_HEARTBEAT, 3)):
        wire.ap.call(lambda: Datagram(("192.0.2.1", 51001), (U1, 50000), payload).send(count))  # noqa: B023
        wire.user.call(lambda: Datagram((U6, 50000), ("2001:db8:1::1", 51002), payload).send(count))  # noqa: B023
        wire.ap.call(lambda: Datagram(("192.0.2.1", 51003), (U2, 50000), payload).send(count))  # noqa: B023

    removed = wire.upgrade()

    found = {(one.interface_id, one.direction): one for one in removed.closed}
    assert sorted(found) == [(link, direction) for link in range(1, 6) for direction in ("from_user", "to_user")]
    assert {link: found[link, "to_user"].segment for link in range(1, 6)} == to_user
    assert {link: found[link, "from_user"].segment for link in range(1, 6)} == from_user
    frame = len(SCION_DATA) + 8 + 20 + 14
    assert summary(found[1, "to_user"]) == (500, 10 * frame, 10, 0, 3 * frame, 3)
    assert summary(found[1, "from_user"]) == (500, 0, 0, 0, 0, 0)
    assert summary(found[2, "from_user"]) == (800, 10 * (frame + 20), 10, 0, 3 * (frame + 20), 3)
    assert summary(found[3, "to_user"])[1:4] == (0, 0, 10)  # blocked: all were dropped


def summary(one: ClosedSegment) -> tuple[int, int, int, int, int, int]:
    counters = one.counters
    passed, beats = (
        (counters.passed_bytes, counters.passed_packets),
        (counters.heartbeat_bytes, counters.heartbeat_packets),
    )
    return one.rate_kbit, *passed, counters.refused_packets, *beats


def test_an_operators_class_and_filter_inside_the_old_root_keep_it(wire: Wire, first_engine: FirstEngine) -> None:
    first_engine.enforce(wire.ap, LINKS)
    wire.tc("class add dev eth0 parent 1: classid 1:7777 htb rate 1mbit")
    wire.tc("filter add dev eth0 parent 1: pref 300 protocol ip u32 match ip dst 203.0.113.7/32 flowid 1:7777")

    removed = wire.upgrade()

    assert [(one.code, one.subject) for one in removed.problems] == [("previous_engine", "eth0")]
    assert "foreign filters and classes" in removed.problems[0].message
    assert "tc qdisc del dev eth0 root" in removed.problems[0].message
    assert list(witness.classes(wire.ap, "eth0")) == ["1:7777"]
    assert "flowid 1:7777" in wire.tc("filter show dev eth0 parent 1:")
    assert {one["pref"] for one in witness.filters(wire.ap, "eth0", "1:")} == {300}
    assert "slbwold" not in witness.links(wire.ap)
    assert {len(removed.closed)} == {10}


def test_an_operators_filter_among_the_old_redirects_stays_with_its_clsact(
    wire: Wire, first_engine: FirstEngine
) -> None:
    wire.tc("qdisc add dev eth0 clsact")
    wire.tc("filter add dev eth0 egress pref 7 protocol ip u32 match ip dst 203.0.113.7/32 flowid 9:9")
    wire.tc("filter add dev eth0 ingress pref 110 protocol ip u32 match ip src 203.0.113.7/32 flowid 9:9")
    before = wire.everything()
    first_engine.enforce(wire.ap, LINKS)

    removed = wire.upgrade()

    assert removed.problems == ()
    assert wire.everything() == before


def test_an_operators_redirect_into_the_old_ifb_keeps_it_under_another_name(
    wire: Wire, first_engine: FirstEngine
) -> None:
    first_engine.enforce(wire.ap, LINKS)
    wire.tc(
        "filter add dev eth0 ingress pref 300 protocol ip u32 match ip src 203.0.113.7/32 "
        "action mirred egress redirect dev slbw0"
    )

    removed = wire.upgrade()

    assert [(one.code, one.subject) for one in removed.problems] == [("previous_engine", "slbwold")]
    assert "foreign redirects to it" in removed.problems[0].message
    assert "ip link del slbwold" in removed.problems[0].message
    assert witness.classes(wire.ap, "slbwold") == {}
    assert witness.filters(wire.ap, "eth0", "egress") == []
    prefs = {one["pref"] for one in witness.filters(wire.ap, "eth0", "ingress")}
    assert prefs == {300, 100}  # his, and the note that the clsact came with the first engine


def test_redirects_to_an_ifb_that_somebody_deleted_go_too(wire: Wire, first_engine: FirstEngine) -> None:
    before = wire.everything()
    first_engine.enforce(wire.ap, LINKS)
    wire.ap.ip("link", "del", "slbw0")
    wire.tc("qdisc del dev eth0 root")

    removed = wire.upgrade()

    assert removed == ((), ())
    assert wire.everything() == before


def test_what_was_begun_by_a_limiter_that_died_is_found_again(wire: Wire, first_engine: FirstEngine) -> None:
    before = wire.everything()
    first_engine.enforce(wire.ap, LINKS)
    first = wire.ap.call(previous_engine.find)
    assert first is not None
    wire.ap.call(first.make_way)
    first.close()  # it is killed
    assert "slbwold" in witness.links(wire.ap)

    removed = wire.upgrade()

    assert len(removed.closed) == 10
    assert wire.everything() == before


@dataclass
class InOrder:
    """The kernel, and what it was asked for until packets were led past the old classes."""

    real: Any
    asked: list[str] = field(default_factory=list)

    def classes(self, ifindex: int) -> Any:
        self.asked.append("our queues")
        return self.real.classes(ifindex)

    def send(self, messages: Any) -> Any:
        self.asked.append("past the old classes")
        return self.real.send(messages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_our_queues_are_read_before_packets_are_led_past_the_old_classes(wire: Wire, first_engine: FirstEngine) -> None:
    # A packet that left our queue afterwards was counted by nobody else: it must not be taken off the bill.
    first_engine.enforce(wire.ap, LINKS)
    previous = wire.ap.call(previous_engine.find)
    assert previous is not None
    wire.ap.call(previous.make_way)
    wire.ap.ip("link", "add", "slbw0", "type", "ifb")
    previous.kernel = kernel = cast("previous_objects.Kernel", InOrder(previous.kernel))

    def lanes() -> dict[Any, Any]:
        cast("InOrder", kernel).asked.append("our counters")
        return {}

    wire.ap.call(lambda: previous.remove(lanes))
    asked = cast("InOrder", kernel).asked
    begin = asked.index("our counters")
    assert asked[begin : begin + 3] == ["our counters", "our queues", "past the old classes"]


class BeforeLinux62:
    """The kernel's socket, but a device that is up cannot be renamed."""

    def __init__(self, real: RtSocket) -> None:
        self._real = real

    def send(self, groups: list[list[Message]]) -> list[Refusal | None]:
        return [Refusal(0, errno.EBUSY)] if len(groups[0]) == 1 else self._real.send(groups)


def test_before_linux_6_2_the_old_ifb_gets_its_other_name_while_it_is_down(
    wire: Wire, first_engine: FirstEngine
) -> None:
    first_engine.enforce(wire.ap, LINKS)
    previous = wire.ap.call(previous_engine.find)
    assert previous is not None
    real, classes = previous.kernel.socket, previous.kernel.classes
    previous.kernel = cast("previous_objects.Kernel", SimpleNamespace(socket=BeforeLinux62(real), classes=classes))

    wire.ap.call(previous.make_way)
    real.close()

    assert "slbw0" not in witness.links(wire.ap)
    assert "UP" in witness.links(wire.ap)["slbwold"]["flags"]
    assert len(witness.classes(wire.ap, "slbwold")) == 15
    assert wire.upgrade().problems == ()


def test_a_reset_takes_the_clsact_that_came_with_the_first_engine(
    wire: Wire, first_engine: FirstEngine, tmp_path: Path
) -> None:
    """Our hooks sat in it, and the note that the first engine had made it stayed until now."""
    before = wire.everything()
    first_engine.enforce(wire.ap, LINKS)
    engine = wire.ap.call(lambda: Engine(tmp_path / "maps"))
    previous = wire.ap.call(find_previous_engine)
    assert previous is not None
    outcome, removed = wire.ap.call(
        lambda: previous_engine.replace_by(previous, engine, wanted(link(1, 500, ip=U1)), lambda _: None)
    )
    assert removed is not None
    assert (outcome.problems, removed.problems) == ((), ())
    enforcer = Enforcer(Settings(), engine, get_logger(), lambda _: None)
    assert wire.ap.call(enforcer.reset)
    engine.close()
    assert wire.everything() == before
