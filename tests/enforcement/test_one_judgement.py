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


Change = Callable[[datetime], object]


@dataclass(frozen=True)
class Case:
    """What is changed of a Link that is plainly enforced at 1000 kbit/s, and what every door says then."""

    stage: str
    state: str
    words: str  # part of the sentence
    changes: tuple[Change, ...]
    remark: str | None = None
    mail: str | None = None  # kind of the mail that is sent after a while

    def change(self, now: datetime) -> None:
        for one in self.changes:
            one(now)


def enforced(words: str, *changes: Change, remark: str | None = None, state: str = "enforced") -> Case:
    return Case("enforced", state, words, changes, remark)


def delivered(words: str, *changes: Change, remark: str | None = None) -> Case:
    return Case("delivered", "delivered", words, changes, remark)


def failed(words: str, *changes: Change) -> Case:
    """Just now: nobody is mailed yet."""
    return Case("failed", "failed", words, changes)


def failing(words: str, *changes: Change) -> Case:
    """For half an hour."""
    return Case("failed", "failed", words, (OLD, *changes), mail="failed")


def silent(words: str, *changes: Change, mail: str | None = "away") -> Case:
    return Case("silent", "no_report", words, changes, mail=mail)


def problem(code: str, subject: str) -> Change:
    found = [{"code": code, "subject": subject, "message": "as the agent says it"}]
    return lambda _now: update(HostReceipt, problems=found)


def update(model: Any, **values: Any) -> None:
    model.objects.update(**values)


def reported(**values: Any) -> Change:
    return lambda _now: update(LinkEnforcement, **values)


def of_link(**values: Any) -> Change:
    return lambda _now: update(Link, **values)


def heard(ago: timedelta) -> Change:
    def change(now: datetime) -> None:
        update(HostReceipt, received_at=now - ago, observed_at=now - ago)
        update(LinkEnforcement, received_at=now - ago)

    return change


def limit(kbit: int, *, maximum: int = 1000, kernel: int | None = None) -> Change:
    def change(_now: datetime) -> None:
        update(Link, bandwidth_kbit=kbit)
        update(AttachmentPoint, maximum_kbit=maximum)
        found = min(kbit, maximum) if kernel is None else kernel
        update(LinkEnforcement, kbit=found, to_user_rate_kbit=found, from_user_rate_kbit=found)

    return change


def from_user(kbit: int) -> Change:
    """What the agent wants and has in this direction; in the other one it stays."""
    return reported(to_user_kbit=F("kbit"), from_user_kbit=kbit, from_user_rate_kbit=kbit)


def without_agent(**host: Any) -> Change:
    def change(_now: datetime) -> None:
        HostReceipt.objects.all().delete()
        LinkEnforcement.objects.all().delete()
        update(Host, **host)

    return change


def stepped(seconds_ago: float, kernel: int, *, receipt_s_ago: float = 1) -> Change:
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


def to_observe(model: Any) -> Change:
    return lambda _now: update(model, observe_only=True)


def without_word() -> Change:
    """Of the Link, in the receipt."""
    return lambda _now: LinkEnforcement.objects.all().delete()


def of_host(**values: Any) -> Change:
    return lambda _now: update(HostReceipt, **values)


OLD = reported(since=timezone.now() - LONG_AGO)
# Wanted so, and reported so.
OBSERVED = (to_observe(Link), reported(state="observed"), of_host(observe_only=False, devices=[]))
ON_ETH0 = reported(to_user_dev="eth0", from_user_dev="slbw0")
ON_IFBS = (reported(to_user_dev="slbw0", from_user_dev="slbw1"), of_host(devices=["eth0", "eth1"]))
LIMITER_SILENT = problem("limiter_silent", "limiter")
THOUSAND = f"1\N{NO-BREAK SPACE}000{KBIT}"

SINCE = "Enforced in both directions"
BLOCKED = "Blocked in both directions since"
CLAMPED = f"Clamped: enforced at the maximum of 400{KBIT}"
IN_FRONT = f"A foreign filter stands in front at {AP}: packets that it takes are not limited."
NOT_CONFIRMED = "has not confirmed the new limit yet"
NOTHING_IS_LIMITED = "Observed: nothing is limited (since "

CASES: dict[str, Case] = {
    "enforced": enforced(f"{SINCE} since"),
    "enforced, and the agent reports no digest": enforced(
        "The agent does not prove which limits it has.", of_host(content="counted"), remark="unproven"
    ),
    "clamped": enforced(CLAMPED, limit(900, maximum=400), state="clamped"),
    "clamped in one direction": enforced(
        CLAMPED, limit(100, maximum=400), of_link(from_user_kbit=900), from_user(400), state="clamped"
    ),
    "blocked": enforced(BLOCKED, limit(0), state="blocked"),
    "blocked by its maximum": enforced(BLOCKED, limit(900, maximum=0), state="blocked"),
    "blocked to the user alone": enforced(
        "Enforced: blocked to the user AS, limited from it, since",
        limit(0), of_link(from_user_kbit=900), from_user(900),
    ),
    "blocked from the user alone": enforced(
        "Enforced: limited to the user AS, blocked from it, since",
        limit(900), of_link(from_user_kbit=0), from_user(0),
    ),
    "failed by the agent's word": failing("Failed: no route", reported(state="error", problem="no route")),
    "failed by the kernel's": failing(
        f"the kernel has 64{KBIT} to the user AS and {THOUSAND} from it.", reported(to_user_rate_kbit=64)
    ),
    "what the agent wants is something else than the Link": failing(
        f"the kernel has 64{KBIT} to the user AS", limit(1000, kernel=64)
    ),
    "the kernel has the Link's limit, and the agent wants another one": failing("Failed:", reported(kbit=64)),
    "less from the user AS": failed(f"and 1{KBIT} from it.", reported(from_user_rate_kbit=1)),
    "one direction is missing": failed("and no limit from it.", reported(from_user_rate_kbit=None)),
    "an error without words": failed("Failed: the agent gave no reason.", reported(state="error")),
    "foreign content": delivered(
        "reports limits that this service did not issue.", of_host(content="foreign"), remark="foreign_content"
    ),
    "older generation": delivered(NOT_CONFIRMED, reported(generation=0)),
    "receipt of an older H": delivered(NOT_CONFIRMED, reported(config_version=1)),
    "receipt of an older L": delivered(NOT_CONFIRMED, reported(limits_version=0)),
    "receipt of no version": delivered(NOT_CONFIRMED, reported(config_version=None, limits_version=None)),
    "receipt of an H of the future": delivered(NOT_CONFIRMED, reported(config_version=99)),
    "receipt of an L of the future": delivered(NOT_CONFIRMED, reported(limits_version=99)),
    "no word of the Link": delivered(NOT_CONFIRMED, without_word()),
    "waiting": Case("waiting", "waiting", f"Waiting: {AP} has not fetched", (of_link(wanted_limits_version=99),)),
    "no report": silent(f"UTC. Last known limit: {THOUSAND}.", heard(timedelta(hours=2))),
    "inactive": Case("inactive", "inactive", "Inactive:", (of_link(active=False),)),
    "limits removed": failing(
        f"Failed: the operator of {AP} removed the limits at",
        heard(timedelta(hours=2)), problem("limits_removed", "agent"), without_word(),
    ),
    "observed": Case("observed", "observed", NOTHING_IS_LIMITED, OBSERVED),
    "observed, as set at the attachment point": Case(
        "observed", "observed", NOTHING_IS_LIMITED,
        (*OBSERVED, of_link(observe_only=False), to_observe(AttachmentPoint)),
    ),
    "observed by the operator's choice": failing(
        f"Failed: the operator of {AP} set it to observe only. The link is measured, not limited.",
        reported(state="observed"), of_host(observe_only=True),
    ),
    "observed by the agent alone": failing(
        f"Failed: the agent of {AP} observes this link only.", reported(state="observed")
    ),
    "to be observed, which the agent does not support": enforced(
        f"This link is set to observe only, but the agent of {AP} does not support that.",
        to_observe(Link), remark="not_observed",
    ),
    "to be observed, and enforced anyway": enforced(
        f"This link is set to observe only, but the agent of {AP} enforces its limit.",
        to_observe(Link), of_host(observe_only=False), remark="not_observed",
    ),
    "to be observed, in error": failing(
        "Failed: no class", to_observe(Link), reported(state="error", problem="no class")
    ),
    "observed at its last report": silent(
        "UTC. At that time nothing was limited.", *OBSERVED, heard(timedelta(hours=2))
    ),
    "the limiter is silent": silent(
        "UTC: the limiter does not answer its agent. Last known limit: 1",
        LIMITER_SILENT, lambda now: update(HostReceipt, observed_at=now - timedelta(hours=2)),
    ),
    "the limiter has been silent for a moment": silent(
        "UTC: the limiter does not answer its agent.",
        LIMITER_SILENT, lambda now: update(HostReceipt, observed_at=now - timedelta(minutes=2)), mail=None,
    ),
    "the limiter cannot work: no right": failing(
        "Failed: the limiter lacks CAP_BPF or CAP_NET_ADMIN.", problem("no_bpf_right", "limiter")
    ),
    "the limiter cannot work: old kernel": failing(
        "Failed: the host's kernel is too old for the limiter.", problem("kernel_too_old", "limiter")
    ),
    "the limiter cannot work: refused": failing(
        "Failed: the kernel rejected the program of the limiter.", problem("program_refused", "limiter")
    ),
    "the limiter cannot work, and no word of this Link's wanted state": delivered(
        NOT_CONFIRMED, problem("no_bpf_right", "limiter"), reported(generation=0), remark="no_bpf_right"
    ),
    "the limiter refuses the document": enforced(
        f"The limiter of {AP} rejects the newest configuration.",
        problem("document_refused", "document"), remark="document_refused",
    ),
    "something in front at a device that is looked at": enforced(
        IN_FRONT, *ON_IFBS, problem("hook_obstructed", "eth0"), remark="hook_obstructed"
    ),
    "something in front at another device": enforced(SINCE, *ON_IFBS, problem("hook_obstructed", "eth7")),
    "a foreign filter behind": enforced(SINCE, *ON_IFBS, problem("filter_behind", "eth0")),
    "foreign filter on its device": enforced(
        IN_FRONT, ON_ETH0, problem("hook_obstructed", "eth0"), remark="hook_obstructed"
    ),
    "foreign filter on another device": enforced(SINCE, ON_ETH0, problem("hook_obstructed", "eth7")),
    "a problem of the whole host": enforced(
        f"The kernel of {AP} rejects some limits.", ON_ETH0, problem("verify_failed", "kernel"), remark="verify_failed"
    ),
    "skewed clock, as measured": enforced(
        f"The clock of {AP} is 10 min behind.", of_host(clock_skew_ms=-600_000), remark="clock"
    ),
    "skewed clock, as its receipts show": enforced(
        f"The clock of {AP} is 2 min behind.",
        lambda now: update(HostReceipt, observed_at=now - timedelta(minutes=2)), remark="clock",
    ),
    "step of a temporary limit that the agent has made": enforced(SINCE, stepped(60, 200)),
    "step of a moment ago": enforced(SINCE, stepped(3, 1000)),
    "step of a moment ago that the agent has made": enforced(SINCE, stepped(3, 200)),
    "step that the agent has made 3 s early": enforced(SINCE, stepped(-3, 200)),
    "step that the agent has made 8 s early": failing(f"the kernel has 200{KBIT}", stepped(-8, 200)),
    "step in an hour": enforced(SINCE, stepped(-3600, 1000)),
    "step of 15 s ago that no receipt shows yet": enforced(SINCE, stepped(15, 1000, receipt_s_ago=40)),
    "step that no receipt shows yet": delivered(
        "has not confirmed the newest step of the temporary limit yet", stepped(25, 1000, receipt_s_ago=40)
    ),
    "step that the agent has not made": failing(f"the kernel has {THOUSAND}", stepped(60, 1000)),
    "delivered, not verified": Case(
        "not_verified", "delivered", f"Delivered, not verified: {AP} has no agent",
        (without_agent(config_version_deployed=99),),
    ),
    "delivered, and not installed": delivered(f"Delivered: {AP} has not", without_agent(config_version_deployed=0)),
    "not delivered yet to a stock client, which fetches it": Case(
        "waiting", "waiting", f"Waiting: {AP} has not fetched",
        (without_agent(config_version_deployed=1, delivered_config_version=1, delivered_limits_version=1),),
    ),
    "nobody there fetches limits": failing(
        f"Failed: no agent at {AP} fetches limits.",
        without_agent(config_version_deployed=99),
        lambda now: update(Link, wanted_limits_version=99, changed_at=now - LONG_AGO),
    ),
}  # fmt: skip


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
    case.change(now)
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
