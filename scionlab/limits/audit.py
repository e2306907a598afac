"""The audit of exceptions."""

from __future__ import annotations

from scionlab.accounts.models import User
from scionlab.limits.models import MaximumException
from scionlab.testbed.audit import Kind, change_of


def note_exception(exception: MaximumException, *, actor: User | None, detail: str, reason: str = "") -> None:
    """`detail`: what happened to the exception, in words."""
    row = change_of(exception.link or "", kind=Kind.EXCEPTION, actor=actor, detail=detail, reason=reason)
    row.subject = f"maximum for {exception.of}"[:200]
    row.save()
