"""Celery tasks of enforcement."""

from __future__ import annotations

from celery import shared_task

from scionlab.enforcement.notices import notices_find


@shared_task(name="scionlab.tasks.find_notices")
def find_notices() -> None:
    """Create mails about states (`enforcement.notices`)."""
    notices_find()
