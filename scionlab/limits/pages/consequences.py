"""Consequences of saving, in words: a preview of limits, and what happens next.

It depends on the Link's state: a limit is enforced in about a second if an agent polls, later if it is silent or
missing, or if changes wait for a restart there, and after a running timed limit. Reads loaded objects only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib import messages
from django.utils import timezone

from bandwidth_config import Limits, LinkStep
from scionlab.enforcement.agents import Agent, agent_of, no_report_since
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.limits.framing import Framing, counted_sentence
from scionlab.platform.clock import database_now
from scionlab.platform.notation.bandwidth import in_words, limits_warning
from scionlab.platform.notation.shown import duration
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, UserAS
from scionlab.web.pages.own_pages import PageRequest

NOTHING_RESTARTS = "nothing restarts"
SOON = "takes effect in about a second"


def takes_effect(link: Link, *, now: datetime) -> str:
    """When the attachment point will enforce a save now: `takes effect in …`."""
    if not link.active:
        return "takes effect when the link is activated"
    if link.is_to_observe:
        return "takes effect when the attachment point limits this link again (it is observed)"
    effect = _when_limited(agent_of(link.interface_a.host, link.interface_a.AS.isd_as, now=now))
    if effect == SOON and link.held_until is not None:
        return f"takes effect after the next restart of SCION at the attachment point, by {local(link.held_until)}"
    return effect


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
    return SOON


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
    warning, counted = limits_warning(limits), counted_sentence(limits, Framing.of(status.link))
    if limits == status.requested:
        return Preview(_capital(in_words(limits)), "no change", warning, counted)
    effect = _regular_takes_effect(status, now=now)
    return Preview(_capital(in_words(limits)), f"{effect}; {NOTHING_RESTARTS}", warning, counted)


def _regular_takes_effect(status: LinkStatus, *, now: datetime) -> str:
    effect = takes_effect(status.link, now=now)
    if status.running is None or not status.link.active or status.link.is_to_observe:
        return effect
    ends_at = status.running.ends_at
    for one in status.upcoming:
        if one.begins_at == ends_at:
            ends_at = one.ends_at
    ends = f"the temporary limit ends, at {local(ends_at)}"
    return f"takes effect when {ends}" if effect == SOON else f"{effect}, and not before {ends}"


def preview_timed(
    status: LinkStatus, steps: Sequence[LinkStep], *, begins_at: datetime | None, duration_s: int, now: datetime
) -> Preview:
    """Preview of timed limits."""
    ends_at = (begins_at or now) + timedelta(seconds=duration_s)
    begins = f"from {local(begins_at)}" if begins_at else "from now"
    effect = takes_effect(status.link, now=now)
    effect = "" if begins_at and effect == SOON else f"{effect}; "
    after = status.link.limits_at(ends_at)
    back = "blocked" if max(after) == 0 else str(after)
    if after == status.link.enforced:
        back = f"back to {back}"
    lowest = Limits(*(min(values) for values in zip(*(step.limits for step in steps), strict=True)))
    return Preview(
        f"{_capital(begins)} until {local(ends_at)} ({duration(duration_s)}): {_course(steps)}",
        f"{effect}{NOTHING_RESTARTS}; then {back} automatically, even if this service is down",
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
class Snapshot:
    """What a save can change, taken before and after it. The service reads its own rows: these stay as they were."""

    general: tuple[str, str]
    structure: tuple[object, ...]  # H of its hosts: differs if SCION's configuration changed
    links: dict[int, Link]


def snapshot(user_as: UserAS, links: Sequence[Link] | None = None) -> Snapshot:
    """`links`: from `selectors.links_of`, if already read."""
    found = {link.pk: link for link in (selectors.links_of(user_as) if links is None else links)}
    hosts = tuple(user_as.hosts.order_by("pk").values_list("pk", "config_version"))
    return Snapshot((user_as.label, user_as.installation_type), hosts, found)


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
    ends = [(pk, one.interface_b) for pk, one in taken.links.items()]
    sockets = {pk: (end.public_ip, end.public_port, end.bind_ip, end.bind_port) for pk, end in ends}
    return taken.general, taken.structure, sockets, {pk: _limited(one) for pk, one in taken.links.items()}


def _limited(link: Link) -> object:
    return link.interface_a.AS.isd_as, link.requested, link.enforced, link.active


def _with_new_limits(before: Snapshot | None, after: Snapshot) -> list[Link]:
    def is_new(link: Link) -> bool:
        was = None if before is None else before.links.get(link.pk)
        if was is None:
            return True
        return _limited(was) != _limited(link) and (link.active or was.requested != link.requested)

    return [link for link in after.links.values() if is_new(link)]


def _enforced_next(link: Link, *, restarts: bool) -> str:
    ap = link.interface_a.AS.isd_as
    if not link.active:
        return f"The link to {ap} is inactive: {link.requested} takes effect when it is activated."
    now = database_now()
    effect = _regular_takes_effect(link_status(link, now=now), now=now).removeprefix("takes effect ")
    what = "blocks the link" if max(link.enforced) == 0 else f"enforces {link.enforced}"
    if link.enforced != link.requested:
        what += f" (clamped; you requested {link.requested})"
    return f"{ap} {what} {effect}" + ("." if restarts else f"; {NOTHING_RESTARTS}.")


def say_saved(
    request: PageRequest,
    user_as: UserAS,
    before: Snapshot | None,
    *,
    links: Sequence[Link] | None = None,
    done: str = "Saved.",
) -> None:
    """Add messages about the consequences of the save, and a warning for each saved limit that is allowed but
    surprising; `links` avoids reading again."""
    after = snapshot(user_as if links is not None else selectors.user_as_of(request.user, user_as.pk), links)
    messages.success(request, " ".join([done, *what_happens_next(before, after)]))
    for link in _with_new_limits(before, after):
        if warning := limits_warning(link.requested):
            messages.warning(request, f"{link.interface_a.AS.isd_as}: {warning}")
