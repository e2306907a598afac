"""tests/cases.py, which most tests here lean on: no case is left out, none fails unseen, none finds another's work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.test import Client

from scionlab.accounts.models import User
from scionlab.testbed.models import Link
from tests.cases import table


class Noted:
    """In place of pytest's `subtests`: which cases ran, and which failed."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.failed: list[str] = []

    @contextmanager
    def test(self, name: str) -> Iterator[None]:
        self.ran.append(name)
        try:
            yield
        except AssertionError:
            self.failed.append(name)


def test_every_case_finds_the_world_as_it_was(link: Link, owner: User, client: Client) -> None:
    found = []

    @table("kbit", [1, 2, 3])
    @table(("who", "is_in"), [("owner", True), pytest.param("nobody", False, id="no one")])
    def changes(kbit: int, who: str, is_in: bool, link: Link, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        found.append((link.bandwidth_kbit, Link.objects.get().bandwidth_kbit, len(client.cookies), Link.__doc__))
        monkeypatch.setattr(Link, "__doc__", "changed")
        link.bandwidth_kbit = kbit
        link.save()
        if is_in:
            client.force_login(owner)
        assert (kbit, who) != (2, "nobody")

    subtests, doc = Noted(), Link.__doc__
    with pytest.MonkeyPatch.context() as patch:
        changes(subtests=subtests, link=link, client=client, monkeypatch=patch)
    assert subtests.ran == ["1-owner-True", "1-no one", "2-owner-True", "2-no one", "3-owner-True", "3-no one"]
    assert subtests.failed == ["2-no one"]
    assert found == [(1000, 1000, 0, doc)] * 6
    assert Link.objects.get().bandwidth_kbit == 1000
