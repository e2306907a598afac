"""Tests end with their Link; their joint tests are cancelled after the commit."""

from __future__ import annotations

from collections.abc import Sequence

from scionlab.accounts.models import User
from scionlab.linktests.joint_test import joint_tests_end
from scionlab.linktests.link_test import link_tests_end
from scionlab.testbed.life import Life
from scionlab.testbed.models import Link


class TestsLife(Life):
    def links_end(self, links: Sequence[Link], *, actor: User | None, why: str) -> None:  # noqa: ARG002  as of `Life`
        joint_tests_end(links)
        link_tests_end(links)
