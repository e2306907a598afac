"""Temporary limits end with their Link."""

from __future__ import annotations

from collections.abc import Sequence

from scionlab.accounts.models import User
from scionlab.limits.timed_limit import timed_limits_end
from scionlab.testbed.life import Life
from scionlab.testbed.models import Link


class TimedLimitsLife(Life):
    def links_end(self, links: Sequence[Link], *, actor: User | None, why: str) -> None:
        timed_limits_end(links, actor=actor, why=why)
