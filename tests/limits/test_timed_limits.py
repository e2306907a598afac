"""Timed limits and limits per direction in the service: rules, configurations, receipts, mails and the record."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from bandwidth_config import Limits, generate_link_info
from contract.link_info import parse_link_info
from contract.link_rules import MAX_STEPS_PER_HOST
from scionlab.accounts.models import Mail, User
from scionlab.enforcement.models import LinkEnforcement
from scionlab.enforcement.status import link_status
from scionlab.limits import profiles
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.timed_limit import timed_limit_cancel, timed_limit_create, timed_limits_retire
from scionlab.limits.update import link_set_bandwidth, link_update
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, TimedLimit, UserAS
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.user_as import user_as_change, user_as_delete
from tests.cases import table
from tests.enforcement.test_receipt import direction, link_entry, store
from tests.factories import attach, save, spec
from tests.support.standing_clock import T0, Now, at, now

__all__ = ["now"]  # the fixture
pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
WAVE = profiles.square_wave(Limits(200, 100), Limits(800, 400), 60, 2)


def versions(host: Host) -> tuple[int, int]:
    host.refresh_from_db()
    return host.config_version, host.limits_version


def fresh(link: Link) -> Link:
    return links_of(UserAS.objects.get(pk=link.interface_b.AS_id))[0]


def create(link: Link, profile: profiles.Profile = WAVE, begins_at: datetime | None = None) -> TimedLimit:
    return timed_limit_create(link_id=link.pk, profile=profile, begins_at=begins_at, actor=None)


def code_of(link: Link, profile: profiles.Profile = WAVE, begins_at: datetime | None = None) -> str | None:
    try:
        create(link, profile, begins_at)
    except FieldRuleError as exc:
        return exc.code
    return None


def document(host: Host) -> dict[str, object]:
    return generate_link_info(Host.objects.get(pk=host.pk))["1"]


# --- from the row to the document --------------------------------------------------------------------------------


def test_timed_limit_is_in_the_document_of_the_attachment_point_alone(link: Link, host: Host, owner: User) -> None:
    config, limits = versions(host)
    user_host = link.interface_b.host
    before = versions(user_host)
    plain = document(host)

    made = timed_limit_create(link_id=link.pk, profile=WAVE, begins_at=at(0.7), actor=owner, reason="a slow hour")

    assert versions(host) == (config, limits + 1)
    assert versions(user_host) == before
    assert document(host) == {
        **plain,
        "Timed": [
            {
                "From": "2026-10-25T00:00:00Z",
                "Until": "2026-10-25T00:04:00Z",
                "Steps": [[0, 200, 100], [60, 800, 400], [120, 200, 100], [180, 800, 400]],
            }
        ],
    }
    assert "Timed" not in str(generate_link_info(Host.objects.get(pk=user_host.pk)))
    row = BandwidthChange.objects.get(kind=BandwidthChange.Kind.TIMED_LIMIT)
    assert (row.link, row.actor, row.reason) == (link, owner, "a slow hour")
    status = link_status(fresh(link), now=at(70))
    assert (status.requested, status.wanted) == (Limits(1000, 1000), Limits(800, 400))
    assert (status.running, status.upcoming) == (made, [])


def test_cancelled_one_is_gone_from_the_document_and_who_did_it_is_written_down(
    link: Link, host: Host, owner: User
) -> None:
    plain = document(host)
    made = create(link, begins_at=T0 + HOUR)
    _, limits = versions(host)
    cancelled = timed_limit_cancel(timed_limit_id=made.pk, actor=owner)
    assert cancelled.cancelled_at == T0
    assert document(host) == plain
    assert versions(host)[1] == limits + 1
    assert timed_limit_cancel(timed_limit_id=made.pk, actor=owner).cancelled_at == T0
    assert versions(host)[1] == limits + 1, "cancelled twice is cancelled once"
    newest = BandwidthChange.objects.filter(kind="timed_limit")[0]
    assert (newest.actor, newest.detail.partition(":")[0]) == (owner, "cancelled")
    assert code_of(link, begins_at=T0 + HOUR) is None, "its time is free again"


def test_document_depends_on_rows_and_never_on_the_clock(link: Link, host: Host, now: Now) -> None:
    create(link)
    create(link, begins_at=T0 + HOUR)
    during = document(host)
    _, limits = versions(host)
    for later in (at(70), at(241), T0 + timedelta(days=40)):
        now.moment = later
        assert document(host) == during
        assert versions(host)[1] == limits


def test_ended_ones_leave_the_document_in_one_version_per_host_and_nobody_waits_for_it(link: Link, host: Host) -> None:
    create(link)
    create(link, begins_at=at(300))
    create(link, begins_at=T0 + HOUR)
    _, limits = versions(host)
    wanted = fresh(link).wanted_limits_version
    assert timed_limits_retire(now=at(239)) == []
    assert timed_limits_retire(now=at(600)) == [host.pk]
    assert timed_limits_retire(now=at(600)) == []
    assert versions(host)[1] == limits + 1
    assert fresh(link).wanted_limits_version == wanted
    assert len(document(host)["Timed"]) == 1  # type: ignore[arg-type]
    assert TimedLimit.objects.filter(retired_at=at(600)).count() == 2


def test_the_next_timed_limit_takes_ended_ones_along(link: Link, host: Host, now: Now) -> None:
    create(link)
    _, limits = versions(host)
    now.moment = at(500)
    create(link)
    assert versions(host)[1] == limits + 1
    assert [one["From"] for one in document(host)["Timed"]] == ["2026-10-25T00:08:20Z"]  # type: ignore[attr-defined]


# --- rules -------------------------------------------------------------------------------------------------------


def test_overlap_is_refused_with_the_other_one_named(link: Link) -> None:
    create(link, begins_at=at(1000))
    for begins, ends in ((900, 1001), (1000, 1240), (1100, 1101), (1239, 1500), (900, 2000)):
        with pytest.raises(FieldRuleError) as refused:
            create(link, profiles.outage(ends - begins), at(begins))
        assert refused.value.code == "timed_overlap"
        assert "from 2026-10-25 00:16:40 UTC until 2026-10-25 00:20:40 UTC" in refused.value.message
    assert code_of(link, profiles.outage(100), at(900)) is None, "until the second in which the other begins"
    assert code_of(link, profiles.outage(100), at(1240)) is None, "from the second in which the other ends"


def test_a_link_has_twenty_at_most_and_the_running_minute_may_begin_one(link: Link) -> None:
    assert create(link, begins_at=at(-59)).begins_at == T0, "who wrote this minute meant now"
    for number in range(19):
        assert code_of(link, begins_at=T0 + (number + 1) * HOUR) is None
    assert code_of(link, begins_at=T0 + 100 * HOUR) == "timed_many"
    TimedLimit.objects.update(retired_at=T0)  # as if they had ended
    assert code_of(link, begins_at=T0 + 100 * HOUR) is None


def test_host_has_room_for_so_many_steps_and_no_more(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_STEPS_PER_HOST == 50_000
    monkeypatch.setattr("scionlab.limits.timed_limit.MAX_STEPS_PER_HOST", 9)
    assert code_of(link) is None
    assert code_of(link, begins_at=T0 + HOUR) is None
    assert refused(link, profiles.stair(Limits(1, 1), Limits(9, 9), 2, 60), begins_at=T0 + 2 * HOUR) == (
        "timed_host_full",
        "steps",
        "The temporary limits at 17-ffaa:0:1107 have 8 steps of at most 9; 2 more do not fit. Choose fewer steps, or "
        "try again later.",
    )
    assert code_of(link, profiles.outage(60), T0 + 2 * HOUR) is None


def test_link_that_is_deactivated_moved_or_deleted_has_none_left(
    link: Link, owner: User, ap_b: AttachmentPoint, user_as: UserAS
) -> None:
    create(link)
    create(link, begins_at=T0 + HOUR)
    link_update(link_id=link.pk, active=False, actor=owner)
    assert not TimedLimit.objects.filter(cancelled_at=None).exists()
    link_update(link_id=link.pk, active=True, actor=owner)
    create(link)
    user_as_change(user_as_id=user_as.pk, active=False, actor=owner)
    user_as_change(user_as_id=user_as.pk, active=True, actor=owner)
    assert link_status(fresh(link), now=at(1)).running is None
    create(link)
    save(user_as, spec(ap_b), actor=owner)
    assert not TimedLimit.objects.exists()
    details = list(BandwidthChange.objects.filter(kind="timed_limit").values_list("detail", flat=True))
    assert sum(one.startswith("cancelled (the link was deactivated)") for one in details) == 3
    assert sum(one.startswith("cancelled (the link was removed)") for one in details) == 1
    create(fresh(Link.objects.get()))
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert not TimedLimit.objects.exists()


# --- an administrator's maximum ----------------------------------------------------------------------------------


def test_lower_maximum_wins_over_what_runs_and_what_is_to_come(
    link: Link, host: Host, ap: AttachmentPoint, owner: User
) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=50, actor=owner)
    create(link, begins_at=T0 + HOUR)
    _, limits = versions(host)
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=300, actor=None)
    assert fan_out() == [host.pk]
    assert versions(host)[1] == limits + 1
    assert fresh(link).wanted_limits_version == limits + 1
    read = parse_link_info(json.dumps({"1": document(host)}))[1]
    assert read.limits == (50, 50)
    assert [step.limits for step in read.timed[0].steps[:2]] == [(200, 100), (300, 300)]
    assert TimedLimit.objects.get().limits.steps[1].limits == (800, 400), "the choice is kept"
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=900, actor=None)
    assert fan_out() == [host.pk]
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=850, actor=None)
    assert fan_out() == [], "nobody wants more than 800"


# --- both directions ---------------------------------------------------------------------------------------------


def test_directions_are_stored_shown_and_written_down(link: Link, host: Host, owner: User) -> None:
    _, limits = versions(host)
    link_update(link_id=link.pk, limits=Limits(500, 0), actor=owner, reason="lab")
    assert versions(host)[1] == limits + 1
    found = document(host)
    assert (found["Bandwidth"], found["Bandwidth-To-User"], found["Bandwidth-From-User"]) == (0, 500, 0)
    one = fresh(link)
    assert (one.requested, one.enforced, one.enforced_kbit) == (Limits(500, 0), Limits(500, 0), 0)
    row = BandwidthChange.objects.filter(link=link)[0]
    assert (row.old, row.new) == (Limits(1000, 1000), Limits(500, 0))
    said = row.text.replace("\N{NO-BREAK SPACE}", " ")
    assert said == "1 000 kbit/s \N{RIGHTWARDS ARROW} 500 kbit/s to the user AS and 0 kbit/s from it"
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    assert fresh(link).requested == Limits(500, 500), "one number is both directions"
    assert set(document(host)) & {"Bandwidth-To-User", "Bandwidth-From-User"} == set()


def test_other_direction_alone_raises_the_version_and_is_clamped(link: Link, host: Host, ap: AttachmentPoint) -> None:
    link_update(link_id=link.pk, limits=Limits(100, 900), actor=None)
    _, limits = versions(host)
    link_update(link_id=link.pk, limits=Limits(100, 800), actor=None)
    assert versions(host)[1] == limits + 1
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=300, actor=None)
    assert fan_out() == [host.pk]
    assert fresh(link).enforced == Limits(100, 300)
    assert document(host)["Bandwidth-From-User"] == 300


def test_attachment_may_be_asked_for_with_two_limits(owner: User, ap: AttachmentPoint) -> None:
    made = attach(owner, spec(ap, bandwidth_kbit=700, from_user_kbit=0))
    one = links_of(made)[0]
    assert (one.bandwidth_kbit, one.from_user_kbit) == (700, 0)
    save(made, spec(ap, bandwidth_kbit=700, from_user_kbit=700, link_id=one.pk))
    assert links_of(made)[0].from_user_kbit is None


# --- receipts ----------------------------------------------------------------------------------------------------


def entry_of(wanted: tuple[int, int], kernel: tuple[int, int] | None = None) -> dict[str, object]:
    to_user, from_user = kernel or wanted
    return link_entry(
        min(wanted),
        to_user_kbit=wanted[0],
        from_user_kbit=wanted[1],
        to_user=direction(to_user),
        from_user=direction(from_user, "slbw0"),
    )


def told(
    host: Host, link: Link, seconds: float, *kernel: int, wanted: tuple[int, int] | None = None
) -> LinkEnforcement:
    to_user, from_user = kernel
    store(host, {"1": entry_of(wanted or (to_user, from_user), (to_user, from_user))}, now=at(seconds))
    return LinkEnforcement.objects.get(link=link)


def test_enforced_stays_true_over_all_steps_and_one_mail_says_so(link: Link, host: Host) -> None:
    told(host, link, 0, 1000, 1000)
    create(link, begins_at=at(60))
    assert link_status(fresh(link), now=at(1)).stage == "waiting"
    Mail.objects.all().delete()
    first = told(host, link, 10, 1000, 1000)
    assert link_status(fresh(link), now=at(11)).stage == "enforced"
    for seconds, kernel in ((61, (200, 100)), (121, (800, 400)), (181, (200, 100)), (301, (1000, 1000))):
        row = told(host, link, seconds, *kernel)
        assert row.since == first.since, "nothing was ever otherwise than wanted"
        status = link_status(fresh(link), now=at(seconds + 1))
        assert (status.stage, status.enforced) == ("enforced", Limits(*kernel))
        assert status.since == at(seconds - 1), "the step"
    mail = Mail.objects.get()
    assert "outside which the regular limit of 1 000 kbit/s applies automatically:\n  square wave from" in mail.body
    assert "from 2026-10-25 00:01:00 UTC until" in mail.body


def test_the_mail_names_what_the_kernel_has_while_a_timed_limit_runs(
    link: Link, host: Host, ap: AttachmentPoint, owner: User
) -> None:
    told(host, link, 0, 1000, 1000)
    Mail.objects.all().delete()
    create(link, profiles.outage(240))
    told(host, link, 10, 0, 0)
    mail = Mail.objects.get()
    assert mail.subject == "Link blocked (0 kbit/s) at 17-ffaa:0:1107"
    assert "outside which the regular limit of 1 000 kbit/s applies automatically:\n  outage from" in mail.body
    Mail.objects.all().delete()
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=100, actor=owner)  # for later
    told(host, link, 20, 0, 0)
    mail = Mail.objects.get()
    assert mail.subject == "Link blocked (0 kbit/s) at 17-ffaa:0:1107"
    assert "outside which the regular limit of 100 kbit/s applies" in mail.body


def test_the_mail_says_of_which_limit_more_was_requested(
    link: Link, host: Host, ap: AttachmentPoint, owner: User
) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=50, actor=owner)
    create(link)
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=150, actor=None)
    fan_out()
    told(host, link, 10, 150, 100)
    mail = Mail.objects.get()
    assert mail.subject == "Link clamped to 150 kbit/s to the user AS and 100 kbit/s from it at 17-ffaa:0:1107"
    assert "You requested 200 kbit/s to the user AS and 100 kbit/s from it; the maximum there is 150" in mail.body
    assert "outside which the regular limit of 50 kbit/s applies" in mail.body


@pytest.mark.parametrize("seconds", [57, 62])
def test_around_a_step_the_mail_names_what_the_receipt_said(seconds: int, link: Link, host: Host) -> None:
    """The kernel is read before its receipt arrives, by another clock."""
    create(link, begins_at=at(60))
    told(host, link, seconds, *((200, 100) if seconds < 60 else (1000, 1000)))
    kernel = "200 kbit/s to the user AS and 100 kbit/s from it" if seconds < 60 else "1 000 kbit/s"
    assert Mail.objects.get().subject == f"Link limited to {kernel} at 17-ffaa:0:1107"


def test_the_mail_of_a_link_that_is_observed_promises_no_temporary_limit(link: Link, host: Host) -> None:
    create(link)
    link_update(link_id=link.pk, actor=None, observe_only=True)
    store(host, {"1": link_entry(200, to_user_kbit=200, from_user_kbit=100, state="observed")}, now=at(10))
    mail = Mail.objects.get()
    assert mail.subject == "Link observed, not limited at 17-ffaa:0:1107"
    assert "emporary" not in mail.body


@table(
    ("seconds", "kernel", "stage"),
    [
        (58, (200, 100), "enforced"),  # the agent's clock, or ours, is a little off
        (64, (1000, 1000), "enforced"),
        (66, (1000, 1000), "failed"),
        (54, (200, 100), "failed"),
        (123, (200, 100), "enforced"),
        (123, (1000, 1000), "failed"),
        (90, (200, 0), "failed"),
    ],
)
def test_around_a_step_both_sides_count_and_nowhere_else(
    seconds: float, kernel: tuple[int, int], stage: str, link: Link, host: Host
) -> None:
    create(link, begins_at=at(60))
    told(host, link, seconds, *kernel)
    assert link_status(fresh(link), now=at(seconds + 1)).stage == stage


def test_steps_shorter_than_the_grace_are_not_called_failures(link: Link, host: Host) -> None:
    create(link, profiles.stair(Limits(100, 100), Limits(109, 109), 10, 1), at(60))
    told(host, link, 65.5, 104, 104)
    assert link_status(fresh(link), now=at(66)).stage == "enforced"
    told(host, link, 65.6, 500, 500)
    assert link_status(fresh(link), now=at(66)).stage == "failed"


def test_agent_whose_clock_is_ten_minutes_behind_is_not_believed_that_a_step_came(link: Link, host: Host) -> None:
    """It wants 1000 by its clock, has 1000, and calls that enforced; by ours a limit of 200 and 100 has begun."""
    create(link, begins_at=at(60))
    store(host, {"1": entry_of((1000, 1000))}, now=at(50), observed_at=(at(50) - timedelta(minutes=10)).isoformat())
    assert link_status(fresh(link), now=at(55)).stage == "enforced"
    found = link_status(fresh(link), now=at(81))  # no receipt shows the step, and one should have by now
    assert (found.stage, found.enforced) == ("delivered", Limits(1000, 1000))
    assert "has not confirmed the newest step of the temporary limit yet" in found.text
    store(host, {"1": entry_of((1000, 1000))}, now=at(110), observed_at=(at(110) - timedelta(minutes=10)).isoformat())
    found = link_status(fresh(link), now=at(111))
    assert (found.stage, found.enforced, found.wanted) == ("failed", Limits(1000, 1000), Limits(200, 100))
    assert "the kernel has 1\N{NO-BREAK SPACE}000\N{NO-BREAK SPACE}kbit/s to the user AS" in found.text
    assert found.text.endswith("The clock of 17-ffaa:0:1107 is 10 min behind.")


def test_agent_whose_clock_is_an_hour_ahead_is_judged_by_ours(link: Link, host: Host) -> None:
    create(link, begins_at=T0 + HOUR)
    store(host, {"1": entry_of((200, 100))}, now=at(10), observed_at=(T0 + HOUR + timedelta(seconds=10)).isoformat())
    found = link_status(fresh(link), now=at(11))
    assert (found.stage, found.enforced, found.wanted) == ("failed", Limits(200, 100), Limits(1000, 1000))


def test_receipt_of_an_agent_that_knows_one_limit(link: Link, host: Host) -> None:
    link_update(link_id=link.pk, limits=Limits(500, 300), actor=None)
    store(host, {"1": link_entry(300)}, now=at(1))
    status = link_status(fresh(link), now=at(2))
    assert (status.stage, status.enforced) == ("failed", Limits(300, 300))
    told(host, link, 3, 500, 300)
    status = link_status(fresh(link), now=at(4))
    assert (status.stage, status.enforced) == ("enforced", Limits(500, 300))
    assert "300" in Mail.objects.get().subject


def test_standing_limit_that_is_changed_meanwhile_holds_from_the_end_on(link: Link, host: Host) -> None:
    create(link)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=700, actor=None)
    one = fresh(link)
    assert (one.limits_at(at(10)), one.limits_at(at(240))) == (Limits(200, 100), Limits(700, 700))
    told(host, link, 10, 200, 100)
    assert link_status(fresh(link), now=at(11)).stage == "enforced"


# --- cancelled by an administrator ---------------------------------------------------------------------------------


@table(
    ("begins", "is_observed", "means"),
    [
        (-10, False, "the regular limit of the link, 1 000 kbit/s, applies again as soon as 17-ffaa:0:1107 has"),
        (-10, True, "nothing is limited, because the link is observed"),
        (3600, False, "it does not begin. The other limits of the link do not change"),
    ],
)
def test_the_mail_of_a_cancelled_one_says_what_changes(
    begins: int, is_observed: bool, means: str, link: Link, staff: User, now: Now
) -> None:
    made = create(link, begins_at=at(begins))
    if is_observed:
        link_update(link_id=link.pk, actor=staff, observe_only=True)
    timed_limit_cancel(timed_limit_id=made.pk, actor=staff)
    body = Mail.objects.get(key__startswith="timed_cancelled").body
    assert f"What it means: {means}" in body
    assert body.count("applies") == means.count("applies")


# --- what each refusal says --------------------------------------------------------------------------------------


def refused(link: Link, profile: profiles.Profile = WAVE, **values: datetime) -> tuple[str, str, str]:
    with pytest.raises(FieldRuleError) as caught:
        timed_limit_create(link_id=link.pk, profile=profile, actor=None, **{"begins_at": None, **values})
    text = caught.value.message.replace("\N{NO-BREAK SPACE}", " ")
    return caught.value.code, caught.value.field, text


def test_each_refusal_names_its_field_the_value_and_the_remedy(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(link, begins_at=at(-61)) == (
        "timed_past",
        "begins_at",
        "2026-10-24 23:58:59 UTC is in the past; it is 2026-10-25 00:00:00 UTC. Choose a later start, or none to "
        "start now.",
    )
    assert refused(link, begins_at=T0 + timedelta(days=90, seconds=1)) == (
        "timed_far",
        "begins_at",
        "2027-01-23 00:00:01 UTC is more than 90 days ahead. Choose an earlier start.",
    )
    assert refused(link, ends_at=at(0.9))[:2] == ("timed_past", "ends_at")
    assert refused(link, profiles.constant(Limits(100, 1001), 60))[:2] == ("bandwidth_too_high", "steps")
    create(link, profiles.outage(60))
    assert refused(link, profiles.outage(60))[:2] == ("timed_overlap", "begins_at")
    monkeypatch.setattr("scionlab.limits.timed_limit.MAX_TIMED_PER_LINK", 1)
    code, field, text = refused(link, profiles.outage(60), begins_at=at(60))
    assert (code, field) == ("timed_many", "link_id")
    assert text.startswith("This link has 1 running or scheduled temporary limits, which is the maximum. Cancel one,")
    link_update(link_id=link.pk, active=False, actor=None)
    assert refused(link)[:2] == ("timed_inactive", "link_id")


def test_a_chosen_end_is_kept_and_shortens_the_last_step(link: Link, now: Now) -> None:
    """Steps of a minute; the last one has to last as long as any other."""
    made = timed_limit_create(link_id=link.pk, profile=WAVE, begins_at=at(100), ends_at=at(290), actor=None)
    assert (made.begins_at, made.ends_at) == (at(100), at(290))
    assert [step[0] for step in made.steps] == [0, 60, 120, 180]
    short = timed_limit_create(
        link_id=link.pk, profile=profiles.outage(60), begins_at=at(300), ends_at=at(301), actor=None
    )
    assert short.ends_at == at(301)
    code, field, _ = refused(link, begins_at=at(400), ends_at=at(580))
    assert (code, field) == ("timed_step_short", "ends_at")


def test_a_link_that_limits_nobody_has_no_temporary_limit(link: Link) -> None:
    AttachmentPoint.objects.all().delete()
    code, field, _ = refused(link)
    assert (code, field) == ("timed_not_limited", "link_id")
