"""Watches in the service: rules and policies, slots, the document, results, states, the REST API, retention."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.test import Client

from bandwidth_config import RuleError, generate_link_info
from contract.link_info import check_link_info
from contract.link_tests import MAX_TESTS_PER_LINK
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.update import link_update
from scionlab.linktests import test_slots
from scionlab.linktests.link_test import SlotTakenError, link_test_cancel, link_test_create, link_tests_retire
from scionlab.linktests.models import LinkTest, TestPolicy, TestResult
from scionlab.linktests.test_policy import BUILT_IN, Allowance, allowance_of, who_may_what
from scionlab.linktests.test_status import TestStatus, status_of_test, with_results
from scionlab.testbed.models import AttachmentPoint, Host, Link
from tests.factories import HostReceiptFactory, api_token, attach, spec
from tests.support.access import basic
from tests.support.standing_clock import T0, Now, at, now

__all__ = ["now"]  # the fixture
pytestmark = pytest.mark.django_db


def create(link: Link, actor: User, duration_s: int = 60, begins_s: float | None = None) -> LinkTest:
    begins_at = None if begins_s is None else at(begins_s)
    return link_test_create(link_id=link.pk, duration_s=duration_s, begins_at=begins_at, actor=actor)


def refusal(link: Link, actor: User, duration_s: int = 60, begins_s: float | None = None) -> str | None:
    try:
        with transaction.atomic():
            create(link, actor, duration_s, begins_s)
    except RuleError as exc:
        return exc.code
    return None


def side_of(seconds: Sequence[int]) -> dict[str, list[Any]]:
    count = len(seconds)
    side: dict[str, list[Any]] = {"segment": ["0" * 15 + "7"] * count, "rate_kbit": [1000] * count}
    side |= {"passed_bytes": [62_500 * s for s in seconds], "passed_packets": [50 * s for s in seconds]}
    return side | {"dropped_bytes": [0] * count, "dropped_packets": [0] * count, "lost_packets": [0] * count}


def upload(of: LinkTest, seconds: Sequence[int], **changes: Any) -> dict[str, Any]:
    """Of a link of 1000 kbit/s that is half full to the user AS."""
    count, side = len(seconds), side_of(seconds)
    began_ms = round(of.begins_at.timestamp() * 1000)
    return {
        "schema": 1,
        "agent_version": "0.1.0",
        "test": of.test_id,
        "is_final": False,
        "times_ms": [began_ms + 1000 * s for s in seconds],
        "clock_ms": [1000 * s for s in seconds],
        "in_force": [True] * count,
        "to_user": side,
        "from_user": {**side, "passed_bytes": [0] * count, "passed_packets": [0] * count},
        **changes,
    }


def send(host: Host, document: Any, *, as_host: Host | None = None) -> tuple[int, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    response = Client().post(
        f"/api/v4/host/{host.uid}/test_results",
        gzip.compress(body),
        content_type="application/json",
        headers={"Content-Encoding": "gzip", "Authorization": basic(as_host or host, (as_host or host).secret)},
    )
    return response.status_code, response.json()


def status(test: LinkTest, now: Now) -> TestStatus:
    return status_of_test(with_results(LinkTest.objects.all()).get(pk=test.pk), now=now.moment)


# --- reserving ----------------------------------------------------------------------------------------------


def test_watch_is_in_the_document_of_the_attachment_point_until_it_is_retired(
    link: Link, host: Host, owner: User, now: Now
) -> None:
    before = host.limits_version
    made = create(link, owner)
    host.refresh_from_db()
    found = check_link_info(generate_link_info(host))[link.interface_a.interface_id].tests
    assert [(one.test_id, one.begins_at, one.duration_s) for one in found] == [(made.test_id, at(3), 60)]
    assert (host.limits_version, host.config_version) == (before + 1, link.interface_a.host.config_version)
    now.moment = at(63 + 86_399)
    assert link_tests_retire() == []
    now.moment = at(63 + 86_400)
    assert link_tests_retire() == [host.pk]
    assert link_tests_retire() == []
    assert "Tests" not in json.dumps(generate_link_info(Host.objects.get(pk=host.pk)))


def test_a_test_costs_one_document_for_the_one_before_leaves_with_it(
    link: Link, host: Host, owner: User, now: Now
) -> None:
    first = create(link, owner)
    before = Host.objects.get(pk=host.pk).limits_version
    now.moment = at(63 + 119)
    second = create(link, owner, 5)
    now.moment = at(63 + 120)
    third = create(link, owner, 5, 1000)
    assert link_tests_retire() == []
    fresh = Host.objects.get(pk=host.pk)
    found = check_link_info(generate_link_info(fresh))[link.interface_a.interface_id].tests
    assert [one.test_id for one in found] == [second.test_id, third.test_id]
    assert LinkTest.objects.get(pk=first.pk).retired_at == now.moment
    assert fresh.limits_version == before + 2


@pytest.mark.parametrize(
    ("duration_s", "begins_s", "code"),
    [
        (4, None, "test_short"),
        (5, None, None),
        (600, None, None),
        (601, None, "test_long"),
        (60, -61, "test_past"),
        (60, -60, None),
        (60, 7 * 86_400, None),
        (60, 7 * 86_400 + 1, "test_far"),
    ],
)
def test_rules_at_their_bounds(
    link: Link, owner: User, duration_s: int, begins_s: float | None, code: str | None
) -> None:
    assert refusal(link, owner, duration_s, begins_s) == code


def test_slot_that_is_taken_names_the_next_free_beginning(link: Link, owner: User, staff: User) -> None:
    create(link, owner, 60, 100)
    create(link, staff, 60, 200)
    assert refusal(link, owner, 40, 160) is None  # it fits exactly between them
    with pytest.raises(SlotTakenError) as caught:
        create(link, owner, 60, 159)
    assert caught.value.next_free_at == at(260)
    assert refusal(link, owner, 60, 41) == "test_slot_taken"
    assert refusal(link, owner, 60, 40) is None


def test_attachment_point_carries_out_sixteen_at_once(
    link: Link, owner: User, ap: AttachmentPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_slots, "MAX_WATCHES_AT_ONCE", 1)
    other = Link.objects.get(interface_b__AS=attach(owner, spec(ap, public_ip="198.51.100.9")).pk)
    create(link, owner, 60, 100)
    with pytest.raises(SlotTakenError) as caught:
        create(other, owner, 60, 100)
    assert caught.value.next_free_at == at(160)


def test_link_has_eight_at_most_in_its_document(link: Link, owner: User, staff: User) -> None:
    TestPolicy.objects.create(applies_to="everybody", max_seconds=60, runs_per_day=99, max_pending=99, horizon_hours=9)
    for number in range(MAX_TESTS_PER_LINK):
        create(link, owner, 60, 100 * number)
    assert refusal(link, owner, 60, 2000) == "test_many"


def test_database_refuses_what_overlaps_whoever_writes_it(link: Link, owner: User) -> None:
    made = create(link, owner, 60, 100)
    row = {"link": link, "tool": "watch", "created_by": owner}
    with pytest.raises(IntegrityError), transaction.atomic():
        LinkTest.objects.create(**row, begins_at=at(159), ends_at=at(200))
    beside = LinkTest.objects.create(**row, begins_at=at(160), ends_at=at(200))
    with pytest.raises(IntegrityError), transaction.atomic():
        LinkTest.objects.filter(pk=beside.pk).update(begins_at=at(159))
    link_test_cancel(link_test_id=made.pk, actor=owner)
    LinkTest.objects.create(**row, begins_at=at(100), ends_at=at(160))
    with pytest.raises(IntegrityError), transaction.atomic():
        LinkTest.objects.filter(pk=made.pk).update(cancelled_at=None)


def test_only_active_links_of_user_ases_are_watched_and_what_is_deactivated_ends(link: Link, owner: User) -> None:
    made = create(link, owner)
    link_update(link_id=link.pk, actor=owner, active=False)
    made.refresh_from_db()
    assert made.cancelled_at == T0
    assert refusal(link, owner) == "test_inactive"


# --- policies -----------------------------------------------------------------------------------------------


def policy(applies_to: str, group: Group | None = None, **values: int) -> TestPolicy:
    return TestPolicy.objects.create(applies_to=applies_to, group=group, **{**BUILT_IN.columns(), **values})


def test_policies_count_at_the_next_request_and_the_highest_number_of_each_kind_does(
    link: Link, owner: User, staff: User
) -> None:
    assert allowance_of(owner, "watch") == BUILT_IN.capped("watch")
    students = Group.objects.create(name="students")
    owner.groups.add(students)
    policy("everybody", max_seconds=30, max_pending=1, runs_per_day=2)
    assert refusal(link, owner, 31) == "test_long"
    assert refusal(link, owner, 30) is None
    assert refusal(link, owner, 30, 500) == "test_pending"
    policy("group", students, max_seconds=20, max_pending=9, runs_per_day=1)
    policy("staff", max_seconds=99_999, max_pending=1, runs_per_day=1)
    assert allowance_of(owner, "watch") == Allowance(30, 2, 9, 168)
    assert allowance_of(staff, "watch") == Allowance(600, 2, 1, 168)
    assert refusal(link, owner, 30, 500) is None
    assert refusal(link, owner, 30, 900) == "test_runs"
    lines = {line.who: line.allowance for line in who_may_what() if line.tool == "watch"}
    assert lines == {
        "everybody": Allowance(30, 2, 1, 168),
        "group students": Allowance(30, 2, 9, 168),
        "administrators": Allowance(600, 2, 1, 168),
    }


# --- results and states -------------------------------------------------------------------------------------


def test_course_of_a_watch_from_scheduled_to_finished(link: Link, host: Host, owner: User, now: Now) -> None:
    HostReceiptFactory(host=host, received_at=T0, observed_at=T0, says_tests=True)
    made = create(link, owner, 10)
    assert status(made, now).state == "scheduled"
    LinkTest.objects.filter(pk=made.pk).update(armed_at=T0)
    assert status(made, now).state == "armed"
    now.moment = at(8)
    assert send(host, upload(made, range(6))) == (200, {"stored": True})
    running = status(made, now)
    assert (running.state, running.verdict and running.verdict.sides[0].measured_s) == ("running", 5)
    assert send(host, upload(made, range(3, 11), is_final=True)) == (200, {"stored": True})
    now.moment = at(20)
    found = status(made, now)
    assert (found.state, found.is_late) == ("finished", False)
    assert found.text == "No: at most 50\N{NO-BREAK SPACE}% of the limit was used; the bottleneck is elsewhere."
    assert found.verdict is not None
    assert (found.verdict.sides[0].passed_packets, found.verdict.sides[0].passed_bytes) == (500, 625_000)
    assert send(host, upload(made, range(11), is_final=True)) == (200, {"stored": False})


@pytest.mark.parametrize(
    ("receipt", "armed", "seconds", "final", "state", "why"),
    [
        (None, False, 0, False, "missed", "has no agent that reports"),
        ({"says_tests": False}, False, 0, False, "missed", "does not support tests"),
        ({"says_tests": True}, False, 0, False, "missed", "did not have it in time"),
        ({"says_tests": True, "clock_skew_ms": 3_600_000}, False, 0, False, "missed", "clock of the attachment point"),
        ({"says_tests": True, "received_at": at(-300)}, True, 0, False, "failed", "No result arrived"),
        ({"says_tests": True}, True, 5, False, "failed", "The end of the result is missing"),
        ({"says_tests": True}, True, 0, True, "failed", "did not have the limits of this link"),
    ],
)
def test_why_there_is_no_result(
    link: Link,
    host: Host,
    owner: User,
    now: Now,
    receipt: dict[str, Any] | None,
    armed: bool,
    seconds: int,
    final: bool,
    state: str,
    why: str,
) -> None:
    HostReceipt.objects.filter(host=host).delete()
    if receipt is not None:
        HostReceiptFactory(host=host, **{"received_at": at(60), "observed_at": at(60), **receipt})
    made = create(link, owner, 10)
    if armed:
        LinkTest.objects.filter(pk=made.pk).update(armed_at=T0)
    if seconds or final:
        send(host, upload(made, range(seconds), is_final=final))
    now.moment = at(13 + 14)
    assert final or status(made, now).state in {"scheduled", "running"}
    now.moment = at(13 + 15)
    found = status(made, now)
    assert found.state == state
    assert why in found.text


@pytest.mark.parametrize(("after_s", "is_late"), [(60, False), (61, True)])
def test_late_result_is_marked(link: Link, host: Host, owner: User, now: Now, after_s: int, is_late: bool) -> None:
    made = create(link, owner, 10)
    now.moment = at(13 + after_s)
    send(host, upload(made, range(11), is_final=True))
    assert status(made, now).is_late == is_late


def test_cancelled_keeps_what_was_measured(link: Link, host: Host, owner: User, now: Now) -> None:
    made = create(link, owner, 60)
    now.moment = at(10)
    link_test_cancel(link_test_id=made.pk, actor=owner)
    send(host, upload(made, range(7), is_final=True))
    found = status(made, now)
    assert found.state == "cancelled"
    assert found.verdict is not None


def test_host_stores_results_of_its_own_tests_alone(link: Link, host: Host, host_b: Host, owner: User) -> None:
    made = create(link, owner)
    assert send(host_b, upload(made, range(5))) == (200, {"stored": False})
    assert send(host, upload(made, range(5)), as_host=host_b)[0] == 401
    assert send(host, upload(made, range(5), test="ab" * 16)) == (200, {"stored": False})
    assert not TestResult.objects.exists()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"test": "0F" * 16}, "test"),
        ({"times_ms": [5, 5]}, "times_ms"),
        ({"times_ms": list(range(611))}, "times_ms"),
        ({"from_user": {"segment": ["x", "y"]}}, "from_user.segment.0"),
        ({"to_user": side_of(range(2)) | {"lost_packets": [1]}}, "to_user.lost_packets"),
    ],
)
def test_bad_result_is_refused_by_its_place(
    link: Link, host: Host, owner: User, change: dict[str, Any], place: str
) -> None:
    made = create(link, owner)
    code, answer = send(host, upload(made, range(2), **change))
    assert (code, answer["code"]) == (400, "result_invalid")
    assert place in answer["fields"]
    assert not TestResult.objects.exists()


@pytest.mark.parametrize(
    ("body", "code"), [(b"[", 400), (b"[]", 400), (b'{"schema":2}', 400), (b" " * (1024 * 1024 + 1), 413)]
)
def test_body_that_is_no_result(host: Host, body: bytes, code: int) -> None:
    assert send(host, body)[0] == code


# --- REST and retention -------------------------------------------------------------------------------------


def test_rest_makes_reads_lists_and_cancels(link: Link, host: Host, owner: User, now: Now) -> None:
    api = Client(headers={"Authorization": f"Token {api_token(owner)}"})
    path = f"/api/v1/links/{link.pk}/tests/"
    headers = {"Idempotency-Key": "one"}
    made = api.post(path, {"duration_s": 10}, content_type="application/json", headers=headers)
    again = api.post(path, {"duration_s": 10}, content_type="application/json", headers=headers)
    assert (made.status_code, again.json()["id"], again["Idempotency-Replayed"]) == (201, made.json()["id"], "true")
    taken = api.post(path, {"duration_s": 10}, content_type="application/json")
    assert (taken.status_code, taken.json()["code"]) == (409, "test_slot_taken")
    assert taken.json()["next_free_at"] == "2026-10-25T00:00:13Z"
    test = LinkTest.objects.get()
    now.moment = at(20)
    result = upload(test, range(11), is_final=True)
    send(host, result)
    one = f"/api/v1/tests/{test.pk}/"
    found = api.get(one)
    assert (found.json()["state"], found.json()["verdict"]["code"], len(found.json()["points"])) == (
        "finished",
        "free",
        10,
    )
    assert api.get(one, headers={"If-None-Match": found["ETag"]}).status_code == 304
    assert [row["id"] for row in api.get(path).json()["results"]] == [test.pk]
    csv = api.get(f"{one}?format=csv")
    assert csv.content.decode().splitlines()[1] == "2026-10-25T00:00:03.000Z,1.0,1,1000,62500,50,0,0,0,1000,0,0,0,0,0"
    later = api.post(path, {"duration_s": 10, "begins_at": "2026-10-25T01:00:00Z"}, content_type="application/json")
    assert api.delete(later["Location"]).status_code == 204
    assert api.get(later["Location"]).json()["state"] == "cancelled"


# --- pages --------------------------------------------------------------------------------------------------


def test_pages_start_show_draw_and_cancel(link: Link, host: Host, owner: User, now: Now) -> None:
    HostReceiptFactory(host=host, received_at=T0, observed_at=T0, says_tests=True)
    browser = Client()
    browser.force_login(owner)
    page = f"/ases/{link.interface_b.AS_id}/links/{link.pk}/"
    assert "Watch now" in browser.get(page).content.decode()
    started = browser.post(f"{page}watch/", {"watch-duration_s": "10"})
    test = LinkTest.objects.get()
    assert (started.status_code, started["Location"]) == (302, f"{page}tests/{test.pk}/")
    result = started["Location"]
    taken = browser.post(f"{page}watch/", {"watch-duration_s": "10"})
    assert taken.status_code == 409
    assert (
        "Another test is scheduled at that time. The next free 10 s begin at 2026-10-25 00:00:13"
        in taken.content.decode()
    )
    answer = browser.post(f"{page}watch/", {"watch-duration_s": "601", "watch-begins_at": "2026-10-25 01:00"})
    assert "exceed the 600 s" in answer.content.decode()
    now.moment = at(9)
    send(host, upload(test, range(6)))
    running = browser.get(result).content.decode()
    assert "So far: No: at most 50" in running
    assert f'data-live="{result}"' in running
    now.moment = at(20)
    send(host, upload(test, [*range(6), 8, 9, 10], is_final=True))
    done = browser.get(result).content.decode()
    assert "No: at most 50\N{NO-BREAK SPACE}% of the limit was used; the bottleneck is elsewhere." in done
    assert 'data-live=""' in done
    assert done.count('<tr><th scope="row">') == 10
    assert done.count("no data</span></td>") == 6  # three seconds that were not measured, in both directions
    assert 'class="gap" d="M500 0h300v100h-300z"' in done
    csv = browser.get(f"{result}test.csv")
    assert csv["Content-Disposition"] == f'attachment; filename="watch_{test.pk}_20261025T000003Z.csv"'
    assert browser.post(f"{result}cancel/").status_code == 302
    test.refresh_from_db()
    assert test.cancelled_at is None, "it had ended"
    assert "No: at most 50" in browser.get(page).content.decode()
