"""What a person changes at one Link that exists: its bandwidth, and whether it is active."""

from __future__ import annotations

import logging

from django.db import transaction

from bandwidth_config import RuleError, check_bandwidth
from scionlab import selectors
from scionlab.models import Link, User
from scionlab.services import allocation, audit
from scionlab.services.changes import Changes, read_links, view_of
from scionlab.services.errors import FieldRuleError
from scionlab.services.policy import settle_default

logger = logging.getLogger(__name__)


@transaction.atomic
def link_set_bandwidth(*, link_id: int, bandwidth_kbit: int, actor: User | None, reason: str = "") -> Link:
    """Store what is asked for; L of the attachment point's host rises when what is enforced changes by that.

    The number that is stored already is accepted whatever the default is by now: a clamped choice is kept.
    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`, `infrastructure_bandwidth`),
    `Link.DoesNotExist`.
    """
    changes = Changes()
    link = _locked(link_id, changes)
    old = link.bandwidth_kbit
    if bandwidth_kbit != old:
        _check(link, bandwidth_kbit)
        before = view_of(link)
        link.bandwidth_kbit = bandwidth_kbit
        link.save(update_fields=["bandwidth_kbit"])
        audit.note_link(link, actor=actor, old=old, new=bandwidth_kbit, reason=reason)
        changes.note(link.pk, before, view_of(link))
        logger.info("link.bandwidth link=%s old=%s new=%s actor=%s", link.pk, old, bandwidth_kbit, actor and actor.pk)
    changes.carry_out()
    return _fresh(link)


def _check(link: Link, bandwidth_kbit: int) -> None:
    ap = link.attachment_point
    if ap is None:
        check_infrastructure_bandwidth(bandwidth_kbit)
        return
    try:
        check_bandwidth(bandwidth_kbit, selectors.default_in_force(ap))
    except RuleError as exc:
        raise FieldRuleError.of(exc, "bandwidth_kbit") from exc


def check_infrastructure_bandwidth(bandwidth_kbit: int) -> None:
    """What a Link that nobody limits may be listed with: never 0, which would mean blocked (DOMAIN section 3).

    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`, `infrastructure_bandwidth`).
    """
    try:
        check_bandwidth(bandwidth_kbit)
    except RuleError as exc:
        raise FieldRuleError.of(exc, "bandwidth_kbit") from exc
    if bandwidth_kbit == 0:
        text = "A Link between infrastructure ASes is not limited and never has bandwidth 0. Write what the line has."
        raise FieldRuleError("infrastructure_bandwidth", text, "bandwidth_kbit")


@transaction.atomic
def link_set_active(*, link_id: int, actor: User | None, active: bool) -> Link:
    """Put the Link into the configurations of both ASes, or take it out. Raises `Link.DoesNotExist`."""
    changes = Changes()
    link = _locked(link_id, changes)
    if link.active != active:
        before = view_of(link)
        link.active = active
        link.save(update_fields=["active"])
        changes.note(link.pk, before, view_of(link))
        logger.info("link.active link=%s active=%s actor=%s", link.pk, active, actor and actor.pk)
    changes.carry_out()
    return _fresh(link)


def _locked(link_id: int, changes: Changes) -> Link:
    """The Link, with the rows locked that decide about it; a default still on its way is settled first."""
    ap_ids = Link.objects.filter(pk=link_id).values_list("interface_a__AS__attachment_point", flat=True)
    ap_id = ap_ids.get()  # a Link never moves to another provider
    if ap_id is not None:
        allocation.lock_attachment_points([ap_id])
        settle_default(ap_id, changes)
    found = read_links({link_id})
    if not found:
        raise Link.DoesNotExist(f"Link {link_id} was removed meanwhile.")
    return found[0]


def _fresh(link: Link) -> Link:
    """With the versions that `carry_out` stored."""
    return Link.objects.select_related(*selectors.LINK_RELATIONS).get(pk=link.pk)
