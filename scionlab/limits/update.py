"""Changes of one existing Link: bandwidth, and activation."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.db import transaction

from bandwidth_config import Limits, RuleError, check_bandwidth, check_change, format_kbit
from scionlab.accounts.models import User
from scionlab.limits.locked import locked_link
from scionlab.limits.maximum import limit_errors
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed import audit, selectors
from scionlab.testbed.infrastructure_links import check_infrastructure_bandwidth
from scionlab.testbed.last_changes import last_change_of_user_as, note_change
from scionlab.testbed.life import DEACTIVATED, links_end
from scionlab.testbed.link_mtu import link_switch
from scionlab.testbed.models import Link
from scionlab.testbed.versions.changes import Changes, view_of
from scionlab.web.pages.stale_pages import LastChange, Value, Values, last_admin_change, refuse_stale

logger = logging.getLogger(__name__)


def link_set_bandwidth(
    *, link_id: int, bandwidth_kbit: int, actor: User | None, reason: str = "", shown: Values | None = None
) -> Link:
    """`link_update` of the bandwidth only."""
    return link_update(link_id=link_id, bandwidth_kbit=bandwidth_kbit, actor=actor, reason=reason, shown=shown)


def link_set_active(*, link_id: int, actor: User | None, active: bool) -> Link:
    """`link_update` that adds the Link to the configurations of both ASes, or removes it."""
    return link_update(link_id=link_id, active=active, actor=actor)


@transaction.atomic
def link_update(
    *,
    link_id: int,
    actor: User | None,
    limits: Limits | None = None,
    bandwidth_kbit: int | None = None,
    active: bool | None = None,
    observe_only: bool | None = None,
    reason: str = "",
    shown: Values | None = None,
) -> Link:
    """Update a Link; None keeps a value. `bandwidth_kbit` sets both directions of `limits`.

    L of the attachment point's host rises if only enforced limits change, H of both hosts if the Link is added to or
    removed from their configurations. Stored limits are accepted again even above the current maximum: a clamped choice
    is kept. During a timed limit, new limits apply from its end. A Link that becomes inactive loses its timed limits.
    `observe_only` is for administrators. `shown`: values that the page showed, see `web.pages.stale_pages`. Raises
    `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`, `infrastructure_bandwidth`), `StalePageError`,
    `Link.DoesNotExist`.
    """
    changes = Changes()
    link = locked_link(link_id, changes)
    if limits is None and bandwidth_kbit is not None:
        limits = Limits.both(bandwidth_kbit)
    old = {**limits_to_values(link.requested), "active": link.active, "observe_only": link.observe_only}
    wanted: dict[str, Value] = {} if limits is None else limits_to_values(limits)
    if active is not None:
        wanted["active"] = active
    if observe_only is not None:
        wanted["observe_only"] = observe_only
    stored = {name: old[name] for name in wanted}
    refuse_stale(shown=_with_directions(shown), stored=stored, wanted=wanted, last=lambda: last_change_of_link(link))
    if wanted != stored:
        before = view_of(link)
        if limits is not None:
            _store_limits(link, limits, actor=actor, reason=reason)
        if active is not None:
            _store_active(link, active, actor=actor, reason=reason)
        if observe_only is not None and observe_only != link.observe_only:
            link.observe_only = observe_only
            link.save(update_fields=["observe_only"])
            audit.note_observing(link, actor=actor, reason=reason)
        changes.note(link.pk, before, view_of(link))
        note_change(link.interface_b.AS_id, actor=actor)
    changes.carry_out(actor=actor)
    return _fresh(link)


def links_set_bandwidth(links: Iterable[Link], bandwidth_kbit: int, *, actor: User | None, changes: Changes) -> None:
    """Set the same limit in both directions of all these locked Links, if each allows it; otherwise change none. Raises
    `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`), which names the Links that reject it."""
    try:
        check_bandwidth(bandwidth_kbit)
    except RuleError as exc:
        raise FieldRuleError.of(exc, "bandwidth_kbit") from exc
    limits, limited, lower = Limits.both(bandwidth_kbit), [], {}
    for link in links:
        ap = link.attachment_point
        if ap is None:
            continue
        limited.append(link)
        maximum_kbit = selectors.maximum_in_force(link, ap)
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


def _with_directions(shown: Values | None) -> Values | None:
    """A page with one number for both directions showed equal values."""
    if shown is None or "bandwidth_kbit" not in shown:
        return shown
    return {"from_user_kbit": None, **shown}


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


def _store_active(link: Link, active: bool, *, actor: User | None, reason: str) -> None:
    if active == link.active:
        return
    link_switch(link, active=active)
    audit.note_active(link, actor=actor, reason=reason)
    if not active:
        links_end([link], actor=actor, why=DEACTIVATED)
    logger.info("link.active link=%s active=%s actor=%s", link.pk, active, actor and actor.pk)


def _check(link: Link, old: Limits, new: Limits) -> None:
    ap = link.attachment_point
    if ap is None:
        check_infrastructure_bandwidth(new.to_user_kbit)
        if not new.is_symmetric:
            text = "A Link between infrastructure ASes is not limited. Enter one number, the bandwidth of the line."
            raise FieldRuleError("infrastructure_bandwidth", text, "from_user_kbit")
        return
    for error in limit_errors(old, new, selectors.maximum_in_force(link, ap)):
        raise error


def _fresh(link: Link) -> Link:
    """With the versions that `carry_out` stored."""
    return selectors.with_relations(Link.objects.filter(pk=link.pk)).get()
