"""Temporary entries of a Link in the signed document: they end with the Link."""

from __future__ import annotations

from collections.abc import Iterable

from scionlab.accounts.models import User
from scionlab.limits.timed_limit import timed_limits_end
from scionlab.linktests.joint_test import joint_tests_end
from scionlab.linktests.link_test import link_tests_end
from scionlab.testbed.models import Link

DEACTIVATED = "the link was deactivated"


def statements_end(links: Iterable[Link], *, actor: User | None, why: str) -> None:
    """Cancel timed limits and tests that have not ended; for services that hold the Links' locks and raise the
    counters. Their joint tests are cancelled after the commit."""
    ended = list(links)
    joint_tests_end(ended)
    timed_limits_end(ended, actor=actor, why=why)
    link_tests_end(ended)
