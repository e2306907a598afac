"""Joint tests in the service: all Links or none, what is refused, cancelled together, the report; REST and page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bandwidth_config import RuleError
from scionlab.accounts.models import Mail, User
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_update
from scionlab.linktests.joint_report import JointStatus, status_of_joint, with_parts
from scionlab.linktests.joint_test import joint_test_cancel, joint_test_create
from scionlab.linktests.link_test import link_test_cancel, link_test_create
from scionlab.linktests.models import JointTest, LinkTest, TestPolicy, TestResult
from scionlab.linktests.pages.joint_panel import joint_panel
from scionlab.linktests.test_mails import link_tests_notify
from scionlab.linktests.test_slots import SlotTakenError
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete, user_as_update
from tests.cases import case, table
from tests.factories import api_token, spec
from tests.joint_world import confirm, enforced, links_of, measured
from tests.support.html import Page
from tests.support.standing_clock import Now, at, now

__all__ = ["now"]  # the fixture
pytestmark = pytest.mark.django_db

QUICK_S = 17
SECOND = timedelta(seconds=1)
PASSED = (83 + 41) * 1494 * 8 / 1000  # kbit/s: whole frames of both limits


@pytest.fixture
def wide(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> UserAS:
    """A Link of 1000 kbit/s to `ap` and one of 500 to `ap_b`."""
    return enforced(
        owner, spec(ap, bandwidth_kbit=1000), spec(ap_b, public_ip="198.51.100.8", bandwidth_kbit=500), label="Wide"
    )


def create(user_as: UserAS, actor: User, **values: Any) -> JointTest:
    return joint_test_create(user_as_id=user_as.pk, actor=actor, **values)


def refusal(*arguments: Any, **named: Any) -> tuple[str, str]:
    """Code and sentence; empty where it was taken."""
    try:
        with transaction.atomic():
            create(*arguments, **named)
    except RuleError as exc:
        return exc.code, exc.message.replace("\N{NO-BREAK SPACE}", " ")
    return "", ""


def status(joint: JointTest, now: Now) -> JointStatus:
    return status_of_joint(with_parts(JointTest.objects.all()).get(pk=joint.pk), now=now.moment)


def versions() -> list[int]:
    return list(Host.objects.order_by("pk").values_list("limits_version", flat=True))


# --- reserving ------------------------------------------------------------------------------------------------------


def test_each_link_alone_and_then_all_together_in_one_document_for_each_attachment_point(
    wide: UserAS, owner: User
) -> None:
    before = versions()
    made = create(wide, owner)
    first, second = links_of(wide)
    parts = [
        (one.link, one.begins_at, one.ends_at, one.tool, one.created_by)
        for one in made.parts.order_by("begins_at", "pk")
    ]
    assert parts == [
        (link, at(begins), at(begins + QUICK_S), "quick", owner)
        for link, begins in ((first, 1), (second, 18), (first, 35), (second, 35))
    ]
    assert (made.begins_at, made.ends_at) == (at(1), at(52))
    rises = [now - was for was, now in zip(before, versions(), strict=True)]
    assert sorted(rises) == [0, 1, 1], "both attachment points once, the user AS never"


def test_other_peoples_tests_move_it_to_the_next_time_at_which_all_are_free(
    wide: UserAS, owner: User, teammate: User, ap_b: AttachmentPoint
) -> None:
    """Only the second Link is taken, and only when it would be tested alone."""
    _, second = links_of(wide)
    link_test_create(link_id=second.pk, duration_s=5, begins_at=at(20), actor=owner)
    confirm()
    with pytest.raises(SlotTakenError, match="The next free 51 s begin at") as refused:
        create(wide, owner, begins_at=at(3))
    free_at = refused.value.next_free_at
    assert free_at == at(8)
    assert not JointTest.objects.exists()
    assert create(wide, owner, begins_at=free_at).begins_at == at(8)


@table(
    "values, named, code, words",
    [
        ({}, {"seconds": 21}, "joint_seconds", "21 s for each direction are outside 3 to 20 s"),
        ({"runs_per_day": 3}, {}, "test_runs", "and this is 4 more; you may 3"),
        ({"runs_per_day": 4}, {}, "", ""),
        ({"max_pending": 1}, {}, "", ""),
        # 1.8 and 0.9 MB, each twice
        ({"megabytes_per_day": 5}, {}, "test_data", "This test would send 0.9 MB, after 4.6 MB"),
        ({"megabytes_per_day": 6}, {}, "", ""),
    ],
)
def test_policies_at_their_bounds(
    wide: UserAS, owner: User, values: dict[str, int], named: dict[str, Any], code: str, words: str
) -> None:
    everybody = {"applies_to": "everybody", "tool": "quick", "max_seconds": 60, "runs_per_day": 99, "max_pending": 99}
    TestPolicy.objects.create(**{**everybody, "horizon_hours": 99, **values})
    before = versions()
    found = refusal(wide, owner, **named)
    assert found[0] == code
    assert words in found[1]
    if code:
        assert not any(one.objects.exists() for one in (JointTest, LinkTest))
        assert versions() == before


def test_its_parts_are_pending_as_one(wide: UserAS, owner: User) -> None:
    """Of the four that may be pending."""
    for number in range(3):
        create(wide, owner, begins_at=at(600 * number + 60))
        confirm()
    link_test_create(link_id=links_of(wide)[0].pk, tool="quick", begins_at=at(3000), actor=owner)
    confirm()
    code, words = refusal(wide, owner, begins_at=at(3600))
    assert (code, words[:41]) == ("test_pending", "You have 4 scheduled or running tests; yo")


def test_one_link_that_cannot_keeps_all_from_it(subtests: pytest.Subtests, wide: UserAS, owner: User) -> None:
    first, second = links_of(wide)

    def limits(link: Link) -> None:
        timed_limit_create(link_id=link.pk, profile=constant((200, 100), 600), begins_at=at(30), actor=owner)

    for name, change, code, words in (
        ("not enabled", lambda: HostReceipt.objects.filter(host=second.interface_a.host_id).update(sending_tests="off"),
         "test_not_possible", "has not enabled tests that send"),
        ("a temporary limit", lambda: (limits(second), confirm()),
         "timed_overlap", "The link to 17-ffaa:0:1108 has a temporary limit at that time"),
        ("inactive", lambda: link_update(link_id=first.pk, active=False, actor=owner),
         "joint_few", "has 1 active links; a joint test needs 2"),
    ):  # fmt: skip
        with case(subtests, name):
            change()
            before = versions()
            found = refusal(wide, owner)
            assert found[0] == code
            assert words in found[1]
            assert versions() == before
            assert not LinkTest.objects.exists()


def test_five_links_to_one_attachment_point_have_no_lanes(owner: User, ap: AttachmentPoint) -> None:
    user_as = enforced(owner, *(spec(ap, public_port=50_000 + number) for number in range(5)))
    assert refusal(user_as, owner) == (
        "joint_lanes",
        "5 active links are to 17-ffaa:0:1107, where at most 4 tests send at once. Deactivate one.",
    )
    link_update(link_id=links_of(user_as)[0].pk, active=False, actor=owner)
    confirm()
    made = create(user_as, owner)
    together = made.parts.filter(begins_at=made.ends_at - QUICK_S * SECOND)
    assert sorted(together.values_list("lane", flat=True)) == [0, 1, 2, 3]


def test_nobody_tests_the_as_of_somebody_else(wide: UserAS, staff: User, stranger: User) -> None:
    confirm()
    for person in (staff, stranger):
        assert refusal(wide, person)[0] == "test_not_yours"


# --- cancelling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["joint", "part", "deactivated", "removed"])
def test_one_part_cancelled_is_all_cancelled(
    wide: UserAS, owner: User, now: Now, door: str, django_capture_on_commit_callbacks: Any
) -> None:
    made = create(wide, owner)
    first, second = links_of(wide)
    now.moment = at(10)
    before = versions()
    with django_capture_on_commit_callbacks(execute=True):
        match door:
            case "joint":
                joint_test_cancel(joint_test_id=made.pk, actor=owner)
            case "part":
                link_test_cancel(link_test_id=made.parts.filter(link=second)[0].pk, actor=owner)
            case "deactivated":
                link_update(link_id=first.pk, active=False, actor=owner)
            case _:
                kept = spec(second.attachment_point, public_ip="198.51.100.8", link_id=second.pk, bandwidth_kbit=500)
                user_as_update(
                    user_as_id=wide.pk, actor=owner, label="", installation_type="dedicated", attachments=[kept]
                )
    made.refresh_from_db()
    assert made.cancelled_at == at(10)
    assert {one.cancelled_at for one in LinkTest.objects.all()} == {at(10)}
    assert sum(versions()) > sum(before)
    assert status(made, now).state == "cancelled"


def test_it_goes_with_its_as(wide: UserAS, owner: User, django_capture_on_commit_callbacks: Any) -> None:
    create(wide, owner)
    with django_capture_on_commit_callbacks(execute=True):
        user_as_delete(user_as_id=wide.pk, actor=owner)
    assert not any(one.objects.exists() for one in (JointTest, LinkTest))


def test_one_that_is_over_stays(wide: UserAS, owner: User, now: Now) -> None:
    made = create(wide, owner)
    now.moment = made.ends_at + SECOND
    joint_test_cancel(joint_test_id=made.pk, actor=owner)
    assert not LinkTest.objects.exclude(cancelled_at=None).exists()
    assert JointTest.objects.get().cancelled_at is None


# --- what was found -------------------------------------------------------------------------------------------------


def test_sums_against_limits_alone_and_together(wide: UserAS, owner: User, now: Now) -> None:
    made = create(wide, owner)
    measured(made)
    now.moment = made.ends_at + timedelta(seconds=30)
    report = status(made, now)
    assert (report.state, [one.state for one in report.parts]) == ("finished", ["finished"] * 4)
    for side in report.sides:
        assert (side.total.seconds, side.total.limit_kbit) == (4, 1500)
        assert side.total.passed_kbit == pytest.approx(PASSED)
        assert side.total.arrived_kbit == pytest.approx(PASSED)
        assert side.total.dropped_percent == pytest.approx(100 * 63 / 187)
        assert side.alone_kbit == pytest.approx(PASSED)
        assert [load.sum.limit_kbit for load in side.loads] == [1000, 500]
    assert report.is_good
    series = report.series("to_user")
    first, second = links_of(wide)
    loaded = {pk: [n for n, one in enumerate(row) if (one.kbit or 0) > 0] for pk, row in series.items()}
    alone, late, both = [*range(6)], [*range(17, 23)], [*range(34, 40)]
    assert loaded == {first.pk: alone + both, second.pk: late + both}


def test_seconds_in_which_a_link_was_not_measured_are_in_no_sum(wide: UserAS, owner: User) -> None:
    """A sample of the second Link is missing: of the 7 whole seconds under load two are no seconds any more."""
    made = create(wide, owner, seconds=8)
    measured(made)
    together = made.parts.order_by("begins_at").last()
    result = TestResult.objects.get(test__link=links_of(wide)[1], test__begins_at=together.begins_at, side="ap")
    del result.samples[3]
    result.save()
    found = status_of_joint(with_parts(JointTest.objects.all()).get(), now=made.ends_at)
    assert [len(one.loaded) for one in found.to_user.loads] == [7, 5]
    total = found.to_user.total
    assert (total.seconds, total.limit_kbit) == (5, 1500)
    assert total.passed_percent == pytest.approx(98.2, abs=0.8)


def test_what_does_not_arrive_is_not_good(wide: UserAS, owner: User, now: Now) -> None:
    """The limits pass everything, and a connection that the Links share does not."""
    made = create(wide, owner)
    measured(made, arrived=200)
    now.moment = made.ends_at + timedelta(seconds=30)
    report = status(made, now)
    assert report.to_user.total.arrived_kbit == pytest.approx(2 * 16 * 1494 * 8 / 1000)
    assert report.to_user.is_good
    assert (report.state, report.is_good) == ("finished", False)


def test_without_a_result_it_says_of_which_link(wide: UserAS, owner: User, now: Now) -> None:
    made = create(wide, owner)
    now.moment = made.ends_at + timedelta(seconds=30)
    report = status(made, now)
    assert report.state == "missed"
    assert report.text.startswith("The link to 17-ffaa:0:1107: Not carried out:")
    assert report.to_user.text == "To your AS: no result. The links were not measured under load at the same time."
    assert not report.is_good


def test_one_mail_tells_of_one_that_was_scheduled(wide: UserAS, owner: User, now: Now) -> None:
    made = create(wide, owner, begins_at=at(3600))
    measured(made)
    TestResult.objects.update(received_at=made.ends_at)
    now.moment = made.ends_at + timedelta(seconds=61)
    assert len(link_tests_notify()) == 4
    mail = Mail.objects.get(kind="tested")
    assert mail.recipient == owner.email
    assert mail.subject == "Joint test of your links at 17-ffaa:0:1107, 17-ffaa:0:1108: finished"
    body = mail.body.replace("\N{NO-BREAK SPACE}", " ")
    assert "To your AS: together the 2 links passed 1 482 kbit/s of 1 500 kbit/s (99 %)" in body
    assert f"/ases/{wide.pk}/joint-tests/{made.pk}/" in body


# --- doors ----------------------------------------------------------------------------------------------------------


def rest(client: Client, user: User, method: str, path: str, body: Any = None, **headers: str) -> Any:
    sent = {"Authorization": f"Token {api_token(user)}"} | headers
    content = {} if body is None else {"data": body, "content_type": "application/json"}
    return getattr(client, method)(f"/api/v1/{path}", headers=sent, **content)


def test_rest_creates_once_shows_and_cancels(wide: UserAS, owner: User, now: Now, client: Client) -> None:
    path, body = f"ases/{wide.pk}/tests/", {"seconds": 8}
    made = rest(client, owner, "post", path, body, **{"Idempotency-Key": "k"})
    again = rest(client, owner, "post", path, body, **{"Idempotency-Key": "k"})
    assert (made.status_code, again.status_code, again.json()) == (201, 201, made.json())
    assert JointTest.objects.count() == 1
    one = made.json()
    assert (one["state"], one["as_id"]) == ("scheduled", wide.pk)
    parts = [(part["joint_test_id"], part["parameters"]["seconds"]) for part in one["parts"]]
    assert parts == [(one["id"], 8)] * 4
    assert made["Location"].endswith(f"/api/v1/joint-tests/{one['id']}/")
    confirm()
    taken = rest(client, owner, "post", path, body)
    assert (taken.status_code, taken.json()["code"]) == (409, "test_slot_taken")
    listed = rest(client, owner, "get", path).json()
    assert (listed["count"], listed["results"][0]["id"]) == (1, one["id"])
    detail = f"joint-tests/{one['id']}/"
    tag = rest(client, owner, "get", detail)["ETag"]
    assert rest(client, owner, "get", detail, **{"If-None-Match": tag}).status_code == 304
    assert rest(client, owner, "delete", detail, **{"If-Match": '"other"'}).status_code == 412
    assert rest(client, owner, "delete", detail, **{"If-Match": tag}).status_code == 204
    assert rest(client, owner, "get", detail).json()["state"] == "cancelled"


def test_rest_shows_what_was_measured(wide: UserAS, owner: User, now: Now, client: Client) -> None:
    made = create(wide, owner)
    measured(made)
    now.moment = made.ends_at + timedelta(seconds=30)
    one = rest(client, owner, "get", f"joint-tests/{made.pk}/").json()
    total = one["to_user"]["total"]
    assert (one["state"], one["is_good"], total["limit_kbit"], total["passed_kbit"]) == ("finished", True, 1500, PASSED)
    series = {(row["link_id"], row["direction"]): row for row in one["series"]}
    row = series[links_of(wide)[0].pk, "from_user"]
    assert {len(row[name]) for name in ("passed_kbit", "limit_kbit", "dropped_bytes")} == {made.duration_s}
    assert row["limit_kbit"][40] == 1000


def test_of_somebody_elses_as_there_is_none(wide: UserAS, owner: User, stranger: User, client: Client) -> None:
    """On a page, under their own AS neither; tests/site/test_access_matrix.py asks over REST."""
    made = create(wide, owner, begins_at=at(600))
    own = UserAS.objects.get(owner=stranger)
    client.force_login(stranger)
    for pk in (wide.pk, own.pk):
        assert client.get(f"/ases/{pk}/joint-tests/{made.pk}/").status_code == 404
        assert client.post(f"/ases/{pk}/joint-tests/{made.pk}/cancel/").status_code == 404
    assert JointTest.objects.get().cancelled_at is None


def test_page_schedules_says_what_is_wrong_shows_and_cancels(
    wide: UserAS, owner: User, now: Now, client: Client
) -> None:
    client.force_login(owner)
    where = f"/ases/{wide.pk}/joint-test/"
    assert where in client.get(f"/ases/{wide.pk}/paths/").content.decode()
    page = Page(client.get(where))
    assert "Tests whether the 2 active links of this AS together carry the sum of their limits." in page.text
    wrong = client.post(where, {"joint-seconds": "21"})
    assert "21 s for each direction are outside 3 to 20 s" in wrong.content.decode()
    sent = client.post(where, {"joint-seconds": "8"})
    made = JointTest.objects.get()
    assert sent["Location"] == f"/ases/{wide.pk}/joint-tests/{made.pk}/"
    assert made.begins_at == at(60)
    confirm()
    assert client.post(where, {"joint-seconds": ""}).status_code == 409
    shown = client.get(sent["Location"]).content.decode()
    assert f"scionlab-bw test {wide.isd_as} --all-links --id {made.pk}" in shown
    client.post(f"{sent['Location']}cancel/")
    made.refresh_from_db()
    assert made.cancelled_at == at(0)


def test_page_draws_what_was_measured_in_few_statements_and_bytes(
    owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint, now: Now, client: Client
) -> None:
    five = [spec(one, public_port=50_000 + number) for number, one in enumerate([ap, ap, ap, ap_b, ap_b])]
    user_as = enforced(owner, *five)
    made = create(user_as, owner, seconds=20)
    measured(made)
    now.moment = made.ends_at + timedelta(seconds=30)
    client.force_login(owner)
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(f"/ases/{user_as.pk}/joint-tests/{made.pk}/")
    html = answer.content.decode()
    assert html.count('class="series series-') == 2 * 5
    panel = joint_panel(status(made, now))
    assert panel is not None
    for side in panel.directions:  # stacked: each row has its link on top of those before it, the last one all of them
        assert side.rows[0].stacked == side.total.used
        assert len({row.stacked for row in side.rows}) == 5
    assert "To your AS: together the 5 links passed" in html
    assert len(html) < 100_000
    assert len(captured) <= 10
    with CaptureQueriesContext(connection) as captured:
        client.get(f"/ases/{user_as.pk}/joint-test/")
    assert len(captured) <= 10
