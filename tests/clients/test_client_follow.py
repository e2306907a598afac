"""The client follows a test: once a second, and only what changed is sent again."""

from __future__ import annotations

import time
from argparse import Namespace

import pytest

from scionlab_bw import watch_load
from scionlab_bw.client import Document

RUNNING = {"id": 9, "state": "running", "text": "", "points": []}
FINISHED = RUNNING | {"state": "finished"}


class Answers:
    """A service that has news in its first and fourth answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def newer(self, path: str, etag: str) -> Document | None:
        self.asked.append((path, etag))
        return {1: Document(RUNNING, '"1"'), 4: Document(FINISHED, '"2"')}.get(len(self.asked))


def test_it_asks_once_a_second_until_the_test_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    service = Answers()
    assert watch_load._follow(service, RUNNING, Namespace(json=True)) == FINISHED  # type: ignore[arg-type]
    assert service.asked == [("tests/9/", tag) for tag in ("", '"1"', '"1"', '"1"')]
    assert slept == [1.0, 1.0, 1.0]
