"""Batches are read strictly, whole or not at all, and bounded before they are unpacked (docs/api.md)."""

from __future__ import annotations

import copy
import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from contract.link_rules import MAX_INTERFACE_ID
from scionlab.delivery.host_api.bodies import MAX_BYTES, MAX_SENT_BYTES, read_body
from scionlab.delivery.host_api.documents import DocumentError, TooLargeError
from scionlab.testbed.models import Host, Link
from scionlab.usage.batch import Sample
from scionlab.usage.host_api.usage_format import MAX_BRACKETS, MAX_COMMAS, MAX_TIMES, parse_usage
from scionlab.usage.models import UsageBatch
from tests.cases import table
from tests.usage_world import simple, upload

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)

DIRECTION = {
    "segment": "0f3a9c21-boot",
    "rate_kbit": [500, None],
    "bytes": [1200, None],
    "packets": [9, None],
    "drops": [2, None],
    "backlog_bytes": [0, None],
}
DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "batch": "0123456789abcdef0123456789abcdef",
    "agent_version": "0.1.0",
    "version": "1.18",
    "times": ["2026-11-21T06:00:00.000Z", "2026-11-21T07:00:10.0009+01:00"],
    "links": {"3": {"to_user": DIRECTION, "from_user": None}},
    "something": "of a newer agent",
}


def parse(document: Any) -> Any:
    return parse_usage(json.dumps(document).encode())


def test_a_batch_is_read_as_it_was_sent() -> None:
    batch = parse(DOCUMENT)
    assert (batch.key, batch.version, batch.times_ms) == (DOCUMENT["batch"], (1, 18), [T0_MS, T0_MS + 10_000])
    assert list(batch.links) == [3]
    (name, said), *none = batch.links[3].items()
    assert (name, said.segment, none) == ("to_user", "0f3a9c21-boot", [])
    assert said.samples == [Sample(1200, 9, 2, at_ms=T0_MS, limit_kbit=500, backlog_bytes=0)], (
        "at the other time the kernel had no class"
    )


def changed(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(values)


def direction(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["links"]["3"]["to_user"].update(values)


@table(
    ("change", "place"),
    [
        (changed(batch="0123456789ABCDEF0123456789abcdef"), "batch"),
        (changed(version="1.4294967296"), "version"),
        (changed(times=[]), "times"),
        (changed(times=["2026-11-21T06:00:10Z", "2026-11-21T06:00:00Z"]), "times"),
        (changed(times=["2026-11-21T06:00:00.0001Z", "2026-11-21T06:00:00.0002Z"]), "times"),
        (changed(times=["2026-11-21T06:00:00Z"] * 61), "times"),
        (changed(times=["2026-11-21T06:00:00", "2026-11-21T06:00:10Z"]), "times.0"),
        (changed(times=["0001-01-01T00:00:00Z", "2026-11-21T06:00:10Z"]), "times.0"),
        (changed(times=["2026-11-21T06:00:00Z", "9999-12-31T23:59:59Z"]), "times.1"),
        (changed(links={"4095": {}}), "links.4095"),
        (changed(links={"03": {}}), "links.03"),
        (direction(segment="a\u0000b"), "links.3.to_user.segment"),
        (direction(bytes=[1200]), "links.3.to_user.bytes"),
        (direction(bytes=[-1, None]), "links.3.to_user.bytes.0"),
        (direction(bytes=[2**60 + 1, None]), "links.3.to_user.bytes.0"),
        (direction(packets=[None, None]), "links.3.to_user"),
        (direction(drops=[2, 2]), "links.3.to_user"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_its_place(change: Callable[[dict[str, Any]], None], place: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    change(document)
    with pytest.raises(DocumentError) as caught:
        parse(document)
    assert (caught.value.code, next(iter(caught.value.fields))) == ("usage_invalid", place)


@table(
    ("content", "code"),
    [
        (b"", "not_json"),
        (b"[" * 100_000, "not_json"),
        (b'{"schema": 1' + b"0" * 5000 + b"}", "not_json"),
        (b"[]", "usage_invalid"),
        (b"{}", "schema_unknown"),
        (b'{"schema": 2}', "schema_unknown"),
    ],
)
def test_what_is_no_batch_is_refused(content: bytes, code: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_usage(content)
    assert caught.value.code == code


# --- sizes ----------------------------------------------------------------------------------------------------


def body(content: bytes) -> Callable[[int], bytes]:
    return io.BytesIO(content).read


def test_a_small_body_that_becomes_a_large_one_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(4 * MAX_BYTES), 1)
    assert len(bomb) < MAX_SENT_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            read_body(body(bomb), "gzip")
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
    finally:
        tracemalloc.stop()
    assert len(read_body(body(gzip.compress(bytes(MAX_BYTES))), "gzip")) == MAX_BYTES


def test_no_more_is_read_than_is_allowed() -> None:
    asked = []

    def read(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    with pytest.raises(TooLargeError):
        read_body(read, "")
    assert asked == [MAX_SENT_BYTES + 1]


@table(
    ("content", "encoding", "code"),
    [
        (b"{}", "gzip", "not_gzip"),
        (gzip.compress(b"{}")[:-1], "gzip", "not_gzip"),
        (gzip.compress(b"{}") + b"x", "gzip", "not_gzip"),
        (b"{}", "br", "encoding_unknown"),
    ],
    ids=["plain", "cut off", "followed by more", "another packing"],  # of bytes that gzip gives the time
)
def test_what_is_not_packed_as_it_says_is_refused(content: bytes, encoding: str, code: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_body(body(content), encoding)
    assert caught.value.code == code


# --- through the door -----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_answers_of_the_endpoint(link: Link) -> None:
    host = link.interface_a.host
    now = datetime.now(UTC)
    assert json.loads(upload(host, simple(host, now, [1]), packed=False).content) == {"stored": True}
    told = upload(host, simple(host, now, [1], interface_id=77))
    assert (told.status_code, json.loads(told.content)) == (200, {"stored": True, "ignored_links": ["77"]})
    wrong = upload(host, simple(host, now, [2**60 + 1]))
    assert (wrong.status_code, json.loads(wrong.content)["code"]) == (400, "usage_invalid")
    assert list(json.loads(wrong.content)["fields"]) == ["links.1.to_user.bytes.0"]
    assert (
        upload(host, gzip.compress(bytes(MAX_BYTES + 1)), packed=False, **{"Content-Encoding": "gzip"}).status_code
        == 413
    )
    assert upload(host, simple(host, now, [1]), Authorization="Basic eDp5").status_code == 401
    assert UsageBatch.objects.count() == 2


@pytest.mark.django_db
def test_only_hosts_of_attachment_points_may_send(link: Link) -> None:
    user_host = Host.objects.get(AS=link.interface_b.AS_id)
    answer = upload(user_host, simple(user_host, datetime.now(UTC), [1]))
    assert (answer.status_code, json.loads(answer.content)["code"]) == (400, "not_attachment_point")
    assert not UsageBatch.objects.exists()


@table("filling", [b"{},", b"0,"])
def test_what_would_become_far_more_than_it_is_is_refused_before(filling: bytes) -> None:
    content = b'{"schema":1,"more":[' + filling * (MAX_COMMAS + 1) + b"0]}"
    assert len(content) < MAX_BYTES
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        parse_usage(content)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_largest_batch_that_can_be_is_far_from_the_bounds() -> None:
    full = dict.fromkeys(("rate_kbit", "bytes", "packets", "drops", "backlog_bytes"), [0] * MAX_TIMES)
    link = json.dumps({"to_user": {"segment": "x", **full}, "from_user": {"segment": "x", **full}})
    assert (link.count("[") + link.count("{") + 1) * MAX_INTERFACE_ID < MAX_BRACKETS
    assert (link.count(",") + 1) * MAX_INTERFACE_ID < MAX_COMMAS
