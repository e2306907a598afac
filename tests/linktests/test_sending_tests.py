"""Tests that send, in the service: what is refused, lanes, the start with its key, reports, states, alarms, mails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from bandwidth_config import RuleError, generate_link_info
from contract.link_info import check_link_info
from contract.link_tests import MAX_TEST_S, run_key
from scionlab.accounts.models import Mail, User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.limits.profiles import Profile, constant, outage
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_set_bandwidth
from scionlab.linktests import sending
from scionlab.linktests.link_test import SlotTakenError, link_test_cancel, link_test_create
from scionlab.linktests.models import LinkTest, TestPolicy, TestResult
from scionlab.linktests.test_mails import link_tests_notify
from scionlab.linktests.test_results import user_report_store
from scionlab.linktests.test_start import confirmed_secret
from scionlab.site.retention import old_rows_forget
from scionlab.testbed.host import host_rotate_secret
from scionlab.testbed.models import AttachmentPoint, Host, Link
from station.plan import from_json
from station.tools import TOOLS
from tests.cases import case, table
from tests.factories import LinkEnforcementFactory, api_token, attach, spec
from tests.linktests.test_watches import status
from tests.support.access import basic
from tests.support.standing_clock import T0, Now, at, now

__all__ = ["now"]  # the fixture
pytestmark = pytest.mark.django_db

QUICK_S = 17  # to find each other, 5 s and a pause each way, slack
EVERYBODY = {
    "applies_to": "everybody",
    "tool": "quick",
    "max_seconds": 60,
    "runs_per_day": 99,
    "max_pending": 99,
    "horizon_hours": 99,
}


@pytest.fixture(autouse=True)
def ready(receipt: HostReceipt) -> None:
    """The attachment point enforces the link, and its operator lets tests send."""
    HostReceipt.objects.filter(pk=receipt.pk).update(says_tests=True, sending_tests="on", says_tcp_tests=True)


def create(link: Link, actor: User, begins_s: float | None = None, tool: str = "quick", **parameters: int) -> LinkTest:
    begins_at = None if begins_s is None else at(begins_s)
    return link_test_create(link_id=link.pk, tool=tool, parameters=parameters, begins_at=begins_at, actor=actor)


def refusal(*arguments: Any, **named: Any) -> tuple[str, str]:
    """Code and sentence; empty where it was taken."""
    try:
        with transaction.atomic():
            create(*arguments, **named)
    except RuleError as exc:
        return exc.code, exc.message.replace("\N{NO-BREAK SPACE}", " ")
    return "", ""


def another(owner: User, ap: AttachmentPoint, number: int) -> Link:
    """Enforced, at the same attachment point."""
    made = Link.objects.get(interface_b__AS=attach(owner, spec(ap, public_ip=f"198.51.100.{number}")).pk)
    host = Host.objects.get(pk=ap.host_id)
    HostReceipt.objects.filter(host=host).update(
        config_version=host.config_version, limits_version=host.limits_version, received_at=T0
    )
    LinkEnforcement.objects.filter(link__interface_a__host=host).update(
        config_version=host.config_version, limits_version=host.limits_version
    )
    LinkEnforcementFactory(link=made, received_at=T0)
    return made


def report(
    side: str, outcome: str = "completed", phases: tuple[Mapping[str, Any], ...] = (), **more: Any
) -> dict[str, Any]:
    return {"schema": 1, "side": side, "outcome": outcome, "why": "", "peer": None, "phases": list(phases), **more}


def half(test: LinkTest, side: str, *, received: int = 100) -> tuple[dict[str, Any], ...]:
    """150 packets a second were sent by each end, and 100 arrived."""
    found = []
    for planned in test.phases or ():
        sends = planned["direction"] == ("to_user" if side == "ap" else "from_user")
        counts = {"sent_packets": 150 * 5 if sends else 0, "received_packets": 0 if sends else received * 5}
        row = [150, 150, 0, 0] if sends else [0, 0, received, received]
        begins_ms = round(test.begins_at.timestamp() * 1000) + (500 if planned["number"] == 0 else 6500)
        zeros = dict.fromkeys(("sent_bytes", "received_bytes", "lost_packets", "reordered_packets"), 0)
        keys = ("number", "kind", "direction", "kbit", "payload_bytes")
        known = {key: planned[key] for key in keys}
        found.append(
            {**known, "begins_at_ms": begins_ms, **zeros, **counts, "seconds": [row] * 5, "rtt_us": None, "mtu": None}
        )
    return tuple(found)


def upload(test: LinkTest, host: Host, given: dict[str, Any] | None, *, passed: int = 82, final: bool = True) -> Any:
    """Samples of every second, of which the class passed `passed` packets of 1514 bytes in both directions."""
    seconds = range(13)
    began_ms = round(test.begins_at.timestamp() * 1000)
    side = {"segment": ["0" * 16] * 13, "rate_kbit": [1000] * 13}
    side |= {"passed_bytes": [1514 * passed * s for s in seconds], "passed_packets": [passed * s for s in seconds]}
    side |= {"dropped_bytes": [1514 * 70 * s for s in seconds], "dropped_packets": [70 * s for s in seconds]}
    side |= {"lost_packets": [0] * len(seconds)}
    document = {
        "schema": 1,
        "agent_version": "1",
        "test": test.test_id,
        "is_final": final,
        "times_ms": [began_ms + 1000 * s for s in seconds],
        "clock_ms": [1000 * s for s in seconds],
        "in_force": [True] * 13,
        "to_user": side,
        "from_user": side,
        **({} if given is None else {"report": given}),
    }
    return Client().post(
        f"/api/v4/host/{host.uid}/test_results",
        json.dumps(document),
        content_type="application/json",
        headers={"Authorization": basic(host, host.secret)},
    )


# --- reserving ----------------------------------------------------------------------------------------------


def test_it_begins_a_second_ahead_and_is_in_the_document_with_what_the_attachment_point_may_send(
    link: Link, host: Host, owner: User, now: Now
) -> None:
    now.moment = at(0.001)
    made = create(link, owner)
    (found,) = check_link_info(generate_link_info(host))[link.interface_a.interface_id].tests
    assert (found.begins_at, found.duration_s) == (at(2), QUICK_S)
    phases = [from_json(one) for one in made.phases or ()]
    assert phases == list(TOOLS["quick"].phases({"seconds": 5, "percent": 150, "payload_bytes": 1452}, 1000, 1000))
    assert (found.kind, found.port, found.kbit, found.max_bytes) == ("udp", 30_300, 1500, made.max_bytes)
    assert made.offered_bytes == 2 * (made.max_bytes or 0)
    now.moment = at(1)
    link_test_cancel(link_test_id=made.pk, actor=owner)
    assert create(link, owner).begins_at == at(2)


def test_phases_are_of_the_limits_that_hold_when_it_begins(link: Link, owner: User) -> None:
    timed_limit_create(link_id=link.pk, profile=constant((200, 100), 600), begins_at=at(3600), actor=owner)
    HostReceipt.objects.update(limits_version=Host.objects.get(pk=link.interface_a.host_id).limits_version)
    LinkEnforcement.objects.update(limits_version=Host.objects.get(pk=link.interface_a.host_id).limits_version)
    made = create(link, owner, 3700)
    assert [one["kbit"] for one in made.phases or ()] == [300, 150]


@table(
    "change, code, words",
    [
        ({"sending_tests": ""}, "test_not_possible", "does not support tests that send"),
        ({"sending_tests": "off"}, "test_not_possible", "has not enabled tests that send"),
        ({"sending_tests": "stopped"}, "test_not_possible", "has stopped all tests that send"),
        ({"received_at": at(-181), "observed_at": at(-181)}, "test_not_possible", "No report since"),
        ({"received_at": at(-180), "observed_at": at(-180)}, "", ""),
        ({"clock_skew_ms": 5001}, "test_not_possible", "clock of the attachment point is off by 5 s"),
        ({"clock_skew_ms": 5000}, "", ""),
    ],
)
def test_attachment_point_that_cannot_is_named(
    link: Link, owner: User, change: dict[str, Any], code: str, words: str
) -> None:
    HostReceipt.objects.update(**change)
    found = refusal(link, owner)
    assert found[0] == code
    assert words in found[1]
    assert LinkTest.objects.exists() == (code == "")


def test_link_that_is_blocked_or_not_enforced_is_refused(link: Link, owner: User) -> None:
    timed = Profile("outage", outage(60).steps, 60)
    timed_limit_create(link_id=link.pk, profile=timed, begins_at=at(3600), actor=owner)
    code, words = refusal(link, owner, 3600)
    assert (code, words[:48]) == ("test_blocked", "The link is blocked to your AS (0 kbit/s) at tha")
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    code, words = refusal(link, owner)
    assert (code, words[:8]) == ("test_not_enforced", "Waiting:")


def test_nobody_sends_over_the_link_of_somebody_else(link: Link, staff: User, stranger: User) -> None:
    for person in (staff, stranger):
        assert refusal(link, person) == (
            "test_not_yours",
            "The AS belongs to owner@example.org. A test sends to its host, so only its owner may start one.",
        )


@table(
    "values, parameters, code",
    [
        ({"max_seconds": QUICK_S}, {}, ""),
        ({"max_seconds": QUICK_S - 1}, {}, "test_long"),
        ({}, {"seconds": 20}, ""),
        ({}, {"seconds": 21}, "test_parameter"),
        ({"limit_percent": 150}, {}, ""),
        ({"limit_percent": 149}, {}, "test_share"),
        ({"limit_percent": 149}, {"percent": 149}, ""),
        ({"megabytes_per_day": 2}, {}, ""),
        ({"megabytes_per_day": 1}, {}, "test_data"),
        ({"runs_per_day": 0}, {}, "test_runs"),
        ({"max_pending": 0}, {}, "test_pending"),
    ],
)
def test_policies_at_their_bounds(
    link: Link, owner: User, values: dict[str, int], parameters: dict[str, int], code: str
) -> None:
    TestPolicy.objects.create(**{**EVERYBODY, **values})
    assert refusal(link, owner, **parameters)[0] == code


def test_data_of_a_day_is_counted_with_what_is_scheduled(link: Link, owner: User, now: Now) -> None:
    """Of 1.8 MB each: three fit into 6 MB."""
    TestPolicy.objects.create(**{**EVERYBODY, "megabytes_per_day": 6})
    for number in range(3):
        create(link, owner, 100 * number)
    code, words = refusal(link, owner, 900)
    assert code == "test_data"
    assert words.startswith("This test would send 1.8 MB, after 5.5 MB within the last 24 hours; you may send 6 MB.")
    now.moment = at(86_400)
    LinkTest.objects.update(retired_at=at(1))
    HostReceipt.objects.update(received_at=now.moment, observed_at=now.moment)
    LinkEnforcement.objects.update(received_at=now.moment)
    assert refusal(link, owner)[0] == ""


def test_cap_of_the_rules_is_above_every_policy(link: Link, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    TestPolicy.objects.create(**{**EVERYBODY, "max_seconds": MAX_TEST_S + 100})
    monkeypatch.setattr(sending, "MAX_TEST_S", QUICK_S - 1)
    assert refusal(link, owner)[0] == "test_long"
    made = sending.plan_of("quick", {}, link.enforced)
    monkeypatch.setattr(sending, "MAX_TEST_BYTES", made.max_bytes)
    sending.plan_of("quick", {}, link.enforced)
    monkeypatch.setattr(sending, "MAX_TEST_BYTES", made.max_bytes - 1)
    assert refusal(link, owner)[0] == "test_bytes"


def test_four_send_at_one_attachment_point_and_the_fifth_learns_when(
    link: Link, ap: AttachmentPoint, owner: User, teammate: User, now: Now
) -> None:
    """Each from a port of its own, which it holds from 30 s before its beginning until two seconds after its end."""
    links = [link, *(another(owner if number < 4 else teammate, ap, number) for number in range(1, 5))]
    made = [create(one, owner, 10 + 2 * number) for number, one in enumerate(links[:4])]
    assert [one.port for one in made] == [30_300, 30_301, 30_302, 30_303]
    with pytest.raises(SlotTakenError) as caught:
        create(links[4], teammate, 20)
    assert caught.value.next_free_at == at(10 + QUICK_S + 2 + 30)
    assert refusal(links[4], teammate, 58)[0] == "test_slot_taken"
    now.moment = at(28)
    assert refusal(links[4], teammate)[0] == "test_slot_taken"
    now.moment = at(29)
    assert create(links[4], teammate).port == 30_300
    watch = link_test_create(link_id=link.pk, duration_s=60, begins_at=at(100), actor=owner)
    assert (watch.port, watch.ap) == (None, None)


def test_database_keeps_the_lanes_of_one_attachment_point_apart(
    link: Link, ap: AttachmentPoint, ap_b: AttachmentPoint, owner: User
) -> None:
    made = create(link, owner, 100)
    other = another(owner, ap, 9)
    row: dict[str, Any] = {"link": other, "tool": "quick", "ap": ap}
    row |= {"begins_at": made.begins_at, "ends_at": made.ends_at}
    for lane in (0, 4, None):
        with pytest.raises(IntegrityError), transaction.atomic():
            LinkTest.objects.create(**row, lane=lane)
    beside = LinkTest.objects.create(**row, lane=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        LinkTest.objects.filter(pk=beside.pk).update(lane=0)
    LinkTest.objects.filter(pk=beside.pk).update(ap=ap_b, lane=0)
    link_test_cancel(link_test_id=made.pk, actor=owner)
    LinkTest.objects.filter(pk=beside.pk).update(ap=ap)


@table(
    "given, code",
    [
        ({"tool": "quick", "duration_s": 10}, "test_for_watch"),
        ({"tool": "watch", "parameters": {"seconds": 3}, "duration_s": 10}, "test_for_watch"),
        ({"tool": "watch"}, "required"),
        ({"tool": "quick", "parameters": {"second": 3}}, "test_parameter"),
    ],
)
def test_what_belongs_to_another_tool_is_refused(link: Link, owner: User, given: dict[str, Any], code: str) -> None:
    with pytest.raises(RuleError) as caught:
        link_test_create(link_id=link.pk, begins_at=None, actor=owner, **given)
    assert caught.value.code == code


# --- the start ----------------------------------------------------------------------------------------------


@pytest.fixture
def api(owner: User) -> Client:
    return Client(headers={"Authorization": f"Token {api_token(owner)}"})


def test_start_gives_its_creator_the_key_once_it_is_armed(
    subtests: pytest.Subtests, link: Link, host: Host, owner: User, staff: User, api: Client, now: Now
) -> None:
    path = f"/api/v1/links/{link.pk}/tests/"
    made = api.post(path, {"tool": "quick", "parameters": {"seconds": 3}}, content_type="application/json").json()
    start = f"/api/v1/tests/{made['id']}/start/"
    early = api.post(start)
    assert (early.status_code, early.json()["code"], early["Retry-After"]) == (409, "test_not_armed", "1")
    test = LinkTest.objects.get()
    LinkTest.objects.update(armed_at=T0)
    found = api.post(start)
    assert (found.status_code, found["Cache-Control"]) == (200, "no-store")
    assert found.json() == {
        "test": test.test_id,
        "key": run_key(host.secret, test.test_id).hex(),
        "ip": "192.0.2.1",
        "port": 30_300,
        "remote_ip": "198.51.100.7",
        "from_ms": round(at(1).timestamp() * 1000),
        "until_ms": round(at(14).timestamp() * 1000),
        "now_ms": round(T0.timestamp() * 1000),
        "tool": "quick",
        "parameters": {"seconds": 3, "percent": 150, "payload_bytes": 1452},
        "phases": test.phases,
    }
    administrator = Client(headers={"Authorization": f"Token {api_token(staff)}"})
    assert administrator.get(f"/api/v1/tests/{test.pk}/").status_code == 200
    assert administrator.post(start).status_code == 404
    HostReceipt.objects.update(sending_tests="stopped")
    stopped = api.post(start)
    assert (stopped.status_code, "has stopped all tests" in stopped.json()["message"]) == (409, True)
    HostReceipt.objects.update(sending_tests="on")
    now.moment = at(14)
    assert api.post(start).json()["code"] == "test_over"
    now.moment = at(2)
    with case(subtests, "its end could not begin"):
        upload(test, host, report("ap", "error", why="The port is taken."))
        failed = api.post(start).json()
        assert (failed["code"], failed["message"]) == ("test_over", "No result: The port is taken.")
    api.delete(f"/api/v1/tests/{test.pk}/")
    over = api.post(start)
    assert (over.status_code, over.json()["code"]) == (409, "test_over")


def test_key_is_of_the_newest_secret_that_the_attachment_point_has(link: Link, host: Host, staff: User) -> None:
    former = host.secret
    HostReceipt.objects.update(limits_version=host.limits_version)
    host_rotate_secret(host_id=host.pk, actor=staff)
    host.refresh_from_db()
    receipt = HostReceipt.objects.get()
    assert (host.secret_limits_version, receipt.limits_version) == (host.limits_version, host.limits_version - 1)
    assert confirmed_secret(host, receipt) == former
    receipt.limits_version = host.limits_version
    assert confirmed_secret(host, receipt) == host.secret != former
    host_rotate_secret(host_id=host.pk, actor=staff, keep_previous=False)
    host.refresh_from_db()
    assert confirmed_secret(host, receipt) == host.secret


# --- reports and states ---------------------------------------------------------------------------------------


def test_course_of_a_test_from_its_start_to_its_verdict(
    link: Link, host: Host, owner: User, api: Client, now: Now
) -> None:
    made = create(link, owner)
    path = f"/api/v1/tests/{made.pk}/report/"
    given = report("user", phases=half(made, "user", received=82))
    early = api.post(path, given, content_type="application/json")
    assert (early.status_code, early.json()["code"]) == (400, "test_not_begun")
    LinkTest.objects.update(armed_at=T0)
    now.moment = at(14)
    assert status(made, now).state == "running"
    assert upload(made, host, report("ap", phases=half(made, "ap", received=82))).json() == {"stored": True}
    assert upload(made, host, report("ap", "error")).json() == {"stored": False}
    first = api.post(path, given, content_type="application/json")
    again = api.post(path, report("user", "error", why="x"), content_type="application/json")
    assert (first.status_code, first.json()) == (201, {"stored": True})
    assert (again.status_code, again.json()) == (200, {"stored": False})
    shown = api.get(f"/api/v1/tests/{made.pk}/").json()
    assert (shown["state"], shown["tool"], shown["kind"], shown["verdict"]) == ("finished", "quick", "udp", None)
    verdict = shown["sending_verdict"]
    assert (verdict["code"], verdict["is_good"]) == ("enforced", True)
    assert "To your AS: enforced. 993 kbit/s of 1 000 kbit/s passed" in shown["text"].replace("\N{NO-BREAK SPACE}", " ")
    assert [one["received_kbit"] for one in verdict["to_user"]["steps"]] == [pytest.approx(980.064)]
    assert len(shown["points"]) == 12


def test_client_that_lies_about_what_it_received_gains_nothing(
    link: Link, host: Host, owner: User, api: Client, now: Now
) -> None:
    made = create(link, owner)
    now.moment = at(14)
    upload(made, host, report("ap", phases=half(made, "ap", received=82)))
    lie = report("user", phases=half(made, "user", received=5000))
    assert api.post(f"/api/v1/tests/{made.pk}/report/", lie, content_type="application/json").status_code == 201
    found = status(made, now).verdict
    assert found is not None
    assert found.code == "enforced"
    assert "its figure is ignored" in found.text


@table(
    "change, code, words",
    [
        ({"side": "ap"}, 400, '"side" is "user"'),
        ({"phases": [{}]}, 400, "phases[0]"),
        ({"more": 1}, 400, "more is unknown"),
        ({"why": "x" * 300_000}, 400, "at most 262144 bytes"),
    ],
)
def test_bad_report_is_refused_by_its_place(
    link: Link, owner: User, api: Client, now: Now, change: dict[str, Any], code: int, words: str
) -> None:
    made = create(link, owner)
    now.moment = at(5)
    answer = api.post(f"/api/v1/tests/{made.pk}/report/", {**report("user"), **change}, content_type="application/json")
    assert answer.status_code == code
    assert words in answer.json()["message"]
    assert not TestResult.objects.exists()


def test_reports_of_others_and_of_watches_are_refused(
    link: Link, host: Host, owner: User, staff: User, api: Client, now: Now
) -> None:
    made = create(link, owner)
    watch = link_test_create(link_id=link.pk, duration_s=5, begins_at=at(60), actor=owner)
    now.moment = at(70)
    administrator = Client(headers={"Authorization": f"Token {api_token(staff)}"})
    path = f"/api/v1/tests/{made.pk}/report/"
    assert administrator.post(path, report("user"), content_type="application/json").status_code == 404
    answer = api.post(f"/api/v1/tests/{watch.pk}/report/", report("user"), content_type="application/json")
    assert answer.json()["code"] == "test_sends_nothing"
    assert api.post(f"/api/v1/tests/{watch.pk}/start/").json()["code"] == "test_sends_nothing"
    wrong = upload(made, host, report("user"))
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["report.side"])
    assert upload(made, host, {"schema": 1}).json()["fields"]["report"][0]["message"].startswith("Send a report (")


@table(
    "given, state, words",
    [
        (None, "failed", "did not run its end"),
        (report("ap", "nobody"), "failed", "no answer came from 198.51.100.7. Run the command on the host with that"),
        (report("ap", "cut", why="The user's end is silent."), "failed", "The user's end is silent."),
    ],
)
def test_why_there_is_no_result(
    link: Link, host: Host, owner: User, now: Now, given: dict[str, Any] | None, state: str, words: str
) -> None:
    made = create(link, owner)
    now.moment = at(5)
    upload(made, host, given)
    found = status(made, now)
    assert (found.state, words in found.text) == (state, True), found.text


@table(
    "said, code, sending, says_tcp",
    [
        ({"sending_tests": "on", "test_kinds": ["tcp", "udp", "watch"]}, 200, "on", True),
        ({"sending_tests": "stopped", "test_kinds": ["udp", "of a newer one"]}, 200, "stopped", False),
        ({"sending_tests": "x"}, 400, "on", True),
        ({"test_kinds": [1]}, 400, "on", True),
    ],
)
def test_receipt_says_whether_tests_may_send_and_of_which_kinds(
    link: Link, host: Host, said: dict[str, Any], code: int, sending: str, says_tcp: bool
) -> None:
    row = {"schema": 1, "agent_version": "1", "observed_at": "2026-10-25T00:00:01Z", "writes": 0, "problems": []}
    row |= {"version": f"1.{host.config_version}", "limits_version": host.limits_version, "links": {}, "tests": []}
    answer = Client().post(
        f"/api/v4/host/{host.uid}/enforcement",
        json.dumps({**row, **said, "run": "1" * 32, "number": 1}),
        content_type="application/json",
        headers={"Authorization": basic(host, host.secret)},
    )
    receipt = HostReceipt.objects.get(host=host)
    assert (answer.status_code, receipt.sending_tests, receipt.says_tcp_tests) == (code, sending, says_tcp)


# --- mails and alarms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "count"), [(15, 0), (16, 1)])
def test_who_scheduled_a_test_is_mailed_when_it_was_missed_and_who_started_one_is_not(
    link: Link, owner: User, now: Now, minutes: int, count: int
) -> None:
    made = create(link, owner, 60 * minutes)
    LinkTest.objects.update(created_at=T0)
    now.moment = made.ends_at + timedelta(seconds=59)
    assert link_tests_notify() == []
    now.moment = made.ends_at + timedelta(seconds=60)
    assert link_tests_notify() == [made.pk]
    assert link_tests_notify() == []
    mails = list(Mail.objects.filter(kind="tested"))
    assert len(mails) == count
    for mail in mails:
        assert (mail.recipient, mail.subject) == (owner.email, "Test of your link at 17-ffaa:0:1107: missed")
        assert "Not carried out: no report since 2026-10-25 00:00:00" in mail.body
        assert f"/links/{link.pk}/tests/{made.pk}/" in mail.body


def test_more_than_the_limit_alarms_each_administrator_once_and_shows_in_the_cockpit(
    link: Link, host: Host, owner: User, staff: User, door: Client, now: Now
) -> None:
    made = create(link, owner)
    now.moment = made.ends_at
    upload(made, host, report("ap", phases=half(made, "ap")), passed=170)
    now.moment = made.ends_at + timedelta(seconds=60)
    HostReceipt.objects.update(received_at=now.moment, observed_at=now.moment)
    assert "a test found more than the limit" not in door.get("/cockpit/").content.decode()
    link_tests_notify()
    link_tests_notify()
    mail = Mail.objects.get(key=f"over_the_limit:{made.pk}:{staff.pk}")
    assert (mail.recipient, mail.kind, Mail.objects.filter(kind="").count()) == (staff.email, "", 1)
    assert "To your AS: over the limit. 2 059 kbit/s passed where 1 000 kbit/s is the limit." in mail.body
    assert "a test found more than the limit at 2026-10-25" in door.get("/cockpit/").content.decode()
    now.moment = made.ends_at + timedelta(days=7)
    assert "a test found more than the limit" not in door.get("/cockpit/").content.decode()


def test_result_that_comes_late_is_judged_again(link: Link, host: Host, owner: User, staff: User, now: Now) -> None:
    made = create(link, owner)
    now.moment = made.ends_at + timedelta(hours=2)
    assert link_tests_notify() == [made.pk]
    now.moment = made.ends_at + timedelta(hours=30)
    upload(made, host, report("ap", phases=half(made, "ap")), passed=170)
    now.moment += timedelta(minutes=1)
    assert link_tests_notify() == [made.pk]
    assert LinkTest.objects.get().is_over_limit


# --- pages ------------------------------------------------------------------------------------------------------


def test_pages_set_up_show_and_draw_a_test(link: Link, host: Host, owner: User, staff: User, now: Now) -> None:
    browser, administrator = Client(), Client()
    for one, person in ((browser, owner), (administrator, staff)):
        one.force_login(person)
    page = f"/ases/{link.interface_b.AS_id}/links/{link.pk}/"
    card = browser.get(page).content.decode()
    assert f"scionlab-bw test {link.pk}</pre>" in card
    for tool in TOOLS.values():
        assert f"{page}test/{tool.name}/" in card
    new = f"{page}test/quick/"
    assert browser.get(f"{page}test/guess/").status_code == 404
    values = {"test-seconds": "5", "test-percent": "150", "test-payload_bytes": "1452"}
    wrong = browser.post(new, {**values, "test-seconds": "21"}).content.decode()
    assert "Enter a whole number from 3 to 20." in wrong
    assert "only its owner may start one" in administrator.post(new, values).content.decode()
    started = browser.post(new, values)
    made = LinkTest.objects.get()
    result = f"{page}tests/{made.pk}/"
    assert (started.status_code, started["Location"], made.begins_at) == (302, result, at(60))
    taken = browser.post(new, values)
    assert (taken.status_code, "Another test is scheduled at that time." in taken.content.decode()) == (409, True)
    shown = browser.get(result).content.decode()
    assert f"scionlab-bw test {link.pk} --id {made.pk}</pre>" in shown
    assert f"--id {made.pk}" not in administrator.get(result).content.decode()
    LinkTest.objects.update(armed_at=T0)
    now.moment = at(74)
    upload(made, host, report("ap", phases=half(made, "ap", received=60)))
    user_report_store(test_id=made.pk, report=report("user", phases=half(made, "user", received=60)))
    done = browser.get(result).content.decode()
    assert "To your AS: limited elsewhere." in done.replace("\N{NO-BREAK SPACE}", " ")
    assert 'data-live=""' in done
    assert done.count('class="other"') == 2
    assert done.count('<tr><th scope="row">') == 2 + QUICK_S
    assert browser.get(f"{result}test.csv")["Content-Disposition"].startswith(f'attachment; filename="quick_{made.pk}_')
    assert "Quick, " in browser.get(page).content.decode()


def tcp_report(test: LinkTest, side: str) -> dict[str, Any]:
    """Five seconds each way over two connections, 475 and 480 kbit/s of payload."""
    found = []
    for one in half(test, side):
        is_sender = one["direction"] == ("to_user" if side == "ap" else "from_user")
        more = (12_000, 10, 1, 900) if is_sender else ()
        tcp = [[[250 * at, kbit * at * 250 // 8, *more] for at in range(1, 21)] for kbit in (475, 480)]
        row = [0, 120_000, 0, 0] if is_sender else [0, 0, 0, 119_375]
        sums = {"sent_bytes": 5 * row[1], "received_bytes": 5 * row[3], "sent_packets": 0, "received_packets": 0}
        found.append({**one, **sums, "seconds": [row] * 5, "tcp": tcp})
    return report(side, phases=tuple(found))


def test_tcp_is_asked_for_told_and_drawn(link: Link, host: Host, owner: User, api: Client, now: Now) -> None:
    browser = Client()
    browser.force_login(owner)
    page = f"/ases/{link.interface_b.AS_id}/links/{link.pk}/"
    started = browser.post(f"{page}test/tcp/", {"test-seconds": "5", "test-flows": "2"})
    made = LinkTest.objects.get()
    assert (started["Location"], made.kind) == (f"{page}tests/{made.pk}/", "tcp")
    assert [(one["kind"], one["kbit"], one["count"]) for one in made.phases or ()] == [("tcp", 1250, 2)] * 2
    assert (made.as_rule_value.kind, made.as_rule_value.kbit, made.as_rule_value.max_bytes) == ("tcp", 1250, 781_250)
    LinkTest.objects.update(armed_at=T0)
    now.moment = at(80)
    assert upload(made, host, tcp_report(made, "ap")).json() == {"stored": True}
    given = api.post(f"/api/v1/tests/{made.pk}/report/", tcp_report(made, "user"), content_type="application/json")
    assert given.status_code == 201
    shown = api.get(f"/api/v1/tests/{made.pk}/").json()["sending_verdict"]
    step = shown["to_user"]["steps"][0]
    assert (shown["code"], shown["is_good"], step["code"]) == ("enforced", True, "enforced")
    assert step["tcp"]["kbit"] == pytest.approx(955, abs=0.5)
    assert step["tcp"]["share_percent"] == pytest.approx(99.85, abs=0.05)
    assert (step["tcp"]["rtt_us"], step["tcp"]["resent"]) == ([12_000, 12_000, 12_000], 2)
    assert [len(moments) for moments in step["tcp"]["connections"]] == [20, 20]
    drawn = browser.get(f"{page}tests/{made.pk}/").content.decode().replace("\N{NO-BREAK SPACE}", " ")
    assert "TCP got 955 kbit/s of payload over 2 connections" in drawn
    assert drawn.count('<path class="line"') == drawn.count('<path class="line from-user"') == 2
    assert len(drawn) < 100_000


def test_agent_that_is_too_old_for_tcp_is_named_and_other_tools_go_on(link: Link, owner: User) -> None:
    HostReceipt.objects.update(says_tcp_tests=False)
    code, words = refusal(link, owner, tool="tcp")
    assert (code, "does not support tests over TCP, so this test is not possible" in words) == (
        "test_not_possible",
        True,
    )
    assert create(link, owner).kind == "udp"


def test_results_of_both_ends_go_with_the_test(link: Link, host: Host, owner: User, now: Now) -> None:
    made = create(link, owner)
    now.moment = at(5)
    upload(made, host, report("ap"))
    user_report_store(test_id=made.pk, report=report("user"))
    assert TestResult.objects.count() == 2
    old_rows_forget(now=made.ends_at + timedelta(days=90, seconds=1))
    assert not TestResult.objects.exists()
