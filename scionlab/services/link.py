"""What a person changes at one Link that exists: its bandwidth, and whether it is active."""

from __future__ import annotations

import logging

from django.db import transaction

from bandwidth_config import MAX_BANDWIDTH_KBIT, RuleError, check_bandwidth
from scionlab import selectors
from scionlab.models import Link, User
from scionlab.services import audit
from scionlab.services.changes import Changes, read_links, view_of
from scionlab.services.errors import FieldRuleError
from scionlab.services.policy import carry_out_default

logger = logging.getLogger(__name__)


@transaction.atomic
def link_set_bandwidth(*, link_id: int, bandwidth_kbit: int, actor: User | None, reason: str = "") -> Link:
    """Store what is asked for; L of the attachment point's host rises when what is enforced changes by that.

    The number that is stored already is accepted whatever the default is by now: a clamped choice is kept.
    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`), `Link.DoesNotExist`.
    """
    link = _locked(link_id)
    old = link.bandwidth_kbit
    if bandwidth_kbit == old:
        return link
    ap = link.attachment_point
    try:
        check_bandwidth(bandwidth_kbit, MAX_BANDWIDTH_KBIT if ap is None else selectors.default_in_force(ap))
    except RuleError as exc:
        raise FieldRuleError.of(exc, "bandwidth_kbit") from exc
    before = view_of(link)
    link.bandwidth_kbit = bandwidth_kbit
    link.save(update_fields=["bandwidth_kbit"])
    audit.note_link(link, actor=actor, old=old, new=bandwidth_kbit, reason=reason)
    changes = Changes()
    changes.note(link.pk, before, view_of(link))
    changes.carry_out()
    logger.info("link.bandwidth link=%s old=%s new=%s actor=%s", link.pk, old, bandwidth_kbit, actor and actor.pk)
    return _fresh(link)


@transaction.atomic
def link_set_active(*, link_id: int, actor: User | None, active: bool) -> Link:
    """Put the Link into the configurations of both ASes, or take it out. Raises `Link.DoesNotExist`."""
    link = _locked(link_id)
    if link.active == active:
        return link
    before = view_of(link)
    link.active = active
    link.save(update_fields=["active"])
    changes = Changes()
    changes.note(link.pk, before, view_of(link))
    changes.carry_out()
    logger.info("link.active link=%s active=%s actor=%s", link.pk, active, actor and actor.pk)
    return _fresh(link)


def _locked(link_id: int) -> Link:
    """The Link, with the rows locked that decide about it; a default still on its way is carried out first."""
    ap_id = (
        Link.objects.filter(pk=link_id).values_list("interface_a__AS__attachment_point", flat=True).get()
    )  # interfaces never move to another AS
    if ap_id is not None:
        carry_out_default(ap_id)
    found = read_links({link_id})
    if not found:
        raise Link.DoesNotExist(f"Link {link_id} was removed meanwhile.")
    return found[0]


def _fresh(link: Link) -> Link:
    return Link.objects.select_related(*selectors.LINK_RELATIONS).get(pk=link.pk)
