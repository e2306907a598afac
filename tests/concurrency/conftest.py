"""Two people at once: threads with connections of their own against a real PostgreSQL.

SQLite has one writer at a time, so there is nothing to race for: these tests are skipped there, by name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client

from scionlab.accounts.models import User
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, Host, Link
from scionlab.testbed.selectors import links_of
from tests.factories import AttachmentPointFactory, attach, spec

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _real_database(transactional_db: None) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: python -m tests.servers -- python -m pytest tests/concurrency")
    selectors.policy()  # the two single rows exist: who makes one on demand holds up everybody else
    selectors.generation()


@pytest.fixture
def ap(transactional_db: None) -> AttachmentPoint:
    return AttachmentPointFactory(
        AS__as_id=parse_as_id("ffaa:0:1107"), host__public_ipv4="192.0.2.1", host__public_ipv6="2001:db8::1", vpn=True
    )


@pytest.fixture
def ap_b(transactional_db: None) -> AttachmentPoint:
    return AttachmentPointFactory(AS__as_id=parse_as_id("ffaa:0:1108"), host__public_ipv4="192.0.2.2")


@pytest.fixture
def links(owner: User, teammate: User, ap: AttachmentPoint) -> list[Link]:
    """Two people's Links at one attachment point."""
    made = (attach(owner, spec(ap)), attach(teammate, spec(ap, public_port=50001)))
    return [links_of(one)[0] for one in made]


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def versions(ap: AttachmentPoint) -> tuple[int, int]:
    """H and L of its host."""
    found = Host.objects.get(pk=ap.host_id)
    return found.config_version, found.limits_version


class Meeting:
    """Makes threads meet inside a function: each that arrives waits until `count` have, or until it is clear that the
    others cannot come, because a lock holds them. So a race that is possible does happen, and none is forced.
    """

    def __init__(self, count: int, patience_s: float) -> None:
        self._barrier = threading.Barrier(count)
        self._patience_s = patience_s
        self.met = False

    def wait(self) -> None:
        try:
            self._barrier.wait(timeout=self._patience_s)
            self.met = True
        except threading.BrokenBarrierError:
            return


Result = Any
AtOnce = Callable[..., list[Result]]
MeetIn = Callable[..., Meeting]


def failures(results: list[Result]) -> list[Exception]:
    return [one for one in results if isinstance(one, Exception)]


@pytest.fixture
def at_once() -> Iterator[AtOnce]:
    """Runs functions in threads of their own; the answer has each one's value or exception, in their order."""
    with ThreadPoolExecutor(max_workers=8) as pool:

        def run(*functions: Callable[[], Any]) -> list[Result]:
            started = threading.Barrier(len(functions))
            futures = [pool.submit(_alone, started, function) for function in functions]
            deadline = time.monotonic() + DEADLINE_S
            return [future.result(timeout=max(0.1, deadline - time.monotonic())) for future in futures]

        yield run


def _alone(started: threading.Barrier, function: Callable[[], Any]) -> Result:
    """With a connection of its own, which is closed, so that the test's database can be dropped."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '30s'")
        started.wait(timeout=DEADLINE_S)
        return function()
    except Exception as exc:
        return exc
    finally:
        connections.close_all()


@pytest.fixture
def meet_in(monkeypatch: pytest.MonkeyPatch) -> MeetIn:
    """`meet_in(module, "function")`: threads wait for each other right after that function has answered."""

    def patch(module: Any, name: str, *, count: int = 2, patience_s: float = 0.5) -> Meeting:
        meeting, original = Meeting(count, patience_s), getattr(module, name)

        def answered_and_waiting(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            meeting.wait()
            return answer

        monkeypatch.setattr(module, name, answered_and_waiting)
        return meeting

    return patch
