"""Documents of hosts: what one reader takes and another could take differently is refused, however it is written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scionlab.delivery.host_api.documents import DocumentError, Kind
from scionlab.enforcement.receipt_format import RECEIPT
from scionlab.linktests.result_upload import RESULT
from scionlab.usage.host_api.live_upload import LIVE
from scionlab.usage.host_api.usage_format import USAGE

SIDE = {"dev": "eth0:1", "rate_kbit": 500, "bytes": 1, "packets": 1, "drops": 3, "backlog_bytes": 0}
SIDE |= {"refused": 2, "dropped": 1}
USED = {"segment": "a:b", **{name: [1, None] for name in ("rate_kbit", "bytes", "packets", "drops", "backlog_bytes")}}
RATES = {"rate_kbit": 500, "passed_bytes": 1, "dropped_bytes": 0}
COUNTS = ("rate_kbit", "passed_bytes", "passed_packets", "dropped_bytes", "dropped_packets", "lost_packets")
TESTED = {"segment": ["0" * 16], **{name: [1] for name in COUNTS}}
PROBLEM = {"code": "x", "subject": "eth1", "message": 'It says "a: b".'}
LINK = {"kbit": 500, "state": "error", "problem": "x: y", "to_user": SIDE, "from_user": None}
DOCUMENTS: list[tuple[Kind[Any], dict[str, Any]]] = [
    (
        RECEIPT,
        {
            **{"schema": 1, "agent_version": "0.1", "version": "1.18", "limits_version": 7, "writes": 4},
            **{"observed_at": "2026-11-21T06:00:00Z", "total": None, "links": {"1": LINK, "4094": LINK}},
            **{"problems": [PROBLEM, PROBLEM], "devices": ["eth0"], "limits_digest": "a" * 64},
        },
    ),
    (
        USAGE,
        {
            **{"schema": 1, "batch": "a" * 32, "agent_version": "0.1", "version": "1.18"},
            **{"times": ["2026-11-21T06:00:00Z"] * 2, "links": {"3": {"to_user": USED, "from_user": None}}},
        },
    ),
    (
        LIVE,
        {
            **{"schema": 1, "age_ms": 4},
            "links": {"1": {"over_ms": 1000, "in_force": True, "to_user": RATES, "from_user": None}},
        },
    ),
    (
        RESULT,
        {
            **{"schema": 1, "agent_version": "0.1", "test": "a" * 32, "is_final": False, "times_ms": [1]},
            **{"clock_ms": [1], "in_force": [True], "to_user": TESTED, "from_user": TESTED, "report": {"a": {"b": 1}}},
        },
    ),
]
ALL = st.sampled_from(DOCUMENTS)


def objects(value: Any, place: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Places of all objects with a key."""
    if isinstance(value, dict) and value:
        yield place
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from objects(one, (*place, key))


def written(value: Any, draw: Any, twice: tuple[object, ...] | None, place: tuple[object, ...] = ()) -> str:
    """As JSON, with spaces and escapes as drawn; the object at the place `twice` has one of its keys twice."""
    space = draw(st.sampled_from(["", " ", "\n "]))
    if isinstance(value, dict):
        items = [f"{text(key, draw)}{space}:{written(one, draw, twice, (*place, key))}" for key, one in value.items()]
        if place == twice:
            items.insert(draw(st.integers(0, len(items))), draw(st.sampled_from(items)))
        return f"{{{space}{f',{space}'.join(items)}}}"
    if isinstance(value, list):
        return f"[{f',{space}'.join(written(one, draw, twice, (*place, n)) for n, one in enumerate(value))}]"
    return text(value, draw) if isinstance(value, str) else json.dumps(value)


def text(value: str, draw: Any) -> str:
    plain = json.dumps(value)
    return plain.replace(":", draw(st.sampled_from([":", "\\u003a", "\\u003A"])))


@settings(max_examples=300)
@given(data=st.data(), which=ALL)
def test_a_key_that_occurs_twice_is_refused_anywhere(data: st.DataObject, which: tuple[Kind[Any], Any]) -> None:
    kind, document = which
    place = data.draw(st.sampled_from(list(objects(document))))
    with pytest.raises(DocumentError) as caught:
        kind.read(written(document, data.draw, place).encode())
    assert caught.value.code == "not_json"
    assert "twice" in caught.value.message


@settings(max_examples=200)
@given(
    data=st.data(),
    which=ALL,
    more=st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False) | st.text()),
)
def test_unknown_keys_and_other_ways_to_write_it_change_nothing(
    data: st.DataObject, which: tuple[Kind[Any], Any], more: dict[str, Any]
) -> None:
    kind, document = which
    plain = kind.read(json.dumps(document).encode())
    assert kind.read(written(more | document, data.draw, None).encode()) == plain


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["1", "schema", "bytes", "x"]), inner),
    max_leaves=8,
)


@settings(max_examples=300)
@given(data=st.data(), which=ALL, value=VALUES)
def test_anything_is_read_or_refused_by_a_place(data: st.DataObject, which: tuple[Kind[Any], Any], value: Any) -> None:
    kind, document = which
    place = data.draw(st.sampled_from(list(objects(document))))
    changed = here = json.loads(json.dumps(document))
    for key in place:
        here = here[key]
    here[data.draw(st.sampled_from([*here, "1", "0"]))] = value
    with contextlib.suppress(DocumentError):
        kind.read(json.dumps(changed).encode())


@pytest.mark.parametrize(
    "content",
    [b'{"schema": NaN}', b"\xff", b"[" * 100_000, b'{"x":' + b"[" * 100_000, b"9" * 5000],
    ids=["NaN", "not UTF-8", "levels", "levels of an unknown key", "digits"],
)
def test_what_is_no_json_is_called_that(content: bytes) -> None:
    with pytest.raises(DocumentError) as caught:
        RECEIPT.read(content)
    assert caught.value.code == "not_json"


def test_a_key_that_occurs_twice_is_refused_beside_a_text_with_an_escaped_colon() -> None:
    """One colon more and one less than when it is written anew."""
    content = (
        json.dumps(DOCUMENTS[0][1]).replace('"0.1"', '"\\u003a"').replace('"writes": 4', '"writes": 4, "writes": 5')
    )
    with pytest.raises(DocumentError) as caught:
        RECEIPT.read(content.encode())
    assert caught.value.message == 'The body has the key "writes" twice in one object.'
