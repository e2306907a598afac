"""What a plan says and in which order: one sentence per rule of docs/adr/0002."""

from __future__ import annotations

import ipaddress
import json

import pytest

from ap_agent.model import INGRESS_HOOK, EngineSettings, Handle
from ap_agent.ops import ClassChange, FilterAdd, TableAdd
from ap_agent.plan import Plan
from ap_agent.reconcile import plan_cycle, reconcile
from bandwidth_config import LinkInfo
from tests.property.fake_kernel import FakeKernel
from tests.property.test_plan_properties import fresh_kernel

SETTINGS = EngineSettings()


def link(number: int, kbit: int, port: int | None = 50000, remote: str = "192.0.2.11") -> LinkInfo:
    return LinkInfo(number, 0xB6, True, kbit, ipaddress.ip_address(remote), remote_port=port)


def links(*all_: LinkInfo) -> dict[int, LinkInfo]:
    return {one.interface_id: one for one in all_}


def after(*all_: LinkInfo) -> FakeKernel:
    kernel = fresh_kernel()
    assert reconcile(links(*all_), SETTINGS, kernel=kernel).ok
    return kernel


def plan_of(kernel: FakeKernel, *all_: LinkInfo) -> Plan:
    return plan_cycle(links(*all_), SETTINGS, kernel=kernel).plan


def test_lower_rate_changes_class_in_place() -> None:
    plan = plan_of(after(link(1, 800)), link(1, 500))
    assert plan.render_text().splitlines() == [
        "slbw0: class 3:1001 rate 784 -> 484 kbit/s, ceil 800 -> 500 kbit/s (link 1, data, from the user AS)",
        "slbw0: class 3:1 rate 800 -> 500 kbit/s (link 1, from the user AS)",
        "slbw0: leaf 1001: limit 10000 -> 6250 B under class 3:1001 (link 1, data, from the user AS)",
        "eth0: class 1:1001 rate 784 -> 484 kbit/s, ceil 800 -> 500 kbit/s (link 1, data, to the user AS)",
        "eth0: class 1:1 rate 800 -> 500 kbit/s (link 1, to the user AS)",
        "eth0: leaf 1001: limit 10000 -> 6250 B under class 1:1001 (link 1, data, to the user AS)",
    ]


def test_higher_rate_raises_the_parent_first() -> None:
    plan = plan_of(after(link(1, 500)), link(1, 800))
    changed = [str(op.new.handle) for op in plan.ops if isinstance(op, ClassChange)]
    assert changed == ["3:1", "3:1001", "1:1", "1:1001"]
    assert [op.kind for op in plan.ops] == ["class-change", "class-change", "leaf-change"] * 2


def test_blocking_closes_the_leaves_first_and_unblocking_opens_them_last() -> None:
    blocking = [op.kind for op in plan_of(after(link(1, 500)), link(1, 0)).ops if op.device.name == "eth0"]
    assert blocking == ["leaf-replace"] * 2 + ["class-change"] * 3
    unblocking = [op.kind for op in plan_of(after(link(1, 0)), link(1, 500)).ops if op.device.name == "eth0"]
    assert unblocking == ["class-change"] * 3 + ["leaf-change"] * 2


def test_a_new_link_gets_the_ifb_before_the_interface_and_the_redirect_last() -> None:
    plan = plan_of(fresh_kernel(), link(1, 500))
    order = [(op.device.name, op.kind) for op in plan.ops]
    assert order[0] == ("slbw0", "ifb-add")
    assert order[1] == ("slbw0", "root-add")
    assert order[-8:] == [("eth0", kind) for kind in ["clsact-add"] + ["table-add"] * 3 + ["filter-add"] * 4]
    assert [dev for dev, _ in order] == ["slbw0"] * 19 + ["eth0"] * 26


@pytest.mark.parametrize("hook", [Handle(1), Handle(3), INGRESS_HOOK])
def test_what_leads_into_an_index_is_added_when_everything_behind_it_is_there(hook: Handle) -> None:
    ops = plan_of(fresh_kernel(), link(1, 500), link(2, 600, remote="192.0.2.12")).ops
    own = [op for op in ops if isinstance(op, TableAdd | FilterAdd) and op.new.hook == hook]
    heads = [number for number, op in enumerate(own) if isinstance(op, FilterAdd) and op.is_head]
    assert len(heads) == (1 if hook == INGRESS_HOOK else 2)
    first = 0
    for number in heads:
        assert {op.new.pref for op in own[first : number + 1]} == {own[number].new.pref}
        first = number + 1
    assert first == len(own)


def test_a_table_is_added_before_its_filters_and_they_before_what_leads_to_it() -> None:
    ops = plan_of(fresh_kernel(), link(1, 500), link(2, 600, remote="192.0.2.12")).ops
    there: set[tuple[str, Handle, int]] = set()
    for op in ops:
        if isinstance(op, TableAdd):
            there.add((op.device.name, op.new.hook, op.new.table))
        elif isinstance(op, FilterAdd):
            assert not op.handle or (op.device.name, op.new.hook, op.handle >> 20) in there
            assert op.new.table is None or (op.device.name, op.new.hook, op.new.table) in there
    # Per device two indexes of two tables; on ingress one with a table for the redirects.
    assert len(there) == 2 * 2 * 2 + 3


def test_a_removed_link_loses_its_redirect_then_filters_then_leaves_then_the_inner_class() -> None:
    kernel = after(link(1, 500), link(2, 600, remote="192.0.2.12"))
    ops = plan_of(kernel, link(2, 600, remote="192.0.2.12")).ops
    assert str(ops[0]) == "eth0: delete filter ip pref 110 at ffff:fff2 3:b:10 src 192.0.2.11 -> table 1:"
    on_eth0 = [op for op in ops[1:] if op.device.name == "eth0"]
    assert [op.kind for op in on_eth0] == ["filter-del"] * 4 + ["class-del"] * 3
    assert [str(op).split()[3] for op in on_eth0[-3:]] == ["1:1001", "1:2001", "1:1"]
    assert [op.device.name for op in ops] == ["eth0"] * 8 + ["slbw0"] * 7


def test_removing_everything_takes_three_operations() -> None:
    plan = plan_of(after(link(1, 500)))
    assert plan.render_text().splitlines() == [
        "eth0: delete our clsact with our redirects",
        "eth0: delete root 1: with its classes and filters",
        "slbw0: delete this IFB with everything on it",
    ]


def test_an_empty_plan_says_so() -> None:
    plan = plan_of(after(link(1, 500)), link(1, 500))
    assert plan.is_empty
    assert plan.render_text() == "Nothing to do: the kernel has what it should have."
    assert plan.to_json() == {"ops": [], "problems": []}


def test_a_plan_as_json_names_operation_device_links_and_text() -> None:
    plan = plan_of(after(link(1, 500), link(2, 600, 50001)), link(1, 500), link(2, 900, 50001))
    loaded = json.loads(json.dumps(plan.to_json()))
    assert loaded["ops"][0] == {
        "op": "class-change",
        "dev": "slbw0",
        "links": [2],
        "text": "slbw0: class 3:2 rate 600 -> 900 kbit/s (link 2, from the user AS)",
        "old": {
            "handle": "3:2",
            "parent": "3:",
            "rate_bytes_s": 75_000,
            "ceil_bytes_s": 75_000,
            "burst_bytes": 3_028,
            "cburst_bytes": 3_028,
            "quantum_bytes": 0,
            "prio": 0,
            "accounting": [1, 0, 0],
        },
        "new": {
            "handle": "3:2",
            "parent": "3:",
            "rate_bytes_s": 112_500,
            "ceil_bytes_s": 112_500,
            "burst_bytes": 3_028,
            "cburst_bytes": 3_028,
            "quantum_bytes": 0,
            "prio": 0,
            "accounting": [1, 0, 0],
        },
    }


def test_a_cycle_without_kernel_changes_reports_what_is_there_now() -> None:
    kernel = after(link(1, 500))
    result = plan_cycle(links(link(1, 800)), SETTINGS, kernel=kernel)
    assert result.writes == 0
    assert (result.links[0].state, result.links[0].limits) == ("error", (800, 800))
    assert result.links[0].to_user is not None
    assert result.links[0].to_user.rate_kbit == 500
    assert result.links[0].problem == (
        "Not enforced yet: slbw0: class 3:1 rate 500 -> 800 kbit/s (link 1, from the user AS)."
    )
