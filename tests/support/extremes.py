"""Values that no honest program sends, where in a document they go, and everybody who reads the pages afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.test import RequestFactory
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from scionlab.linktests.models import LinkTest
from scionlab.testbed.models import Link
from tests.factories import UserFactory, attach, spec
from tests.site.test_access_matrix import urls_of
from tests.support.access import World, addresses, build_world, session_of, undone

REQUESTS = RequestFactory()

TIMES = (
    "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+23:59",
    "0001-01-02T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "2262-04-11T23:47:17Z",
    "2026-11-28T06:00:00",
    "2026-11-28T06:00:00+24:00",
    "24:00",
)
NUMBERS = (0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**60, 2**63 - 1, 2**63, 2**64, 10**4000, -(10**400), True, 0.5)
TEXTS = ("", "\0", "\ud800", "\udfff\ud800", "a" * 2000, "a" * 2001, "a" * 100_000, "\u202e", "<script>", "%s{0}")
SHAPES: tuple[Any, ...] = (None, [], {}, [None] * 5000, {"\0": 1}, {"1": {}}, {"4095": None}, {"x" * 5000: 1})
MARK = "written as it is: "  # a text that begins so is sent without its quotes
RAW = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1E-400", "9" * 5000, "[" * 900 + "]" * 900, "[" * 99_999)
EXTREMES = (*TIMES, *NUMBERS, *TEXTS, *SHAPES, *(MARK + raw for raw in RAW))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every value in the document, itself included."""
    yield path
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, (*path, key))


def value_at(document: Any, path: tuple[Any, ...]) -> Any:
    return reduce(getitem, path, document)


def fitting(values: Sequence[Any], right: Any) -> list[Any]:
    """Those to try in the place of this right value: where no time, or no number, stands, one of these is as wrong as
    all."""
    is_time = right is None or (isinstance(right, str) and bool(re.match(r"\d{4}-\d\d-\d\dT", right)))
    is_number = right is None or isinstance(right, int | float)

    def says_more(value: Any) -> bool:
        if isinstance(value, str):
            return is_time or value not in TIMES[1:]
        return is_number or value is NUMBERS[0] or not isinstance(value, int | float)

    return [one for one in values if says_more(one)]


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = dict(document) if isinstance(document, dict) else list(document)
    changed[path[0]] = with_value(document[path[0]], path[1:], value)
    return changed


def written(document: Any) -> bytes:
    marked = re.compile(rf'"{MARK}(?:[^"\\]|\\.)*"')
    return marked.sub(lambda found: json.loads(found[0])[len(MARK) :], json.dumps(document)).encode()


def shared(values: Iterable[Any], name: str) -> list[Any]:
    """Parameters of a test that takes minutes, for up to four processes: each makes the world of its own."""
    return [
        pytest.param(one, marks=pytest.mark.xdist_group(f"{name} {number % 4}")) for number, one in enumerate(values)
    ]


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Two minutes after the beginning of a test of the owner's Link."""
    with undone(django_db_blocker):
        built = build_world()
        began = timezone.now() - timedelta(minutes=2)
        LinkTest.objects.update(begins_at=began, ends_at=began + timedelta(minutes=1))
        yield built


@pytest.fixture(scope="module")
def readers(world: World) -> list[tuple[World, str]]:
    """What belongs to the owner, to a neighbour at the same attachment point, and to nobody: with the session of each,
    and at last of an administrator."""
    neighbour = UserFactory(email="neighbour@example.org")
    user_as = attach(neighbour, spec(world.objects["attachmentpoint"], public_ip="198.51.100.44"), label="Next door")
    world.ap_host.refresh_from_db()
    world.objects["linktest"].refresh_from_db()
    other = replace(world, owner=neighbour, user_as=user_as, link=Link.objects.get(interface_b__AS=user_as.pk))
    return [
        (one, session_of(person))
        for one, person in ((world, world.owner), (other, neighbour), (world, world.administrator))
    ]


def pages() -> list[tuple[str, str]]:
    """(route, name) of all that a person reads; hosts' addresses are not among them."""
    return [one for one in addresses() if "<str:uid>" not in one[0]]


OF_STAFF = ("admin/", "cockpit/")


def failures(site: BaseHandler, readers: list[tuple[World, str]], read: list[tuple[str, str]]) -> list[str]:
    """Those pages of `read` that fail, of every reader. From those of administrators the others are sent away."""
    wrong = []
    for world, session in readers:
        for route, name in read:
            if route.startswith(OF_STAFF) and session != readers[-1][1]:
                continue
            ((url, _),) = urls_of(route, name, world)
            answer = site.get_response(REQUESTS.get(url, headers={"Cookie": f"sessionid={session}"}))
            for _ in answer if answer.streaming else ():
                pass
            if answer.status_code >= 500:
                wrong.append(f"{answer.status_code} {url}")
    return wrong
