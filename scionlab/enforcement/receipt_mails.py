"""The mail to a Link's owner when a change is enforced or delivered."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

from django.conf import settings
from django.db import transaction
from django.urls import reverse

from bandwidth_config import format_kbit
from scionlab.accounts.mail import mails_make
from scionlab.accounts.models import Mail, MailKind
from scionlab.enforcement.agents import agent_of
from scionlab.enforcement.facts import shows_wanted
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
    """Create a mail for each Link of which `receipt` is the first to confirm the change, except imported ones.
    The previous receipt was received at `former_at`."""
    mails = []
    for link in said.links:
        row, former = said.rows.get(link.pk), said.old.get(link.pk)
        if row is None or link.is_told or not shows_wanted(link, row, at=receipt.received_at):
            continue
        if former is None or not shows_wanted(link, former, at=former_at):
            mails.append(_enforced_mail(link, row, receipt))
    return mails


def _enforced_mail(link: Link, row: LinkEnforcement, receipt: HostReceipt) -> Mail:
    ap = link.interface_a.AS.isd_as
    host, is_observed = link.interface_a.host, link.is_to_observe
    host.receipt = receipt
    remark = remark_on(agent_of(host, ap, now=receipt.received_at), row, "observed" if is_observed else "enforced")
    return _mail(
        link,
        subject=f"{_what(link)} at {ap}",
        news=(_OBSERVED if is_observed else _ENFORCED).format(ap=ap) + (f" {remark.text}." if remark else ""),
    )


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
    return _mail(
        link,
        subject=f"{_what(link)} at {link.interface_a.AS.isd_as}: delivered, not verified",
        news=f"{link.interface_a.AS.isd_as} has installed the configuration with this limit: delivered, not "
        "verified. It has no agent that reports what its kernel enforces.",
    )


def _key(link: Link) -> str:
    return f"link:{link.pk}:{link.wanted_config_version}.{link.wanted_limits_version}"


def _mail(link: Link, *, subject: str, news: str) -> Mail:
    user_as = link.interface_b.AS.useras
    page = settings.SITE_URL + reverse("user_as_detail", args=[user_as.pk])
    clamped = ""
    if link.requested != link.enforced and not link.is_to_observe:
        maximum = format_kbit(max(link.enforced))
        clamped = (
            f"You requested {link.requested}; the maximum there is {maximum}. The limit you requested is kept.\n\n"
        )
    body = (
        f"Hello,\n\nthe link of your AS {link.interface_b.AS.isd_as} to the attachment point "
        f"{link.interface_a.AS.isd_as}: {_what(link)}.\n\n{news}\n\n{clamped}{_for_a_time(link)}"
        f"Current limit: {page}\n"
    )
    return Mail(
        key=_key(link),
        recipient=user_as.owner.email,
        user=user_as.owner,
        kind=MailKind.ENFORCED,
        subject=subject.replace("\N{NO-BREAK SPACE}", " "),
        body=body.replace("\N{NO-BREAK SPACE}", " "),
    )


def _for_a_time(link: Link) -> str:
    zone = link.interface_b.AS.useras.owner.tz
    timed = [f"  {one.describe(zone)}" for one in link.timed_in_configuration if one.ends_at > database_now()]
    if not timed:
        return ""
    return "\n".join(["Temporary limits, after which this limit applies again automatically:", *timed]) + "\n\n"


def _what(link: Link) -> str:
    if link.is_to_observe:
        return "Link observed, not limited"
    if link.enforced == (0, 0):
        return "Link blocked (0 kbit/s)"
    return f"Link {'limited' if link.enforced == link.requested else 'clamped'} to {link.enforced}"
