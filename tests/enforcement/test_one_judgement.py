"""One judgement: each case that a Link can be in, as every door tells it. A door that judges by itself fails here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scionlab.accounts.models import Mail, User
from scionlab.enforcement.census import take_census
from scionlab.enforcement.models import HostReceipt, LinkEnforcement, NoticeWatch
from scionlab.enforcement.notices import notices_find
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.enforcement.words import WORDS
from scionlab.site.metrics import exposition
from scionlab.testbed.models import AttachmentPoint, Host, Link, TimedLimit
from scionlab.testbed.selectors import with_relations
from scionlab_bw import tables
from tests.cases import table
from tests.support.html import Page

pytestmark = pytest.mark.django_db

KBIT = "\N{NO-BREAK SPACE}kbit/s"
AP = "17-ffaa:0:1107"
LONG_AGO = timedelta(minutes=30)


@dataclass(frozen=True)
class Case:
    """What is changed of a Link that is plainly enforced at 1000 kbit/s, and what every door says then."""

    stage: str
    state: str
    words: str  # part of the sentence
    changes: Callable[[datetime], None] = lambda _now: None
    remark: str | None = None
    mail: str | None = None  # kind of the mail that is sent after a while


def problem(code: str, subject: str) -> Callable[[datetime], None]:
    found = [{"code": code, "subject": subject, "message": "as the agent says it"}]
    return lambda _now: update(HostReceipt, problems=found)


def update(model: Any, **values: Any) -> None:
    model.objects.update(**values)


def reported(**values: Any) -> Callable[[datetime], None]:
    return lambda _now: update(LinkEnforcement, **values)


def heard(ago: timedelta, **values: Any) -> Callable[[datetime], None]:
    def change(now: datetime) -> None:
        update(HostReceipt, received_at=now - ago, observed_at=now - ago, **values)
        update(LinkEnforcement, received_at=now - ago)

    return change


def limit(kbit: int, *, maximum: int = 1000, kernel: int | None = None) -> Callable[[datetime], None]:
    def change(_now: datetime) -> None:
        update(Link, bandwidth_kbit=kbit)
        update(AttachmentPoint, maximum_kbit=maximum)
        found = min(kbit, maximum) if kernel is None else kernel
        update(LinkEnforcement, kbit=found, to_user_rate_kbit=found, from_user_rate_kbit=found)

    return change


def from_user(kbit: int) -> Callable[[datetime], None]:
    """What the agent wants and has in this direction; in the other one it stays."""
    return reported(to_user_kbit=F("kbit"), from_user_kbit=kbit, from_user_rate_kbit=kbit)


def without_agent(**host: Any) -> Callable[[datetime], None]:
    def change(_now: datetime) -> None:
        HostReceipt.objects.all().delete()
        LinkEnforcement.objects.all().delete()
        update(Host, **host)

    return change


def stepped(seconds_ago: float, kernel: int, *, receipt_s_ago: float = 1) -> Callable[[datetime], None]:
    """A temporary limit of 200 kbit/s began so long ago; the newest receipt shows `kernel`."""

    def change(now: datetime) -> None:
        begins_at = (now - timedelta(seconds=seconds_ago)).replace(microsecond=0)
        TimedLimit.objects.create(
            link=Link.objects.get(),
            kind="constant",
            begins_at=begins_at,
            ends_at=begins_at + timedelta(hours=1),
            steps=[[0, 200, 200]],
            step_count=1,
            highest_kbit=200,
        )
        at = now - timedelta(seconds=receipt_s_ago)
        update(HostReceipt, received_at=at, observed_at=at)
        update(LinkEnforcement, received_at=at, kbit=kernel, to_user_rate_kbit=kernel, from_user_rate_kbit=kernel)

    return change


def to_observe(model: Any) -> Callable[[datetime], None]:
    return lambda _now: update(model, observe_only=True)


def observed() -> Callable[[datetime], None]:
    """Wanted so, and reported so."""
    return all_of(
        to_observe(Link), reported(state="observed"), lambda _now: update(HostReceipt, observe_only=False, devices=[])
    )


def all_of(*changes: Callable[[datetime], None]) -> Callable[[datetime], None]:
    def change(now: datetime) -> None:
        for one in changes:
            one(now)

    return change


FILTER = problem("hook_obstructed", "eth0")
ON_ETH0 = reported(to_user_dev="eth0", from_user_dev="slbw0")
ON_IFBS = all_of(
    reported(to_user_dev="slbw0", from_user_dev="slbw1"), lambda _now: update(HostReceipt, devices=["eth0", "eth1"])
)
LIMITER_SILENT = problem("limiter_silent", "limiter")
OLD = reported(since=timezone.now() - LONG_AGO)
UNFETCHED = {"wanted_limits_version": 99}

CASES: dict[str, Case] = {
    "enforced": Case("enforced", "enforced", "Enforced in both directions since"),
    "enforced, and the agent reports no digest": Case(
        "enforced",
        "enforced",
        "The agent does not prove which limits it has.",
        lambda _now: update(HostReceipt, content="counted"),
        "unproven",
    ),
    "clamped": Case("enforced", "clamped", f"Clamped: enforced at the maximum of 400{KBIT}", limit(900, maximum=400)),
    "blocked": Case("enforced", "blocked", "Blocked in both directions since", limit(0)),
    "blocked by its maximum": Case("enforced", "blocked", "Blocked in both directions since", limit(900, maximum=0)),
    "clamped in one direction": Case(
        "enforced",
        "clamped",
        f"Clamped: enforced at the maximum of 400{KBIT}",
        all_of(limit(100, maximum=400), lambda _now: update(Link, from_user_kbit=900), from_user(400)),
    ),
    "blocked to the user alone": Case(
        "enforced",
        "enforced",
        "Enforced: blocked to the user AS, limited from it, since",
        all_of(limit(0), lambda _now: update(Link, from_user_kbit=900), from_user(900)),
    ),
    "blocked from the user alone": Case(
        "enforced",
        "enforced",
        "Enforced: limited to the user AS, blocked from it, since",
        all_of(limit(900), lambda _now: update(Link, from_user_kbit=0), from_user(0)),
    ),
    "failed by the agent's word": Case(
        "failed",
        "failed",
        "Failed: no route",
        all_of(OLD, reported(state="error", problem="no route")),
        None,
        "failed",
    ),
    "failed by the kernel's": Case(
        "failed",
        "failed",
        f"the kernel has 64{KBIT} to the user AS and 1\N{NO-BREAK SPACE}000{KBIT} from it.",
        all_of(OLD, reported(to_user_rate_kbit=64)),
        None,
        "failed",
    ),
    "what the agent wants is something else than the Link": Case(
        "failed",
        "failed",
        f"the kernel has 64{KBIT} to the user AS",
        all_of(OLD, limit(1000, kernel=64)),
        None,
        "failed",
    ),
    "the kernel has the Link's limit, and the agent wants another one": Case(
        "failed", "failed", "Failed:", all_of(OLD, reported(kbit=64)), None, "failed"
    ),
    **{
        name: Case("failed", "failed", words, reported(**values))
        for name, values, words in (
            ("less from the user AS", {"from_user_rate_kbit": 1}, f"and 1{KBIT} from it."),
            ("one direction is missing", {"from_user_rate_kbit": None}, "and no limit from it."),
            ("an error without words", {"state": "error"}, "Failed: the agent gave no reason."),
        )
    },
    "foreign content": Case(
        "delivered",
        "delivered",
        "reports limits that this service did not issue.",
        lambda _now: update(HostReceipt, content="foreign"),
        "foreign_content",
    ),
    "older generation": Case("delivered", "delivered", "has not confirmed the new limit yet", reported(generation=0)),
    **{
        f"receipt of {name}": Case("delivered", "delivered", "has not confirmed the new limit yet", reported(**values))
        for name, values in (
            ("an older H", {"config_version": 1}),
            ("an older L", {"limits_version": 0}),
            ("no version", {"config_version": None, "limits_version": None}),
            ("an H of the future", {"config_version": 99}),
            ("an L of the future", {"limits_version": 99}),
        )
    },
    "no word of the Link": Case(
        "delivered",
        "delivered",
        "has not confirmed the new limit yet",
        lambda _now: LinkEnforcement.objects.all().delete() and None,
    ),
    "waiting": Case("waiting", "waiting", f"Waiting: {AP} has not fetched", lambda _now: update(Link, **UNFETCHED)),
    "no report": Case(
        "silent",
        "no_report",
        f"UTC. Last known limit: 1\N{NO-BREAK SPACE}000{KBIT}.",
        heard(timedelta(hours=2)),
        None,
        "away",
    ),
    "inactive": Case("inactive", "inactive", "Inactive:", lambda _now: update(Link, active=False)),
    "limits removed": Case(
        "failed",
        "failed",
        f"Failed: the operator of {AP} removed the limits at",
        all_of(
            heard(timedelta(hours=2), problems=[{"code": "limits_removed", "subject": "agent", "message": "reset"}]),
            lambda _now: LinkEnforcement.objects.all().delete() and None,
        ),
        None,
        "failed",
    ),
    "observed": Case("observed", "observed", "Observed: nothing is limited (since ", observed()),
    "observed, as set at the attachment point": Case(
        "observed",
        "observed",
        "Observed: nothing is limited (since ",
        all_of(observed(), lambda _now: update(Link, observe_only=False), to_observe(AttachmentPoint)),
    ),
    "observed by the operator's choice": Case(
        "failed",
        "failed",
        f"Failed: the operator of {AP} set it to observe only. The link is measured, not limited.",
        all_of(OLD, reported(state="observed"), lambda _now: update(HostReceipt, observe_only=True)),
        None,
        "failed",
    ),
    "observed by the agent alone": Case(
        "failed",
        "failed",
        f"Failed: the agent of {AP} observes this link only.",
        all_of(OLD, reported(state="observed")),
        None,
        "failed",
    ),
    "to be observed, which the agent does not support": Case(
        "enforced",
        "enforced",
        f"This link is set to observe only, but the agent of {AP} does not support that.",
        to_observe(Link),
        "not_observed",
    ),
    "to be observed, and enforced anyway": Case(
        "enforced",
        "enforced",
        f"This link is set to observe only, but the agent of {AP} enforces its limit.",
        all_of(to_observe(Link), lambda _now: update(HostReceipt, observe_only=False)),
        "not_observed",
    ),
    "to be observed, in error": Case(
        "failed",
        "failed",
        "Failed: no class",
        all_of(OLD, to_observe(Link), reported(state="error", problem="no class")),
        None,
        "failed",
    ),
    "observed at its last report": Case(
        "silent",
        "no_report",
        "UTC. At that time nothing was limited.",
        all_of(observed(), heard(timedelta(hours=2))),
        None,
        "away",
    ),
    "the limiter is silent": Case(
        "silent",
        "no_report",
        "UTC: the limiter does not answer its agent. Last known limit: 1",
        all_of(LIMITER_SILENT, lambda now: update(HostReceipt, observed_at=now - timedelta(hours=2))),
        None,
        "away",
    ),
    "the limiter has been silent for a moment": Case(
        "silent",
        "no_report",
        "UTC: the limiter does not answer its agent.",
        all_of(LIMITER_SILENT, lambda now: update(HostReceipt, observed_at=now - timedelta(minutes=2))),
    ),
    **{
        f"the limiter cannot work: {code}": Case(
            "failed", "failed", f"Failed: {words}.", all_of(OLD, problem(code, "limiter")), None, "failed"
        )
        for code, words in {
            "no_bpf_right": "the limiter lacks CAP_BPF or CAP_NET_ADMIN",
            "kernel_too_old": "the host's kernel is too old for the limiter",
            "program_refused": "the kernel rejected the program of the limiter",
        }.items()
    },
    "the limiter cannot work, and no word of this Link's wanted state": Case(
        "delivered",
        "delivered",
        "has not confirmed the new limit yet",
        all_of(problem("no_bpf_right", "limiter"), reported(generation=0)),
        "no_bpf_right",
    ),
    "the limiter refuses the document": Case(
        "enforced",
        "enforced",
        f"The limiter of {AP} rejects the newest configuration.",
        problem("document_refused", "document"),
        "document_refused",
    ),
    "something in front at a device that is looked at": Case(
        "enforced",
        "enforced",
        f"A foreign filter stands in front at {AP}: packets that it takes are not limited.",
        all_of(ON_IFBS, problem("hook_obstructed", "eth0")),
        "hook_obstructed",
    ),
    "something in front at another device": Case(
        "enforced", "enforced", "Enforced in both directions", all_of(ON_IFBS, problem("hook_obstructed", "eth7"))
    ),
    "a foreign filter behind": Case(
        "enforced", "enforced", "Enforced in both directions", all_of(ON_IFBS, problem("filter_behind", "eth0"))
    ),
    "foreign filter on its device": Case(
        "enforced",
        "enforced",
        f"A foreign filter stands in front at {AP}: packets that it takes are not limited.",
        all_of(ON_ETH0, FILTER),
        "hook_obstructed",
    ),
    "foreign filter on another device": Case(
        "enforced",
        "enforced",
        "Enforced in both directions",
        all_of(ON_ETH0, problem("hook_obstructed", "eth7")),
    ),
    "a problem of the whole host": Case(
        "enforced",
        "enforced",
        f"The kernel of {AP} rejects some limits.",
        all_of(ON_ETH0, problem("verify_failed", "kernel")),
        "verify_failed",
    ),
    "skewed clock, as measured": Case(
        "enforced",
        "enforced",
        f"The clock of {AP} is 10 min behind.",
        lambda _now: update(HostReceipt, clock_skew_ms=-600_000),
        "clock",
    ),
    "skewed clock, as its receipts show": Case(
        "enforced",
        "enforced",
        f"The clock of {AP} is 2 min behind.",
        lambda now: update(HostReceipt, observed_at=now - timedelta(minutes=2)),
        "clock",
    ),
    "step of a temporary limit that the agent has made": Case(
        "enforced", "enforced", "Enforced in both directions", stepped(60, 200)
    ),
    "step of a moment ago": Case("enforced", "enforced", "Enforced in both directions", stepped(3, 1000)),
    "step of a moment ago that the agent has made": Case(
        "enforced", "enforced", "Enforced in both directions", stepped(3, 200)
    ),
    "step that the agent has made 3 s early": Case(
        "enforced", "enforced", "Enforced in both directions", stepped(-3, 200)
    ),
    "step that the agent has made 8 s early": Case(
        "failed", "failed", f"the kernel has 200{KBIT}", all_of(OLD, stepped(-8, 200)), None, "failed"
    ),
    "step in an hour": Case("enforced", "enforced", "Enforced in both directions", stepped(-3600, 1000)),
    "step of 15 s ago that no receipt shows yet": Case(
        "enforced", "enforced", "Enforced in both directions", stepped(15, 1000, receipt_s_ago=40)
    ),
    "step that no receipt shows yet": Case(
        "delivered",
        "delivered",
        "has not confirmed the newest step of the temporary limit yet",
        stepped(25, 1000, receipt_s_ago=40),
    ),
    "step that the agent has not made": Case(
        "failed", "failed", "the kernel has 1\N{NO-BREAK SPACE}000", all_of(OLD, stepped(60, 1000)), None, "failed"
    ),
    "delivered, not verified": Case(
        "not_verified",
        "delivered",
        f"Delivered, not verified: {AP} has no agent",
        without_agent(config_version_deployed=99),
    ),
    "delivered, and not installed": Case(
        "delivered", "delivered", f"Delivered: {AP} has not", without_agent(config_version_deployed=0)
    ),
    "not delivered yet to a stock client, which fetches it": Case(
        "waiting",
        "waiting",
        f"Waiting: {AP} has not fetched",
        without_agent(config_version_deployed=1, delivered_config_version=1, delivered_limits_version=1),
    ),
    "nobody there fetches limits": Case(
        "failed",
        "failed",
        f"Failed: no agent at {AP} fetches limits.",
        all_of(
            without_agent(config_version_deployed=99),
            lambda now: update(Link, wanted_limits_version=99, changed_at=now - LONG_AGO),
        ),
        None,
        "failed",
    ),
}


def firsts(of: Callable[[Case], object]) -> set[str]:
    """The names of the first case of each kind."""
    return {
        next(name for name, one in CASES.items() if of(one) == kind) for kind in {of(one) for one in CASES.values()}
    }


EACH_STATE = firsts(lambda one: (one.stage, one.state))  # every door tells them
EACH_REMARK = EACH_STATE | firsts(lambda one: one.remark)  # people's pages tell them


def judged(case: Case, link: Link, receipt: HostReceipt, monkeypatch: pytest.MonkeyPatch) -> LinkStatus:
    now = receipt.received_at
    monkeypatch.setattr(timezone, "now", lambda: now)  # a case of some seconds ago stays one on a busy machine
    case.changes(now)
    return link_status(with_relations(Link.objects.filter(pk=link.pk)).get(), now=now)


@table("name", CASES)
def test_every_case_is_judged_from_rows_and_by_the_database_alike(
    name: str, link: Link, receipt: HostReceipt, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    status = judged(case, link, receipt, monkeypatch)
    remark = None if status.remark is None else status.remark.code
    assert (status.stage, status.state, remark) == (case.stage, case.state, case.remark)
    assert case.words in status.text
    assert status.text.startswith(WORDS[case.state].word)
    the_census_counts_it(case, link)


@table("name", CASES)
def test_every_door_says_it(
    name: str,
    link: Link,
    ap: AttachmentPoint,
    owner: User,
    door: Client,
    receipt: HostReceipt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mail in every case, each door in one case of each of its words."""
    case = CASES[name]
    status = judged(case, link, receipt, monkeypatch)
    mails_say_it(case, status)
    owners = Client()
    owners.force_login(owner)
    if name in EACH_REMARK:
        owners_pages_say_it(case, link, owners, status)
        rest_says_it(case, link, owners, status)
    if name in EACH_STATE:
        rest_filters_by_it(case, owners)
        metrics_count_it(case)
        the_cockpit_says_it(case, ap, door, status)


def the_census_counts_it(case: Case, link: Link) -> None:
    """What filters, counts and lists are made of: the database finds the facts."""
    census = take_census(now=timezone.now())
    assert [(one.verdict.stage, one.verdict.state, one.count) for one in census.groups] in (
        [(case.stage, case.state, 1)],
        [] if case.state == "inactive" else None,
    )
    judged = census.judged(Link.objects.all(), lambda verdict: verdict.state, "word")
    assert list(judged.values_list("pk", "word")) == [(link.pk, case.state)]


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def states_on(page: Page) -> set[str]:
    """Of the badges in the page's cards, not of the chips that count and filter."""
    badges = [span for span in page.root.all("span") if span.attrs.get("class", "").startswith("stage ")]
    return {badge.one("use").attrs["href"].removeprefix("#stage-") for badge in badges}


def owners_pages_say_it(case: Case, link: Link, door: Client, status: LinkStatus) -> None:
    as_id = link.interface_b.AS_id
    for url in (reverse("link_detail", args=[as_id, link.pk]), reverse("user_as_detail", args=[as_id])):
        page = Page(door.get(url))
        assert states_on(page) == {case.state}, url
        assert (plain(status.text) in page.text) == (case.stage != "enforced" or case.remark is not None), url
    listed = Page(door.get(reverse("user_as_list")))
    assert states_on(listed) == {case.state}
    assert (status.remark or ("", "Status"))[1] in listed.text


def rest_says_it(case: Case, link: Link, door: Client, status: LinkStatus) -> None:
    """And so does the client of the command line, from the same document."""
    document = door.get(f"/api/v1/links/{link.pk}/").json()
    said = document["status"]
    assert (said["stage"], said["state"], said["text"]) == (case.stage, case.state, status.text)
    assert (said["remark"] or {}).get("code") == case.remark
    shown = plain(tables.described(document, timezone.now()))
    assert f"State       {case.state.replace('_', ' ')} since" in shown
    assert plain(status.text) in shown


def rest_filters_by_it(case: Case, door: Client) -> None:
    others = [stage for stage in ("waiting", "enforced", "failed", "silent") if stage != case.stage]
    for query, count in (
        ({"stage": case.stage}, 1),
        ({"state": case.state}, 1),
        ({"stage": case.stage, "state": case.state}, 1),
        *(({"stage": other}, 0) for other in others),
    ):
        assert door.get("/api/v1/links/", query).json()["count"] == count, query


def metrics_count_it(case: Case) -> None:
    cache.delete("scionlab.metrics.figures")
    lines = exposition().decode().splitlines()
    for name, label, word in (
        ("scionlab_links", "stage", case.stage),
        ("scionlab_links_by_state", "state", case.state),
    ):
        counted = [line for line in lines if line.startswith(f"{name}{{") and not line.endswith(" 0.0")]
        assert counted == [f'{name}{{{label}="{word}"}} 1.0']


def the_cockpit_says_it(case: Case, ap: AttachmentPoint, door: Client, status: LinkStatus) -> None:
    overview = door.get(reverse("cockpit")).content.decode()
    word = WORDS[case.state]
    assert f'class="stage tone-{word.tone}" title="{word.explanation}"' in overview
    assert f">1 {word.word}</a>" in overview
    assert states_on(Page(door.get(reverse("cockpit_ap", args=[ap.pk])))) == {case.state}
    for state in ("failed", "enforced", case.state):
        listed = Page(door.get(reverse("cockpit_not_enforced"), {"why": state, "ap": ap.pk}))
        assert states_on(listed) == ({case.state} if state == case.state else set()), state
    missing = Page(door.get(reverse("cockpit_not_enforced"), {"ap": ap.pk}))
    is_missing = case.state in {"failed", "no_report", "waiting", "delivered", "observed", "clamped"}
    assert states_on(missing) == ({case.state} if is_missing else set())
    assert (plain(status.text) in missing.text) == is_missing


def mails_say_it(case: Case, status: LinkStatus) -> None:
    """An hour without a break in which somebody looked; what lasts is told by its kind and in the page's sentence."""
    Mail.objects.all().delete()
    now = timezone.now()
    NoticeWatch.objects.update_or_create(pk=1, defaults={"since": now - timedelta(days=1), "looked_at": now})
    notices_find(now=now)
    mails = [mail for mail in Mail.objects.all() if mail.kind in {"away", "failed"}]
    assert [mail.kind for mail in mails] == ([] if case.mail is None else [case.mail])
    for mail in mails:
        assert plain(status.text) in plain(mail.body)
