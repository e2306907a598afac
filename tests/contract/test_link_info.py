"""link_info.json both ways: what a host's document says, and how a document is read or refused by name."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import MAX_BANDWIDTH_KBIT, LinkEnd, RuleError, as_id_of, generate_link_info
from contract.link_info import LinkInfo, LinkInfoError, check_link_info, parse_link_info
from contract.link_rules import check_underlay_address
from contract.link_tests import LinkTest
from tests.rule_samples import NOBODYS, code_of, outcome

WATCH = LinkTest(datetime(2026, 11, 21, 6, tzinfo=UTC), datetime(2026, 11, 21, 6, 1, tzinfo=UTC), "0f" * 16)

# --- writing link_info.json -----------------------------------------------------------------------------------------


def End(interface_id: int = 1, **more: Any) -> LinkEnd:  # noqa: N802  as a class
    usual = {"remote_isd_as": "17-ffaa:1:b6", "is_limited": True, "bandwidth_kbit": 500, "maximum_kbit": 1000}
    usual |= {"remote_ip": "198.51.100.7", "remote_port": 50_001, "local_ip": "192.0.2.1", "local_port": 50_000}
    return LinkEnd(interface_id=interface_id, **{**usual, "is_vpn": False, **more})


@dataclass(frozen=True)
class OneHost:
    link_ends: list[LinkEnd]


def test_an_entry_has_the_four_keys_of_the_thesis_and_ours() -> None:
    assert generate_link_info(OneHost([End()])) == {
        "1": {
            "AS_ID": 182,
            "IsUserAS": True,
            "Bandwidth": 500,
            "IP-Address": "198.51.100.7",
            "ISD-AS": "17-ffaa:1:b6",
            "Port": 50_001,
            "Local-IP": "192.0.2.1",
            "Local-Port": 50_000,
            "VPN": False,
        }
    }


def test_a_link_that_is_only_observed_says_so_and_others_do_not() -> None:
    ends = [End(interface_id=1, observe_only=True), End(interface_id=2)]
    document = generate_link_info(OneHost(ends))
    assert document["1"]["Observe"] is True
    assert "Observe" not in document["2"]
    assert {number: link.is_observed for number, link in check_link_info(document).items()} == {1: True, 2: False}


def test_tests_of_a_limited_link_stand_in_its_entry_and_are_read_back() -> None:
    document = generate_link_info(OneHost([End(tests=(WATCH.statement(),)), End(2, is_limited=False, tests=({},))]))
    assert document["1"]["Tests"] == [
        {"Id": "0f" * 16, "Kind": "watch", "From": "2026-11-21T06:00:00Z", "Until": "2026-11-21T06:01:00Z"}
    ]
    assert "Tests" not in document["2"]
    assert check_link_info(document)[1].tests == (WATCH,)


@pytest.mark.parametrize(
    ("isd_as", "as_id"),
    [
        ("17-ffaa:1:a", 10),
        ("17-ffaa:1:9999", 0x9999),  # the default class of the thesis
    ],
)
def test_as_id_is_the_low_16_bits_read_as_hexadecimal(isd_as: str, as_id: int) -> None:
    assert as_id_of(isd_as) == as_id
    assert generate_link_info(OneHost([End(remote_isd_as=isd_as)]))["1"]["AS_ID"] == as_id


def test_what_is_not_limited_here_is_never_listed_with_0() -> None:
    """The own uplink of a user AS that is an attachment point: it was blocked by its user, at its provider."""
    entry = generate_link_info(OneHost([End(is_limited=False, bandwidth_kbit=0)]))["1"]
    assert (entry["IsUserAS"], entry["Bandwidth"]) == (False, 1)


def test_entries_stand_in_the_order_of_their_numbers_whatever_order_they_come_in() -> None:
    ends = [End(interface_id=number) for number in (10, 2, 4094, 1)]
    assert list(generate_link_info(OneHost(ends))) == ["1", "2", "10", "4094"]
    assert json.dumps(generate_link_info(OneHost(ends))) == json.dumps(generate_link_info(OneHost(ends[::-1])))


def _is_usable(text: str) -> bool:
    try:
        check_underlay_address(text)
    except RuleError:
        return False
    return True


_ends = st.builds(
    End,
    interface_id=st.integers(1, 4094),
    remote_isd_as=st.integers(0, 0xFFFF).map(lambda low: f"17-ffaa:1:{low:x}"),
    is_limited=st.booleans(),
    bandwidth_kbit=st.integers(0, MAX_BANDWIDTH_KBIT),
    maximum_kbit=st.integers(0, MAX_BANDWIDTH_KBIT),
    remote_ip=st.ip_addresses(v=4).map(str).filter(_is_usable),
    remote_port=st.integers(1024, 65_535),
    local_port=st.integers(1024, 65_535),
    is_vpn=st.booleans(),
    observe_only=st.booleans(),
)


@given(st.lists(_ends, max_size=20, unique_by=lambda end: end.interface_id))
def test_what_is_written_is_read_back(ends: list[LinkEnd]) -> None:
    read = parse_link_info(json.dumps(generate_link_info(OneHost(ends))))
    assert read == {
        end.interface_id: LinkInfo(
            interface_id=end.interface_id,
            as_id=as_id_of(end.remote_isd_as),
            is_user_as=end.is_limited,
            bandwidth_kbit=min(end.bandwidth_kbit, end.maximum_kbit) if end.is_limited else max(1, end.bandwidth_kbit),
            remote_ip=ipaddress.ip_address(end.remote_ip),
            isd_as=end.remote_isd_as,
            remote_port=end.remote_port,
            local_ip=ipaddress.ip_address(end.local_ip),
            local_port=end.local_port,
            vpn=end.is_vpn,
            is_observed=end.is_limited and end.observe_only,
        )
        for end in ends
    }


# --- reading link_info.json -----------------------------------------------------------------------------------------

LISTING_5_1 = """
{
    "1": {
        "AS_ID": 1,
        "IsUserAS": true,
        "Bandwidth": 500,
        "IP-Address": "fe80::20c:29ff:fe08:993c"
    },
    "2": {
        "AS_ID": 2,
        "IsUserAS": true,
        "Bandwidth": 500,
        "IP-Address": "192.168.17.129"
    }
}
"""


def test_the_document_of_the_thesis_is_read() -> None:
    assert parse_link_info(LISTING_5_1) == {
        1: LinkInfo(1, 1, True, 500, ipaddress.ip_address("fe80::20c:29ff:fe08:993c")),
        2: LinkInfo(2, 2, True, 500, ipaddress.ip_address("192.168.17.129")),
    }


FOUR_KEYS: dict[str, Any] = {"AS_ID": 182, "IsUserAS": True, "Bandwidth": 500, "IP-Address": "198.51.100.7"}
ALL_KEYS: dict[str, Any] = generate_link_info(OneHost([End()]))["1"]


def read(entry: object, key: str = "1") -> dict[int, LinkInfo]:
    return parse_link_info(json.dumps({key: entry}))


def test_with_four_keys_the_address_alone_is_known() -> None:
    (info,) = read(FOUR_KEYS).values()
    assert (info.remote_port, info.local_ip, info.local_port, info.vpn, info.isd_as) == (None,) * 5


def test_unknown_keys_are_ignored() -> None:
    assert read({**ALL_KEYS, "MTU": 1472, "x" * 1000: [{}]}) == read(ALL_KEYS)


def test_our_keys_may_be_null() -> None:
    ours = dict.fromkeys(("ISD-AS", "Port", "Local-IP", "Local-Port", "VPN", "Observe", "Tests"))
    assert read({**FOUR_KEYS, **ours}) == read(FOUR_KEYS)


def test_5000_links_are_too_many_for_interface_ids_and_4094_are_not() -> None:
    document = {str(number): {**FOUR_KEYS, "Port": 1024 + number} for number in range(1, 4095)}
    assert len(parse_link_info(json.dumps(document))) == 4094
    document |= {str(number): FOUR_KEYS for number in range(4095, 5001)}
    assert code_of(lambda: parse_link_info(json.dumps(document))) == "interface_id"


def test_infrastructure_only() -> None:
    """Nothing is limited, and their addresses are not judged: they become no filters."""
    document = {
        "1": {**FOUR_KEYS, "IsUserAS": False, "Bandwidth": 1_000_000},
        "2": {**FOUR_KEYS, "IsUserAS": False, "IP-Address": "127.0.0.1"},
    }
    assert [info.is_user_as for info in parse_link_info(json.dumps(document)).values()] == [False, False]


def test_entries_come_in_the_order_of_their_numbers() -> None:
    assert list(parse_link_info(json.dumps({"10": FOUR_KEYS, "9": FOUR_KEYS}))) == [9, 10]


DOCUMENTS: dict[str, tuple[bytes | str, str]] = {
    "empty": (b"", "not_json"),
    "cut off": (LISTING_5_1[:100], "not_json"),
    "something after it": (LISTING_5_1 + "{}", "not_json"),
    "another encoding": ('{"ä": 1}'.encode("latin-1"), "not_utf8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not_json"),
    "a list": (b"[]", "not_an_object"),
    "a number": (b"17", "not_an_object"),
    "NaN": (b'{"1": NaN}', "not_json"),
    "a duplicate interface": (b'{"1": {}, "1": {}}', "duplicate_key"),
    "a duplicate interface, escaped": (b'{"1": {}, "\\u0031": {}}', "duplicate_key"),
    "a duplicate key in what is ignored": (b'{"1": {"x": {"y": 1, "y": 2}}}', "duplicate_key"),
    "nested 100000 deep": (b"[" * 100_000, "not_json"),
    "a number of 5000 digits": (b'{"1": ' + b"9" * 5000 + b"}", "not_json"),
    "one key of many that is bad": (json.dumps({"1": FOUR_KEYS, "0": FOUR_KEYS}), "interface_id"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_malformed_document_is_refused_by_name(name: str) -> None:
    document, code = DOCUMENTS[name]
    with pytest.raises(LinkInfoError) as refused:
        parse_link_info(document)
    assert refused.value.code == code
    assert len(refused.value.message) < 200
    assert code != "duplicate_key" or re.search('the key "[1y]" twice', refused.value.message)


@pytest.mark.parametrize("key", ["0", "4095", "01", "-1", "1.0", "1e0", " 1", "0x1", "", "eth0", "१", "99999999999"])
def test_keys_are_interface_ids_in_plain_decimal(key: str) -> None:
    assert code_of(lambda: read(FOUR_KEYS, key)) == "interface_id"
    assert list(read(FOUR_KEYS, "4094")) == [4094]


@pytest.mark.parametrize("entry", [None, [], "x", 5, True, 1.5])
def test_an_entry_is_an_object(entry: object) -> None:
    assert code_of(lambda: read(entry)) == "entry"


@pytest.mark.parametrize("key", FOUR_KEYS)
def test_none_of_the_four_keys_may_be_missing(key: str) -> None:
    entry = {name: value for name, value in FOUR_KEYS.items() if name != key}
    with pytest.raises(LinkInfoError) as refused:
        read(entry)
    assert refused.value.code == "missing_key"
    assert refused.value.message == f'link_info.json, interface 1: "{key}" is missing.'


def test_missing_keys_of_all_entries_are_named_at_once() -> None:
    entries = {"1": FOUR_KEYS, "2": {"AS_ID": 1}, "7": {**FOUR_KEYS, "IsUserAS": "no"}, "9": {"IsUserAS": True}}
    with pytest.raises(LinkInfoError) as refused:
        check_link_info(entries)
    assert refused.value.message == (
        'link_info.json, interface 2: "IsUserAS", "Bandwidth" and "IP-Address" are missing; '
        'interface 9: "AS_ID", "Bandwidth" and "IP-Address" are missing.'
    )
    with pytest.raises(LinkInfoError, match=r"interface 20: .* missing; and 80 more\.$"):
        check_link_info({str(number): {} for number in range(1, 101)})


NUMBERS = {"AS_ID": 0xFFFF, "Bandwidth": MAX_BANDWIDTH_KBIT, "Port": 65_535, "Local-Port": 65_535}
NO_ADDRESSES = [
    "198.51.100.7; tc qdisc del dev eth0 root",
    *("$(reboot)", "`id`", "198.51.100.7/0", "0/0", "", "any", "fe80::1%eth0", 5, True, [], {}),
]


@pytest.mark.parametrize(
    ("keys", "values", "code"),
    [
        pytest.param(NUMBERS, ["500", "", 1.0, 5e2, True, False, [], {}], "wrong_type", id="integers"),
        pytest.param(["AS_ID", "Bandwidth", "IsUserAS"], [None], "wrong_type", id="of the four none is null"),
        pytest.param(NUMBERS, [-1, 2**63, 10**400], "out_of_range", id="bounds"),
        pytest.param(["Port", "Local-Port"], [0], "out_of_range", id="0 is no port"),
        pytest.param(["IsUserAS", "VPN", "Observe"], ["true", "True", 1, 0, "", []], "wrong_type", id="truth"),
        pytest.param(["IP-Address", "Local-IP"], NO_ADDRESSES, "address_invalid", id="addresses"),
        pytest.param(["IP-Address", "Local-IP"], ["2001:db8::7"], "address_family", id="both ends of one family"),
        pytest.param(["ISD-AS"], [17, [], "x" * 25], "wrong_type", id="a short text"),
    ],
)
def test_values_have_types_and_bounds(keys: Iterable[str], values: list[object], code: str) -> None:
    for key, value in product(keys, values):
        assert code_of(partial(read, {**ALL_KEYS, key: value})) == code, (key, value)


@pytest.mark.parametrize("key", NUMBERS)
def test_numbers_have_an_upper_bound(key: str) -> None:
    assert code_of(lambda: read({**ALL_KEYS, key: NUMBERS[key] + 1})) == "out_of_range"
    read({**ALL_KEYS, key: NUMBERS[key]})


@pytest.mark.parametrize("value", NOBODYS)
def test_no_limit_for_addresses_that_nobody_has(value: str) -> None:
    assert code_of(lambda: read({**FOUR_KEYS, "IP-Address": value})) == "address_refused"


def test_a_document_has_a_size() -> None:
    with pytest.raises(LinkInfoError) as refused:
        parse_link_info(b" " * 101, max_bytes=100)
    assert refused.value.code == "too_large"
    assert parse_link_info(b" " * 98 + b"{}", max_bytes=100) == {}


TIMED = {"From": "2026-11-21T23:00:00Z", "Until": "2026-11-21T23:02:00Z", "Steps": [[0, 200, 200]]}
SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"Bandwidth": "500"}, '"Bandwidth" is "500", not an integer from 0 to 100000000.'),
    "range": ({"Port": 65_536}, '"Port" is 65536, outside 1 to 65535.'),
    "a number without end": ({"Port": 10**60}, '"Port" is a number of more than 38 digits, outside 1 to 65535.'),
    "a long text": ({"Bandwidth": "9" * 99}, f'"Bandwidth" is "{"9" * 56}..., not an integer from 0 to 100000000.'),
    "family": ({"Local-IP": "2001:db8::1"}, "2001:db8::1 and 198.51.100.7 are not of one address family."),
    "a direction": ({"Bandwidth-To-User": 1, "Bandwidth-From-User": "x"},
                    '"Bandwidth-From-User" is "x", not an integer from 0 to 100000000.'),
    "steps": ({"Timed": [TIMED | {"Steps": "x"}]}, '"Timed" 0: "Steps" is a text, not a list.'),
    "a step": ({"Timed": [TIMED | {"Steps": [[0, 1]]}]},
               '"Timed" 0: a step is a list, not three integers: [offset in s, to user, from user].'),
    "a rule of steps": ({"Timed": [TIMED | {"Steps": [[5, 1, 1]]}]}, "The first step begins"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_an_error_names_the_interface_the_place_and_what_was_found(name: str) -> None:
    values, sentence = SENTENCES[name]
    with pytest.raises(LinkInfoError) as refused:
        read({**ALL_KEYS, **values}, "17")
    assert refused.value.message.startswith("link_info.json, interface 17")
    assert sentence in refused.value.message


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(sorted(FOUR_KEYS)),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.sampled_from([*ALL_KEYS, "1", "2", "x"]), children, max_size=6)
    ),
    max_leaves=25,
)


@given(_json)
def test_any_document_is_read_or_refused_by_name(document: object) -> None:
    found = outcome(lambda: parse_link_info(json.dumps(document)))
    if isinstance(found, dict):
        assert all(1 <= number <= 4094 for number in found)
    else:
        assert isinstance(found, LinkInfoError)
        assert found.code
        assert found.message


@given(st.dictionaries(st.sampled_from(sorted({*ALL_KEYS, "Tests"})), _json, max_size=3))
def test_any_value_at_any_key_is_read_or_refused_by_name(values: dict[str, object]) -> None:
    found = outcome(lambda: read({**ALL_KEYS, **values})[1])
    if isinstance(found, LinkInfo):
        assert 0 <= found.bandwidth_kbit <= MAX_BANDWIDTH_KBIT
    else:
        assert isinstance(found, LinkInfoError)
        assert found.message.startswith("link_info.json")


def test_two_entries_of_one_address_are_two_links() -> None:
    """Two user ASes behind one address, and one AS with two links: the port tells them apart."""
    document = {"1": {**ALL_KEYS, "Port": 50_001}, "2": {**ALL_KEYS, "Port": 50_002, "Bandwidth": 0}}
    first, second = parse_link_info(json.dumps(document)).values()
    assert second == replace(first, interface_id=2, remote_port=50_002, bandwidth_kbit=0)
