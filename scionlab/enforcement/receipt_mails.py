"""The mail to a Link's owner when a change is enforced or delivered."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

from django.conf import settings
from django.db import transaction
from django.urls import reverse

from bandwidth_config import Limits, format_kbit
from scionlab.accounts.mail import mails_make
from scionlab.accounts.models import Mail, MailKind
from scionlab.enforcement.agents import Agent, agent_of
from scionlab.enforcement.facts import asked_at, shows_wanted
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt_changes import ReceiptChanges
from scionlab.enforcement.remarks import remark_on
from scionlab.platform.clock import database_now
from scionlab.testbed import selectors
from scionlab.testbed.models import Host, Link

_ENFORCED: Final = "{ap} has confirmed that its kernel enforces this limit in both directions."
_OBSERVED: Final = (
    "The administrators set this link to be observed. {ap} has confirmed that it measures the link and limits "
    "nothing. Your limit is kept; it is enforced when the administrators end the observation."
)


def enforced_mails(receipt: HostReceipt, said: ReceiptChanges, *, former_at: datetime) -> list[Mail]:
    """Create a mail for each Link of which `receipt` is the first to confirm the change, except imported ones; none if
    nothing in it counts as enforced. The previous receipt was received at `former_at`."""
    mails = []
    for link in said.links:
        row, former = said.rows.get(link.pk), said.old.get(link.pk)
        if row is None or link.is_told or not shows_wanted(link, row, at=receipt.received_at):
            continue
        if former is None or not shows_wanted(link, former, at=former_at):
            host, ap = link.interface_a.host, link.interface_a.AS.isd_as
            host.receipt = receipt
            agent = agent_of(host, ap, now=receipt.received_at)
            if agent.is_void or agent.is_silent:
                return []
            mails.append(_enforced_mail(link, row, agent, at=receipt.received_at))
    return mails


def _enforced_mail(link: Link, row: LinkEnforcement, agent: Agent, *, at: datetime) -> Mail:
    is_observed = link.is_to_observe
    remark = remark_on(agent, row, "observed" if is_observed else "enforced")
    news = (_OBSERVED if is_observed else _ENFORCED).format(ap=agent.name)
    return _mail(link, row.in_kernel or link.limits_at(at), at=at, news=news + (f" {remark.text}." if remark else ""))


@transaction.atomic
def deployment_note(*, host_id: int) -> int:
    """For an attachment point without our agent: mail the owners of changes that the stock client confirmed. Returns
    the number of new mails; none if the agent ever sent a receipt, which says more."""
    if HostReceipt.objects.filter(host_id=host_id).exists():
        return 0
    host = Host.objects.get(pk=host_id)
    confirmed = min(host.config_version_deployed, host.delivered_config_version)
    return mails_make(
        {
            _key(link): partial(_delivered_mail, link)
            for link in selectors.limited_links(host_id).values()
            if link.active
            and not link.is_told
            and link.wanted_config_version <= confirmed
            and link.wanted_limits_version <= host.delivered_limits_version
        }
    )


def _delivered_mail(link: Link) -> Mail:
    ap, at = link.interface_a.AS.isd_as, database_now()
    contains = "in which this link is observed" if link.is_to_observe else "with this limit"
    news = (
        f"{ap} has installed the configuration {contains}: delivered, not verified. It has no agent that reports what "
        "its kernel enforces."
    )
    return _mail(link, link.limits_at(at), at=at, news=news, suffix=": delivered, not verified")


def _key(link: Link) -> str:
    return f"link:{link.pk}:{link.wanted_config_version}.{link.wanted_limits_version}"


def _mail(link: Link, limits: Limits, *, at: datetime, news: str, suffix: str = "") -> Mail:
    """`limits`: those in force at this time, perhaps of a temporary limit; of no meaning if the Link is observed."""
    user_as, ap = link.interface_b.AS.useras, link.interface_a.AS.isd_as
    page = settings.SITE_URL + reverse("user_as_detail", args=[user_as.pk])
    asked, maximum_kbit = asked_at(link, link.timed_in_configuration, at), link.maximum_kbit
    is_clamped = any(one > found == maximum_kbit for one, found in zip(asked, limits, strict=True))
    what, more = f"Link {'clamped' if is_clamped else 'limited'} to {limits}", _for_a_time(link, at)
    if limits == (0, 0):
        what = "Link blocked (0 kbit/s)"
    if is_clamped:
        maximum = format_kbit(maximum_kbit)
        more = f"You requested {asked}; the maximum there is {maximum}. The limit you requested is kept.\n\n{more}"
    if link.is_to_observe:
        what, more = "Link observed, not limited", ""
    body = (
        f"Hello,\n\nthe link of your AS {user_as.isd_as} to the attachment point {ap}: {what}.\n\n{news}\n\n{more}"
        f"Current limit: {page}\n"
    )
    return Mail(
        key=_key(link),
        recipient=user_as.owner.email,
        user=user_as.owner,
        kind=MailKind.ENFORCED,
        subject=f"{what} at {ap}{suffix}".replace("\N{NO-BREAK SPACE}", " "),
        body=body.replace("\N{NO-BREAK SPACE}", " "),
    )


def _for_a_time(link: Link, at: datetime) -> str:
    zone = link.interface_b.AS.useras.owner.tz
    timed = [f"  {one.describe(zone)}" for one in link.timed_in_configuration if one.ends_at > at]
    if not timed:
        return ""
    above = f"Temporary limits, outside which the regular limit of {link.enforced} applies automatically:"
    return "\n".join([above, *timed]) + "\n\n"
