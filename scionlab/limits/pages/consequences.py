"""Consequences of saving, in words: a preview of limits, and what happens next.

It depends on the Link's state: a limit is enforced in about a second if an agent polls, later if it is silent or
missing, and after a running timed limit. Reads loaded objects only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from bandwidth_config import Limits, LinkStep
from scionlab.enforcement.agents import Agent, agent_of, no_report_since
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.limits.pages.counted import counted_sentence
from scionlab.platform.clock import database_now
from scionlab.platform.notation.bandwidth import in_words, limits_warning
from scionlab.platform.notation.shown import duration
from scionlab.testbed.models import Link, UserAS
from scionlab.testbed.selectors import links_of

NOTHING_RESTARTS = "nothing restarts"


def takes_effect(link: Link, *, now: datetime) -> str:
    """When the attachment point will enforce a save now: `takes effect in …`."""
    if not link.active:
        return "takes effect when the link is activated"
    if link.is_to_observe:
        return "takes effect when the attachment point limits this link again (it is observed)"
    return _when_limited(agent_of(link.interface_a.host, link.interface_a.AS.isd_as, now=now))


def _when_limited(agent: Agent) -> str:
    if agent.is_stock_client:
        return "takes effect with the attachment point's next SCION configuration (no agent there fetches limits)"
    if agent.read_at is None:
        return "takes effect when the attachment point next fetches its limits (no agent there has reported yet)"
    if agent.removed_at is not None:
        return "takes effect when the agent of the attachment point runs again (its operator removed the limits)"
    if agent.is_silent:
        since = no_report_since(agent)
        return f"takes effect when the attachment point reports again ({since[0].lower()}{since[1:]})"
    return "takes effect in about a second"


def local(at: datetime) -> str:
    """`2026-11-22 18:30 CET`, in the reader's zone."""
    found = timezone.localtime(at)
    return f"{found:%Y-%m-%d %H:%M}{f':{found:%S}' if found.second else ''} {found.tzname()}"


# --- before a save --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preview:
    """Shown while a limit is typed."""

    understood: str
    effect: str
    warning: str | None = None
    counted: str | None = None

    @property
    def sentence(self) -> str:
        return f"{self.understood}; {self.effect}."


def preview_limits(status: LinkStatus, limits: Limits, *, now: datetime) -> Preview:
    """Preview of regular limits."""
    warning, counted = limits_warning(limits), counted_on(status.link, limits)
    if limits == status.requested:
        return Preview(_capital(in_words(limits)), "no change", warning, counted)
    effect = takes_effect(status.link, now=now)
    if status.running is not None and status.link.active:
        effect = f"takes effect when the temporary limit ends, at {local(status.running.ends_at)}"
    return Preview(_capital(in_words(limits)), f"{effect}; {NOTHING_RESTARTS}", warning, counted)


def counted_on(link: Link, limits: Limits) -> str | None:
    """What these limits count on the Link, and leave for SCION; None if all is blocked."""
    end = link.interface_b
    return counted_sentence(limits, underlay_ip=end.public_ip, is_vpn=end.vpn_client_id is not None, mtu=link.mtu)


def preview_timed(
    status: LinkStatus, steps: Sequence[LinkStep], *, begins_at: datetime | None, duration_s: int, now: datetime
) -> Preview:
    """Preview of timed limits."""
    ends_at = (begins_at or now) + timedelta(seconds=duration_s)
    begins = f"from {local(begins_at)}" if begins_at else "from now"
    effect = "" if begins_at else f"{takes_effect(status.link, now=now)}; "
    back = "blocked" if max(status.requested) == 0 else str(status.link.enforced)
    lowest = Limits(*(min(values) for values in zip(*(step.limits for step in steps), strict=True)))
    return Preview(
        f"{_capital(begins)} until {local(ends_at)} ({duration(duration_s)}): {_course(steps)}",
        f"{effect}{NOTHING_RESTARTS}; then back to {back} automatically, even if this service is down",
        limits_warning(lowest),
    )


def _course(steps: Sequence[LinkStep]) -> str:
    first, last = steps[0].limits, steps[-1].limits
    if len(steps) == 1:
        return in_words(first)
    is_wave = len(steps) % 2 == 0 and all(step.limits == steps[number % 2].limits for number, step in enumerate(steps))
    if is_wave and len(steps) > 2:
        return f"{in_words(first)} and {in_words(last)} in turn, {len(steps) // 2} times"
    return f"{len(steps)} steps, the first {in_words(first)}, the last {in_words(last)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- after a save ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkValues:
    """Values of one Link that a save can change, and when it takes effect; the ends are (address, port, bind address,
    bind port)."""

    ap: str
    requested: Limits
    enforced: Limits
    active: bool
    end: tuple[object, ...]
    effect: str


@dataclass(frozen=True)
class Snapshot:
    """Values that a save can change, taken before and after it."""

    general: tuple[str, str]
    structure: tuple[object, ...]  # H of its hosts: differs if SCION's configuration changed
    links: dict[int, LinkValues]


def snapshot(user_as: UserAS, links: Sequence[Link] | None = None) -> Snapshot:
    """`links`: from `selectors.links_of`, if already read."""
    now = database_now()
    found = {link.pk: _values_of(link, now) for link in (links_of(user_as) if links is None else links)}
    hosts = tuple(user_as.hosts.order_by("pk").values_list("pk", "config_version"))
    return Snapshot((user_as.label, user_as.installation_type), hosts, found)


def _values_of(link: Link, now: datetime) -> LinkValues:
    running, end = link_status(link, now=now).running, link.interface_b
    if running is None:
        effect = takes_effect(link, now=now).removeprefix("takes effect ")
    else:
        effect = f"when the temporary limit ends, at {local(running.ends_at)}"
    ends = (end.public_ip, end.public_port, end.bind_ip, end.bind_port)
    return LinkValues(link.interface_a.AS.isd_as, link.requested, link.enforced, link.active, ends, effect)


def what_happens_next(before: Snapshot | None, after: Snapshot) -> list[str]:
    """One sentence for each consequence of a save; `before` is None for a new AS."""
    if before is not None and _stored(before) == _stored(after):
        return ["No changes."]
    restarts = before is None or before.structure != after.structure
    sentences = [_enforced_next(link, restarts=restarts) for link in _with_new_limits(before, after)]
    if before is None:
        sentences.append("Download the configuration and install it on your host to start SCION.")
    elif restarts:
        sentences.append(
            "The SCION configuration of this AS changed. The host fetches it automatically, or you can download "
            "it here. SCION restarts when it is installed."
        )
    return sentences


def _stored(taken: Snapshot) -> object:
    links = {pk: (one.ap, one.requested, one.enforced, one.active, one.end) for pk, one in taken.links.items()}
    return taken.general, taken.structure, links


def _with_new_limits(before: Snapshot | None, after: Snapshot) -> list[LinkValues]:
    old = {} if before is None else before.links
    found = []
    for pk, new in after.links.items():
        was = old.get(pk)
        limits_before = None if was is None else (was.ap, was.requested, was.enforced, was.active)
        if limits_before != (new.ap, new.requested, new.enforced, new.active) and (
            new.active or was is None or was.requested != new.requested
        ):
            found.append(new)
    return found


def _enforced_next(link: LinkValues, *, restarts: bool) -> str:
    if not link.active:
        return f"The link to {link.ap} is inactive: {link.requested} takes effect when it is activated."
    what = "blocks the link" if max(link.enforced) == 0 else f"enforces {link.enforced}"
    if link.enforced != link.requested:
        what += f" (clamped; you requested {link.requested})"
    return f"{link.ap} {what} {link.effect}" + ("." if restarts else f"; {NOTHING_RESTARTS}.")


def surprises(before: Snapshot | None, after: Snapshot) -> list[str]:
    """A warning for each saved limit that is allowed but surprising."""
    saved = _with_new_limits(before, after)
    return [f"{link.ap}: {warning}" for link in saved if (warning := limits_warning(link.requested))]
