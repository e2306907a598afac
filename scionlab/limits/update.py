"""Changes of one existing Link: limits, and settings."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from bandwidth_config import Limits, check_bandwidth, check_change, format_kbit
from scionlab.accounts.models import User
from scionlab.limits.locked import locked_link
from scionlab.limits.maximum import limit_errors
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.testbed import audit, selectors
from scionlab.testbed.infrastructure_links import check_infrastructure_bandwidth
from scionlab.testbed.last_changes import last_change_of_user_as, note_change
from scionlab.testbed.life import DEACTIVATED, links_end
from scionlab.testbed.link_mtu import link_switch
from scionlab.testbed.models import Link
from scionlab.testbed.models.link_settings import LINK_SETTINGS, LinkSetting
from scionlab.testbed.versions.changes import Changes, view_of
from scionlab.web.pages.stale_pages import LastChange, Value, Values, last_admin_change, refuse_stale, values_of

logger = logging.getLogger(__name__)


def link_set_bandwidth(*, link_id: int, bandwidth_kbit: int, actor: User | None, reason: str = "") -> Link:
    """`link_update` of the bandwidth only, in both directions."""
    return link_update(link_id=link_id, limits=Limits.both(bandwidth_kbit), actor=actor, reason=reason)


@transaction.atomic
def link_update(
    *,
    link_id: int,
    actor: User | None,
    limits: Limits | None = None,
    reason: str = "",
    shown: Values | None = None,
    **settings: Value,
) -> Link:
    """Update a Link: its limits (None keeps them), and `settings` by their names in `LINK_SETTINGS`, which says what
    each raises; those not given are kept, None clears an optional one.

    L of the attachment point's host rises if enforced limits change. Stored limits are accepted again even above the
    current maximum: a clamped choice is kept. During a timed limit, new limits apply from its end. A Link that becomes
    inactive loses its timed limits. `shown`: values that the page showed, see `web.pages.stale_pages`. Raises
    `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`, `infrastructure_bandwidth`, codes of the columns'
    validators), `StalePageError`, `Link.DoesNotExist`.
    """
    changes = Changes()
    link = locked_link(link_id, changes)
    old = {**limits_to_values(link.requested), **values_of(link, tuple(settings))}
    wanted = settings if limits is None else {**limits_to_values(limits), **settings}
    stored = {name: old[name] for name in wanted}
    refuse_stale(shown=shown, stored=stored, wanted=wanted, last=lambda: last_change_of_link(link))
    if wanted != stored:
        before = view_of(link)
        if limits is not None:
            _store_limits(link, limits, actor=actor, reason=reason)
        for name, value in settings.items():
            store_setting(link, LINK_SETTINGS[name], value, actor=actor, reason=reason)
        changes.note(link.pk, before, view_of(link))
        note_change(link.interface_b.AS_id, actor=actor)
    changes.carry_out(actor=actor)
    return selectors.with_relations(Link.objects.filter(pk=link.pk)).get()  # with the versions that were stored


def links_set_bandwidth(links: Iterable[Link], bandwidth_kbit: int, *, actor: User | None, changes: Changes) -> None:
    """Set the same limit in both directions of all these locked Links, if each allows it; otherwise change none. Raises
    `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`), which names the Links that reject it."""
    with at_field("bandwidth_kbit"):
        check_bandwidth(bandwidth_kbit)
    limits, limited, lower = Limits.both(bandwidth_kbit), [], {}
    for link in links:
        ap = link.attachment_point
        if ap is None:
            continue
        limited.append(link)
        maximum_kbit = selectors.maximum_in_force(link)
        if check_change(link.requested, limits, maximum_kbit):
            lower[f"{ap.AS.isd_as} (at most {format_kbit(maximum_kbit)})"] = maximum_kbit
    if lower:
        text = (
            f"{format_kbit(bandwidth_kbit)} is above the maximum of {len(lower)} of {len(limited)} links: to "
            f"{', to '.join(lower)}. Nothing was changed. Enter at most {format_kbit(min(lower.values()))}, or set "
            "each link by itself."
        )
        raise FieldRuleError("bandwidth_too_high", text, "bandwidth_kbit")
    for link in limited:
        before = view_of(link)
        _store_limits(link, limits, actor=actor, reason="")
        changes.note(link.pk, before, view_of(link))


def limits_to_values(limits: Limits) -> dict[str, Value]:
    """The two columns of a Link, which are also the two fields of a page."""
    return dict(zip(("bandwidth_kbit", "from_user_kbit"), limits.to_columns(), strict=True))


def last_change_of_link(link: Link) -> LastChange:
    """Last change of the whole user AS, or of the Link itself if it belongs to none."""
    return last_change_of_user_as(link.interface_b.AS_id) if link.is_limited else last_admin_change(link)


def _store_limits(link: Link, new: Limits, *, actor: User | None, reason: str) -> None:
    old = link.requested
    if new == old:
        return
    _check(link, old, new)
    values = limits_to_values(new)
    for name, value in values.items():
        setattr(link, name, value)
    link.save(update_fields=list(values))
    audit.note_link(link, actor=actor, old=old, new=new, reason=reason)
    logger.info("link.limits link=%s old=%s new=%s actor=%s", link.pk, tuple(old), tuple(new), actor and actor.pk)


def store_setting(link: Link, setting: LinkSetting, value: Value, *, actor: User | None, reason: str = "") -> None:
    """For services that hold the lock and compare the views. Raises `FieldRuleError`."""
    name = setting.name
    if value == getattr(link, name):
        return
    try:
        column: Any = Link._meta.get_field(name)
        column.clean(value, link)
    except ValidationError as exc:
        raise FieldRuleError(exc.error_list[0].code or "invalid", exc.messages[0], name) from exc
    if name == "active":
        link_switch(link, active=bool(value))
    else:
        setattr(link, name, value)
        link.save(update_fields=[name])
    audit.note_setting(link, setting, actor=actor, reason=reason)
    if name == "active" and not value:
        links_end([link], actor=actor, why=DEACTIVATED)
    logger.info("link.%s link=%s value=%s actor=%s", name, link.pk, value, actor and actor.pk)


def _check(link: Link, old: Limits, new: Limits) -> None:
    ap = link.attachment_point
    if ap is None:
        check_infrastructure_bandwidth(new.to_user_kbit)
        if not new.is_symmetric:
            text = "A Link between infrastructure ASes is not limited. Enter one number, the bandwidth of the line."
            raise FieldRuleError("infrastructure_bandwidth", text, "from_user_kbit")
        return
    for error in limit_errors(old, new, selectors.maximum_in_force(link)):
        raise error
