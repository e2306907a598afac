"""Receipts: strict reading, one row per Link, and the mail that says "enforced" exactly once (docs/api.md)."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from bandwidth_config import Limits
from scionlab.accounts.models import Mail, User
from scionlab.delivery.host_api.documents import DocumentError
from scionlab.enforcement.generation import generation_raise
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt import receipt_store
from scionlab.enforcement.receipt_format import MAX_BYTES, Direction, Total, parse_receipt
from scionlab.enforcement.status import link_status
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.update import link_set_active, link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.factories import attach, spec
from tests.web.test_host_api import credentials, poll

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)


def direction(kbit: int, dev: str = "eth0") -> dict[str, Any]:
    return {"dev": dev, "rate_kbit": kbit, "bytes": 1200, "packets": 9, "drops": 2, "backlog_bytes": 0}


def link_entry(kbit: int, **values: Any) -> dict[str, Any]:
    both = {"to_user": direction(kbit), "from_user": direction(kbit, "slbw0")}
    return {"kbit": kbit, "state": "enforced", "problem": None, **both, **values}


def error_entry(kbit: int, problem: str) -> dict[str, Any]:
    return link_entry(kbit, state="error", problem=problem, from_user=None)


def document(host: Host, links: dict[str, Any], **values: Any) -> dict[str, Any]:
    host.refresh_from_db()
    return {
        "schema": 1,
        "agent_version": "0.1.0",
        "version": f"1.{host.config_version}",
        "limits_version": host.limits_version,
        "observed_at": "2026-11-21T06:00:00.123456Z",
        "writes": 4,
        "links": links,
        "problems": [],
        **values,
    }


def post(host: Host, body: object) -> HttpResponse:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response: HttpResponse = Client().post(
        f"/api/v4/host/{host.uid}/enforcement",
        data=content,
        content_type="application/json",
        headers=credentials(host),
    )
    return response


def store(host: Host, links: dict[str, Any], *, now: datetime, **values: Any) -> None:
    body = document(host, links, **{"observed_at": now.isoformat(), **values})
    assert receipt_store(host_id=host.pk, receipt=parse_receipt(json.dumps(body).encode()), now=now).stored


@pytest.fixture
def host(link: Link) -> Host:
    return link.interface_a.host


# --- storing ------------------------------------------------------------------------------------------------


def test_receipt_is_stored_as_it_was_sent(host: Host, link: Link) -> None:
    problem = {"code": "foreign_device", "subject": "eth1", "message": "eth1 has a root qdisc that is not ours."}
    body = document(host, {"1": link_entry(1000)}, problems=[problem], observed_at="2020-01-01T06:00:00.123456Z")
    response = post(host, body)
    assert (response.status_code, json.loads(response.content)) == (200, {"stored": True})
    receipt = HostReceipt.objects.get(host=host)
    assert (receipt.agent_version, receipt.generation, receipt.config_version, receipt.limits_version) == (
        "0.1.0",
        1,
        host.config_version,
        host.limits_version,
    )
    assert receipt.problems == [problem]
    assert receipt.observed_at == datetime(2020, 1, 1, 6, 0, 0, 123456, tzinfo=UTC)
    row = LinkEnforcement.objects.get(link=link)
    assert (row.kbit, row.state, row.problem) == (1000, "enforced", "")
    assert (row.to_user_rate_kbit, row.to_user_bytes, row.to_user_packets, row.to_user_drops) == (1000, 1200, 9, 2)
    assert (row.from_user_rate_kbit, row.from_user_bytes, row.from_user_packets, row.from_user_drops) == (
        1000,
        1200,
        9,
        2,
    )
    assert (row.to_user_dev, row.from_user_dev) == ("eth0", "slbw0")
    assert row.received_at == receipt.received_at


NEWER: dict[str, Any] = {
    "devices": ["eth0", "eth1"],
    "total": {"wanted_kbit": 5000, "to_user_kbit": 5000, "from_user_kbit": None},
    "observe_only": False,
}


def test_what_newer_agents_say_is_stored(host: Host, link: Link) -> None:
    parts = {"drops": 12, "refused": 10, "dropped": 2}
    entry = link_entry(1000, state="observed", to_user=direction(1000, "slbw0") | parts)
    assert post(host, document(host, {"1": entry}, **NEWER)).status_code == 200
    receipt = HostReceipt.objects.get(host=host)
    assert (receipt.devices, receipt.observe_only, receipt.says_total) == (["eth0", "eth1"], False, True)
    assert (receipt.total_wanted_kbit, receipt.total_to_user_kbit, receipt.total_from_user_kbit) == (5000, 5000, None)
    row = LinkEnforcement.objects.get(link=link)
    assert (row.state, row.limited_to, row.in_kernel) == ("observed", None, Limits.both(1000))
    assert (row.to_user_drops, row.to_user_refused, row.to_user_dropped) == (12, 10, 2)
    assert (row.from_user_drops, row.from_user_refused, row.from_user_dropped) == (2, None, None)


def test_what_older_agents_do_not_say_is_not_known(host: Host, link: Link) -> None:
    for more, says_total in ((NEWER, True), ({}, False), ({"total": None}, True)):
        store(host, {"1": link_entry(1000)}, now=timezone.now(), **more)
        receipt = HostReceipt.objects.get(host=host)
        assert receipt.says_total is says_total
    assert (receipt.devices, receipt.observe_only, receipt.total_wanted_kbit) == (None, None, None)


TOTAL = NEWER["total"]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "devices no list": ({"devices": "eth0"}, "devices"),
    "a device no text": ({"devices": ["eth0", 1]}, "devices.1"),
    "a long device": ({"devices": ["x" * 33]}, "devices.0"),
    "many devices": ({"devices": ["x"] * 10_001}, "devices"),
    "observing no truth value": ({"observe_only": 1}, "observe_only"),
    "a total no object": ({"total": 5000}, "total"),
    "a total of 0": ({"total": {**TOTAL, "wanted_kbit": 0}}, "total.wanted_kbit"),
    "a total above all": ({"total": {**TOTAL, "wanted_kbit": 100_000_001}}, "total.wanted_kbit"),
    "a total that is not wanted": ({"total": {**TOTAL, "wanted_kbit": None}}, "total.wanted_kbit"),
    "a total in text": ({"total": {**TOTAL, "to_user_kbit": "5000"}}, "total.to_user_kbit"),
    "a total of one direction": ({"total": {"wanted_kbit": 1, "to_user_kbit": 1}}, "total.from_user_kbit"),
    "parts that are not the sum": (
        {"links": {"1": link_entry(1, to_user=direction(1) | {"refused": 1, "dropped": 2})}},
        "links.1.to_user.drops",
    ),
    "one part": ({"links": {"1": link_entry(1, to_user=direction(1) | {"refused": 2})}}, "links.1.to_user.refused"),
    "a part below 0": (
        {"links": {"1": link_entry(1, to_user=direction(1) | {"refused": -1, "dropped": 2})}},
        "links.1.to_user.refused",
    ),
    "observed without a direction": (
        {"links": {"1": link_entry(1, state="observed", from_user=None)}},
        "links.1.from_user",
    ),
}


@table("name", WRONG)
def test_what_newer_agents_say_wrong_is_refused_by_its_place(name: str, host: Host) -> None:
    values, place = WRONG[name]
    response = post(host, {**document(host, {}), **values})
    assert response.status_code == 400
    assert list(json.loads(response.content)["fields"]) == [place]


def test_page_says_enforced_after_the_receipt_and_not_before(host: Host, link: Link) -> None:
    assert link_status(fresh(link), now=T0).stage == "waiting"
    store(host, {"1": link_entry(1000)}, now=T0)
    status = link_status(fresh(link), now=T0 + timedelta(seconds=1))
    assert (status.stage, status.enforced_kbit) == ("enforced", 1000)


def fresh(link: Link) -> Link:
    return Link.objects.get(pk=link.pk)


def test_since_stays_while_state_and_bandwidth_stay(host: Host, link: Link) -> None:
    def since() -> datetime:
        return LinkEnforcement.objects.get(link=link).since

    store(host, {"1": link_entry(1000)}, now=T0)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=60))
    assert since() == T0
    store(host, {"1": link_entry(500)}, now=T0 + timedelta(seconds=61))
    assert since() == T0 + timedelta(seconds=61)
    store(host, {"1": error_entry(500, "The IFB is gone.")}, now=T0 + timedelta(seconds=62))
    assert since() == T0 + timedelta(seconds=62)
    store(host, {"1": error_entry(500, "Another reason.")}, now=T0 + timedelta(seconds=63))
    assert since() == T0 + timedelta(seconds=62)
    row = LinkEnforcement.objects.get(link=link)
    assert (row.state, row.problem, row.from_user_rate_kbit) == ("error", "Another reason.", None)


def test_older_receipt_changes_nothing(host: Host, link: Link) -> None:
    store(host, {"1": link_entry(1000)}, now=T0)
    body = document(host, {"1": link_entry(7)}, observed_at=(T0 - timedelta(microseconds=1)).isoformat())
    response = post(host, body)
    assert (response.status_code, json.loads(response.content)) == (200, {"stored": False})
    assert LinkEnforcement.objects.get(link=link).kbit == 1000
    assert HostReceipt.objects.get(host=host).observed_at == T0


def test_clock_that_is_ahead_does_not_silence_the_agent(host: Host, link: Link) -> None:
    store(host, {"1": link_entry(1000)}, now=T0, observed_at=(T0 + timedelta(hours=1)).isoformat())
    store(host, {"1": link_entry(500)}, now=T0 + timedelta(seconds=5))
    assert LinkEnforcement.objects.get(link=link).kbit == 500


def test_link_that_the_newest_receipt_does_not_name_is_not_known_to_be_enforced(host: Host, link: Link) -> None:
    store(host, {"1": link_entry(1000)}, now=T0)
    store(host, {}, now=T0 + timedelta(seconds=1), version=None, limits_version=None)
    assert not LinkEnforcement.objects.exists()
    assert link_status(fresh(link), now=T0 + timedelta(seconds=2)).enforced_kbit is None


def test_unknown_links_are_ignored_and_named(host: Host, link: Link) -> None:
    response = post(host, document(host, {"1": link_entry(1000), "77": link_entry(5), "4094": link_entry(5)}))
    assert json.loads(response.content) == {"stored": True, "ignored_links": ["77", "4094"]}
    assert LinkEnforcement.objects.get().link == link


def test_host_speaks_of_its_own_links_alone(host: Host, host_b: Host, link: Link, stranger: User) -> None:
    """Both attachment points have an interface 1; what B says never reaches A's Link."""
    store(host_b, {"1": link_entry(1000)}, now=T0)
    assert LinkEnforcement.objects.get().link.interface_a.host == host_b


def test_storing_costs_the_same_for_one_link_and_for_many(
    host: Host, ap: AttachmentPoint, link: Link, teammate: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    store(host, {"1": link_entry(1000)}, now=T0)
    attach(teammate, *[spec(ap, public_ip="198.51.100.8", public_port=50_000 + n) for n in range(5)])
    entries = {str(n): link_entry(1000) for n in range(1, 7)}
    store(host, entries, now=T0 + timedelta(seconds=1))
    later = T0 + timedelta(seconds=2)
    entries = {number: link_entry(500) for number in entries}
    body = document(host, entries, observed_at=later.isoformat())
    receipt = parse_receipt(json.dumps(body).encode())
    # savepoint, receipt locked, generation, Links, their rows, Links with relations, timed limits, rows and receipt
    # written, savepoint released
    with django_assert_num_queries(10):
        receipt_store(host_id=host.pk, receipt=receipt, now=later)
    assert LinkEnforcement.objects.count() == 6


# --- what is refused ----------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], object]


def put(*path: str, value: object) -> Change:
    def change(body: dict[str, Any]) -> None:
        place = body
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change


def drop(*path: str) -> Change:
    def change(body: dict[str, Any]) -> None:
        place = body
        for name in path[:-1]:
            place = place[name]
        del place[path[-1]]

    return change


SIGNATURE = {"key_id": "c" * 32, "signature": base64.b64encode(bytes(64)).decode()}


def signature(**values: Any) -> Change:
    return put("evidence", "signatures", value=[SIGNATURE | values])


@table(
    ("change", "code", "field"),
    [
        (put("schema", value=2), "schema_unknown", None),
        (put("schema", value="1"), "schema_unknown", None),
        (put("schema", value=True), "schema_unknown", None),
        (drop("schema"), "schema_unknown", None),
        (put("version", value="18"), "receipt_invalid", "version"),
        (put("version", value=1.18), "receipt_invalid", "version"),
        (put("version", value="1.99999999999"), "receipt_invalid", "version"),
        (put("version", value="1.9999999999"), "receipt_invalid", "version"),
        (put("version", value=None), "receipt_invalid", "limits_version"),
        (put("limits_version", value=None), "receipt_invalid", "limits_version"),
        (put("limits_version", value="7"), "receipt_invalid", "limits_version"),
        (put("limits_version", value=-1), "receipt_invalid", "limits_version"),
        (put("limits_version", value=2**31), "receipt_invalid", "limits_version"),
        (put("agent_version", value=1), "receipt_invalid", "agent_version"),
        (put("agent_version", value="x" * 33), "receipt_invalid", "agent_version"),
        (put("agent_version", value="a\0"), "receipt_invalid", "agent_version"),
        (put("agent_version", value="\ud800"), "receipt_invalid", "agent_version"),
        (drop("agent_version"), "receipt_invalid", "agent_version"),
        (put("observed_at", value="yesterday"), "receipt_invalid", "observed_at"),
        (put("observed_at", value="2026-11-21T06:00:00"), "receipt_invalid", "observed_at"),  # no zone
        (put("observed_at", value="2026-02-31T06:00:00Z"), "receipt_invalid", "observed_at"),
        (put("observed_at", value=1_700_000_000), "receipt_invalid", "observed_at"),
        (drop("observed_at"), "receipt_invalid", "observed_at"),
        (put("writes", value=-1), "receipt_invalid", "writes"),
        (put("writes", value=True), "receipt_invalid", "writes"),
        (put("links", value=[]), "receipt_invalid", "links"),
        (drop("links"), "receipt_invalid", "links"),
        (put("links", "0", value={}), "receipt_invalid", "links.0"),
        (put("links", "4095", value={}), "receipt_invalid", "links.4095"),
        (put("links", "01", value={}), "receipt_invalid", "links.01"),
        (put("links", "1", value=[]), "receipt_invalid", "links.1"),
        (put("links", "1", "kbit", value="500"), "receipt_invalid", "links.1.kbit"),
        (put("links", "1", "kbit", value=500.0), "receipt_invalid", "links.1.kbit"),
        (put("links", "1", "kbit", value=100_000_001), "receipt_invalid", "links.1.kbit"),
        (put("links", "1", "state", value="ok"), "receipt_invalid", "links.1.state"),
        (put("links", "1", "state", value=["enforced"]), "receipt_invalid", "links.1.state"),
        (put("links", "1", "state", value="error"), "receipt_invalid", "links.1.problem"),
        (put("links", "1", "problem", value=3), "receipt_invalid", "links.1.problem"),
        (put("links", "1", "to_user", value=None), "receipt_invalid", "links.1.to_user"),
        (put("links", "1", "from_user", "bytes", value=-1), "receipt_invalid", "links.1.from_user.bytes"),
        (put("links", "1", "from_user", "bytes", value=2**63), "receipt_invalid", "links.1.from_user.bytes"),
        (drop("links", "1", "from_user", "rate_kbit"), "receipt_invalid", "links.1.from_user.rate_kbit"),
        (put("problems", value={}), "receipt_invalid", "problems"),
        (put("problems", value=["text"]), "receipt_invalid", "problems.0"),
        (put("problems", value=[{"code": "x", "subject": "y"}]), "receipt_invalid", "problems.0.message"),
        (put("limits_digest", value="A" * 64), "receipt_invalid", "limits_digest"),
        (put("limits_digest", value="a" * 63), "receipt_invalid", "limits_digest"),
        (put("limits_digest", value="a" * 64 + "\n"), "receipt_invalid", "limits_digest"),
        (put("limits_digest", value=7), "receipt_invalid", "limits_digest"),
        (put("limits_digest", value=None), "receipt_invalid", "limits_digest"),  # though it has a bundle
        (put("run", value="a" * 31), "receipt_invalid", "run"),
        (put("run", value="G" * 32), "receipt_invalid", "run"),
        (put("run", value=[]), "receipt_invalid", "run"),
        (drop("run"), "receipt_invalid", "number"),
        (put("number", value=None), "receipt_invalid", "number"),
        (put("number", value=0), "receipt_invalid", "number"),
        (put("number", value=True), "receipt_invalid", "number"),
        (put("number", value="1"), "receipt_invalid", "number"),
        (put("number", value=2**63), "receipt_invalid", "number"),
        (put("clock_skew_ms", value=1.5), "receipt_invalid", "clock_skew_ms"),
        (put("clock_skew_ms", value=False), "receipt_invalid", "clock_skew_ms"),
        (put("clock_skew_ms", value=-(2**63)), "receipt_invalid", "clock_skew_ms"),
        (put("evidence", value=[]), "receipt_invalid", "evidence"),
        (put("evidence", "signed", value=1), "receipt_invalid", "evidence.signed"),
        (put("evidence", "signed", value="x" * (1024 * 1024 + 1)), "receipt_invalid", "evidence.signed"),
        (put("evidence", "signed", value="\ud800"), "receipt_invalid", "evidence.signed"),
        (drop("evidence", "signed"), "receipt_invalid", "evidence.signed"),
        (put("evidence", "signatures", value=[]), "receipt_invalid", "evidence.signatures"),
        (put("evidence", "signatures", value={}), "receipt_invalid", "evidence.signatures"),
        (put("evidence", "signatures", value=[SIGNATURE] * 33), "receipt_invalid", "evidence.signatures"),
        (put("evidence", "signatures", value=["x"]), "receipt_invalid", "evidence.signatures.0"),
        (signature(key_id="x" * 32), "receipt_invalid", "evidence.signatures.0.key_id"),
        (signature(signature="AAAA"), "receipt_invalid", "evidence.signatures.0.signature"),
        (signature(signature="\u00e4" * 88), "receipt_invalid", "evidence.signatures.0.signature"),
        (signature(signature=None), "receipt_invalid", "evidence.signatures.0.signature"),
    ],
)
def test_wrong_value_is_400_at_its_place_and_nothing_is_stored(
    host: Host, link: Link, change: Change, code: str, field: str | None
) -> None:
    newer: dict[str, Any] = {"limits_digest": "a" * 64, "run": "b" * 32, "number": 1, "clock_skew_ms": 0}
    evidence = {"signed": "{}", "signatures": [SIGNATURE]}
    body = copy.deepcopy(document(host, {"1": link_entry(1000)}, **newer, evidence=evidence))
    change(body)
    response = post(host, body)
    error = json.loads(response.content)
    assert (response.status_code, error["code"]) == (400, code)
    assert field is None or field in error["fields"]
    assert not HostReceipt.objects.exists()
    assert not LinkEnforcement.objects.exists()


@table(
    "body",
    [b"", b"{", b"\xff", b"[]", b"null", b'{"schema": 1, "writes": NaN}', b"[" * 100_000, b'{"schema": ' + b"9" * 5000],
)
def test_body_that_is_no_receipt_is_400(host: Host, body: bytes) -> None:
    response = post(host, body)
    assert response.status_code == 400
    assert json.loads(response.content)["code"] in {"not_json", "receipt_invalid"}


def test_receipt_above_8_mib_is_413(host: Host) -> None:
    assert post(host, b" " * (MAX_BYTES + 1)).status_code == 413
    assert not HostReceipt.objects.exists()


def test_large_receipt_of_a_host_that_limits_nothing_is_413(host: Host, user_as: UserAS) -> None:
    """Every user has such a host's credentials."""
    theirs = Host.objects.get(AS=user_as)
    assert post(theirs, b" " * 64 * 1024).status_code == 400
    assert post(theirs, b" " * (64 * 1024 + 1)).status_code == 413


def test_a_thousand_long_problems_do_not_fill_the_administrators_pages(host: Host, door: Client) -> None:
    problem = {"code": "x" * 64, "subject": "y" * 200, "message": "z" * 2000}
    assert post(host, document(host, {}, problems=[problem] * 1000)).status_code == 200
    ap = f"/cockpit/aps/{host.attachment_point.pk}/"
    pages = {
        "/cockpit/": 100_000,
        ap: 100_000,
        f"{ap}?problems=all": 100_000,
        "/admin/enforcement/hostreceipt/": 100_000,
    }
    assert {page for page, most in pages.items() if len(door.get(page).content) > most} == set()


def test_receipt_above_django_s_own_limit_is_read(host: Host, link: Link) -> None:
    """DATA_UPLOAD_MAX_MEMORY_SIZE is 2.5 MB; a receipt may have 8 MiB."""
    body = json.dumps(document(host, {"1": link_entry(1000)})).encode() + b" " * 4_000_000
    assert post(host, body).status_code == 200


def test_example_of_the_contract_is_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text().partition("## Enforcement receipt")[2]
    receipt = parse_receipt(text.partition("```json")[2].partition("```")[0].encode())
    assert (receipt.version, receipt.limits_version, receipt.links[1].limits) == ((1, 18), 7, (500, 500))
    assert receipt.problems[0].code == "hook_obstructed"
    assert (receipt.total, receipt.observe_only, receipt.devices) == (
        Total(100_000, 100_000, 100_000),
        False,
        ["eth0", "eth1"],
    )
    assert receipt.links[1].to_user == Direction("slbw0", 500, 1200, 9, 3, 0, 3, 0)


def test_keys_that_are_not_known_are_ignored(host: Host, link: Link) -> None:
    body = document(host, {"1": link_entry(1000, colour="blue")}, mood="good")
    assert json.loads(post(host, body).content) == {"stored": True}


_NEWER = ["limits_digest", "run", "number", "clock_skew_ms", "evidence", "devices", "total", "observe_only"]
_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["a" * 32, "b" * 64, "A" * 86 + "=="]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["signed", "signatures", "key_id", "signature", "wanted_kbit", "to_user_kbit"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(values=st.dictionaries(st.sampled_from(_NEWER), _ANY))
def test_what_newer_agents_say_is_refused_or_within_what_the_columns_hold(values: dict[str, Any]) -> None:
    known = {"schema": 1, "agent_version": "0.1.0", "version": "1.18", "limits_version": 7, "writes": 0}
    body = {**known, "observed_at": "2026-11-21T06:00:00Z", "links": {}, "problems": [], **values}
    receipt = None
    with contextlib.suppress(DocumentError):
        receipt = parse_receipt(json.dumps(body).encode())
    if receipt is None:
        return
    assert not receipt.limits_digest or len(receipt.limits_digest) == 64
    assert (receipt.run is None) == (receipt.number is None)
    assert receipt.run is None or len(receipt.run) == 32
    assert receipt.number is None or 1 <= receipt.number < 2**63
    assert receipt.clock_skew_ms is None or abs(receipt.clock_skew_ms) < 2**63
    if receipt.evidence is not None:
        assert {len(one.signature) for one in receipt.evidence.signatures} == {64}


@settings(max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["schema", "version", "limits_version", "links", "1", "to_user", "problems", "x"]),
                    inner,
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps({"schema": 1, "links": {"1": value}, "problems": value}).encode()),
    )
)
def test_reader_raises_nothing_but_its_own_error(content: bytes) -> None:
    with contextlib.suppress(DocumentError):
        parse_receipt(content)


# --- mail ---------------------------------------------------------------------------------------------------


def test_owner_is_mailed_when_the_change_is_enforced_for_the_first_time(host: Host, link: Link, owner: User) -> None:
    store(host, {"1": link_entry(1000)}, now=T0)
    mail = Mail.objects.get()
    assert mail.recipient == "owner@example.org"
    assert mail.subject == "Link limited to 1 000 kbit/s at 17-ffaa:0:1107"
    assert "has confirmed that its kernel enforces this" in mail.body
    assert "/ases/" in mail.body
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=60))
    assert Mail.objects.count() == 1


def test_each_change_is_mailed_once(host: Host, link: Link, owner: User) -> None:
    store(host, {"1": link_entry(1000)}, now=T0)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    store(host, {"1": link_entry(500)}, now=T0 + timedelta(seconds=1))
    store(host, {"1": error_entry(500, "The IFB is gone.")}, now=T0 + timedelta(seconds=2))
    store(host, {"1": link_entry(500)}, now=T0 + timedelta(seconds=3))  # repaired: no news for the owner
    assert [mail.subject for mail in Mail.objects.all()] == [
        "Link limited to 1 000 kbit/s at 17-ffaa:0:1107",
        "Link limited to 500 kbit/s at 17-ffaa:0:1107",
    ]


@table(
    ("entry", "values"),
    [
        (link_entry(500), {"limits_version": 1}),  # of the bundle before the change
        (link_entry(1000), {}),  # the versions are right, the number is not
        (link_entry(500, from_user=direction(1000)), {}),
        (link_entry(500, to_user=direction(0)), {}),
        (error_entry(500, "The kernel refused."), {}),
        (link_entry(500), {"limits_version": 99}),  # from the future: not ours
        (link_entry(500), {"version": "1.99"}),
    ],
)
def test_receipt_that_does_not_prove_it_is_no_news(
    host: Host, link: Link, owner: User, entry: dict[str, Any], values: dict[str, Any]
) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    store(host, {"1": entry}, now=T0, **values)
    assert not Mail.objects.exists()


def test_blocked_link_is_called_blocked(host: Host, link: Link, owner: User) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=0, actor=owner)
    store(host, {"1": link_entry(0)}, now=T0)
    assert Mail.objects.get().subject == "Link blocked (0 kbit/s) at 17-ffaa:0:1107"


def test_lowered_maximum_is_mailed_with_what_was_asked_for(
    host: Host, link: Link, ap: AttachmentPoint, staff: User
) -> None:
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=200, actor=staff)
    fan_out()
    store(host, {"1": link_entry(200)}, now=T0)
    assert "You requested 1 000 kbit/s; the maximum there is 200 kbit/s." in Mail.objects.get().body


def test_inactive_link_is_no_news(host: Host, link: Link, owner: User) -> None:
    link_set_active(link_id=link.pk, actor=owner, active=False)
    store(host, {"1": link_entry(1000)}, now=T0)
    assert not Mail.objects.exists()


# --- an attachment point without our agent ------------------------------------------------------------------


def confirm(host: Host, config_version: int) -> int:
    url = f"/api/v4/host/{host.uid}/deployed_config_version"
    return Client().post(url, {"version": f"1.{config_version}"}, headers=credentials(host)).status_code


def test_stock_client_s_word_is_mailed_as_delivered_not_verified(host: Host, link: Link) -> None:
    host.refresh_from_db()
    assert poll(host).status_code == 200
    assert confirm(host, host.config_version) == 200
    mail = Mail.objects.get()
    assert mail.subject == "Link limited to 1 000 kbit/s at 17-ffaa:0:1107: delivered, not verified"
    assert "delivered, not verified" in mail.body
    assert "has confirmed" not in mail.body
    assert link_status(fresh(link), now=T0).stage == "not_verified"
    assert confirm(host, host.config_version) == 200
    assert Mail.objects.count() == 1


def test_older_configuration_confirmed_is_no_news(host: Host, link: Link) -> None:
    host.refresh_from_db()
    poll(host)
    confirm(host, host.config_version - 1)
    assert not Mail.objects.exists()


def test_confirmation_of_what_was_never_handed_out_is_no_news(host: Host, link: Link) -> None:
    host.refresh_from_db()
    confirm(host, host.config_version)
    assert not Mail.objects.exists()


def test_change_after_the_delivery_is_not_called_delivered(host: Host, link: Link, owner: User) -> None:
    host.refresh_from_db()
    poll(host)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)  # the stock client does not see this
    confirm(host, host.config_version)
    assert not Mail.objects.exists()


def test_agent_says_more_than_the_stock_client_beside_it(host: Host, link: Link) -> None:
    store(host, {}, now=T0)
    host.refresh_from_db()
    poll(host)
    confirm(host, host.config_version)
    assert not Mail.objects.exists()


# --- what a receipt is about ----------------------------------------------------------------------------------


def test_receipt_about_another_s_link_under_the_same_id_says_nothing_about_the_new_one(
    host: Host, link: Link, user_as: UserAS, owner: User, teammate: User, ap: AttachmentPoint
) -> None:
    """Interface ids are given again; the agent still speaks of the link that had this one."""
    store(host, {"1": link_entry(1000)}, now=T0)
    old = f"1.{host.config_version}"
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    heir = Link.objects.get(interface_b__AS=attach(teammate, spec(ap)).pk)
    assert heir.interface_a.interface_id == 1
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=1), version=old)
    status = link_status(fresh(heir), now=T0 + timedelta(seconds=2))
    assert (status.stage, status.enforced_kbit) == ("waiting", None)
    assert not LinkEnforcement.objects.filter(link=heir).exists(), "the counters are another person's"
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=3))
    assert link_status(fresh(heir), now=T0 + timedelta(seconds=4)).stage == "enforced"


def test_receipt_of_another_generation_proves_nothing(host: Host, link: Link) -> None:
    """After a restored backup the same H may name another configuration (DOMAIN section 4)."""
    generation_raise()
    store(host, {"1": link_entry(1000)}, now=T0)  # 1.H, and the service is at 2.H
    assert link_status(fresh(link), now=T0).stage == "waiting"
    assert not Mail.objects.exists()
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=1), version=f"2.{host.config_version}")
    assert link_status(fresh(link), now=T0 + timedelta(seconds=2)).stage == "enforced"
    assert Mail.objects.count() == 1


def test_raised_generation_withdraws_what_was_delivered_and_enforced(host: Host, link: Link) -> None:
    poll(host)
    store(host, {"1": link_entry(1000)}, now=T0)
    assert link_status(fresh(link), now=T0).stage == "enforced"
    generation_raise()
    status = link_status(fresh(link), now=T0)
    assert (status.stage, status.enforced_kbit, status.delivered_at) == ("waiting", None, None)
    poll(host)
    assert link_status(fresh(link), now=T0).stage == "delivered"
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=1), version=f"2.{host.config_version}")
    assert link_status(fresh(link), now=T0 + timedelta(seconds=1)).stage == "enforced"
    assert Mail.objects.count() == 1, "the same change is not mailed again"


def test_since_counts_from_when_the_kernel_had_it(host: Host, link: Link, owner: User) -> None:
    """A direction that was wrong, or a link that moved to another address, was not enforced as it is now."""

    def since() -> datetime:
        return LinkEnforcement.objects.get(link=link).since

    store(host, {"1": link_entry(1000, from_user=direction(7))}, now=T0)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=60))
    assert since() == T0 + timedelta(seconds=60)
    link_set_active(link_id=link.pk, actor=owner, active=False)
    link_set_active(link_id=link.pk, actor=owner, active=True)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=120))
    assert since() == T0 + timedelta(seconds=120)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=180))
    assert since() == T0 + timedelta(seconds=120)
