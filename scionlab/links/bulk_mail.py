"""One mail per owner about a bulk change by administrators, instead of one per Link when it is enforced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from django.conf import settings
from django.urls import reverse

from scionlab.links.bulk_plan import LimitsLine
from scionlab.models import BulkChange, Link, Mail, User
from scionlab.models.user import MailKind
from scionlab.people.mail import mails_create

_MOST_NAMED = 50


def notify_owners(change: BulkChange, lines: Sequence[LimitsLine], *, actor: User, reason: str) -> int:
    """Create the mails in the transaction of the change, after its versions are stored; return their number. The
    administrator who made the change gets none."""
    by_owner: dict[User, list[str]] = defaultdict(list)
    told: list[int] = []
    new = {line.key: line for line in lines}
    related = ("interface_a__AS__isd", "interface_b__AS__isd", "interface_b__AS__useras__owner")
    for link in Link.objects.filter(pk__in=new).select_related(*related).order_by("pk"):
        owner, line = link.interface_b.AS.useras.owner, new[link.pk]
        if owner == actor or not owner.accepts_mail(MailKind.CHANGED):
            continue
        by_owner[owner].append(_sentence(link, line))
        # If the enforced limit does not change, an own change of the owner may still be pending, with its own mail.
        if link.active and line.old_in_force != line.new_in_force:
            told.append(link.pk)
    Link.objects.filter(pk__in=told).update(is_told=True)
    return mails_create(_mail(change, owner, sentences, reason=reason) for owner, sentences in by_owner.items())


def _sentence(link: Link, line: LimitsLine) -> str:
    ends = f"{link.interface_b.AS.isd_as} at {link.interface_a.AS.isd_as}"
    text = f"{ends}: was {line.old}, is now {line.new}"
    if line.new_in_force != line.new:
        text += f" (clamped to {line.new_in_force})"
    return text if link.active else text + " (the link is inactive)"


def _mail(change: BulkChange, owner: User, sentences: list[str], *, reason: str) -> Mail:
    named = [f"  {sentence}" for sentence in sentences[:_MOST_NAMED]]
    if len(sentences) > _MOST_NAMED:
        named.append(f"  and {len(sentences) - _MOST_NAMED} more")
    count = "one of your limits" if len(sentences) == 1 else f"{len(sentences)} of your limits"
    body = (
        f"Hello,\n\nthe administrators changed {count}, for this reason:\n\n  {reason.strip()}\n\n"
        + "\n".join(named)
        + "\n\nThese are the new requested limits. The attachment points enforce them as soon as they have "
        f"fetched them, usually within seconds; your page shows the state of each. {_if_not(owner)}\n\n"
        "Nothing restarts. You can change the limits again, up to the maximum of each attachment point:\n"
        f"{settings.SITE_URL}{reverse('user_as_list')}\n"
    )
    return Mail(
        key=f"bulk:{change.pk}:{owner.pk}",
        recipient=owner.email,
        kind=MailKind.CHANGED,
        user=owner,
        subject=f"The administrators changed {count}",
        body=body.replace("\N{NO-BREAK SPACE}", " "),
    )


def _if_not(owner: User) -> str:
    if owner.accepts_mail(MailKind.FAILED):
        return "We will email you if a limit fails for more than 10 minutes."
    return "You are unsubscribed from emails about failed limits."
