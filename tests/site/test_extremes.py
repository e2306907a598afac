"""Whatever a host says of itself, no page of anybody fails: each field of each document takes extremes, and after each
document that was stored every page is read by everybody whom it concerns."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
from django.core.cache import caches
from django.core.handlers.base import BaseHandler
from django.db import transaction
from django.utils import timezone
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.access import World, basic, site
from tests.support.extremes import (
    EXTREMES,
    REQUESTS,
    TIMES,
    failures,
    fitting,
    pages,
    places,
    readers,
    shared,
    value_at,
    with_value,
    world,
    written,
)

__all__ = ["readers", "site", "world"]  # the fixtures
pytestmark = pytest.mark.django_db


def side() -> dict[str, Any]:
    counters = {"bytes": 1200, "packets": 9, "drops": 3, "refused": 1, "dropped": 2, "backlog_bytes": 0}
    return {"dev": "slbw0", "rate_kbit": 640, **counters}


def documents(world: World) -> dict[str, dict[str, Any]]:
    """Of the attachment point, each as it is right, by the address that takes it."""
    host, now = world.ap_host, timezone.now()
    said = {"schema": 1, "agent_version": "0.1.0", "version": f"1.{host.config_version}"}
    link = {"kbit": 640, "to_user_kbit": 640, "from_user_kbit": 640, "state": "enforced", "problem": None}
    measured = {"segment": ["0f3a9c21deadbeef"], "rate_kbit": [640], "passed_bytes": [9], "passed_packets": [1]}
    measured |= {"dropped_bytes": [0], "dropped_packets": [0], "lost_packets": [0]}
    sampled = {"segment": "0f3a-boot", "rate_kbit": [640], "bytes": [9], "packets": [1], "drops": [0]}
    sampled |= {"backlog_bytes": [0]}
    rate = {"rate_kbit": 640, "passed_bytes": 9, "dropped_bytes": 0}
    return {
        "enforcement": {
            **said,
            "limits_version": host.limits_version,
            "observed_at": now.isoformat(),
            "writes": 0,
            "links": {"1": {**link, "to_user": side(), "from_user": side()}},
            "problems": [{"code": "foreign_device", "subject": "eth1", "message": "A root qdisc."}],
            "run": "0" * 32,
            "number": 7,
            "clock_skew_ms": 3,
            "total": {"wanted_kbit": 5000, "to_user_kbit": 5000, "from_user_kbit": None},
            "observe_only": False,
            "devices": ["eth0"],
            "tests": ["0" * 32],
            "sending_tests": "on",
            "test_kinds": ["udp"],
        },
        "usage": {
            **said,
            "batch": "0123456789abcdef0123456789abcdef",
            "times": [now.isoformat()],
            "links": {"1": {"to_user": sampled, "from_user": sampled}},
        },
        "live": {
            "schema": 1,
            "age_ms": 4,
            "links": {"1": {"over_ms": 1000, "in_force": True, "to_user": rate, "from_user": rate}},
        },
        "test_results": {
            **said,
            "test": world.objects["linktest"].test_id,
            "is_final": False,
            "times_ms": [int(world.objects["linktest"].begins_at.timestamp() * 1000) + 1],
            "clock_ms": [1],
            "in_force": [True],
            "to_user": measured,
            "from_user": measured,
        },
        "installed": {"host_id": host.uid, "url": "http://testserver", "version": 3, "files": {}, "systemd_units": []},
    }


# Of what a host says nothing is on these: signing in, forms without a Link, files of the SCION configuration.
OF_NO_HOST = ("account", "accounts", "mails", "register", "password", "login", "logout", "profile", "admin/auth")


def of_a_host() -> list[tuple[str, str]]:
    found = [one for one in pages() if not one[0].startswith(OF_NO_HOST)]
    return [one for one in found if not one[0].endswith(("/delete/", "/history/", "/password/", "/jsi18n/"))]


def post(site: BaseHandler, world: World, door: str, body: bytes) -> Any:
    host = world.ap_host
    headers = {"Authorization": basic(host, host.secret)}
    url = f"/api/v4/host/{host.uid}/{door}"
    return site.get_response(REQUESTS.post(url, body, content_type="application/json", headers=headers))


DOORS = ("enforcement", "usage", "live", "test_results", "installed")
STORED = {200, 409}  # 409: noted as another service's
Accepted = dict[tuple[Any, ...], list[Any]]


@pytest.fixture(scope="module")
def accepted(world: World, readers: list[tuple[World, str]], site: BaseHandler) -> Callable[[str], Accepted]:
    """By place of a door's document, the extremes that the service takes there, alone; each is answered."""

    @cache
    def of(door: str) -> Accepted:
        right = documents(world)[door]
        found: Accepted = {}
        for place in places(right):
            for value in fitting(EXTREMES, value_at(right, place)):
                with transaction.atomic():
                    answer = post(site, world, door, written(with_value(right, place, value)))
                    assert answer.status_code in {*STORED, 400, 413}, (place, value, answer.content)
                    transaction.set_rollback(True)
                if answer.status_code in STORED:
                    found.setdefault(place, []).append(value)
        return found

    return of


def test_right_documents_are_stored_and_every_page_is_read(
    world: World, readers: list[tuple[World, str]], site: BaseHandler
) -> None:
    with transaction.atomic():
        for door in DOORS:
            answer = post(site, world, door, written(documents(world)[door]))
            assert answer.status_code == (409 if door == "installed" else 200), answer.content
        assert failures(site, readers, of_a_host()) == []
        transaction.set_rollback(True)


@pytest.mark.long
@pytest.mark.parametrize("door", shared(DOORS, "extreme documents"))
def test_no_document_of_a_host_makes_a_page_fail(
    door: str,
    accepted: Callable[[str], Accepted],
    world: World,
    readers: list[tuple[World, str]],
    site: BaseHandler,
) -> None:
    """Many fields are extreme at once; what does not go together with those before stays as it was."""
    taken = accepted(door)

    @settings(max_examples=5, derandomize=True, phases=[Phase.generate], deadline=None)
    @given(st.integers(0, 10**9))
    def check(seed: int) -> None:
        choose, document = Random(seed), documents(world)[door]  # noqa: S311  reproducible
        caches["live"].clear()
        with transaction.atomic():
            for place in choose.sample(sorted(taken, key=str), k=len(taken)):
                try:
                    tried = with_value(document, place, choose.choice(taken[place]))
                except (KeyError, IndexError, TypeError):  # what is around it was replaced
                    continue
                with transaction.atomic():
                    is_stored = post(site, world, door, written(tried)).status_code in STORED
                    transaction.set_rollback(True)
                document = tried if is_stored else document
            assert post(site, world, door, written(document)).status_code in STORED
            assert failures(site, readers, of_a_host()) == []
            transaction.set_rollback(True)

    check()


@pytest.mark.parametrize("observed_at", [*TIMES, "10000-01-01T00:00:00Z"])
def test_time_that_no_clock_says_is_refused_with_value_and_bounds(
    observed_at: str, world: World, site: BaseHandler
) -> None:
    with transaction.atomic():
        said = documents(world)["enforcement"] | {"observed_at": observed_at}
        said["links"]["1"]["to_user"]["bytes"] = 1201
        answer = post(site, world, "enforcement", written(said))
        assert answer.status_code == 400
        (told,) = json.loads(answer.content)["fields"]["observed_at"]
        assert observed_at in told["message"]
        assert str(timezone.now().year - 10) in told["message"]
        transaction.set_rollback(True)
