"""What others have on the host stays as it is, what stands in our way is named, and which devices are looked at."""

from __future__ import annotations

import ctypes

import pytest

from ap_agent.dataplane.lanes import OWN_MAJOR
from ap_agent.dataplane.libbpf import BPF_TCX_EGRESS, BPF_TCX_INGRESS, pin
from ap_agent.dataplane.program import OBJECT, Program, _load
from tests.kernel.engine_bed import (
    AP1,
    AP_PORT,
    BPF_PROG_TYPE_SCHED_CLS,
    U1,
    U2,
    USER_PORT,
    EngineBed,
    flow,
    link,
    load_program,
    wanted,
)

EVERYTHING = ["protocol", "all", "u32", "match", "u32", "0", "0", "flowid", "1:1"]
ONE = wanted(link(7, 500, 1000))


def test_a_foreign_ingress_qdisc_lets_us_limit_what_comes_and_is_named(bed: EngineBed) -> None:
    bed.tc("qdisc", "add", "dev", "eth0", "ingress")
    before = bed.snapshot()
    outcome = bed.enforce(ONE)
    assert [(one.code, one.subject) for one in outcome.problems] == [("hook_obstructed", "eth0")]
    assert not outcome.is_ok
    assert outcome.failed == {7: outcome.problems[0].message}
    assert outcome.classifying == ("eth1",)
    assert bed.enforce(wanted(link(7, 500, 1000), unmatched_kbit=1000)).failed.keys() == {0, 7}
    assert bed.enforce(ONE).failed.keys() == {7}
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)
    assert bed.received_kbit(to_user=True) == pytest.approx(4000, rel=0.1)
    assert bed.enforce(ONE).writes == 0
    assert bed.reset().is_ok
    assert bed.snapshot() == before
    bed.tc("qdisc", "del", "dev", "eth0", "ingress")
    outcome = bed.enforce(ONE)
    assert (outcome.is_ok, outcome.classifying) == (True, ("eth0", "eth1"))
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)


@pytest.mark.parametrize("has_filter", [True, False])
def test_a_foreign_clsact_stays_with_its_filters(bed: EngineBed, has_filter: bool) -> None:
    bed.tc("qdisc", "add", "dev", "eth0", "clsact")
    if has_filter:
        bed.tc("filter", "add", "dev", "eth0", "egress", "pref", "300", *EVERYTHING)
    before = bed.snapshot()
    outcome = bed.enforce(ONE)
    assert outcome.is_ok
    assert [one.code for one in outcome.problems] == (["filter_behind"] if has_filter else [])
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    assert bed.reset().is_ok
    assert bed.snapshot() == before


def test_our_clsact_stays_where_somebody_else_uses_it_meanwhile(bed: EngineBed) -> None:
    bed.enforce(ONE)
    bed.tc("filter", "add", "dev", "eth0", "ingress", "pref", "300", *EVERYTHING)
    assert bed.reset().is_ok
    assert "clsact" in bed.tc("qdisc", "show", "dev", "eth0")
    assert "match 00000000" in bed.tc("filter", "show", "dev", "eth0", "ingress")
    assert "clsact" not in bed.tc("qdisc", "show", "dev", "eth1")


def test_a_filter_in_front_of_ours_is_named(bed: EngineBed) -> None:
    bed.enforce(ONE)
    bed.tc("filter", "add", "dev", "eth0", "egress", "pref", "3", *EVERYTHING)
    outcome = bed.enforce(ONE)
    assert [(one.code, one.subject) for one in outcome.problems] == [("hook_obstructed", "eth0")]
    assert "preference 3 at egress" in outcome.problems[0].message
    assert (outcome.is_ok, outcome.writes, set(outcome.failed)) == (False, 0, {7})


@pytest.mark.parametrize("priority", [0x0001_0007, OWN_MAJOR << 16 | 7], ids=["somebody's class", "our class"])
@pytest.mark.parametrize("is_tcx", [False, True], ids=["filter", "tcx"])
def test_limits_hold_behind_a_program_that_sets_the_priority_of_all_that_leaves(
    bed: EngineBed, is_tcx: bool, priority: int
) -> None:
    bed.enforce(ONE)
    # skb->priority = priority; return TC_ACT_UNSPEC
    code = ((0xB4, 0x02, 0, priority), (0x63, 0x21, 32, 0), (0xB4, 0x00, 0, -1), (0x95, 0x00, 0, 0))
    fd = load_program(BPF_PROG_TYPE_SCHED_CLS, *code)
    if is_tcx:
        ifindex = next(one.ifindex for one in bed.ap.call(bed.engine.host).devices if one.name == "eth0")
        if not bed.ap.call(lambda: _attach_tcx(fd, ifindex, BPF_TCX_EGRESS)):
            pytest.skip("this kernel has no tcx (before 6.6)")
    else:
        pin(fd, bed.maps_dir / "foreign")
        at = ["dev", "eth0", "egress", "pref", "3", "protocol", "all", "bpf", "direct-action"]
        bed.tc("filter", "add", *at, "object-pinned", str(bed.maps_dir / "foreign"))
    before = bed.engine.counters()[7, "to_user"][1]
    received, _ = flow(bed.ap, (AP1, AP_PORT), bed.u1, (U1, USER_PORT), kbit=300, seconds=1.0)
    after = bed.engine.counters()[7, "to_user"][1]
    assert received > 100
    charged = after.passed_packets - before.passed_packets
    assert charged == pytest.approx(received / 8, abs=3)  # each of 1000 B, and once
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    outcome = bed.ap.call(lambda: bed.enforce(ONE))
    assert [(one.code, one.subject) for one in outcome.problems] == [("hook_obstructed", "eth0")]


def test_a_tcx_program_in_front_is_named(bed: EngineBed) -> None:
    bed.enforce(ONE)
    fd = Program(_load(OBJECT, {})).fds["admitted"]
    ifindex = next(one.ifindex for one in bed.ap.call(bed.engine.host).devices if one.name == "eth0")
    if not bed.ap.call(lambda: _attach_tcx(fd, ifindex)):
        pytest.skip("this kernel has no tcx (before 6.6)")
    outcome = bed.ap.call(lambda: bed.enforce(ONE))  # who is there is asked by interface number, in our own namespace
    assert [(one.code, one.subject) for one in outcome.problems] == [("hook_obstructed", "eth0")]
    assert "1 tcx program at ingress is in front of the limiter" in outcome.problems[0].message
    assert (outcome.is_ok, outcome.writes, set(outcome.failed)) == (False, 0, {7})


def _attach_tcx(program_fd: int, ifindex: int, where: int = BPF_TCX_INGRESS) -> bool:
    libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
    return bool(libbpf.bpf_prog_attach(program_fd, ifindex, where, 0) == 0)


def test_a_card_that_changes_its_mtu_or_address_stays_limited(bed: EngineBed) -> None:
    bed.enforce(ONE)
    bed.ap.ip("link", "set", "eth0", "mtu", "9000")
    bed.u1.ip("link", "set", "eth0", "mtu", "9000")
    bed.ap.ip("addr", "add", "192.0.2.2/24", "dev", "eth0")
    assert bed.enforce(ONE).writes == 0
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)


def test_a_foreign_root_stays_as_it_is_and_the_limit_holds(bed: EngineBed) -> None:
    """With the class ids of everybody."""
    bed.tc("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "10")
    for minor, rate in (("10", "900mbit"), ("7", "8kbit")):
        bed.tc("class", "add", "dev", "eth0", "parent", "1:", "classid", f"1:{minor}", "htb", "rate", rate)
    before = bed.tc("qdisc", "show", "dev", "eth0", "root"), bed.tc("class", "show", "dev", "eth0")
    bed.enforce(ONE)
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)
    assert (bed.tc("qdisc", "show", "dev", "eth0", "root"), bed.tc("class", "show", "dev", "eth0")) == before


def test_a_device_of_our_name_that_is_not_ours_is_named_and_stays(bed: EngineBed) -> None:
    bed.ap.ip("link", "add", "slbw1", "type", "ifb")
    before = bed.snapshot()
    outcome = bed.enforce(ONE)
    assert [(one.code, one.subject) for one in outcome.problems] == [("foreign_device", "slbw1")]
    assert (set(outcome.failed), outcome.writes) == ({7}, 0)
    assert bed.snapshot() == before


def test_only_chosen_interfaces_are_looked_at_and_a_missing_one_is_named(bed: EngineBed) -> None:
    bed.enforce(ONE)
    links = link(7, 500, 1000), link(8, 300, ip=U2)
    outcome = bed.enforce(wanted(*links, interfaces=("eth1", "eth9")))
    assert outcome.devices == ("eth0", "eth1")  # it may be eth0 that was called eth9
    assert [(one.code, one.subject) for one in outcome.problems] == [("interface_missing", "eth9")]
    outcome = bed.enforce(wanted(*links, interfaces=("eth1",)))
    assert (outcome.devices, outcome.problems) == (("eth1",), ())
    assert "clsact" not in bed.tc("qdisc", "show", "dev", "eth0")
    assert bed.received_kbit(to_user=True, user=U2) == pytest.approx(300, abs=220)
