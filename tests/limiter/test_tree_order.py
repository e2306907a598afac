"""In which order objects come and go: what refers to something comes after it and goes before it."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from ap_agent.dataplane.lanes import Lane
from ap_agent.dataplane.program import Key
from ap_agent.dataplane.tc import HtbClass
from ap_agent.dataplane.tree import Hook, Operation, Target, Tree, difference, limits_of, new_tree
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from bandwidth_config import Limits

BOTH = ("slbw0", "slbw1")


def whole_tree(kbit: int = 500) -> Tree:
    """One link, unmatched traffic, one device with both hooks and a clsact that is ours."""
    tree = new_tree()
    tree["ifb", ""] = tree["root", ""] = dict.fromkeys(BOTH, True)
    tree["unmatched", ""] = {0: 8190}
    tree["clsact", ""] = {}
    add_link(tree, kbit)
    tree["hook", ""] = {(3, way): Hook(1, 2, is_redirected=True, is_with_clsact=False) for way in (0, 1)}
    return tree


def add_link(tree: Tree, kbit: int) -> None:
    for way, ifb in enumerate(BOTH):
        tree["lane", ""][14 + way] = Lane(kbit, 7 | 0x1000 * way).packed()
        tree["class", ifb][7 | 0x1000 * way] = HtbClass.of(kbit)
        tree["leaf", ifb][7 | 0x1000 * way] = 160_000
    tree["key", ""][bytes(40)] = 14


def test_a_links_limits_are_those_of_its_two_lanes() -> None:
    tree = whole_tree()
    tree["lane", ""][15] = Lane(64, 0x1007).packed()
    assert [limits_of(tree, one) for one in (7, 8)] == [Limits(500, 64), None]


def steps(now: Tree, then: Tree) -> list[str]:
    """Without repetition."""
    return list(dict.fromkeys(f"{one.kind} {one.table}" for one in difference(now, then, {3: "eth0"})))


def test_everything_comes_before_what_refers_to_it() -> None:
    assert steps(new_tree(), whole_tree()) == [
        *("add ifb", "add root", "add class", "add leaf", "add lane", "add key", "add unmatched", "add hook")
    ]


def test_everything_goes_after_what_refers_to_it() -> None:
    assert steps(whole_tree(), new_tree()) == [
        *("remove hook", "remove unmatched", "remove key", "remove lane", "remove ifb")
    ]


def test_a_link_goes_from_its_keys_to_its_classes() -> None:
    then = whole_tree()
    for table in (("key", ""), ("lane", ""), ("class", "slbw0"), ("class", "slbw1")):
        then[table] = {}
    then["leaf", "slbw0"], then["leaf", "slbw1"] = {}, {}
    assert steps(whole_tree(), then) == ["remove key", "remove lane", "remove class"]


def test_what_shares_a_clsact_of_ours_goes_with_it_and_before_its_lanes() -> None:
    now = whole_tree()
    now["clsact", ""] = {3: True}
    now["stray", ""] = {9: "renamed"}
    now["hook", ""][4, 0] = now["hook", ""][3, 0]  # at a clsact of somebody else's
    assert steps(now, new_tree()) == [
        *("remove hook", "remove clsact", "remove unmatched", "remove key", "remove lane", "remove ifb", "remove stray")
    ]


def test_a_lower_limit_holds_in_the_program_first_and_a_higher_one_in_htb() -> None:
    assert steps(whole_tree(500), whole_tree(400)) == ["change lane", "change class"]
    assert steps(whole_tree(400), whole_tree(500)) == ["change class", "change lane"]


KEY = Key(ip_address("192.0.2.7"), 50_001)
KEY6 = Key(ip_address("2001:db8::7"), 50_001, ip_address("2001:db8::1"), 30_041)


@pytest.mark.parametrize(
    ("operation", "text", "links"),
    [
        (Operation("add", "ifb", "slbw0", "slbw0", None, True), "slbw0: add IFB", []),
        (
            Operation("change", "class", "slbw1", 0x1007, HtbClass.of(500), HtbClass.of(400)),
            "slbw1: change class 51b0:1007, 400 kbit/s",
            [7],
        ),
        (
            Operation("remove", "lane", "", 8191, Lane(64, 0x1FFF).packed()),
            "remove limit of unmatched traffic from the user, 64 kbit/s",
            [4095],
        ),
        (
            Operation("add", "key", "", KEY6.packed(), None, 14),
            "add packets of link 7: 2001:db8::7 port 50001 to 2001:db8::1 port 30041",
            [7],
        ),
        (
            Operation("change", "key", "", KEY.packed(), 16, 14),
            "change packets of link 7: 192.0.2.7 port 50001",
            [7, 8],
        ),
    ],
)
def test_an_operation_says_what_it_does_and_to_which_links(operation: Operation, text: str, links: list[int]) -> None:
    assert (str(operation).replace("\N{NO-BREAK SPACE}", " "), sorted(operation.links)) == (text, links)


def test_a_link_is_two_lanes_and_its_keys_and_a_blocked_direction_needs_no_class() -> None:
    target = Target()
    link = LimitedLink(7, (KEY,), 500, 0)
    before, after = target.update(Wanted({7: link}, unmatched_kbit=100))
    wanted = new_tree()
    wanted["ifb", ""] = wanted["root", ""] = dict.fromkeys(BOTH, True)
    wanted["lane", ""] = {
        14: Lane(500, 0x0007).packed(),
        15: Lane(0, 0x1007).packed(),
        8190: Lane(100, 0x0FFF).packed(),
        8191: Lane(100, 0x1FFF).packed(),
    }
    wanted["class", "slbw0"] = {7: HtbClass.of(500), 0xFFF: HtbClass.of(100)}
    wanted["class", "slbw1"] = {0x1FFF: HtbClass.of(100)}
    wanted["leaf", "slbw0"], wanted["leaf", "slbw1"] = {7: 160_000, 0xFFF: 160_000}, {0x1FFF: 160_000}
    wanted["key", ""], wanted["unmatched", ""] = {KEY.packed(): 14}, {0: 8190}
    assert target.tree == after == wanted
    assert before["lane", ""] == {}

    observed = LimitedLink(8, (), 64, 64, is_observed=True)
    before, after = target.update(Wanted({7: link, 8: observed}))
    assert (sorted(before["lane", ""]), before["unmatched", ""]) == ([8190, 8191], {0: 8190})
    assert after["lane", ""] == {
        16: Lane(64, 8, is_observed=True).packed(),
        17: Lane(64, 0x1008, is_observed=True).packed(),
    }
    assert (sorted(target.tree["lane", ""]), target.tree["unmatched", ""]) == ([14, 15, 16, 17], {})

    before, after = target.update(Wanted({8: observed}))
    assert (sorted(before["lane", ""]), sorted(target.tree["lane", ""]), after["lane", ""]) == ([14, 15], [16, 17], {})
    assert target.tree["key", ""] == {}

    target.update(Wanted())
    assert target.tree == new_tree()
