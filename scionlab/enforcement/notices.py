"""Mails about states that need attention, checked once a minute (states, not events).

    away      no report of what an attachment point enforces for more than an hour; and its return
    clamped   the maximum of an attachment point is below what a link requests; and its end
    failed    a limit is not enforced for more than 10 minutes

There is one mail per person, attachment point and state, with all links concerned. A `Notice` records who was notified
until the state has ended, so repeated or concurrent checks send nothing twice. Users who are unsubscribed from a kind
get no mail about its end either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import format_kbit
from scionlab.accounts.mail import mail_of, mails_create, mails_make
from scionlab.accounts.models import Mail, MailKind, User
from scionlab.enforcement.agents import agent_of
from scionlab.enforcement.census import take_census
from scionlab.enforcement.facts import MAXIMUM
from scionlab.enforcement.models import HostReceipt, Notice, NoticeWatch
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried
from scionlab.testbed.models import Host, Link, TimedLimit
from scionlab.testbed.selectors import with_relations

logger = logging.getLogger(__name__)

AWAY_AFTER: Final = timedelta(hours=1)
FAILED_AFTER: Final = timedelta(minutes=10)
# Beat checks once a minute. After a longer pause the service itself was down: agents that could not report meanwhile
# are not away.
GAP: Final = timedelta(minutes=10)
_LINKS_NAMED: Final = 50  # in one mail
_ENDS = ("interface_a__AS__isd", "interface_a__AS__attachment_point", "interface_b__AS__isd")
_OWNER = ("interface_b__AS__useras__owner",)

Place = tuple[int, int]  # person, host of the attachment point
# Of these Links, those for which the state is over; with the times of the last receipt, and now.
Over = Callable[[Notice, list[Link], datetime | None, datetime], list[Link]]


@dataclass
class State:
    """The state for one person at one attachment point. A different `value` is notified again. `statuses` by link, as
    far as they were needed to find it."""

    user: User
    host: Host
    began_at: datetime
    value: int | None = None
    links: list[Link] = field(default_factory=list)
    statuses: dict[int, LinkStatus] = field(default_factory=dict)

    def requested(self) -> list[list[int]]:
        return [[link.pk, *link.requested] for link in self.links]


@retried
@transaction.atomic
def notices_find(*, now: datetime | None = None) -> int:
    """Send the mails that are due; return the number of new ones. Idempotent and safe to run concurrently."""
    now = now or database_now()
    watch = _watch(now)
    away = _away(now)
    if now - watch.since < AWAY_AFTER:  # known outages stay; new ones cannot be detected
        known = set(_open(MailKind.AWAY))
        away = {place: state for place, state in away.items() if place in known}
    made = _notify(MailKind.AWAY, away, over=_back, now=now)
    made += _notify(MailKind.CLAMPED, _clamped(now), over=_free, now=now)
    # No mail of the end of a failure: the one that the limit is enforced says so.
    made += _notify(MailKind.FAILED, _failed(now), over=None, now=now)
    if made:
        logger.info("notices.found mails=%s", made)
    return made


def _watch(now: datetime) -> NoticeWatch:
    """The locked row, which serializes workers."""
    NoticeWatch.objects.get_or_create(pk=1, defaults={"since": now, "looked_at": now})
    watch = NoticeWatch.objects.select_for_update(no_key=True).get(pk=1)
    if now - watch.looked_at > GAP:
        watch.since = now
        logger.warning("notices.gap not checked from %s to %s", watch.looked_at, now)
    watch.looked_at = max(watch.looked_at, now)
    watch.save(update_fields=["since", "looked_at"])
    return watch


# --- how it is --------------------------------------------------------------------------------------------------


def _links() -> QuerySet[Link]:
    """Active Links that attachment points limit, whose owners can be mailed, with both ends and the owner."""
    links = Link.objects.filter(
        type=Link.Type.PROVIDER,
        active=True,
        interface_a__AS__attachment_point__isnull=False,
        interface_b__AS__useras__owner__is_active=True,
    )
    return links.select_related("interface_a__host", *_ENDS, *_OWNER).order_by("pk")


def _group(
    kind: MailKind,
    links: Iterable[Link],
    make: Callable[[Link, User, Host], State],
) -> dict[Place, State]:
    """Group by person and host; only people who are subscribed."""
    found: dict[Place, State] = {}
    for link in links:
        user, host = link.interface_b.AS.useras.owner, link.interface_a.host
        if user.accepts_mail(kind):
            found.setdefault((user.pk, host.pk), make(link, user, host)).links.append(link)
    return found


def _away(now: datetime) -> dict[Place, State]:
    """An agent reported once and has stopped, or the limiter does not answer it. An attachment point that never had an
    agent is not away."""
    receipts = HostReceipt.objects.filter(host__attachment_point__isnull=False).select_related("host__AS__isd")
    agents = {
        one.host_id: agent_of(one.host, one.host.AS.isd_as, now=now) for one in receipts if one.host.AS is not None
    }
    since = {
        host_id: agent.read_at
        for host_id, agent in agents.items()
        if agent.is_silent and agent.read_at is not None and now - agent.read_at > AWAY_AFTER
    }
    links = _links().filter(interface_a__host__in=since) if since else ()
    return _group(MailKind.AWAY, links, lambda _link, user, host: State(user, host, since[host.pk]))


def _clamped(now: datetime) -> dict[Place, State]:
    """A user cannot request more than the maximum, so it was lowered later. A Link that is observed is not limited."""
    above = Q(bandwidth_kbit__gt=MAXIMUM) | Q(from_user_kbit__gt=MAXIMUM)
    links = [link for link in _links().filter(above) if not link.is_to_observe]
    found = _group(MailKind.CLAMPED, links, lambda _link, user, host: State(user, host, now))
    for state in found.values():
        state.value = min(link.maximum_kbit for link in state.links)
    return found


def _failed(now: datetime) -> dict[Place, State]:
    """Failed, as on the pages, for long enough."""
    links = take_census(now=now).only(_links(), state="failed")
    statuses = {link: link_status(link, now=now) for link in with_relations(links)}
    lasting = {link: one for link, one in statuses.items() if one.since is not None and now - one.since >= FAILED_AFTER}
    found = _group(MailKind.FAILED, lasting, lambda _link, user, host: State(user, host, now))
    for state in found.values():
        state.statuses = {link.pk: lasting[link] for link in state.links}
        state.began_at = min(one.since for one in state.statuses.values() if one.since is not None)
    return found


# --- mails ------------------------------------------------------------------------------------------------------


def _open(kind: MailKind) -> dict[Place, Notice]:
    rows = Notice.objects.filter(kind=kind).select_related("user", "host__AS__isd")
    return {(notice.user_id, notice.host_id): notice for notice in rows}


def _notify(kind: MailKind, states: Mapping[Place, State], *, over: Over | None, now: datetime) -> int:
    """Send mails for new states and, if `over` says so, for states that ended, with the remaining links."""
    known, new, changed = _open(kind), [], []
    news: list[tuple[str, State]] = []  # with the mail's template
    for place, state in states.items():
        notice = known.get(place)
        is_news = notice is None or notice.value != state.value
        if is_news:
            news.append((kind.value, state))
        if notice is None:
            new.append(
                Notice(
                    user=state.user,
                    host=state.host,
                    kind=kind,
                    began_at=state.began_at,
                    value=state.value,
                    links=state.requested(),
                )
            )
        elif is_news or notice.links != state.requested():
            notice.value, notice.links = state.value, state.requested()
            changed.append(notice)
    ended = {place: notice for place, notice in known.items() if place not in states}
    if ended and over is not None:
        news += _ended(kind, ended.values(), over, now)
    Notice.objects.bulk_create(new, batch_size=1000)
    Notice.objects.bulk_update(changed, ["value", "links"], batch_size=500)
    Notice.objects.filter(pk__in=[notice.pk for notice in ended.values()]).delete()
    if kind == MailKind.AWAY:
        _judge([state for _template, state in news], now)
    keyed = [(_key(template, state, now), template, state) for template, state in news]
    return mails_make({key: partial(_mail, key, template, state) for key, template, state in keyed})


def _judge(states: list[State], now: datetime) -> None:
    """Only what is news and will be named: the Links of a silent attachment point can be thousands."""
    named = [link.pk for state in states for link in state.links[:_LINKS_NAMED]]
    statuses = (
        {one.pk: link_status(one, now=now) for one in with_relations(_links().filter(pk__in=named))} if named else {}
    )
    for state in states:
        state.statuses = statuses


def _ended(kind: MailKind, ended: Iterable[Notice], over: Over, now: datetime) -> list[tuple[str, State]]:
    notices = list(ended)
    ids = {link_id for notice in notices for link_id, *_ in notice.links}
    links = {link.pk: link for link in _links().filter(pk__in=ids)}
    receipts = dict(
        HostReceipt.objects.filter(host__in=[notice.host_id for notice in notices]).values_list("host", "received_at")
    )
    found = []
    for notice in notices:
        left = [links[link_id] for link_id, *_ in notice.links if link_id in links]
        left = [link for link in left if link.interface_b.AS.useras.owner == notice.user]
        heard = receipts.get(notice.host_id)
        if is_over := over(notice, left, heard, now):
            state = State(notice.user, notice.host, notice.began_at, links=is_over)
            found.append((f"{kind.value}_over", state))
    return found


def _back(_notice: Notice, left: list[Link], heard_at: datetime | None, now: datetime) -> list[Link]:
    return left if heard_at is not None and now - heard_at <= AWAY_AFTER else []


def _free(notice: Notice, left: list[Link], _heard_at: datetime | None, _now: datetime) -> list[Link]:
    """Those of which administrators removed the clamp: the requested limits are unchanged and apply."""
    asked = {link_id: (to_user, from_user) for link_id, to_user, from_user in notice.links}
    return [link for link in left if link.requested == asked[link.pk] == link.enforced and not link.is_to_observe]


def _key(template: str, state: State, now: datetime) -> str:
    # `began_at` distinguishes outages; for a value that changes during one, it is the time of the change.
    moment = state.began_at if state.value is None else now
    return f"{template}:{state.user.pk}:{state.host.pk}:{moment.isoformat()}"


def _mail(key: str, template: str, state: State) -> Mail:
    user = state.user
    with timezone.override(user.tz):  # for the sentences on states
        rows = [_row(link, state.statuses.get(link.pk)) for link in state.links[:_LINKS_NAMED]]
    context: dict[str, object] = {
        "ap": state.links[0].interface_a.AS.isd_as,
        "links": rows,
        "more": len(state.links) - len(rows),
        "count": len(state.links),
        "since": local_time(state.began_at, user.tz),
        "maxima": sorted({link.maximum_kbit for link in state.links}),
        "maximum": None if state.value is None else format_kbit(state.value),
    }
    kind = template.removesuffix("_over")
    return mail_of(f"enforcement/mail/{template}.txt", context, key=key, recipient=user.email, kind=kind, user=user)


def _row(link: Link, status: LinkStatus | None) -> dict[str, str]:
    return {
        "isd_as": link.interface_b.AS.isd_as,
        "label": link.interface_b.AS.label,
        "requested": str(link.requested),
        "enforced": str(link.enforced),
        "why": "" if status is None else status.text,
        "page": settings.SITE_URL + reverse("user_as_detail", args=[link.interface_b.AS_id]),
    }


def local_time(at: datetime, zone: tzinfo) -> str:
    """In the person's time zone, with its name."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M %Z}"


# --- cancelled by someone else ----------------------------------------------------------------------------------


def timed_limit_cancelled_notify(*, link: Link, timed: TimedLimit, actor: User | None) -> int:
    """Notify the owner that someone else cancelled one of their timed limits, in the transaction that cancels it.
    Returns the number of mails: none if the owner cancelled it."""
    user = link.interface_b.AS.useras.owner
    if actor is not None and actor.pk == user.pk:
        return 0
    context: dict[str, object] = {
        "what": timed.describe(user.tz),
        "by": "an administrator" if actor is not None else "the service",
        "isd_as": link.interface_b.AS.isd_as,
        "ap": link.interface_a.AS.isd_as,
        "enforced": str(link.enforced),
        "is_begun": not timed.is_cancelled_before,
        "is_observed": link.is_to_observe,
        "page": settings.SITE_URL + reverse("link_detail", args=[link.interface_b.AS_id, link.pk]),
    }
    key = f"timed_cancelled:{timed.pk}"
    fields = {"key": key, "recipient": user.email, "kind": MailKind.CHANGED, "user": user}
    return mails_create([mail_of("enforcement/mail/timed_cancelled.txt", context, **fields)])
