"""What a plan says and in which order: one sentence per rule of docs/adr/0002."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter

import pytest

from ap_agent.model import EngineSettings
from ap_agent.ops import ClassChange
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
    assert order[-2:] == [("eth0", "clsact-add"), ("eth0", "filter-add")]
    assert [dev for dev, _ in order] == ["slbw0"] * 11 + ["eth0"] * 12


def test_a_removed_link_loses_its_redirect_then_filters_then_leaves_then_the_inner_class() -> None:
    kernel = after(link(1, 500), link(2, 600, remote="192.0.2.12"))
    ops = plan_of(kernel, link(2, 600, remote="192.0.2.12")).ops
    assert str(ops[0]) == ("eth0: delete filter ip pref 110 at ffff:fff2 src 192.0.2.11 udp -> redirect to slbw0")
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
    assert (result.links[0].state, result.links[0].kbit) == ("error", 800)
    assert result.links[0].to_user is not None
    assert result.links[0].to_user.rate_kbit == 500
    assert result.links[0].problem == (
        "Not enforced yet: slbw0: class 3:1 rate 500 -> 800 kbit/s (link 1, from the user AS)."
    )


def test_a_full_list_loses_its_old_filters_before_the_new_ones_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """u32 accepts more than 4095 filters in one list and mixes them up."""
    monkeypatch.setattr("ap_agent.plan.MAX_LIST_FILTERS", 3)
    before = [link(number, 500, 50000 + number) for number in (1, 2)]
    moved = [link(number, 500, 51000 + number) for number in (1, 2)]
    kernel = after(*before)
    longest = 0
    for op in plan_of(kernel, *moved).ops:
        kernel.apply_one(op)
        for tree in kernel.trees.values():
            lists = Counter(one.list_key for one in tree.filters if one.handle)
            longest = max(longest, *lists.values(), 0)
    assert longest == 3
    assert plan_of(kernel, *moved).is_empty
