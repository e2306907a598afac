"""Celery tasks of tests."""

from __future__ import annotations

from celery import shared_task

from scionlab.limits.retirement import log_retired
from scionlab.linktests.link_test import link_tests_retire
from scionlab.linktests.test_mails import link_tests_notify


@shared_task(name="scionlab.tasks.notify_tests")
def notify_tests() -> None:
    """Judge ended tests and create their mails (`linktests.test_mails`)."""
    link_tests_notify()


@shared_task(name="scionlab.tasks.retire_link_tests")
def retire_link_tests() -> None:
    """Remove ended tests from the configurations; no kernel changes."""
    log_retired("tests", link_tests_retire())
