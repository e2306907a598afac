"""In which order objects come and go: what refers to something comes after it and goes before it."""

from __future__ import annotations

from ap_agent.dataplane.lanes import Lane
from ap_agent.dataplane.tc import HtbClass
from ap_agent.dataplane.tree import Hook, Tree, difference, limits_of, new_tree
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
