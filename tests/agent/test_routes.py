"""Uplinks, the plan for them and the verdict, without a kernel."""

from __future__ import annotations

from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any

import pytest

from ap_agent.routes.plan import Device, Goal, Operation, Present, Route, Rule, conflicts_of, goal_of, plan, problems_of
from ap_agent.routes.uplinks import Uplink, UplinksError, parse_uplinks, read_uplinks
from ap_agent.routes.verify import judge
from bandwidth_config import RuleError

A: dict[str, Any] = {
    "name": "a",
    "dev": "eth0",
    "table": 1000,
    "addresses": ["192.0.2.1", "2001:db8:1::1"],
    "gateway4": "192.0.2.254",
    "gateway6": "fe80::1",
}
B: dict[str, Any] = {
    "name": "b",
    "dev": "eth1",
    "table": 1001,
    "addresses": ["198.51.100.1"],
    "gateway4": "198.51.100.9",
}
NETWORKS = {
    "eth0": (ip_interface("192.0.2.1/24"), ip_interface("2001:db8:1::1/64")),
    "eth1": (ip_interface("198.51.100.1/24"),),
}
HOST = Present({"eth0": Device(2, True), "eth1": Device(3, True)}, NETWORKS)


def parsed(*uplinks: dict[str, Any]) -> tuple[Uplink, ...]:
    return parse_uplinks({"uplink": list(uplinks)})


def many(count: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"u{n}",
            "dev": f"eth{n}",
            "table": 1000 + n % 64,
            "addresses": [f"10.{n}.0.1"],
            "gateway4": f"10.{n}.0.2",
        }
        for n in range(count)
    ]


# --- uplinks.toml -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uplinks",
    [
        [A, B],
        many(64),
        [{**B, "table": 1063}],
        [{**B, "name": "x" * 32}],
        [{**B, "addresses": [f"198.51.100.{n}" for n in range(10, 26)]}],
        [{**B, "prefixes": [f"10.0.{n}.0/24" for n in range(16)]}],
    ],
)
def test_what_is_within_the_bounds_is_taken(uplinks: list[dict[str, Any]]) -> None:
    assert len(parsed(*uplinks)) == len(uplinks)


@pytest.mark.parametrize(
    ("uplinks", "code", "words"),
    [
        ([], "no_uplink", "write a table [[uplink]]"),
        (many(65), "too_many_uplinks", "65 uplinks are more than 64; remove"),
        ([{**B, "table": 999}], "value_invalid", "table = 999 is not a routing table: write a whole number"),
        ([{**B, "table": True}], "value_invalid", "table = True is not"),
        ([A, {**B, "table": 1000}], "table_overlap", 'uplinks "a" and "b" have the same table 1000; give each its own'),
        ([{**B, "name": "x" * 33}], "value_invalid", "1 to 32 lower-case"),
        ([{**B, "addresses": [f"198.51.100.{n}" for n in range(10, 27)]}], "value_invalid", "(17 are given)"),
        ([{**B, "prefixes": ["10.0.0.1/24"]}], "value_invalid", "has host bits set"),
        ([{**B, "prefixes": ["0.0.0.0/0"]}], "value_invalid", "not a network of other hosts"),
        ([{**B, "prefixes": ["2001:db8::/48"]}], "family_mismatch", "prefix 2001:db8::/48 needs gateway6"),
        ([{**B, "addresses": ["127.0.0.1"]}], "address_refused", "127.0.0.1 is a loopback address"),
        ([{**A, "addresses": ["192.0.2.1", "fe80::7"]}], "address_refused", "fe80::7 is link-local"),
        ([A, {**B, "addresses": ["192.0.2.1"]}], "address_claimed", '192.0.2.1 is claimed by "a" and "b"'),
        ([{**B, "addresses": ["198.51.100.1"] * 2}], "address_claimed", '198.51.100.1 is claimed by "b" twice'),
        ([{**B, "gateway4": "fe80::1"}], "family_mismatch", "gateway4 = fe80::1 is an IPv6 address; write it as"),
        ([{**B, "gateway6": "fe80::1"}], "family_mismatch", 'uplink "b" has the IPv6 gateway6, but no such address'),
        ([{**B, "gateway4": "198.51.100.1"}], "gateway_own", "gateway 198.51.100.1 is an address of this host"),
        ([{key: one for key, one in B.items() if key != "dev"}], "missing_key", "dev is missing; write an interface"),
        ([{**B, "gatewy4": "198.51.100.1"}], "unknown_key", 'unknown key "gatewy4". The keys are: name, dev, table'),
    ],
)  # fmt: skip
def test_what_is_beyond_is_refused_with_value_limit_and_remedy(
    uplinks: list[dict[str, Any]], code: str, words: str
) -> None:
    with pytest.raises(RuleError) as refused:
        parsed(*uplinks)
    assert refused.value.code == code
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"[[uplink]", "not_toml"),
        (b"#" * (256 * 1024 + 1), "not_toml"),
        (b"x = " + b"[" * 50_000, "not_toml"),
        (b"x = 1", "unknown_key"),
    ],
    ids=("broken", "too large", "too deep", "unknown key"),
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "uplinks.toml"
    with pytest.raises(UplinksError, match="does not exist"):
        read_uplinks(path)
    path.write_bytes(content)
    with pytest.raises(UplinksError, match=str(path)) as refused:
        read_uplinks(path)
    assert refused.value.code == code


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_rules_and_routes_of_two_uplinks() -> None:
    goal = goal_of(parsed(A, {**B, "prefixes": ["10.7.0.0/16"]}), HOST)
    assert sorted(map(str, goal.routes)) == [
        "route 192.0.2.0/24 dev eth0 table 1000",
        "route 192.0.2.0/24 via 198.51.100.9 dev eth1 table 1001",  # the network at the other uplink
        "route 198.51.100.0/24 dev eth1 table 1001",
        "route 198.51.100.0/24 via 192.0.2.254 dev eth0 table 1000",
        "route 2001:db8:1::/64 dev eth0 table 1000",
        "route default via 192.0.2.254 dev eth0 table 1000",
        "route default via 198.51.100.9 dev eth1 table 1001",
        "route default via fe80::1 dev eth0 table 1000",
        "route fe80::/64 dev eth0 table 1000",
    ]
    assert [str(one) for one in sorted(goal.rules, key=lambda one: one.priority) if "10.7" in str(one)] == [
        "rule 10003: from 10.7.0.0/16 lookup 1001 suppress_prefixlength 0",
        "rule 10004: from 10.7.0.0/16 lookup main suppress_prefixlength 0",
        "rule 10005: from 10.7.0.0/16 lookup 1001",
    ]
    assert {one.priority for one in goal_of(parsed(*many(64)), Present()).rules} == set(range(10_000, 10_192))


def carried_out(present: Present, operations: tuple[Operation, ...]) -> Present:
    """As a kernel does it: a new route of one destination takes the place of the former."""
    rules, routes = set(present.rules), {one.key: one for one in present.routes}
    for one in operations:
        if isinstance(one.what, Rule):
            (rules.discard if one.verb == "remove" else rules.add)(one.what)
        elif one.verb == "remove":
            del routes[one.what.key]
        else:
            assert (one.what.key in routes) == (one.verb == "replace")
            routes[one.what.key] = one.what
    return Present(present.devices, present.addresses, frozenset(rules), frozenset(routes.values()))


@pytest.mark.parametrize("first", [[A], [B], [A, B]])
@pytest.mark.parametrize("then", [[], [B], [A, B], [{**A, "gateway4": "192.0.2.7"}, {**B, "table": 1002}]])
def test_a_plan_leads_to_the_goal_and_a_second_one_is_empty(first: list[Any], then: list[Any]) -> None:
    begun = carried_out(HOST, plan(HOST, goal_of(parsed(*first), HOST)))
    goal = goal_of(parsed(*then), HOST) if then else Goal()
    operations = plan(begun, goal)
    ended = carried_out(begun, operations)
    assert (ended.rules, ended.routes) == goal
    assert plan(ended, goal) == ()
    # No rule leads to a table that is half there.
    kinds = [
        f"{'-' if one.verb == 'remove' else '+'}{'rule' if isinstance(one.what, Rule) else 'route'}"
        for one in operations
    ]
    order = ["+route", "+rule", "-rule", "-route"]
    assert kinds == sorted(kinds, key=order.index)


def test_a_stale_route_beside_the_wanted_one_goes() -> None:
    wanted, stale = (Route(1000, ip_network("10.0.0.0/8"), dev) for dev in ("eth0", "eth1"))
    assert plan(Present(routes=frozenset({wanted, stale})), Goal(frozenset(), frozenset({wanted}))) == (
        Operation("remove", stale),
    )


@pytest.mark.parametrize(
    ("uplink", "code", "words"),
    [
        ({**A, "dev": "eth9"}, "unknown_device", "There is no device eth9. This host has eth0, eth1; create it"),
        ({**A, "dev": "eth1"}, "address_missing", "eth1 does not have the address 192.0.2.1 (it is on eth0); add it"),
        ({**A, "gateway4": "192.0.2.255"}, "gateway_off_link", "192.0.2.255 is not a host"),
        ({**A, "gateway4": "198.51.100.1"}, "gateway_off_link", "198.51.100.1 is an address of this host; write"),
        ({**A, "gateway6": "2001:db8:1:1::1"}, "gateway_off_link", "(2001:db8:1::/64); correct it"),
    ],
)  # fmt: skip
def test_what_this_host_does_not_have_is_named(uplink: dict[str, Any], code: str, words: str) -> None:
    found = problems_of(parsed(uplink), HOST)["a"]
    assert (found.code, found.subject) == (code, "uplink a")
    assert words in found.message
    assert problems_of(parsed({**A, "gateway4": "192.0.2.254", "gateway6": "2001:db8:1::ffff"}), HOST) == {}


def test_foreign_rules_count_at_our_priorities_alone() -> None:
    at = tuple((priority, f"rule {priority}") for priority in (0, 9999, 10_000, 10_191, 10_192, 32_766))
    found = conflicts_of(parsed(A), Present(foreign_rules=at, foreign_routes=((1000, "x"), (1001, "y"))))
    assert [(one.code, one.subject) for one in found] == [
        ("priority_taken", "rule 10000"),
        ("priority_taken", "rule 10191"),
        ("table_taken", "table 1000"),
    ]


# --- roll back, verdict, words ----------------------------------------------------------------------------------------


def device(received: int, sent: int) -> Device:
    return Device(1, True, received * 1000, received, sent * 1000, sent)


@pytest.mark.parametrize(
    ("own", "other", "answers"),
    [
        (device(19, 0), device(0, 19), ("no traffic", "")),
        (device(20, 0), device(0, 20), ("elsewhere", "eth1")),
        (device(20, 2), device(0, 20), ("right", "")),
        (device(1000, 99), device(0, 901), ("elsewhere", "eth1")),
        (device(1000, 0), device(0, 99), ("unanswered", "")),
    ],
)
def test_the_verdict_of_the_counters(own: Device, other: Device, answers: tuple[str, str]) -> None:
    assert judge("eth0", {"eth0": own, "eth1": other, "lo": device(0, 10_000)}) == answers
