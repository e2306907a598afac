"""The audit of exceptions."""

from __future__ import annotations

from scionlab.accounts.models import User
from scionlab.limits.models import MaximumException
from scionlab.testbed.audit import origin_of
from scionlab.testbed.models import BandwidthChange


def note_exception(exception: MaximumException, *, actor: User | None, detail: str, reason: str = "") -> None:
    """`detail`: what happened to the exception, in words."""
    link = exception.link
    BandwidthChange.objects.create(
        kind=BandwidthChange.Kind.EXCEPTION,
        subject=f"maximum for {exception.of}"[:200],
        link=link,
        attachment_point=None if link is None else link.attachment_point,
        actor=actor,
        **origin_of(actor),
        detail=detail[:200],
        reason=reason[:200],
    )
