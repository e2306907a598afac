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
from scionlab.services.stale import (
    LastChange,
    Value,
    Values,
    last_admin_change,
    last_change_of_user_as,
    note_change,
    refuse_stale,
)

logger = logging.getLogger(__name__)


def link_set_bandwidth(
    *, link_id: int, bandwidth_kbit: int, actor: User | None, reason: str = "", shown: Values | None = None
) -> Link:
    """`link_update` of the bandwidth alone: whether the Link is active stays as it is."""
    return link_update(link_id=link_id, bandwidth_kbit=bandwidth_kbit, actor=actor, reason=reason, shown=shown)


def link_set_active(*, link_id: int, actor: User | None, active: bool) -> Link:
    """`link_update` that puts the Link into the configurations of both ASes, or takes it out."""
    return link_update(link_id=link_id, active=active, actor=actor)


@transaction.atomic
def link_update(
    *,
    link_id: int,
    actor: User | None,
    bandwidth_kbit: int | None = None,
    active: bool | None = None,
    reason: str = "",
    shown: Values | None = None,
) -> Link:
    """Store what is asked for; None leaves a value as it is.

    L of the attachment point's host rises when only what is enforced changes by that, H of both hosts when the Link
    appears in their configurations or goes. The bandwidth that is stored already is accepted whatever the default is by
    now: a clamped choice is kept. `shown`: what the page showed of these values, see `services.stale`.
    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`, `infrastructure_bandwidth`),
    `StalePageError`, `Link.DoesNotExist`.
    """
    changes = Changes()
    link = _locked(link_id, changes)
    old: dict[str, Value] = {"bandwidth_kbit": link.bandwidth_kbit, "active": link.active}
    asked = {"bandwidth_kbit": bandwidth_kbit, "active": active}
    wanted: dict[str, Value] = {name: value for name, value in asked.items() if value is not None}
    stored = {name: old[name] for name in wanted}
    refuse_stale(shown=shown, stored=stored, wanted=wanted, last=lambda: last_change_of_link(link))
    if wanted != stored:
        before = view_of(link)
        _store(link, wanted, actor=actor, reason=reason)
        changes.note(link.pk, before, view_of(link))
        note_change(link.interface_b.AS_id, actor=actor)
    changes.carry_out()
    return _fresh(link)


def last_change_of_link(link: Link) -> LastChange:
    """Of the whole user AS, or the administrators' pages where the Link belongs to none."""
    return last_change_of_user_as(link.interface_b.AS_id) if link.is_limited else last_admin_change(link)


def _store(link: Link, wanted: Values, *, actor: User | None, reason: str) -> None:
    old, new = link.bandwidth_kbit, wanted.get("bandwidth_kbit", link.bandwidth_kbit)
    if isinstance(new, int) and new != old:
        _check(link, new)
        link.bandwidth_kbit = new
        audit.note_link(link, actor=actor, old=old, new=new, reason=reason)
        logger.info("link.bandwidth link=%s old=%s new=%s actor=%s", link.pk, old, new, actor and actor.pk)
    is_active = bool(wanted.get("active", link.active))
    if is_active != link.active:
        link.active = is_active
        logger.info("link.active link=%s active=%s actor=%s", link.pk, is_active, actor and actor.pk)
    link.save(update_fields=list(wanted))


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
