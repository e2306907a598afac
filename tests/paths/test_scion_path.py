"""Paths as SCION's programs print them. The samples are what v0.15.1 printed in the lab (tests/scion)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import RuleError
from scionlab.paths.scion_path import MAX_BYTES, MAX_HOPS, MAX_PATHS, parse_paths, parse_traceroute

SEQUENCE = "17-ffaa:1:1#0,1 17-ffaa:0:1107#21,11 17-ffaa:0:1101#1,0"
HUMAN = """Available paths to 17-ffaa:0:1101
3 Hops:
[0] Hops: [17-ffaa:1:1 1>21 17-ffaa:0:1107 11>1 17-ffaa:0:1101] MTU: 1472 NextHop: 192.0.2.11:30001 Status: alive
"""
INTERFACES = [("17-ffaa:1:1", 1), ("17-ffaa:0:1107", 21), ("17-ffaa:0:1107", 11), ("17-ffaa:0:1101", 1)]
HOPS: list[dict[str, Any]] = [{"interface": number, "isd_as": isd_as} for isd_as, number in INTERFACES]
FURTHER = {"sequence": SEQUENCE, "next_hop": "192.0.2.11:30001", "mtu": 1472, "latency": [-1, -1, -1]}
DOCUMENT = {"local_isd_as": "17-ffaa:1:1", "destination": "17-ffaa:0:1101", "paths": [{"hops": HOPS, **FURTHER}]}
TRACE_HUMAN = """Resolved local address:
  192.0.2.11
Using path:
  Hops: [17-ffaa:1:1 1>21 17-ffaa:0:1107 11>1 17-ffaa:0:1101] MTU: 1472 NextHop: 192.0.2.11:30001

0 17-ffaa:1:1,192.0.2.11 IfID=1 0.385ms 0.204ms 0.222ms
1 17-ffaa:0:1107,192.0.2.1 IfID=21 * 0.265ms *
2 ?? * * *
3 17-ffaa:0:1101,2001:db8::1 IfID=1 0.412ms 0.486ms 0.521ms
"""
TIMES: list[list[float] | None] = [[0.385, 0.204, 0.222], [1000.0, 0.265, 1000.0], None, [0.412, 0.486, 0.521]]
TRACE = {
    "path": {"hops": HOPS, "sequence": SEQUENCE},
    "hops": [
        {"interface_id": number, "ip": "192.0.2.1", "isd_as": isd_as, "round_trip_times": times}
        for (isd_as, number), times in zip(INTERFACES, TIMES, strict=True)
    ],
}


def hops_of(n: int) -> list[dict[str, Any]]:
    """A path of n hops, which has n - 1 links."""
    return [{"interface": 1, "isd_as": f"17-ffaa:1:{(i + 1) // 2 + 1:x}"} for i in range(2 * n - 2)]


def document(**values: Any) -> str:
    return json.dumps({"paths": [{"hops": HOPS, **values}]})


def sequence(n: int) -> str:
    return " ".join(f"17-ffaa:1:{i + 1:x}#1,2" for i in range(n))


@pytest.mark.parametrize(
    "text",
    [
        SEQUENCE,
        SEQUENCE.replace("#0,1", "#1").replace("#1,0", "#1"),
        f"\n  {SEQUENCE.replace('17-ffaa:1:1', '17-FFAA_1_01')}\r\n",
        "17-ffaa:1:1 1>21 17-ffaa:0:1107 11>1 17-ffaa:0:1101",
        HUMAN,
        json.dumps(DOCUMENT, indent=2),
    ],
)
def test_every_form_that_scion_prints_is_the_same_path(text: str) -> None:
    [path] = parse_paths(text)
    assert [str(end) for link in path for end in link] == [f"{isd_as}#{number}" for isd_as, number in INTERFACES]


def test_several_paths_and_as_numbers_of_bgp() -> None:
    found = parse_paths(f"{SEQUENCE}\n\n64-559#0,1 64-2:0:9#65535,0")
    assert [len(path) for path in found] == [2, 1]
    assert [str(end) for end in found[1][0]] == ["64-559#1", "64-2:0:9#65535"]


PADDING = MAX_BYTES - len(SEQUENCE)


@pytest.mark.parametrize(
    ("good", "wrong", "code", "words"),
    [
        (SEQUENCE + "\n" * PADDING, SEQUENCE + "\n" * (PADDING + 1), "path_too_long", "65 537 bytes, more than 65 536"),
        (f"{SEQUENCE}\n" * MAX_PATHS, f"{SEQUENCE}\n" * (MAX_PATHS + 1), "path_too_many", "51 paths are more than 50"),
        (sequence(MAX_HOPS), sequence(MAX_HOPS + 1), "path_hops", "Path 1 has 65 hops, more than 64"),
        (sequence(2), sequence(1), "path_hops", "2 to 64 hops"),
        (
            document(hops=hops_of(MAX_HOPS)),
            document(hops=hops_of(MAX_HOPS + 1)),
            "path_hops",
            "Path 1 has 65 hops, more than 64",
        ),
        ("64-1#1 65535-4294967295#1", "64-1#1 64-4294967296#1", "path_invalid", "Path 1, hop 2, character 8: "),
        ("64-1#1 65535-1:0:0#1", "64-1#1 65536-1:0:0#1", "path_invalid", "the ISD from 1 to 65535"),
        ("64-1#65535 64-2#1", "64-1#65536 64-2#1", "path_invalid", "hop 1, character 1: interface 65536 is outside 1"),
        ("64-1#1 64-2#1", "64-1#0 64-2#1", "path_invalid", "interface 0 is outside 1 to 65535 (0 stands for any"),
    ],
)
def test_each_bound_holds_and_one_beyond_it_does_not(good: str, wrong: str, code: str, words: str) -> None:
    parse_paths(good)
    refused(wrong, code, words)


def refused(text: str, code: str, words: str) -> None:
    with pytest.raises(RuleError) as found:
        parse_paths(text)
    assert found.value.code == code
    assert words in found.value.message.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "path_none", "Paste what scion showpaths prints"),
        (json.dumps({"local_isd_as": "17-ffaa:1:1", "destination": "17-ffaa:1:1"}), "path_none", "for another AS"),
        ('{"paths": [', "path_not_json", "see line 1, column 12"),
        ('{"a":' + "[" * 60_000, "path_not_json", "The list of paths "),  # whose levels Python 3.14 reads
        ('{"paths": {}, "x": ' + "9" * 5000 + "}", "path_not_json", "thousands of digits"),
        ('{"paths": [7]}', "path_invalid", "Path 1 is not an object"),
        (document(hops=HOPS[:3]), "path_invalid", "two interfaces for each link"),
        (document(hops=[HOPS[0], HOPS[1], HOPS[3], HOPS[3]]), "path_invalid", "hop 2: 17-ffaa:0:1107#21 and"),
        (f"{SEQUENCE}\n17-ffaa:1:1#0,1 0+ 17-1#1", "path_invalid", 'Path 2, hop 2, character 17: "0+" is not a hop'),
        ("17-1#1 17-2#1 17-3#1", "path_invalid", 'hop 2, character 8: "17-2#1" has one interface of two'),
        ("17-1 1>2 17-ffaa:x", "path_invalid", 'Path 1, hop 2, character 10: "ffaa:x" is not an AS id'),
        ("17-1 1>2 17-2 3>4", "path_invalid", 'hop 3, character 15: "3>4" is not followed by an AS'),
        ("17-1 1-2 17-2 3>4 17-3", "path_invalid", '"1-2" is not a pair of interfaces. Write it as 1>21.'),
        (HUMAN.replace("]", ""), "path_invalid", '"]" is missing'),
    ],
)
def test_an_error_says_where_and_what_would_be_right(text: str, code: str, words: str) -> None:
    refused(text, code, words)


@pytest.mark.parametrize("text", [TRACE_HUMAN, json.dumps(TRACE)])
def test_a_traceroute_gives_the_shortest_answer_of_each_interface(text: str) -> None:
    found = parse_traceroute(text)
    assert [one.rtt_ms for one in found] == [0.204, 0.265, None, 0.412]
    assert [str(one.at) for one in found[:2]] == ["17-ffaa:1:1#1", "17-ffaa:0:1107#21"]


LINE = "0 17-ffaa:1:1,192.0.2.11 IfID=1 0.385ms"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "path_none", "no hop in the traceroute"),
        ("\n".join([LINE] * 127), "path_hops", "127 lines, more than 126"),
        (LINE + " " * MAX_BYTES, "path_too_long", "more than"),
        (LINE.replace("ms", "s"), "path_invalid", "Traceroute, line 1: "),
        (
            '{"hops": [{"interface_id": 1, "isd_as": "17-1", "round_trip_times": [-1]}]}',
            "path_invalid",
            "line 1: round",
        ),
        ('{"hops": [{"interface_id": 1}]}', "path_invalid", '"isd_as" as text'),
        ('{"hops": 7}', "path_invalid", '"hops" is not a list'),
    ],
)
def test_a_traceroute_is_bounded_too(text: str, code: str, words: str) -> None:
    assert len(parse_traceroute("\n".join([LINE] * 126))) == 126
    with pytest.raises(RuleError) as found:
        parse_traceroute(text)
    assert (found.value.code, words in found.value.message) == (code, True), found.value.message


PIECES = ["17-ffaa:1:1", *"#01,> \n]{é*", "Hops: [", '"hops"', "ms", "??", "IfID="]
KEYS = st.sampled_from(["hops", "interface", "isd_as", "interface_id", "round_trip_times"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["17-ffaa:1:1", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)
TEXTS = (
    st.text()
    | st.lists(st.sampled_from(PIECES)).map("".join)
    | st.builds(lambda value: json.dumps({"paths": value, "hops": value}), VALUES)
)


@given(TEXTS)
def test_any_text_gives_paths_or_the_error_of_a_rule(text: str) -> None:
    for parse in (parse_paths, parse_traceroute):
        with suppress(RuleError):
            assert parse(text)
