"""When a policy lets people test: at which hours, and below which load of the attachment point."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import Client

from bandwidth_config import RuleError
from contract.link_tests import ARMED_AHEAD_S
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests.link_test import link_test_create
from scionlab.linktests.models import LinkTest, TestPolicy
from scionlab.linktests.test_policy import BUILT_IN, allowance_of, who_may_what
from scionlab.testbed.models import AttachmentPoint, Link
from scionlab.usage.models import UsageCounter, UsageSeries
from tests.cases import table
from tests.factories import api_token
from tests.support.standing_clock import T0, Now, at, now
from tests.usage_world import series_of

__all__ = ["now"]  # the fixture
pytestmark = pytest.mark.django_db

BEGINS = datetime(2026, 10, 26, 8, tzinfo=UTC)
ZURICH_MORNING = {"hours_begin": 9, "hours_end": 11, "hours_zone": "Europe/Zurich"}  # 8 to 10 UTC in winter
HOUR = timedelta(hours=1)


def policy(tool: str = "watch", applies_to: str = "everybody", group: Group | None = None, **values: Any) -> TestPolicy:
    columns = {**BUILT_IN.columns(), "runs_per_day": 99, "max_pending": 99, **values}
    if tool != "watch":
        columns["max_seconds"] = 60
    return TestPolicy.objects.create(applies_to=applies_to, tool=tool, group=group, **columns)


def refusal(link: Link, actor: User, begins_at: datetime | None, **what: Any) -> RuleError | None:
    try:
        with transaction.atomic():
            link_test_create(link_id=link.pk, begins_at=begins_at, actor=actor, **(what or {"duration_s": 60}))
    except RuleError as exc:
        return exc
    return None


# --- hours ----------------------------------------------------------------------------------------------------


@table(
    "after_s, is_allowed",
    [(-1, False), (0, True), (2 * 3600 - 60, True), (2 * 3600 - 59, False)],
)
def test_tests_lie_within_the_hours_from_beginning_to_end(
    link: Link, owner: User, after_s: int, is_allowed: bool
) -> None:
    policy(**ZURICH_MORNING)
    begins_at = BEGINS + timedelta(seconds=after_s)
    found = refusal(link, owner, begins_at)
    if is_allowed:
        assert found is None
        return
    assert found is not None
    assert found.code == "test_hours"
    next_at = BEGINS if after_s < 0 else BEGINS + 24 * HOUR
    assert found.message == (
        f"You may test from 09:00 to 11:00 Europe/Zurich. Such a test of 60 s may begin at {next_at:%Y-%m-%d %H:%M:%S} "
        "UTC."
    )
    assert refusal(link, owner, next_at) is None


def test_api_names_the_next_beginning(link: Link, owner: User) -> None:
    policy(**ZURICH_MORNING)
    api = Client(headers={"Authorization": f"Token {api_token(owner)}"})
    path = f"/api/v1/links/{link.pk}/tests/"
    refused = api.post(path, {"duration_s": 60}, content_type="application/json")
    # T0 is 02:00 in Zurich, before clocks are set back.
    assert (refused.status_code, refused.json()["next_allowed_at"]) == (400, "2026-10-25T08:00:00Z")
    assert [*refused.json()["fields"]] == ["begins_at"]
    body = {"duration_s": 60, "begins_at": refused.json()["next_allowed_at"]}
    assert api.post(path, body, content_type="application/json").status_code == 201


def test_next_free_beginning_is_within_the_hours(link: Link, owner: User) -> None:
    policy(**ZURICH_MORNING)
    assert refusal(link, owner, BEGINS + 2 * HOUR - timedelta(seconds=60)) is None
    taken = refusal(link, owner, BEGINS + 2 * HOUR - timedelta(seconds=100))
    assert taken is not None
    assert (taken.code, getattr(taken, "next_free_at", None)) == ("test_slot_taken", BEGINS + 24 * HOUR)


def test_hours_of_all_policies_count_and_the_preview_has_them(link: Link, owner: User) -> None:
    students = Group.objects.create(name="students")
    owner.groups.add(students)
    policy(**ZURICH_MORNING)
    policy("watch", "group", students, hours_begin=20, hours_end=24)
    assert refusal(link, owner, BEGINS.replace(hour=21)) is None
    said = {line.who: line.allowance.hours_text for line in who_may_what() if line.tool == "watch"}
    assert said == {
        "everybody": "09:00 to 11:00 Europe/Zurich",
        "group students": "09:00 to 11:00 Europe/Zurich or 20:00 to 24:00 UTC",
        "administrators": "09:00 to 11:00 Europe/Zurich",
    }
    TestPolicy.objects.filter(group=students).update(hours_begin=None, hours_end=None)
    assert allowance_of(owner, "watch").hours == ()  # at any time is more than some hours
    TestPolicy.objects.filter(group=None).delete()
    assert allowance_of(owner, "watch").hours == ()  # built in


# --- load -----------------------------------------------------------------------------------------------------


@pytest.fixture
def series(link: Link, ap: AttachmentPoint, receipt: HostReceipt) -> UsageSeries:
    """Of a link that is enforced, at an attachment point that lets tests send."""
    HostReceipt.objects.update(says_tests=True, sending_tests="on")
    AttachmentPoint.objects.filter(pk=ap.pk).update(uplink_kbit=10_000)
    return series_of(link)


def carry(series: UsageSeries, to_user_kbit: int, from_user_kbit: int = 0, age_s: float = 0) -> None:
    UsageCounter.objects.all().delete()
    for direction, kbit in (("to_user", to_user_kbit), ("from_user", from_user_kbit)):
        zeros = dict.fromkeys(("bytes", "packets", "drops", "backlog_bytes"), 0)
        UsageCounter.objects.create(
            series=series, direction=direction, segment="0" * 16, at=at(-age_s), kbit=kbit, limit_kbit=9_000, **zeros
        )


@table(
    "use, ap_values, code",
    [
        ((7_000, 0), {}, ""),
        ((7_001, 0), {}, "test_load"),
        ((0, 7_001), {}, "test_load"),  # the busier direction
        ((4_000, 4_000), {}, ""),
        ((7_001, 0, 180), {}, "test_load"),
        ((7_001, 0, 181), {}, ""),  # nobody knows what passes now
        ((7_001, 0), {"uplink_kbit": None}, ""),  # nor of how much it is
        ((3_501, 0), {"total_kbit": 5_000}, "test_load"),
        ((3_500, 0), {"total_kbit": 5_000}, ""),
        ((3_501, 0), {"uplink_kbit": None, "total_kbit": 5_000}, "test_load"),
        ((7_001, 0), {"total_kbit": 50_000}, "test_load"),
    ],
)
def test_load_at_its_bound_and_what_is_unknown_is_not_guessed(
    link: Link,
    owner: User,
    ap: AttachmentPoint,
    series: UsageSeries,
    use: tuple[int, ...],
    ap_values: dict[str, int | None],
    code: str,
) -> None:
    policy("quick", max_load_percent=70)
    AttachmentPoint.objects.filter(pk=ap.pk).update(**ap_values)
    carry(series, *use)
    found = refusal(link, owner, None, tool="quick")
    assert (found.code if found else "") == code
    if use == (7_001, 0) and found and not ap_values:
        assert found.message.replace("\N{NO-BREAK SPACE}", " ") == (
            "The links of 17-ffaa:0:1107 carry 7 001 kbit/s now, of 10 Mbit/s; you may test while they carry at most "
            "70 % of it. Try again when there is less traffic."
        )


def test_load_bounds_nobody_without_a_policy_and_no_watch(link: Link, owner: User, series: UsageSeries) -> None:
    carry(series, 9_999)
    assert refusal(link, owner, None, tool="quick") is None
    policy(max_load_percent=1)
    assert allowance_of(owner, "watch").max_load_percent is None
    assert refusal(link, owner, at(100)) is None
    students = Group.objects.create(name="students")
    owner.groups.add(students)
    policy("quick", max_load_percent=50)
    policy("quick", "group", students, max_load_percent=60)
    assert allowance_of(owner, "quick").max_load_percent == 60
    TestPolicy.objects.filter(group=students).update(max_load_percent=None)
    assert allowance_of(owner, "quick").max_load_percent is None  # any load is more than some


def test_load_of_a_test_that_begins_later_is_looked_at_before_it_gets_its_key(
    link: Link, owner: User, series: UsageSeries, now: Now
) -> None:
    policy("quick", max_load_percent=70)
    carry(series, 9_000)
    assert refusal(link, owner, at(ARMED_AHEAD_S), tool="quick") is not None
    assert refusal(link, owner, at(ARMED_AHEAD_S + 1), tool="quick") is None
    LinkTest.objects.update(armed_at=T0)
    start = f"/api/v1/tests/{LinkTest.objects.get().pk}/start/"
    api = Client(headers={"Authorization": f"Token {api_token(owner)}"})
    early = api.post(start)
    assert (early.status_code, early.json()["code"], early["Retry-After"]) == (409, "test_not_armed", "1")
    now.moment = at(1)
    refused = api.post(start)
    assert (refused.status_code, refused.json()["code"]) == (400, "test_load")
    assert "key" not in refused.json()
    carry(series, 7_000)
    assert api.post(start).status_code == 200


# --- in the admin ---------------------------------------------------------------------------------------------


@table(
    "values, words",
    [
        ({"hours_begin": 9, "hours_end": 11}, ""),
        ({"hours_begin": 0, "hours_end": 1, "hours_zone": "Europe/Zurich"}, ""),
        ({"hours_begin": 9}, "Enter both hours, or none for any time."),
        ({"hours_begin": 9, "hours_end": 9}, "From 9 to 9 is empty."),
        ({"hours_zone": "Europe/Zuerich"}, "is not a time zone"),
        ({"max_load_percent": 100}, ""),
        ({"max_load_percent": 101}, "less than or equal to 100"),
        ({"tool": "watch", "max_seconds": 600, "max_load_percent": ""}, ""),
        ({"tool": "watch", "max_seconds": 601, "max_load_percent": ""}, "less than or equal to 600"),
    ],
)
def test_administrators_set_hours_and_load(door: Client, values: dict[str, Any], words: str) -> None:
    page = "/admin/linktests/testpolicy/"
    numbers = {name: value for name, value in BUILT_IN.columns().items() if value is not None}
    answer = door.post(
        f"{page}add/",
        {"applies_to": "everybody", "tool": "quick", "hours_zone": "UTC", **numbers, "max_seconds": 60, **values},
    )
    shown = answer.content.decode()
    assert (answer.status_code, words in shown) == ((302, True) if not words else (200, True)), shown
    assert TestPolicy.objects.exists() == (not words)
    assert "Permissions in force" in door.get(page).content.decode()
