"""A dump of upstream's service is read strictly: what is wrong is named with its place, and never with a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scionlab.importer import dump as upstream_dump
from scionlab.importer.dump import DumpError
from scionlab.importer.network import read_network
from tests.upstream_dump import small


def error_of(content: bytes) -> str:
    with pytest.raises(DumpError) as caught:
        read_network(content)
    return str(caught.value)


def error_with(model: str, pk: int, **fields: Any) -> str:
    """Of the small dump, one of whose entries has these fields."""
    dump = small()
    dump[model][pk] |= fields
    return error_of(dump.content())


# --- what is read -----------------------------------------------------------------------------------------------


def test_an_interface_has_its_hosts_addresses_unless_it_has_a_public_one_itself() -> None:
    dump = small()
    dump["host"][1]["bind_ip"] = "10.0.0.1"
    dump["interface"][3]["bind_ip"] = "10.0.0.3"  # link 2 at 17-ffaa:0:1101: no public address of its own
    dump["interface"][5]["bind_ip"] = "fd00::5"  # link 3 at 19-ffaa:0:1301, which has one
    links = read_network(dump.content()).links
    ends = [links[2].a, links[2].b, links[3].a, links[6].b]
    assert [(end.public_ip, end.bind_ip) for end in ends] == [
        ("192.0.2.1", "10.0.0.1"),
        ("192.0.2.7", None),
        ("2001:db8::2", "fd00::5"),
        ("198.51.100.2", "10.0.2.15"),
    ]


def test_user_links_end_on_the_vpns_server_or_else_on_the_first_host_with_a_public_address() -> None:
    dump = small()
    dump.host(4, public_ip="2001:db8::4", internal_ip="10.0.0.2")
    dump["host"][4]["public_ip"] = None
    assert [ap.host for ap in read_network(dump.content()).attachment_points.values()] == [3, 10]


def test_a_missing_field_is_named_others_are_ignored_and_a_bind_port_of_old_versions_is_read() -> None:
    dump = small()
    del dump["link"][1]["active"]
    assert 'scionlab.link 1: "active" is missing.' in error_of(dump.content())
    dump = small()
    dump["link"][6]["bandwidth"] = "what is not read may be anything"
    dump["interface"][11]["bind_port"] = 50_100
    assert read_network(dump.content()).links[6].b.bind_port == 50_100


def test_entries_of_other_apps_are_counted_whatever_their_keys_are() -> None:
    session = {"model": "sessions.session", "pk": "abc", "fields": {"session_data": "x"}}
    content = json.dumps([*small().entries(), session]).encode()
    assert read_network(content).entries["sessions.session"] == 1


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "The file is not JSON: see line 1, column 1."),
        (b"\xff\xfe\x00", "The file is not UTF-8: see byte 1."),
        (b"[" * 100_000, "The file has too many levels of brackets."),
        (b"[NaN]", "The file has NaN, which is not JSON."),
        (b'[{"model": "a", "model": "b"}]', 'The file has the key "model" twice in one object.'),
        (b"{}", "contains an object, not the list of entries"),
        (b'[{"model": "auth.group", "pk": 1, "fields": {}}]', "no entry of the app scionlab"),
        (b"[7]", "[0] is a number, not an object"),
        (b'[{"pk": 1, "fields": {}}]', '[0]: "model" is nothing'),
        (b'[{"model": "scionlab.isd", "pk": 1, "fields": []}]', '[0] scionlab.isd: "fields" is a list'),
        (b'[{"model": "scionlab.user", "pk": null, "fields": {}}]', "Dump without --natural-primary"),
        (b'[{"model": "scionlab.isd", "pk": true, "fields": {}}]', '"pk" is a truth value'),
    ],
)
def test_what_is_no_dump_is_refused(content: bytes, said: str) -> None:
    assert said in error_of(content)


@pytest.mark.parametrize(
    ("model", "pk", "fields", "said"),
    [
        ("isd", 3, {"isd_id": "19"}, '[4] scionlab.isd 3: "isd_id" is a text, not a whole number.'),
        ("isd", 3, {"isd_id": -1}, '"isd_id" is outside 0 to 2147483647.'),
        ("as", 1, {"isd": 9}, 'scionlab.as 1: "isd" is 9, which is not in the file.'),
        ("as", 6, {"owner": ["anna@example.org"]}, '"owner" is a list, not a primary key. Dump without --natural-f'),
        ("as", 1, {"as_id": "ffaa:0"}, '"as_id" is wrong. "ffaa:0" is not an AS id.'),
        ("as", 1, {"is_core": 1}, '"is_core" is a number, not true or false.'),
        ("host", 1, {"internal_ip": None}, '"internal_ip" is empty, not an IP address.'),
        ("host", 1, {"public_ip": "fe80::1%eth0"}, '"public_ip" is "fe80::1%eth0", not an IP address.'),
        ("host", 1, {"label": "\ud800"}, '"label" has a character that no database stores.'),
        ("link", 1, {"type": "CHILD"}, '"type" is not one of PROVIDER, CORE, PEER.'),
        ("link", 1, {"interfaceA": 99}, '"interfaceA" is 99, which is not in the file.'),
    ],
)
def test_a_field_that_is_wrong_is_named_with_its_place(model: str, pk: int, fields: dict[str, Any], said: str) -> None:
    assert said in error_with(model, pk, **fields)


def test_a_user_as_without_its_as_is_refused() -> None:
    dump = small()
    dump.add("useras", 99, installation_type="VM")
    assert 'scionlab.useras 99: "pk" is 99, which is not in the file.' in error_of(dump.content())


def test_a_key_that_comes_twice_is_refused() -> None:
    entries = [*small().entries()]
    content = json.dumps([*entries, entries[2]]).encode()
    assert error_of(content).startswith(f"[{len(entries)}] scionlab.isd 1: the same model and key are at [2]")


def test_a_file_above_the_limit_is_refused_with_what_to_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_dump, "MAX_DUMP_BYTES", 100)
    said = error_of(small().content())
    assert "above the limit of 100." in said
    assert "--exclude scionlab.key" in said


def test_no_error_has_a_secret() -> None:
    told = error_with("host", 1, secret=["hunter2"])
    assert told.endswith('] scionlab.host 1: "secret" is a list, not a text.')
    assert "hunter2" not in error_with("user", 1, password={"hunter2": 1})


def test_nothing_that_is_printed_has_a_secret() -> None:
    network = read_network(small().content())
    assert "secret-1" not in repr(network)
    assert "pbkdf2" not in repr(network)
