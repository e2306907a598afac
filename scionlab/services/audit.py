"""Writes the audit rows of bandwidths: who changed which number from what to what."""

from __future__ import annotations

from contextvars import ContextVar

from scionlab.models import AttachmentPoint, BandwidthChange, Link, User

# Where the request comes from that changes something; None in workers and commands. Set by the web tier, so that no
# service has to hand it on.
from_address: ContextVar[str | None] = ContextVar("from_address", default=None)


def note_link(link: Link, *, actor: User | None, old: int | None, new: int | None, reason: str = "") -> None:
    """`old` None: the Link is new; `new` None: it is removed. Nothing for an unchanged number."""
    if old != new:
        BandwidthChange.objects.create(
            kind=BandwidthChange.Kind.LINK,
            subject=str(link)[:200],
            link=link,
            attachment_point=link.attachment_point,
            actor=actor,
            **_origin(actor),
            old_kbit=old,
            new_kbit=new,
            reason=reason[:200],
        )


def note_default(
    ap: AttachmentPoint | None, *, actor: User | None, old: int | None, new: int | None, reason: str = ""
) -> None:
    """`ap` None: the site default."""
    kinds = BandwidthChange.Kind
    BandwidthChange.objects.create(
        kind=kinds.SITE_DEFAULT if ap is None else kinds.AP_DEFAULT,
        subject="site default" if ap is None else f"default of {ap}"[:200],
        attachment_point=ap,
        actor=actor,
        **_origin(actor),
        old_kbit=old,
        new_kbit=new,
        reason=reason[:200],
    )


def _origin(actor: User | None) -> dict[str, str | None]:
    """What stays of who did it when the account is gone."""
    return {"actor_email": "" if actor is None else actor.email, "address": from_address.get()}
