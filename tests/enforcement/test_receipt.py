"""Receipts: strict reading, one row per Link, and the mail that says "enforced" exactly once (docs/api.md)."""

from __future__ import annotations

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import Mail, User
from scionlab.delivery.host_api.documents import DocumentError
from scionlab.enforcement.generation import generation_raise
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt import receipt_store
from scionlab.enforcement.receipt_format import MAX_BYTES, Direction, Total, parse_receipt
from scionlab.enforcement.status import link_status
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.update import link_set_bandwidth, link_update
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.delivery.test_host_api import credentials, poll
from tests.factories import attach, spec

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
    url = f"/api/v4/host/{host.uid}/enforcement"
    response: HttpResponse = Client().post(url, content, content_type="application/json", headers=credentials(host))
    return response


def store(host: Host, links: dict[str, Any], *, now: datetime, **values: Any) -> None:
    body = document(host, links, **{"observed_at": now.isoformat(), **values})
    assert receipt_store(host_id=host.pk, receipt=parse_receipt(json.dumps(body).encode()), now=now).stored


@pytest.fixture
def host(link: Link) -> Host:
    return link.interface_a.host


# --- storing ------------------------------------------------------------------------------------------------


def test_receipt_is_stored_as_it_was_sent(host: Host, link: Link) -> None:
    body = document(host, {"1": link_entry(1000)}, problems=[PROBLEM], observed_at="2020-01-01T06:00:00.123456Z")
    response = post(host, body)
    assert (response.status_code, json.loads(response.content)) == (200, {"stored": True})
    receipt = HostReceipt.objects.get(host=host)
    versions = (1, host.config_version, host.limits_version)
    assert (receipt.generation, receipt.config_version, receipt.limits_version) == versions
    assert receipt.agent_version == "0.1.0"
    assert receipt.problems == [PROBLEM]
    assert receipt.observed_at == datetime(2020, 1, 1, 6, 0, 0, 123456, tzinfo=UTC)
    row = LinkEnforcement.objects.get(link=link)
    assert (row.kbit, row.state, row.problem) == (1000, "enforced", "")
    for side in ("to_user", "from_user"):
        counted = [getattr(row, f"{side}_{name}") for name in ("rate_kbit", "bytes", "packets", "drops")]
        assert counted == [1000, 1200, 9, 2]
    assert (row.to_user_dev, row.from_user_dev) == ("eth0", "slbw0")
    assert row.received_at == receipt.received_at


PROBLEM = {"code": "foreign_device", "subject": "eth1", "message": "eth1 has a root qdisc that is not ours."}
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
    assert (receipt.total_to_user_kbit, receipt.total_from_user_kbit) == (5000, None)
    row = LinkEnforcement.objects.get(link=link)
    assert (row.state, row.limited_to, row.in_kernel) == ("observed", None, Limits.both(1000))
    assert (row.to_user_drops, row.to_user_refused, row.to_user_dropped) == (12, 10, 2)
    assert (row.from_user_drops, row.from_user_refused, row.from_user_dropped) == (2, None, None)


def test_what_older_agents_do_not_say_is_not_known(host: Host, link: Link) -> None:
    for more, says_total, says_tests in (
        (NEWER | {"tests": []}, True, True),
        ({}, False, False),
        ({"total": None}, True, False),
    ):
        store(host, {"1": link_entry(1000)}, now=timezone.now(), **more)
        receipt = HostReceipt.objects.get(host=host)
        assert (receipt.says_total, receipt.says_tests) == (says_total, says_tests)
    assert (receipt.devices, receipt.observe_only, receipt.total_to_user_kbit) == (None, None, None)


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


# --- what is refused ----------------------------------------------------------------------------------------

MISSING = object()
SIGNATURE = {"key_id": "c" * 32, "signature": base64.b64encode(bytes(64)).decode()}
# By the place that is changed, which is told.
REFUSED: dict[str, list[object]] = {
    "agent_version": [1, "x" * 33, "a\0", "\ud800", None, MISSING],
    "version": ["18", 1.18, "1.99999999999", "1.9999999999", "1.18\n"],
    "limits_version": ["7", -1, 2**31, 7.0, None, MISSING],
    "observed_at": ["yesterday", "2026-11-21T06:00:00", "2026-02-31T06:00:00Z", 1_700_000_000, MISSING],
    "writes": [-1, True, 2**63, None],
    "links": [[], None, MISSING],
    "links.0": [{}],
    "links.4095": [{}],
    "links.01": [{}],
    "links.1": [[], None],
    "links.1.kbit": ["500", 500.0, 100_000_001, -1, MISSING],
    "links.1.to_user_kbit": [100_000_001, "1"],
    "links.1.state": ["ok", ["enforced"], None, MISSING],
    "links.1.problem": [3, "x" * 2001, "\0"],
    "links.1.to_user": [None, [], MISSING],
    "links.1.from_user": [None, MISSING],
    "links.1.to_user.dev": ["x" * 33, 1, MISSING],
    "links.1.from_user.bytes": [-1, 2**63, "1", True, None],
    "links.1.from_user.rate_kbit": [MISSING, None, 2**63],
    "links.1.from_user.backlog_bytes": [MISSING, -1],
    "links.1.from_user.refused": [-1, "2"],
    "problems": [{}, [PROBLEM] * 1001, None],
    "problems.0": ["text"],
    "problems.0.code": ["x" * 65, 1],
    "problems.0.subject": ["x" * 201],
    "problems.0.message": ["x" * 2001, MISSING],
    "limits_digest": ["A" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n", 7, None],  # null, though it has a bundle
    "run": ["a" * 31, "G" * 32, [], "a" * 32 + "\n"],
    "number": [None, 0, True, "1", 2**63, MISSING],
    "clock_skew_ms": [1.5, False, -(2**63), 2**63],
    "evidence": [[], "x"],
    "evidence.signed": [1, "x" * (1024 * 1024 + 1), "\ud800", MISSING],
    "evidence.signatures": [[], {}, [SIGNATURE] * 33],
    "evidence.signatures.0": ["x"],
    "evidence.signatures.0.key_id": ["x" * 32],
    "evidence.signatures.0.signature": ["AAAA", "\u00e4" * 88, None],
    "devices": ["eth0", ["x"] * 10_001],
    "devices.1": [1, "x" * 33],
    "observe_only": [1, "no"],
    "total": [5000, []],
    "total.wanted_kbit": [0, 100_000_001, None],
    "total.to_user_kbit": ["5000", 100_000_001, MISSING],
    "tests": ["x", ["a" * 32] * 33_001],
    "tests.0": ["A" * 32],
    "sending_tests": ["maybe", True],
    "test_kinds": ["udp", ["x"] * 17, None],
    "test_kinds.0": ["x" * 17],
}


def changed(body: Any, place: str, value: object) -> Any:
    """`body`, with another value at the place."""
    *path, last = place.split(".")
    here = body
    for name in path:
        here = here[int(name) if isinstance(here, list) else name]
    if value is MISSING:
        del here[last]
    else:
        here[int(last) if isinstance(here, list) else last] = value
    return body


def everything() -> dict[str, Any]:
    """A receipt with each key."""
    sides = {name: direction(1000) | {"drops": 2, "refused": 2, "dropped": 0} for name in ("to_user", "from_user")}
    return {
        **{"schema": 1, "agent_version": "0.1.0", "version": "1.18", "limits_version": 7, "writes": 4},
        **{"observed_at": "2026-11-21T06:00:00.123456Z", "limits_digest": "a" * 64, "run": "b" * 32, "number": 1},
        **{"clock_skew_ms": 0, "evidence": {"signed": "{}", "signatures": [dict(SIGNATURE)]}},
        **{"tests": ["d" * 32], "sending_tests": "on", "test_kinds": ["udp"], "problems": [dict(PROBLEM)]},
        **copy.deepcopy(NEWER),
        "links": {"1": link_entry(1000, **sides) | {"to_user_kbit": 1000, "from_user_kbit": 1000}},
    }


CASES = [(place, value, place) for place, values in REFUSED.items() for value in values]


@table(("place", "value", "told"), CASES, ids=[f"{number} {case[0]}" for number, case in enumerate(CASES)])
def test_wrong_value_is_told_by_its_place(place: str, value: object, told: str) -> None:
    parse_receipt(json.dumps(everything()).encode())
    with pytest.raises(DocumentError) as caught:
        parse_receipt(json.dumps(changed(everything(), place, value)).encode())
    assert (caught.value.code, list(caught.value.fields)) == ("receipt_invalid", [told])


@table("schema", [2, "1", True, MISSING])
def test_another_schema_is_told_first(host: Host, schema: object) -> None:
    error = post(host, changed(document(host, {}, writes=-1), "schema", schema))
    assert (error.status_code, json.loads(error.content)["code"]) == (400, "schema_unknown")


def test_what_is_wrong_is_400_with_place_value_and_bound_and_nothing_is_stored(host: Host, link: Link) -> None:
    response = post(host, document(host, {"1": link_entry(100_000_001)}))
    assert response.status_code == 400
    message = "Send an integer from 0 to 100000000 here. Not 100000001."
    fields = {"links.1.kbit": [{"code": "wrong_value", "message": message}]}
    told = {"code": "receipt_invalid", "message": f"links.1.kbit: {message}", "fields": fields}
    assert json.loads(response.content) == told
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
    pages = ["/cockpit/", ap, f"{ap}?problems=all", "/admin/enforcement/hostreceipt/"]
    assert [page for page in pages if len(door.get(page).content) > 100_000] == []


def test_receipt_above_django_s_own_limit_is_read(host: Host, link: Link) -> None:
    """DATA_UPLOAD_MAX_MEMORY_SIZE is 2.5 MB; a receipt may have 8 MiB."""
    body = json.dumps(document(host, {"1": link_entry(1000)})).encode() + b" " * 4_000_000
    assert post(host, body).status_code == 200


def test_example_of_the_contract_is_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text().partition("## Enforcement receipt")[2]
    receipt = parse_receipt(text.partition("```json")[2].partition("```")[0].encode())
    assert (receipt.version, receipt.limits_version, receipt.links[1].limits) == ((1, 18), 7, (500, 500))
    assert receipt.problems[0].code == "hook_obstructed"
    assert receipt.total == Total(100_000, 100_000, 100_000)
    assert (receipt.observe_only, receipt.devices) == (False, ["eth0", "eth1"])
    assert receipt.links[1].to_user == Direction(
        dev="slbw0", rate_kbit=500, bytes=1200, packets=9, drops=3, backlog_bytes=0, refused=3, dropped=0
    )


def test_keys_that_are_not_known_are_ignored(host: Host, link: Link) -> None:
    body = document(host, {"1": link_entry(1000, colour="blue")}, mood="good")
    assert json.loads(post(host, body).content) == {"stored": True}


# --- mail ---------------------------------------------------------------------------------------------------


def test_each_change_is_mailed_once_when_it_is_enforced(host: Host, link: Link, owner: User) -> None:
    store(host, {"1": link_entry(1000)}, now=T0)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    store(host, {"1": link_entry(500)}, now=T0 + timedelta(seconds=1))
    store(host, {"1": error_entry(500, "The IFB is gone.")}, now=T0 + timedelta(seconds=2))
    store(host, {"1": link_entry(500)}, now=T0 + timedelta(seconds=3))  # repaired: no news for the owner
    link_update(link_id=link.pk, actor=owner, active=False)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=4))
    first, second = Mail.objects.order_by("pk")
    assert first.recipient == second.recipient == "owner@example.org"
    assert first.subject == "Link limited to 1 000 kbit/s at 17-ffaa:0:1107"
    assert "has confirmed that its kernel enforces this" in first.body
    assert second.subject == "Link limited to 500 kbit/s at 17-ffaa:0:1107"


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


@table("voided_by", ["wrong_host", "limits_removed"])
def test_receipt_that_counts_as_failed_is_no_news(host: Host, link: Link, voided_by: str) -> None:
    problems, silent = ([{"code": code, "subject": "x", "message": "x"}] for code in (voided_by, "limiter_silent"))
    store(host, {"1": link_entry(1000)}, now=T0, problems=problems)
    assert link_status(fresh(link), now=T0).stage == "failed"
    assert not Mail.objects.exists()
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=1), problems=silent)
    assert not Mail.objects.exists()
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=2), problems=problems)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=3))
    assert link_status(fresh(link), now=T0).stage == "enforced"
    assert Mail.objects.get().subject == "Link limited to 1 000 kbit/s at 17-ffaa:0:1107"


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


def test_stock_client_s_word_of_an_observed_link_names_no_limit(host: Host, link: Link) -> None:
    link_update(link_id=link.pk, actor=None, observe_only=True)
    assert poll(host).status_code == 200
    assert confirm(host, host.config_version) == 200
    mail = Mail.objects.get()
    assert mail.subject == "Link observed, not limited at 17-ffaa:0:1107: delivered, not verified"
    assert "has installed the configuration in which this link is observed: delivered, not verified." in mail.body


@table("of", ["an older configuration", "what was never handed out", "a later change", "what its agent says better"])
def test_stock_client_s_word_is_no_news_of(of: str, host: Host, link: Link) -> None:
    host.refresh_from_db()
    if of == "what its agent says better":
        store(host, {}, now=T0)
    if of != "what was never handed out":
        poll(host)
    if of == "a later change":
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=None)
    confirm(host, host.config_version - (of == "an older configuration"))
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


def test_receipt_of_a_version_from_the_future_says_nothing_of_any_link(host: Host, link: Link) -> None:
    """After a restored backup interface ids that were given since are free: the counters may be another person's."""
    store(host, {"1": link_entry(1000)}, now=T0, version=f"1.{host.config_version + 1}")
    assert not LinkEnforcement.objects.exists()
    assert link_status(fresh(link), now=T0).stage == "waiting"


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
    link_update(link_id=link.pk, actor=owner, active=False)
    link_update(link_id=link.pk, actor=owner, active=True)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=120))
    assert since() == T0 + timedelta(seconds=120)
    store(host, {"1": link_entry(1000)}, now=T0 + timedelta(seconds=180))
    assert since() == T0 + timedelta(seconds=120)


@table(
    ("place", "value", "message"),
    [
        ("version", None, 'limits_version: Send null exactly if "version" is null here. Not 7.'),
        ("limits_digest", None, 'limits_digest: Send null exactly if "version" is null here. Not null.'),
        ("number", None, 'number: Send it exactly if there is a "run" here. Not null.'),
        ("run", MISSING, 'number: Send it exactly if there is a "run" here. Not 1.'),
        ("links.1.state", "error", "links.1.problem: Send a sentence with the state error here. Not null."),
        ("links.1.to_user", None, "links.1.to_user: Send what the kernel has with the state enforced here. Not null."),
        ("links.1.to_user.drops", 3, 'links.1.to_user.drops: Send the sum of "refused" and "dropped" here. Not 3.'),
        ("links.1.to_user.refused", 3, 'links.1.to_user.drops: Send the sum of "refused" and "dropped" here. Not 2.'),
        (
            "links.1.to_user.dropped",
            None,
            'links.1.to_user.refused: Send it exactly if there is a "dropped" here. Not 2.',
        ),
    ],
)
def test_what_does_not_fit_together_says_what_to_send(place: str, value: object, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_receipt(json.dumps(changed(everything(), place, value)).encode())
    assert caught.value.message == message
