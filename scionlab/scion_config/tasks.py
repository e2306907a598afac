"""Celery tasks of keys."""

from __future__ import annotations

from celery import shared_task

from scionlab.scion_config.renewal import keys_renew


@shared_task(name="scionlab.tasks.renew_keys")
def renew_keys() -> None:
    """Renew the testbed's keys and certificates, and create missing ones (`scion_config.renewal`)."""
    keys_renew()
